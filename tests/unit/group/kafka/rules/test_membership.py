"""The states of a member of a broker-coordinated group, and what it may hold in them."""

import pytest

from zkconsumer.group.kafka.rules.membership import Assigned, BrokerMembership, JoinStep, MembershipState
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.commitidentity import CommitIdentity

THREAD = ConsumerThreadId("g_a", 0)


def parts(*numbers):
    return frozenset(TopicPartition("t", number) for number in numbers)


def share(*numbers):
    return dict.fromkeys(parts(*numbers), THREAD)


def assign(member, generation, *numbers):
    """Let it join, and give it these partitions."""
    intent = member.join()
    member.joined("m", generation)
    assert member.synchronised(Assigned(generation, parts(*numbers)))
    member.join_ended()
    return intent


@pytest.fixture(params=[False, True], ids=["eager", "cooperative"])
def member(request):
    """A member that owns partitions 0 and 1 in generation 1."""
    one = BrokerMembership(cooperative=request.param)
    one.begin()
    assign(one, 1, 0, 1)
    assert one.acquire(share(0, 1))
    return one


def _in_state(state):
    """A cooperative member in a state; one that has left or was removed had been stable."""
    one = BrokerMembership(cooperative=True)
    if state is MembershipState.UNJOINED:
        return one
    one.begin()
    if state is MembershipState.REBALANCING:
        one.join()
        one.joined("m", 1)
        return one
    assign(one, 1, 0, 1)
    if state is MembershipState.LEAVING:
        one.leave()
    elif state is MembershipState.FENCED:
        one.fence()
    return one


_EVENTS = {
    "begin": BrokerMembership.begin,
    "synchronised": lambda one: one.synchronised(Assigned(1, parts(0))),
    "join ended": BrokerMembership.join_ended,
    "rebalance begun": lambda one: one.rebalance_begun(one.identity),
    "join again": BrokerMembership.join_again,
    "fence": BrokerMembership.fence,
    "lose": BrokerMembership.lose,
    "leave": BrokerMembership.leave,
}
_UNJOINED, _REBALANCING, _STABLE, _LEAVING, _FENCED = MembershipState
_CHANGES = {
    (_UNJOINED, "begin"): _REBALANCING,
    (_REBALANCING, "synchronised"): _STABLE,
    (_STABLE, "rebalance begun"): _REBALANCING,
    (_STABLE, "join again"): _REBALANCING,
    (_REBALANCING, "fence"): _FENCED,
    (_STABLE, "fence"): _FENCED,
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


@pytest.mark.parametrize("step", JoinStep)
def test_a_request_stays_unanswered_until_its_answer_whatever_happens_meanwhile(step):
    """The session thread waits for it: a member that was removed does not join again before that."""
    one = BrokerMembership(cooperative=True)
    one.begin()
    if step is not JoinStep.NONE:
        one.join()
    if step is JoinStep.SYNC_GROUP:
        one.joined("m", 1)
    for event in (one.fence, one.lose, one.begin):
        event()
        assert (one.step, one.is_joining) == (step, step is not JoinStep.NONE)
    assert one.may_join() == (step is JoinStep.NONE)
    one.join_ended()
    assert (one.step, one.may_join()) == (JoinStep.NONE, True)


def test_each_answer_ends_the_step_of_its_request():
    one = BrokerMembership(cooperative=True)
    one.begin()
    one.join()
    one.joined("m", 1)
    assert one.step is JoinStep.SYNC_GROUP
    one.synchronised(Assigned(1, parts(0)))
    assert (one.step, one.state) == (JoinStep.NONE, MembershipState.STABLE)
    one.leave()
    one.joined("m", 2)
    assert one.step is JoinStep.NONE, "of a member that has left"


def test_a_new_member_joins_when_it_begins():
    one = BrokerMembership(cooperative=False)
    assert (one.state, one.may_join()) == (MembershipState.UNJOINED, False)
    one.begin()
    assert (one.state, one.may_join()) == (MembershipState.REBALANCING, True)
    assert one.join() == ("", -1, frozenset(), frozenset())
    assert not one.may_join()


def test_the_id_that_a_coordinator_requires_is_used_for_the_next_attempt():
    one = BrokerMembership(cooperative=False)
    one.begin()
    one.join()
    one.id_given("m")
    one.join_ended()
    assert one.join().member_id == "m"


def test_only_an_id_that_the_coordinator_knows_outlasts_a_loss():
    one = BrokerMembership(cooperative=False)
    one.begin()
    one.join()
    one.id_given("m")
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
    one = BrokerMembership(cooperative=True)
    one.begin()
    assert not one.in_group
    assign(one, 0, 0)
    assert one.in_group


def test_an_assignment_makes_it_stable(member):
    assert (member.state, member.identity) == (MembershipState.STABLE, CommitIdentity("m", 1))
    assert not member.may_join()


def test_nothing_but_the_assignment_can_be_acquired(member):
    assert not member.acquire(share(0, 1, 2))
    assert member.held == share(0, 1)


def test_an_eager_member_joins_when_it_has_released_everything():
    one = BrokerMembership(cooperative=False)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0, 1))
    assert one.rebalance_begun(one.identity)
    assert (one.must_release(), one.usable(), one.may_join()) == (True, None, False)
    assert not one.release(parts(0))
    assert not one.may_join()
    assert one.release(parts(1))
    assert not one.acquire(share(0, 1)), "the assignment has ended with the rebalance"
    assert one.may_join()
    assert one.join() == ("m", 1, frozenset(), parts(0, 1))


