"""The states of a member of a group in which the broker assigns, and what it may hold in them."""

import pytest

from zkconsumer.errors import InstanceIdInUse, ProtocolError
from zkconsumer.group.consumer.rules.epochmember import JOINING, LEAVING, LEAVING_FOR_A_WHILE, EpochMember, IdPartition
from zkconsumer.group.kafka.rules.brokerlease import BrokerLease
from zkconsumer.group.kafka.rules.groupmembership import MembershipState
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.commitfence import NO_MEMBER, CommitIdentity

THREAD = ConsumerThreadId("g_a", 0)
TOPICS = ("t",)
SESSION_S, REBALANCE_S = 10, 100


def make(instance_id=None):
    """A member that has not joined."""
    return EpochMember(member_id="m", instance_id=instance_id, lease=BrokerLease(SESSION_S, REBALANCE_S))


def ids(*numbers, topic_id="id"):
    return frozenset(IdPartition(topic_id, number) for number in numbers)


def parts(*numbers):
    return frozenset(TopicPartition("t", number) for number in numbers)


def share(*numbers):
    return dict.fromkeys(parts(*numbers), THREAD)


def beat(member, epoch, target=None, sent=0.0):
    """A heartbeat that is answered."""
    one = member.beat(TOPICS)
    assert member.answered(one, epoch, target, sent)
    return one


def take_news(member):
    news, member.has_news = member.has_news, False
    return news


@pytest.fixture
def member():
    """It holds partitions 0 and 1 in epoch 1, as the coordinator knows."""
    one = make()
    one.name_topics({"t": "id"})
    one.begin()
    beat(one, 1, ids(0, 1))
    assert one.acquire(share(0, 1))
    beat(one, 1)
    return one


def test_a_member_joins_in_epoch_0_with_all_fields():
    one = make("i")
    assert one.beat(TOPICS) is None
    assert one.identity == NO_MEMBER
    one.begin()
    assert one.usable() is None
    assert one.beat(TOPICS) == (CommitIdentity("m", JOINING, "i"), True, TOPICS, frozenset(), "")
    assert not one.in_group
    assert not one.revokes


def test_epochs_of_heartbeats_are_those_of_the_protocol():
    assert (JOINING, LEAVING, LEAVING_FOR_A_WHILE) == (0, -1, -2)


def test_nothing_has_to_be_released_before_the_target_is_known(member):
    assert not member.must_release()


def test_release_reports_when_nothing_is_held(member):
    assert not member.release(parts(1))
    assert member.release(parts(0))


def test_the_same_target_again_revokes_nothing(member):
    beat(member, 1, ids(0, 1))
    assert not member.revokes


def test_a_loss_ends_a_revocation(member):
    beat(member, 1, ids(0))
    assert member.revokes
    member.lose()
    assert not member.revokes


def test_a_topic_has_the_id_with_which_it_is_held(member):
    assert member.topic_ids() == {"t": "id"}
    member.name_topics({"t": "new", "u": "other"})
    assert member.topic_ids() == {"t": "id", "u": "other"}
    member.release(parts(0, 1))
    assert member.topic_ids() == {"t": "new", "u": "other"}


def test_a_target_is_named_when_all_its_topics_are(member):
    beat(member, 1, ids(0, 1) | ids(0, topic_id="other"))
    assert member.has_unnamed()
    member.name_topics({"u": "other"})
    assert not member.has_unnamed()


def test_each_assignment_is_a_view(member):
    views = member.views
    beat(member, 2)
    assert member.views == views
    beat(member, 3, ids(0))
    assert member.views == views + 1


def test_topics_are_read_until_all_of_the_target_are_named(member):
    member.take_topics_change()
    beat(member, 2, ids(0))
    assert not member.topics_changed
    beat(member, 3, ids(0, topic_id="other"))
    assert member.topics_changed


def test_a_removed_member_is_not_known_unless_that_is_said(member):
    member.fence()
    member.leave()
    assert member.leaving is None


