"""The states of a member of a broker-coordinated group, and what it may hold in them."""

from math import inf

import pytest

from zkconsumer.errors import InstanceIdInUse, RebalanceAwaited
from zkconsumer.group.kafka.rules.brokerlease import BrokerLease
from zkconsumer.group.kafka.rules.generationmember import Assigned, Beat, GenerationMember, JoinStep
from zkconsumer.group.kafka.rules.groupmembership import MembershipState
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.commitfence import CommitIdentity

THREAD = ConsumerThreadId("g_a", 0)
SESSION_S, REBALANCE_S = 10, 100


def make(*, cooperative, instance_id=None):
    """A member that has not joined."""
    return GenerationMember(cooperative, instance_id=instance_id, lease=BrokerLease(SESSION_S, REBALANCE_S))


def joined(member, generation):
    """JoinGroup is answered."""
    member.joined("m", generation, REBALANCE_S)


def synchronised(member, generation, *numbers, sent=0.0):
    """SyncGroup is answered half a second after it was sent."""
    return member.synchronised(Assigned(generation, parts(*numbers)), sent, sent + 0.5)


def rebalance_begun(member, sent=0.0):
    """A heartbeat is answered with REBALANCE_IN_PROGRESS."""
    member.rebalance_begun(Beat(member.identity, member.step), sent)


def parts(*numbers):
    return frozenset(TopicPartition("t", number) for number in numbers)


def share(*numbers):
    return dict.fromkeys(parts(*numbers), THREAD)


def assign(member, generation, *numbers):
    """Let it join, and give it these partitions."""
    intent = member.join()
    joined(member, generation)
    assert synchronised(member, generation, *numbers)
    member.join_ended()
    return intent


@pytest.fixture(params=[False, True], ids=["eager", "cooperative"])
def member(request):
    """A member that owns partitions 0 and 1 in generation 1."""
    one = make(cooperative=request.param)
    one.begin()
    assign(one, 1, 0, 1)
    assert one.acquire(share(0, 1))
    return one


def test_a_release_ends_within_the_timeout_of_the_joined_group():
    """Brokers before 0.10.1 know the session timeout only, which is shorter than what the member has asked for."""
    one = make(cooperative=True)
    one.begin()
    one.join()
    before = one.lease.release_s
    one.joined("m", 1, 5)
    assert (one.lease.release_s, before > 4) == (4, True)


def _in_state(state):
    """A cooperative member in a state; one that has left or was removed had been stable."""
    one = make(cooperative=True)
    if state is MembershipState.UNJOINED:
        return one
    one.begin()
    if state is MembershipState.REBALANCING:
        one.join()
        joined(one, 1)
        return one
    assign(one, 1, 0, 1)
    if state is MembershipState.LEAVING:
        one.leave()
    elif state is MembershipState.FENCED:
        one.fence()
    return one


_EVENTS = {
    "begin": GenerationMember.begin,
    "synchronised": lambda one: synchronised(one, 1, 0),
    "join ended": GenerationMember.join_ended,
    "refused": lambda one: one.refused(keeps_id=False),
    "rebalance begun": rebalance_begun,
    "join again": GenerationMember.join_again,
    "fence": GenerationMember.fence,
    "lose": GenerationMember.lose,
    "leave": GenerationMember.leave,
}
_UNJOINED, _REBALANCING, _STABLE, _LEAVING, _FENCED = MembershipState
_CHANGES = {
    (_UNJOINED, "begin"): _REBALANCING,
    (_REBALANCING, "synchronised"): _STABLE,
    (_STABLE, "rebalance begun"): _REBALANCING,
    (_STABLE, "join again"): _REBALANCING,
    **{(state, event): _FENCED for state in (_REBALANCING, _STABLE) for event in ("fence", "refused")},
    **{(state, "lose"): _UNJOINED for state in (_UNJOINED, _REBALANCING, _STABLE, _FENCED)},
    **{(state, "leave"): _LEAVING for state in MembershipState},
}