def test_a_cooperative_member_joins_with_what_it_owns():
    one = BrokerMembership(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0, 1))
    one.rebalance_begun(one.identity)
    assert (one.must_release(), one.usable(), one.may_join()) == (False, parts(0, 1), True)
    assert one.join().owned == parts(0, 1)


def test_a_cooperative_member_acquires_only_what_it_declared_while_it_is_joining():
    one = BrokerMembership(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0))
    one.rebalance_begun(one.identity)
    assert one.join().owned == parts(0)
    assert one.usable() == parts(0)
    assert not one.acquire(share(0, 1)), "the leader may give partition 1 to another member"


def test_a_failed_attempt_to_join_does_not_extend_what_may_be_acquired():
    """SyncGroup's answer is lost: the leader may have given partition 1 to another member."""
    one = BrokerMembership(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0))
    one.rebalance_begun(one.identity)
    one.join()
    one.joined("m", 2)
    one.join_ended()
    assert one.usable() == parts(0)
    assert not one.acquire(share(0, 1))
    assert one.join().owned == parts(0)


def test_a_cooperative_member_joins_again_when_it_has_revoked():
    one = BrokerMembership(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0, 1))
    one.rebalance_begun(one.identity)
    assign(one, 2, 0)
    assert (one.state, one.may_join()) == (MembershipState.STABLE, False)
    one.release(parts(1))
    one.acquire(share(0))
    assert one.may_join()
    assert one.join().owned == parts(0)


def test_a_cooperative_member_does_not_join_while_it_has_to_revoke():
    one = BrokerMembership(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0, 1))
    one.rebalance_begun(one.identity)
    assign(one, 2, 0)
    assert one.rebalance_begun(one.identity)
    assert not one.may_join(), "the last positions of partition 1 are not committed yet"
    one.release(parts(1))
    assert one.may_join()
    assert one.join().owned == parts(0), "which offers partition 1 to others"
    one.acquire(share(0))
    one.joined("m", 3)
    one.synchronised(Assigned(3, parts(0)))
    assert one.state is MembershipState.STABLE


def test_what_was_lost_while_joining_is_offered_to_others_again():
    """The leader has withheld partition 1 from others, since this member declared to own it."""
    one = BrokerMembership(cooperative=True)
    one.begin()
    assign(one, 1, 0, 1)
    one.acquire(share(0, 1))
    one.rebalance_begun(one.identity)
    one.join()
    one.release(parts(0, 1))
    one.joined("m", 2)
    one.synchronised(Assigned(2, frozenset()))
    assert one.may_join()


def test_answers_about_an_earlier_generation_mean_nothing(member):
    assert not member.rebalance_begun(CommitIdentity("m", 0))
    assert member.state is MembershipState.STABLE


def test_a_wish_to_join_again_survives_a_rebalance_in_progress():
    one = BrokerMembership(cooperative=True)
    one.begin()
    one.join()
    one.join_again()
    one.joined("m", 1)
    one.synchronised(Assigned(1, parts(0)))
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
    member.joined("m", 2)
    member.fence()
    assert not member.synchronised(Assigned(2, parts(0)))
    assert member.state is MembershipState.FENCED


@pytest.mark.parametrize(("instance_id", "leaves"), [(None, True), ("here", False)])
def test_a_static_member_stays_in_the_group(instance_id, leaves):
    one = BrokerMembership(cooperative=False, instance_id=instance_id)
    one.begin()
    assign(one, 1, 0)
    assert (one.leave() is not None) is leaves
    assert one.state is MembershipState.LEAVING
    assert one.leave() is None


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("keeps_id", [False, True])
def test_a_removed_member_leaves_if_the_coordinator_knows_its_id(member, keeps_id, lost):
    """Otherwise the other members wait for its session timeout."""
    member.fence(keeps_id=keeps_id)
    if lost:
        member.lose()
    leaving = member.leave()
    assert (leaving.member_id if leaving else None) == ("m" if keeps_id else None)
    assert member.leave() is None


def test_a_member_that_has_no_id_leaves_nothing():
    assert BrokerMembership(cooperative=False).leave() is None
