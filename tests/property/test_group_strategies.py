"""Assignments of a broker-coordinated group, and members that follow them, in any order of events."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from zkconsumer.group.kafka.rules.brokerlease import BrokerLease
from zkconsumer.group.kafka.rules.generationmember import Assigned, GenerationMember, JoinStep
from zkconsumer.group.kafka.rules.groupmembership import MembershipState
from zkconsumer.group.kafka.rules.strategies import STRATEGIES, MemberSubscription
from zkconsumer.model import ConsumerThreadId, TopicPartition

TOPICS = "tuv"
LEASE = BrokerLease(10, 30)


@st.composite
def groups(draw):
    """Members with subscriptions and claims, and the partitions of their topics."""
    counts = {topic: draw(st.integers(0, 6)) for topic in TOPICS}
    partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count + 1)]
    members = [
        MemberSubscription(
            name,
            tuple(draw(st.sets(st.sampled_from(TOPICS), min_size=1))),
            frozenset(draw(st.sets(st.sampled_from(partitions), max_size=5))),
            draw(st.integers(-1, 3)),
            draw(st.sampled_from([None, f"static-{name}"])),
            {topic: draw(st.integers(0, 5)) for topic in TOPICS},
        )
        for name in "abcd"[: draw(st.integers(1, 4))]
    ]
    return members, {topic: tuple(range(count)) for topic, count in counts.items()}


@given(groups(), st.sampled_from(sorted(STRATEGIES)))
def test_each_partition_has_one_subscribed_owner_or_waits_for_its_former_one(group, name):
    members, partitions = group
    assigned = STRATEGIES[name].assign(members, partitions)
    assert assigned.keys() == {member.member_id for member in members}
    for topic, numbers in partitions.items():
        for partition in (TopicPartition(topic, number) for number in numbers):
            owners = [one for one in members if partition in assigned[one.member_id]]
            assert len(owners) <= 1
            assert all(topic in one.topics for one in owners)
            claimed = any(partition in one.owned for one in members)
            if not owners and any(topic in one.topics for one in members):
                assert STRATEGIES[name].cooperative
                assert claimed


COOPERATIVE = [strategy for strategy in STRATEGIES.values() if strategy.cooperative]


@given(groups(), st.sampled_from(COOPERATIVE))
def test_cooperative_rounds_end_with_every_partition_assigned(group, strategy):
    """Each member gives up what it does not get, and the next round assigns it.

    Mostly the second round is the last. Where members have different weights and subscriptions, a later round may find
    a better place for a partition that has just been assigned, which takes a round more.
    """
    members, partitions = group
    assigned: dict[str, frozenset[TopicPartition]] = {}
    for _ in range(8):
        before, assigned = assigned, strategy.assign(members, partitions)
        members = [replace(member, owned=assigned[member.member_id], generation=4) for member in members]
        if assigned == before:
            break
    wanted = {topic for member in members for topic in member.topics}
    everything = {TopicPartition(topic, n) for topic in wanted for n in partitions[topic]}
    assert set().union(*assigned.values()) == everything
    assert strategy.assign(members, partitions) == assigned


class _Group(RuleBasedStateMachine):
    """A coordinator in memory, and the rebalance threads of three members; every step may come at any time."""

    cooperative = True

    def __init__(self):
        super().__init__()
        self.members = {name: GenerationMember(self.cooperative, lease=LEASE) for name in "abc"}
        self.known = {}  # member id to what it declared, of the present generation
        self.parked = {}
        self.pending = {}  # assignments that members have not received yet
        self.generation = 0
        self.ids = 0
        self.names = {}
        self.strategy = STRATEGIES["cooperative-sticky" if self.cooperative else "sticky"]

    member = st.sampled_from("abc")

    @rule(name=member)
    def begin(self, name):
        self.members[name].begin()

    @rule(name=member)
    def join(self, name):
        one = self.members[name]
        intent = one.join()
        if intent is None:
            return
        member_id = intent.member_id
        if not member_id:
            self.ids += 1
            member_id = f"{name}{self.ids}"
            one.id_given(member_id)
        elif member_id not in self.known:  # UNKNOWN_MEMBER_ID
            one.fence()
            one.join_ended()
            return
        self.names[member_id] = name
        self.known.setdefault(member_id, None)
        self.parked[member_id] = intent

    @precondition(lambda self: self.parked)
    @rule()
    def complete(self):
        """All have joined, or those that have not are removed: the rebalance timeout is over."""
        self.known = dict.fromkeys(self.parked)
        self.generation += 1
        subscriptions = [
            MemberSubscription(member_id, ("t",), intent.owned, intent.generation)
            for member_id, intent in self.parked.items()
        ]
        for member_id, partitions in self.strategy.assign(subscriptions, {"t": tuple(range(5))}).items():
            self.pending[member_id] = (self.generation, partitions)
        for member_id in self.parked:
            self.members[self.names[member_id]].joined(member_id, self.generation, 30)
        self.parked = {}
        for one in self.members.values():  # leases of removed members end before others get their partitions
            if one.in_group and one.member_id not in self.known:
                one.fence()
                one.join_ended()
                one.lose()

    @rule(name=member)
    def receive(self, name):
        one = self.members[name]
        if one.member_id in self.pending and one.step is JoinStep.SYNC_GROUP:
            generation, partitions = self.pending.pop(one.member_id)
            if generation == one.generation:
                one.synchronised(Assigned(generation, partitions), sent=0, now=0)
            one.join_ended()

    @rule(name=member)
    def heartbeat(self, name):
        one = self.members[name]
        if self.parked and one.in_group and not one.is_joining:
            one.rebalance_begun(one.beat(), sent=0)

    @rule(name=member)
    def rebalance(self, name):
        """What the rebalance thread does: release what it has to, acquire what it may."""
        one = self.members[name]
        if one.state is MembershipState.FENCED:
            one.lose()
        elif one.must_release():
            one.release(list(one.held))
        elif (usable := one.usable()) is not None:
            one.release(one.held.keys() - usable)
            one.acquire(dict.fromkeys(usable, ConsumerThreadId(name, 0)))

    @rule(name=member)
    def acquire_late(self, name):
        """The rebalance thread was slow: it acquires what an earlier assignment contained."""
        one = self.members[name]
        if one.assigned is not None:
            one.acquire(dict.fromkeys(one.assigned.partitions, ConsumerThreadId(name, 0)))

    @rule(name=member)
    def wish(self, name):
        self.members[name].join_again()

    @invariant()
    def no_partition_has_two_owners(self):
        held = [partition for one in self.members.values() for partition in one.held]
        assert len(held) == len(set(held)), {name: one.held for name, one in self.members.items()}


class _EagerGroup(_Group):
    cooperative = False


TestCooperativeGroup = _Group.TestCase
TestEagerGroup = _EagerGroup.TestCase
TestCooperativeGroup.settings = TestEagerGroup.settings = settings(max_examples=60, stateful_step_count=60)
