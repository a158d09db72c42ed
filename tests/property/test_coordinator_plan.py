"""A coordinator's plans over members as values: never two commands for a partition, always the target in the end.

Members obey late and in any order, sessions end, coordinators are replaced: what the znodes would hold is kept here.
"""

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from zkconsumer.group.coordinator.rules import coordinatorplan
from zkconsumer.group.coordinator.rules.coordinatorplan import Roles, plan, previous, target, undecided
from zkconsumer.group.rules.assignors import ASSIGNORS
from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import ConsumerThreadId

MOST_ROUNDS = 60
SUBSCRIPTIONS = [{"t": 1}, {"t": 2}, {"t": 1, "u": 1}, {"u": 2}]


class Follower:
    """A member that obeys.

    Attributes:
        command: what its command node has; None until the coordinator writes it.
        version: of that node.
        read: version and share that it read last.
    """

    def __init__(self):
        self.command, self.version, self.read = None, 0, (0, {})


class CoordinatedGroup(RuleBasedStateMachine):
    """The rules, and what has to hold after each of them."""

    @initialize(subscriptions=st.lists(st.sampled_from(SUBSCRIPTIONS), min_size=1, max_size=4))
    def begin(self, subscriptions):
        self.names = 0
        self.subscriptions = {}
        self.followers = {}
        self.owners = {}
        self.counts = {"t": 5, "u": 3}
        self.new_coordinator()
        for one in subscriptions:
            self.join(one)

    # -- the group --------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.subscriptions) < 6)
    @rule(subscription=st.sampled_from(SUBSCRIPTIONS))
    def join(self, subscription):
        self.names += 1
        name = f"g_{self.names}"
        self.subscriptions[name] = subscription
        self.followers[name] = Follower()

    @precondition(lambda self: len(self.subscriptions) < 6)
    @rule(subscription=st.sampled_from(SUBSCRIPTIONS))
    def join_foreign(self, subscription):
        self.names += 1
        self.subscriptions[f"j_{self.names}"] = subscription

    @precondition(lambda self: self.subscriptions)
    @rule(number=st.integers(0, 5))
    def end_session(self, number):
        """A member leaves, or its session expires: registration, command and owner znodes go at once."""
        name = sorted(self.subscriptions)[number % len(self.subscriptions)]
        del self.subscriptions[name]
        self.followers.pop(name, None)
        self.owners = {p: thread for p, thread in self.owners.items() if thread.consumer_id != name}

    @rule(topic=st.sampled_from(["t", "u"]), count=st.integers(1, 4))
    def grow(self, topic, count):
        self.counts[topic] = min(12, self.counts[topic] + count)

    # -- the coordinator --------------------------------------------------------------------------------------------

    @rule()
    def new_coordinator(self):
        """All it has is what the znodes have."""
        self.intended = {}

    @rule(seen_before=st.booleans())
    def coordinate(self, seen_before):
        """One plan; what it read of owners may be older than a claim of the same moment, but not than its commands."""
        aimed = self.target()
        commanded = self.commanded()
        owners = {p: str(self.owners[p]) if p in self.owners else None for p in undecided(aimed, commanded)}
        if seen_before:
            self.obey_all()
        for name, share in plan(aimed, commanded, owners).shares.items():
            self.write(name, share)
        for name in self.followers:
            if self.followers[name].command is None:
                self.write(name, {})
        self.intended = aimed

    def write(self, name, share):
        self.followers[name].command = dict(share)
        self.followers[name].version += 1

    def commanded(self):
        return {name: one.command or {} for name, one in self.followers.items()}

    def target(self):
        foreign = frozenset(self.subscriptions.keys() - self.followers.keys())
        view = GroupView(
            members={name: Subscription.static(one) for name, one in self.subscriptions.items()},
            partitions={topic: tuple(range(count)) for topic, count in self.counts.items()},
        )
        before = previous(self.commanded(), self.intended)
        return target(view, Roles(frozenset(self.followers), foreign), "roundrobin", before, exclude_internal=True)

    # -- members ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.followers)
    @rule(number=st.integers(0, 5))
    def read_command(self, number):
        self.read_by(sorted(self.followers)[number % len(self.followers)])

    @precondition(lambda self: self.followers)
    @rule(number=st.integers(0, 5))
    def release(self, number):
        self.release_by(sorted(self.followers)[number % len(self.followers)])

    @precondition(lambda self: self.followers)
    @rule(number=st.integers(0, 5))
    def claim(self, number):
        self.claim_by(sorted(self.followers)[number % len(self.followers)])

    def read_by(self, name):
        one = self.followers[name]
        if one.command is not None:
            one.read = one.version, one.command

    def release_by(self, name):
        _, share = self.followers[name].read
        self.owners = {p: t for p, t in self.owners.items() if t.consumer_id != name or share.get(p) == t}

    def claim_by(self, name):
        """All or none, if the command is still the one that was read."""
        one = self.followers[name]
        version, share = one.read
        if version != one.version or any(self.owners.get(p, t).consumer_id != name for p, t in share.items()):
            return
        self.owners.update(share)

    def claim_by_foreign(self):
        for partition, thread in self.target().items():
            if thread.consumer_id not in self.followers:
                self.owners.setdefault(partition, thread)
        for partition, thread in list(self.owners.items()):
            if thread.consumer_id not in self.followers and self.target().get(partition) != thread:
                del self.owners[partition]

    def obey_all(self):
        for name in self.followers:
            self.read_by(name)
            self.release_by(name)
            self.claim_by(name)

    # -- what has to hold -------------------------------------------------------------------------------------------

    @invariant()
    def no_partition_is_in_two_commands(self):
        counts = Counter(p for share in self.commanded().values() for p in share) if hasattr(self, "owners") else {}
        assert all(count == 1 for count in counts.values()), counts

    @invariant()
    def no_partition_is_commanded_while_another_member_owns_it(self):
        """Unless a foreign member claimed it after it was granted."""
        for name, one in getattr(self, "followers", {}).items():
            for partition in one.command or {}:
                owner = self.owners.get(partition, ConsumerThreadId(name, 0)).consumer_id
                assert owner == name or owner not in self.followers, (partition, name, owner)

    @rule()
    def settle(self):
        """Let all act until nothing changes: every partition is owned as the target has it, then no plan moves any."""
        for _ in range(MOST_ROUNDS):
            before = dict(self.owners), {name: one.version for name, one in self.followers.items()}
            self.claim_by_foreign()
            self.coordinate(False)
            self.obey_all()
            if before == (self.owners, {name: one.version for name, one in self.followers.items()}):
                break
        else:
            raise AssertionError(f"not settled: {self.owners}")
        aimed = self.target()
        assert self.owners == aimed
        self.expect_balance(aimed)
        self.new_coordinator()
        assert self.target() == aimed, "a new coordinator moves nothing"

    def expect_balance(self, aimed):
        if len(self.followers) < len(self.subscriptions):
            return
        loads = Counter(aimed.values())
        for partition, thread in aimed.items():
            able = [
                ConsumerThreadId(name, number)
                for name, subscription in self.subscriptions.items()
                for number in range(subscription.get(partition.topic, 0))
            ]
            assert all(loads[thread] <= loads[other] + 1 for other in able)

    @precondition(lambda self: self.followers and len(self.followers) == len(self.subscriptions))
    @rule(number=st.integers(0, 5))
    def one_member_leaves_a_settled_group_of_equals(self, number):
        """Only what it owned moves, and no other member gets a command that withdraws anything."""
        for name in self.subscriptions:
            self.subscriptions[name] = {"t": 1, "u": 1}
        self.settle()
        before, name = dict(self.owners), sorted(self.followers)[number % len(self.followers)]
        self.end_session(sorted(self.subscriptions).index(name))
        self.settle()
        if self.followers:
            assert {p for p in before if self.owners[p] != before[p]} == {
                p for p, thread in before.items() if thread.consumer_id == name
            }