def test_an_answer_makes_it_stable_and_gives_partitions_whose_topic_is_known():
    one = make()
    one.begin()
    beat(one, 1, ids(0, 1))
    assert (one.state, one.identity, one.in_group) == (MembershipState.STABLE, CommitIdentity("m", 1), True)
    assert one.usable() == frozenset()
    assert one.has_unnamed()
    take_news(one)
    one.name_topics({"t": "id"})
    assert take_news(one)
    assert one.usable() == parts(0, 1)
    one.name_topics({"t": "id"})
    assert not take_news(one)


def test_fields_that_the_coordinator_knows_are_not_repeated(member):
    assert beat(member, 1)[1:] == (False, None, None, None)
    assert member.beat(("t", "u")).topics == ("t", "u")


def test_all_fields_are_repeated_after_a_lost_answer(member):
    member.beat(TOPICS)
    member.unanswered()
    assert beat(member, 2)[1:] == (True, TOPICS, ids(0, 1), "")
    assert member.beat(TOPICS)[1:] == (False, None, None, None)


def test_names_that_a_regex_selects_are_sent_with_the_regex_and_not_for_each_topic_that_is_created(member):
    def sent(topics, regex):
        one = member.beat(topics, regex)
        assert member.answered(one, 1, None, 0.0)
        return one.topics, one.regex

    assert sent(("t",), "t.*") == (None, "t.*")
    assert sent(("t", "tu"), "t.*") == (None, None)
    assert sent(("t", "tu"), "tu?") == (("t", "tu"), "tu?")
    assert sent(("t",), "") == (("t",), "")
    assert sent(("t", "u"), "") == (("t", "u"), None)


def test_after_a_lost_answer_a_regex_is_sent_with_the_names_that_it_selects_now(member):
    member.beat(TOPICS, "t.*")
    member.unanswered()
    again = member.beat(("t", "tu"), "t.*")
    assert (again.topics, again.regex) == (("t", "tu"), "t.*")


def test_a_revoked_partition_is_reported_when_it_is_released(member):
    beat(member, 1, ids(0))
    assert member.usable() == parts(0)
    assert member.revokes
    assert not member.must_report()
    assert beat(member, 1).owned is None
    member.release(parts(1))
    assert member.must_report()
    assert beat(member, 2, ids(0, 2)).owned == ids(0)
    assert not member.must_report()
    assert not member.revokes
    assert member.usable() == parts(0, 2)


def test_a_revocation_of_what_was_never_acquired_is_reported_too():
    one = make()
    one.name_topics({"t": "id"})
    one.begin()
    beat(one, 1, ids(0, 1))
    beat(one, 1, ids(0))
    assert one.must_report()
    assert beat(one, 2).owned == frozenset()
    assert not one.must_report()


def test_nothing_is_acquired_that_a_heartbeat_in_progress_has_not_reported(member):
    member.release(parts(1))
    sent = member.beat(TOPICS)
    assert sent.owned == ids(0)
    assert member.usable() == parts(0)
    assert not member.acquire(share(0, 1)), "the coordinator may have given partition 1 to another member"
    assert member.answered(sent, 1, None, 0)
    assert member.acquire(share(0, 1))


def test_a_lost_answer_limits_what_is_acquired_until_the_next_one(member):
    member.release(parts(1))
    member.beat(TOPICS)
    member.unanswered()
    assert member.usable() == parts(0)
    beat(member, 2, ids(0, 1))
    assert member.usable() == parts(0, 1)


def test_a_heartbeat_that_reports_nothing_new_limits_nothing():
    one = make()
    one.name_topics({"t": "id"})
    one.begin()
    beat(one, 1, ids(0))
    one.beat(TOPICS)
    assert one.acquire(share(0))


def test_nothing_but_the_target_can_be_acquired(member):
    assert not member.acquire(share(0, 2))
    assert member.held == share(0, 1)