@pytest.mark.parametrize("event", _EVENTS)
@pytest.mark.parametrize("state", MembershipState)
def test_every_event_in_every_state(state, event):
    one = _in_state(state)
    assert one.state is state
    _EVENTS[event](one)
    assert one.state is _CHANGES.get((state, event), state)


def joining(step):
    """A member that has sent a request of this step, if any, and is removed before the answer; it has begun again."""
    one = make(cooperative=True)
    one.begin()
    if step is not JoinStep.NONE:
        one.join()
    if step is JoinStep.SYNC_GROUP:
        joined(one, 1)
    one.fence()
    assert one.step is step
    one.lose()
    one.begin()
    one.has_news = False
    return one


REQUESTS = [JoinStep.JOIN_GROUP, JoinStep.SYNC_GROUP]


@pytest.mark.parametrize("step", REQUESTS)
def test_a_removed_member_joins_again_when_its_last_request_is_answered(step):
    one = joining(step)
    assert (one.step, one.may_join()) == (JoinStep.FORMER, False)
    one.join_ended()
    assert (one.step, one.may_join()) == (JoinStep.NONE, True)


def test_a_removed_member_without_a_request_joins_again_at_once():
    assert joining(JoinStep.NONE).may_join()


@pytest.mark.parametrize("step", REQUESTS)
@pytest.mark.parametrize(
    "late",
    [
        lambda one: one.joined("m", 1, 5),
        lambda one: synchronised(one, 1, 0),
        lambda one: one.refused(keeps_id=False),
        lambda one: one.refused(keeps_id=True),
    ],
    ids=["joined", "synchronised", "removed", "known"],
)
def test_a_late_answer_changes_nothing_of_the_next_membership(step, late):
    one = joining(step)
    assert not late(one)
    assert (one.state, one.usable(), one.has_news) == (MembershipState.REBALANCING, None, False)
    assert (one.identity, one.lease) == (CommitIdentity(), BrokerLease(SESSION_S, REBALANCE_S))
    one.join_ended()
    assert one.join().member_id == ""


@pytest.mark.parametrize("step", REQUESTS)
def test_a_late_answer_that_another_client_has_the_instance_id_ends_the_next_membership_too(step):
    one = joining(step)
    one.refused(keeps_id=False, stopped=InstanceIdInUse("another one"))
    assert one.state is MembershipState.FENCED
    one.lose()
    with pytest.raises(InstanceIdInUse):
        one.begin()


@pytest.mark.parametrize("keeps_id", [False, True])
def test_a_refused_request_to_join_removes_the_member(member, keeps_id):
    member.release(parts(0, 1))
    member.join_again()
    member.join()
    member.refused(keeps_id=keeps_id)
    assert member.state is MembershipState.FENCED
    member.join_ended()
    member.lose()
    assert member.member_id == ("m" if keeps_id else "")


def test_each_answer_ends_the_step_of_its_request():
    one = make(cooperative=True)
    one.begin()
    one.join()
    joined(one, 1)
    assert one.step is JoinStep.SYNC_GROUP
    synchronised(one, 1, 0)
    assert (one.step, one.state) == (JoinStep.NONE, MembershipState.STABLE)
    one.leave()
    joined(one, 2)
    assert one.step is JoinStep.NONE, "of a member that has left"


def test_a_new_member_joins_when_it_begins():
    one = make(cooperative=False)
    assert (one.state, one.may_join()) == (MembershipState.UNJOINED, False)
    one.begin()
    assert (one.state, one.may_join()) == (MembershipState.REBALANCING, True)
    assert one.join() == ("", -1, frozenset(), frozenset())
    assert not one.may_join()


def test_the_id_that_a_coordinator_requires_is_used_for_the_next_attempt():
    one = make(cooperative=False)
    one.begin()
    one.join()
    one.id_given("m")
    one.join_ended()
    assert one.join().member_id == "m"


def test_only_an_id_that_the_coordinator_knows_outlasts_a_loss():
    one = make(cooperative=False)
    one.begin()
    one.join()
    one.id_given("m")
    one.join_ended()
    one.lose()
    assert one.member_id == ""
    one.begin()
    assign(one, 1, 0)
    one.fence(keeps_id=True)
    one.lose()
    assert one.member_id == "m"
    one.lose()
    assert one.member_id == "", "it was kept for one attempt"