SETTINGS = settings(max_examples=50, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
FOR_PLANTED_BUGS = settings(
    SETTINGS, max_examples=500, phases=(Phase.generate,), derandomize=True, database=None, print_blob=False
)

TestCoordinatedGroup = CoordinatedGroup.TestCase
TestCoordinatedGroup.settings = SETTINGS


def grants_what_another_member_owns(monkeypatch):
    monkeypatch.setattr(coordinatorplan, "_is_free", lambda partition, consumer_id, owners: True)


def grants_what_another_command_has(monkeypatch):
    monkeypatch.setattr(coordinatorplan, "_holders", lambda commanded: set())
    monkeypatch.setattr(coordinatorplan, "_is_free", lambda partition, consumer_id, owners: True)


def assigns_without_regard_to_what_is_held(monkeypatch):
    def roundrobin(threads, partitions, previous):
        return ASSIGNORS["roundrobin"](threads, partitions)

    monkeypatch.setattr(coordinatorplan, "sticky_assignor", roundrobin)


@pytest.mark.parametrize(
    "plant",
    [
        grants_what_another_member_owns,
        grants_what_another_command_has,
        assigns_without_regard_to_what_is_held,
    ],
)
def test_the_model_finds_a_planted_bug(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(CoordinatedGroup, settings=FOR_PLANTED_BUGS)