def test_partitions_of_a_topic_that_was_created_again_are_released_before_the_new_ones_are_acquired(member):
    take_news(member)
    member.name_topics({"t": "new"})
    assert take_news(member)
    assert member.usable() == frozenset()
    beat(member, 1, ids(0, 2, topic_id="new"))
    assert member.usable() == parts(0, 2)
    assert not member.acquire(share(0)), "held of the former topic"
    assert not member.acquire(share(0, 2)), "one of them is"
    member.release(parts(0, 1))
    assert member.must_report()
    assert beat(member, 2).owned == frozenset()
    assert member.acquire(share(0))
    assert beat(member, 2).owned == ids(0, topic_id="new")


def test_a_topic_that_a_broker_does_not_know_any_more_is_kept(member):
    take_news(member)
    member.name_topics({})
    assert not take_news(member)
    assert member.usable() == parts(0, 1)


def test_a_removed_member_owns_nothing_and_joins_with_the_same_id(member):
    sent = member.beat(TOPICS)
    member.fence()
    assert member.state is MembershipState.FENCED
    assert not member.acquire(share(0, 1))
    assert member.beat(TOPICS) is None
    member.lose()
    assert (member.state, member.held, member.identity) == (MembershipState.UNJOINED, {}, NO_MEMBER)
    member.begin()
    assert not member.answered(sent, 2, ids(0), 0), "of the former membership"
    assert member.beat(TOPICS) == (CommitIdentity("m", JOINING), True, TOPICS, frozenset(), "")


def begun_again(instance_id=None):
    """A member that was removed while it joined, and has begun again; and the heartbeat that is not answered yet."""
    one = make(instance_id)
    one.begin()
    sent = one.beat(TOPICS)
    one.lose()
    one.begin()
    take_news(one)
    return one, sent


def test_a_late_answer_is_not_one_to_the_next_membership():
    """Both heartbeats have epoch 0."""
    one, sent = begun_again()
    assert not one.answered(sent, 1, ids(0), 5)
    assert (one.state, one.usable(), one.lease.is_confirmed) == (MembershipState.REBALANCING, None, False)


@pytest.mark.parametrize("keeps_id", [False, True])
def test_a_late_refusal_does_not_remove_the_next_membership(keeps_id):
    one, _ = begun_again()
    assert not one.refused(keeps_id=keeps_id)
    assert (one.state, take_news(one)) == (MembershipState.REBALANCING, False)


def test_a_late_answer_that_another_client_has_the_instance_id_ends_the_next_membership_too():
    one, _ = begun_again("i")
    assert one.refused(keeps_id=False, stopped=InstanceIdInUse("another one"))
    assert one.state is MembershipState.FENCED
    one.lose()
    with pytest.raises(InstanceIdInUse):
        one.begin()


def test_a_refused_commit_removes_the_member_that_it_named(member):
    before = CommitIdentity(member.identity.member_id, member.identity.generation - 1)
    assert not member.removed(before, keeps_id=True)
    assert member.removed(member.identity, keeps_id=True)
    assert (member.state, take_news(member)) == (MembershipState.FENCED, True)


def test_a_release_may_wait_until_the_heartbeat_that_reports_the_rebalance(member):
    before = member.lease.release_s
    member.interval_read(before / 4)
    assert member.lease.release_s == before * 3 / 4
    member.interval_read(2 * before)
    assert member.lease.release_s == 0


@pytest.mark.parametrize("keeps_id", [False, True])
def test_a_refused_heartbeat_removes_the_member(member, keeps_id):
    member.beat(TOPICS)
    assert member.refused(keeps_id=keeps_id)
    assert member.state is MembershipState.FENCED
    member.leave()
    assert (member.leaving is not None) is keeps_id


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, LEAVING), ("i", LEAVING_FOR_A_WHILE)])
def test_a_member_leaves_for_good_and_a_static_one_for_a_while(instance_id, epoch):
    one = make(instance_id)
    one.begin()
    one.beat(TOPICS)  # the coordinator may have it, without an answer
    one.leave()
    assert one.leaving == CommitIdentity("m", epoch, instance_id)
    one.leave()
    assert one.leaving == CommitIdentity("m", epoch, instance_id)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("keeps_id", [False, True])