def test_a_member_is_in_the_group_from_its_first_generation_on():
    one = make(cooperative=True)
    assert (one.has_news, one.assigned_at) == (False, -inf)
    one.begin()
    assert not one.in_group
    assign(one, 0, 0)
    assert one.in_group
    assert one.term.until == one.lease.deadline


def test_an_assignment_makes_it_stable(member):
    assert (member.state, member.identity) == (MembershipState.STABLE, CommitIdentity("m", 1))
    assert not member.may_join()


def test_nothing_but_the_assignment_can_be_acquired(member):
    assert not member.acquire(share(0, 1, 2))
    assert member.held == share(0, 1)


def test_an_eager_member_joins_when_it_has_released_everything():
    one = make(cooperative=False)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0, 1))
    rebalance_begun(one)
    assert (one.must_release(), one.usable(), one.may_join()) == (True, None, False)
    assert not one.release(parts(0))
    assert not one.may_join()
    assert one.release(parts(1))
    assert not one.acquire(share(0, 1)), "the assignment has ended with the rebalance"
    assert one.may_join()
    assert one.join() == ("m", 1, frozenset(), parts(0, 1))


def test_a_cooperative_member_joins_with_what_it_owns():
    one = make(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0, 1))
    rebalance_begun(one)
    assert (one.must_release(), one.usable(), one.may_join()) == (False, parts(0, 1), True)
    assert one.join().owned == parts(0, 1)


def test_a_cooperative_member_acquires_only_what_it_declared_while_it_is_joining():
    one = make(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0))
    rebalance_begun(one)
    assert one.join().owned == parts(0)
    assert one.usable() == parts(0)
    assert not one.acquire(share(0, 1)), "the leader may give partition 1 to another member"


def test_a_failed_attempt_to_join_does_not_extend_what_may_be_acquired():
    """SyncGroup's answer is lost: the leader may have given partition 1 to another member."""
    one = make(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0))
    rebalance_begun(one)
    one.join()
    joined(one, 2)
    one.join_ended()
    assert one.usable() == parts(0)
    assert not one.acquire(share(0, 1))
    assert one.join().owned == parts(0)


def test_a_cooperative_member_joins_again_when_it_has_revoked():
    one = make(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0, 1))
    rebalance_begun(one)
    assign(one, 2, 0)
    assert (one.state, one.may_join()) == (MembershipState.STABLE, False)
    one.release(parts(1))
    one.acquire(share(0))
    assert one.may_join()
    assert one.join().owned == parts(0)


def test_a_cooperative_member_does_not_join_while_it_has_to_revoke():
    one = make(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0, 1))
    rebalance_begun(one)
    assign(one, 2, 0)
    rebalance_begun(one)
    assert not one.may_join(), "the last positions of partition 1 are not committed yet"
    one.release(parts(1))
    assert one.may_join()
    assert one.join().owned == parts(0), "which offers partition 1 to others"
    one.acquire(share(0))
    joined(one, 3)
    synchronised(one, 3, 0)
    assert one.state is MembershipState.STABLE


def test_what_was_lost_while_joining_is_offered_to_others_again():
    """The leader has withheld partition 1 from others, since this member declared to own it."""
    one = make(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0, 1))
    rebalance_begun(one)
    one.join()
    one.release(parts(0, 1))
    joined(one, 2)
    synchronised(one, 2)
    assert one.may_join()


def test_answers_about_an_earlier_generation_mean_nothing(member):
    lease, earlier = member.lease, Beat(CommitIdentity("m", 0), JoinStep.NONE)
    member.confirmed(earlier, 100)
    member.rebalance_begun(earlier, 100)
    assert not member.beat_refused(earlier, keeps_id=False)
    assert (member.state, member.lease) == (MembershipState.STABLE, lease)


