"""The states of a member of a group in which the broker assigns, and what it may hold in them."""

import pytest

from zkconsumer.group.consumer.rules.membership import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    ConsumerMembership,
    IdPartition,
)
from zkconsumer.group.kafka.rules.membership import MembershipState
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.commitidentity import NO_MEMBER, CommitIdentity

THREAD = ConsumerThreadId("g_a", 0)
TOPICS = ("t",)


def ids(*numbers, topic_id="id"):
    return frozenset(IdPartition(topic_id, number) for number in numbers)


def parts(*numbers):
    return frozenset(TopicPartition("t", number) for number in numbers)


def share(*numbers):
    return dict.fromkeys(parts(*numbers), THREAD)


def beat(member, epoch, target=None):
    """A heartbeat that is answered."""
    sent = member.beat(TOPICS)
    assert member.answered(sent, epoch, target)
    return sent


@pytest.fixture
def member():
    """It holds partitions 0 and 1 in epoch 1, as the coordinator knows."""
    one = ConsumerMembership("m")
    one.name_topics({"t": "id"})
    one.begin()
    beat(one, 1, ids(0, 1))
    assert one.acquire(share(0, 1))
    beat(one, 1)
    return one


def test_a_member_joins_in_epoch_0_with_all_fields():
    one = ConsumerMembership("m", "i")
    assert one.beat(TOPICS) is None
    assert one.identity == NO_MEMBER
    one.begin()
    assert one.usable() is None
    assert one.beat(TOPICS) == (CommitIdentity("m", JOINING, "i"), True, TOPICS, frozenset())
    assert not one.in_group
    assert not one.revokes
    assert one.generation == -1


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


def test_the_generation_is_the_epoch(member):
    beat(member, 7)
    assert member.generation == 7


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


def test_a_removed_member_is_not_known_unless_that_is_said(member):
    member.fence()
    assert member.leave() is None


def test_an_answer_makes_it_stable_and_gives_partitions_whose_topic_is_known():
    one = ConsumerMembership("m")
    one.begin()
    beat(one, 1, ids(0, 1))
    assert (one.state, one.identity, one.in_group) == (MembershipState.STABLE, CommitIdentity("m", 1), True)
    assert one.usable() == frozenset()
    assert one.has_unnamed()
    assert one.name_topics({"t": "id"})
    assert one.usable() == parts(0, 1)
    assert not one.name_topics({"t": "id"})


def test_fields_that_the_coordinator_knows_are_not_repeated(member):
    assert beat(member, 1)[1:] == (False, None, None)
    assert member.beat(("t", "u")).topics == ("t", "u")


def test_all_fields_are_repeated_after_a_lost_answer(member):
    member.beat(TOPICS)
    member.unanswered()
    assert beat(member, 2)[1:] == (True, TOPICS, ids(0, 1))
    assert member.beat(TOPICS)[1:] == (False, None, None)


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
    one = ConsumerMembership("m")
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
    assert member.answered(sent, 1, None)
    assert member.acquire(share(0, 1))


def test_a_lost_answer_limits_what_is_acquired_until_the_next_one(member):
    member.release(parts(1))
    member.beat(TOPICS)
    member.unanswered()
    assert member.usable() == parts(0)
    beat(member, 2, ids(0, 1))
    assert member.usable() == parts(0, 1)


def test_a_heartbeat_that_reports_nothing_new_limits_nothing():
    one = ConsumerMembership("m")
    one.name_topics({"t": "id"})
    one.begin()
    beat(one, 1, ids(0))
    one.beat(TOPICS)
    assert one.acquire(share(0))


def test_nothing_but_the_target_can_be_acquired(member):
    assert not member.acquire(share(0, 2))
    assert member.held == share(0, 1)


def test_partitions_of_a_topic_that_was_created_again_are_released_before_the_new_ones_are_acquired(member):
    assert member.name_topics({"t": "new"})
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
    assert not member.name_topics({})
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
    assert not member.answered(sent, 2, ids(0)), "of the former membership"
    assert member.beat(TOPICS) == (CommitIdentity("m", JOINING), True, TOPICS, frozenset())


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, LEAVING), ("i", LEAVING_FOR_A_WHILE)])
def test_a_member_leaves_for_good_and_a_static_one_for_a_while(instance_id, epoch):
    one = ConsumerMembership("m", instance_id)
    one.begin()
    one.beat(TOPICS)  # the coordinator may have it, without an answer
    assert one.leave() == CommitIdentity("m", epoch, instance_id)
    assert one.leave() is None


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("keeps_id", [False, True])
def test_a_removed_member_leaves_if_the_coordinator_knows_its_id(keeps_id, lost):
    """Otherwise the other members wait for its session timeout."""
    one = ConsumerMembership("m")
    one.begin()
    one.beat(TOPICS)
    one.fence(keeps_id=keeps_id)
    if lost:
        one.lose()
    assert one.leave() == (CommitIdentity("m", LEAVING) if keeps_id else None)


def test_a_member_that_has_not_joined_leaves_nothing():
    one = ConsumerMembership("m")
    one.begin()
    assert one.leave() is None
    one.lose()
    assert one.state is MembershipState.LEAVING