def test_a_removed_member_leaves_if_the_coordinator_knows_its_id(keeps_id, lost):
    """Otherwise the other members wait for its session timeout."""
    one = make()
    one.begin()
    one.beat(TOPICS)
    one.fence(keeps_id=keeps_id)
    if lost:
        one.lose()
    one.leave()
    assert one.leaving == (CommitIdentity("m", LEAVING) if keeps_id else None)


def test_a_member_that_has_not_joined_leaves_nothing():
    one = make()
    one.begin()
    one.leave()
    assert one.leaving is None
    one.lose()
    assert one.state is MembershipState.LEAVING


# -- the lease ---------------------------------------------------------------------------------------------------------


def test_the_lease_counts_from_when_the_answered_heartbeat_was_sent(member):
    assert make().term.holds(1e9), "there is nothing to lose"
    beat(member, 1, sent=5)
    assert (member.term.holds(12.9), member.term.holds(13)) == (True, False)


def test_while_it_revokes_heartbeats_do_not_extend_the_lease_past_the_rebalance_timeout(member):
    beat(member, 1, sent=1)
    beat(member, 1, ids(0), sent=75)
    assert member.term.until == 81, "0.8 of 100 s after the last answer that revoked nothing"
    beat(member, 1, sent=80)
    assert member.term.until == 81
    member.release(parts(1))
    beat(member, 2, sent=82)
    assert member.term.until == 90


@pytest.mark.parametrize(("session_s", "until"), [(5, 4 + 1), (1000, 80 + 1)])
def test_the_lease_is_that_of_the_shorter_one_of_both_timeouts(member, session_s, until):
    member.session_timeout_read(session_s)
    beat(member, 1, sent=1)
    assert member.term.until == until


def test_a_late_answer_to_an_earlier_membership_extends_nothing(member):
    sent = member.beat(TOPICS)
    member.fence()
    assert not member.answered(sent, 1, None, 5)
    assert not member.term.holds(6)


# -- what other threads are notified of --------------------------------------------------------------------------------


def test_only_news_is_told(member):
    take_news(member)
    beat(member, 1)
    assert not take_news(member)
    beat(member, 1, ids(0))
    assert take_news(member)
    member.release(parts(1))
    assert not take_news(member)
    beat(member, 1)
    assert take_news(member), "what may be acquired was limited until this answer"
    member.failed(ProtocolError("refused"))
    assert not take_news(member), "it is a member"
    member.fence()
    assert take_news(member)
    member.lose()
    member.begin()
    member.failed(ProtocolError("refused"))
    assert take_news(member), "the rebalance thread waits for the outcome"


def test_a_failure_is_over_with_the_next_answer(member):
    member.failed(ProtocolError("refused"))
    assert isinstance(member.failure, ProtocolError)
    assert beat(member, 1)[1:] == (True, TOPICS, ids(0, 1), ""), "the coordinator may not know any of it"
    assert member.failure is None


def test_a_release_and_the_wish_to_join_do_not_wait_for_the_next_heartbeat(member):
    member.take_topics_change()
    beat(member, 1, ids(0))
    assert not member.has_work()
    member.release(parts(1))
    assert (member.is_urgent(), member.has_work()) == (True, True)
    member.fence()
    member.lose()
    assert not member.has_work()
    member.begin()
    assert (member.is_urgent(), member.has_work()) == (True, True)


def test_topics_are_read_before_joining_when_they_have_changed_and_while_one_has_no_name():
    one = make()
    one.name_topics({"t": "id"})
    assert not one.take_topics_change()
    one.begin()
    assert one.take_topics_change()
    assert one.take_topics_change(), "before each attempt to join"
    beat(one, 1, ids(0))
    assert not one.take_topics_change()
    one.topics_changed = True
    assert one.has_work()
    assert one.take_topics_change()
    beat(one, 1, ids(0, topic_id="another"))
    assert one.has_work()
    assert one.take_topics_change()


def test_assignments_are_counted(member):
    assert member.views == 1
    beat(member, 1)
    beat(member, 1, ids(0))
    assert member.views == 2