@pytest.mark.parametrize("keeps_id", [False, True])
@pytest.mark.parametrize("step", JoinStep)
def test_while_it_joins_the_group_may_have_a_generation_that_it_does_not_know_yet(step, keeps_id):
    one = make(cooperative=True)
    one.begin()
    assign(one, 1, 0)
    sent = one.beat()
    if step is not JoinStep.NONE:
        one.join_again()
        one.join()
    if step is JoinStep.SYNC_GROUP:
        joined(one, 2)
        sent = one.beat()
        one.join_ended()
    removed = step is JoinStep.NONE or not keeps_id
    assert one.beat_refused(sent, keeps_id=keeps_id) is removed
    assert (one.state is MembershipState.FENCED) is removed


def test_a_heartbeat_of_an_earlier_generation_learns_that_another_client_has_the_instance_id():
    one = make(cooperative=True, instance_id="i")
    one.begin()
    assign(one, 1, 0)
    earlier = Beat(CommitIdentity("m", 0, "i"), JoinStep.NONE)
    assert one.beat_refused(earlier, keeps_id=False, stopped=InstanceIdInUse("another one"))
    assert one.state is MembershipState.FENCED
    one.lose()
    with pytest.raises(InstanceIdInUse):
        one.begin()


def test_a_refused_commit_removes_the_member_that_it_named(member):
    assert not member.removed(CommitIdentity("m", 0), keeps_id=False)
    assert member.state is MembershipState.STABLE
    assert member.removed(member.identity, keeps_id=False)
    assert (member.state, member.has_news) == (MembershipState.FENCED, True)
    assert not member.removed(member.identity, keeps_id=False), "known already"


def test_there_are_no_heartbeats_outside_of_the_group(member):
    assert member.beat() == (CommitIdentity("m", 1), JoinStep.NONE)
    member.fence()
    assert member.beat() is None
    assert make(cooperative=True).beat() is None


def test_a_wish_to_join_again_survives_a_rebalance_in_progress():
    one = make(cooperative=True)
    one.begin()
    one.join()
    one.join_again()
    joined(one, 1)
    synchronised(one, 1, 0)
    assert one.may_join()


def test_a_failed_attempt_is_repeated(member):
    member.release(parts(0, 1))
    member.join_again()
    member.join()
    member.join_ended()
    assert member.may_join()


def test_a_removed_member_owns_nothing_and_begins_as_a_new_one(member):
    member.fence()
    assert (member.state, member.in_group, member.may_join()) == (MembershipState.FENCED, False, False)
    assert not member.acquire(share(0))
    member.lose()
    assert (member.state, member.held, member.identity) == (MembershipState.UNJOINED, {}, CommitIdentity())
    member.begin()
    assert member.join().member_id == ""


def test_a_member_that_the_coordinator_still_knows_keeps_its_id(member):
    member.fence(keeps_id=True)
    member.lose()
    member.begin()
    assert member.join() == ("m", -1, frozenset(), frozenset())


def test_an_assignment_for_a_removed_member_is_dropped(member):
    member.release(parts(0, 1))
    member.join_again()
    member.join()
    joined(member, 2)
    member.fence()
    assert not synchronised(member, 2, 0)
    assert member.state is MembershipState.FENCED


@pytest.mark.parametrize(("instance_id", "leaves"), [(None, True), ("here", False)])
def test_a_static_member_stays_in_the_group(instance_id, leaves):
    one = make(cooperative=False, instance_id=instance_id)
    one.begin()
    assign(one, 1, 0)
    one.leave()
    assert (one.leaving is not None) is leaves
    assert one.has_left
    former = one.leaving
    one.lose()
    one.leave()
    assert (one.leaving, one.has_left) == (former, True)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("keeps_id", [False, True])
def test_a_removed_member_leaves_if_the_coordinator_knows_its_id(member, keeps_id, lost):
    """Otherwise the other members wait for its session timeout."""
    member.fence(keeps_id=keeps_id)
    if lost:
        member.lose()
    member.leave()
    assert (member.leaving.member_id if member.leaving else None) == ("m" if keeps_id else None)


def test_a_member_that_has_no_id_leaves_nothing():
    one = make(cooperative=False)
    one.leave()
    assert one.leaving is None


def test_a_member_that_is_fenced_for_good_does_not_begin_again(member):
    member.fence(stopped=InstanceIdInUse("another one"))
    member.fence()
    member.lose()
    with pytest.raises(InstanceIdInUse):
        member.begin()


# -- the lease ---------------------------------------------------------------------------------------------------------


def test_before_it_is_assigned_anything_there_is_nothing_to_lose():
    one = make(cooperative=True)
    assert one.term.holds(1e9)
    one.begin()
    one.join()
    joined(one, 1)
    assert one.term.holds(1e9)
    assert one.term.remaining(0) == 0


def test_the_lease_counts_from_when_the_answered_request_was_sent(member):
    assert member.term.remaining(0.5) == 7.5
    member.confirmed(member.beat(), 5)
    assert (member.term.holds(12.9), member.term.holds(13)) == (True, False)
    assert member.term.remaining(20) == 0


def test_a_rebalance_has_a_timeout_of_its_own(member):
    rebalance_begun(member, 5)
    assert member.term.until == 13
    rebalance_begun(member, 90)
    assert member.term.until == 80


def test_while_it_synchronises_this_answer_counts_for_nothing(member):
    """Brokers up to 2.x give it without renewing the session."""
    rebalance_begun(member, 5)
    member.release(parts(0, 1))
    member.join()
    joined(member, 2)
    rebalance_begun(member, 9)
    assert member.term.until == 13
    synchronised(member, 2, 0, sent=10)
    assert member.term.until == 18


def test_brokers_may_have_a_shorter_rebalance_timeout(member):
    member.release(parts(0, 1))
    member.join_again()
    member.join()
    member.joined("m", 2, 5)
    synchronised(member, 2, 0, sent=10)
    assert member.term.until == 14


@pytest.mark.parametrize("end", [GenerationMember.fence, GenerationMember.leave])
def test_the_lease_ends_with_the_membership(member, end):
    end(member)
    assert not member.term.holds(0.5)
    member.lose()
    assert member.term.holds(0.5), "there is nothing to lose any more"


# -- what other threads are notified of --------------------------------------------------------------------------------


def test_the_rebalance_thread_is_told_what_it_has_to_react_to(member):
    notified = []

    def after(event):
        event()
        notified.append(member.has_news)
        member.has_news = False

    after(lambda: None)
    after(lambda: member.confirmed(member.beat(), 1))
    assert notified == [True, False], "the assignment, but no heartbeat"
    after(lambda: rebalance_begun(member))
    after(lambda: rebalance_begun(member))
    after(lambda: member.release(parts(0, 1)))
    after(lambda: member.join() and joined(member, 2))
    after(lambda: member.failed(RebalanceAwaited("try again")))
    after(lambda: synchronised(member, 2, 0))
    after(member.join_again)
    after(member.fence)
    assert notified[2:] == [True, False, False, False, True, True, True, True]


def test_a_failure_is_over_when_the_next_request_is_sent(member):
    member.take_topics_change()
    member.failed(RebalanceAwaited("try again"))
    assert isinstance(member.failure, RebalanceAwaited)
    assert member.take_topics_change()
    member.join_sent()
    assert member.failure is None


def test_topics_are_looked_at_before_joining_and_when_they_have_changed(member):
    assert (member.take_topics_change(), member.has_work()) == (True, False), "it has begun"
    member.topics_changed = True
    assert member.has_work()
    assert (member.take_topics_change(), member.take_topics_change()) == (True, False)
    member.release(parts(0, 1))
    member.join_again()
    assert member.has_work()
    member.join()
    member.topics_changed = True
    assert not member.has_work(), "they are looked at when it has joined"


def test_assignments_are_counted(member):
    assert (member.views, member.assigned_at) == (1, 0.5)
    member.release(parts(0, 1))
    member.join_again()
    member.join()
    joined(member, 2)
    synchronised(member, 2, 0, sent=7)
    assert (member.views, member.assigned_at) == (2, 7.5)
