"""The control plane obeys a protocol that is composed of two others: the intersection of shares, the shorter lease."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.fixtures.composedprotocol import ComposedGroup
from tests.fixtures.groupprotocol import CommandedGroup, FetchInMemory, Member, StoreInMemory
from zkconsumer.errors import LeaseLapsed, MembershipLost, OwnershipConflict, RegistrationLost
from zkconsumer.group.groupprotocol import GroupProtocol, NextAssignment, NoNeed
from zkconsumer.group.rules.reconcile import Share
from zkconsumer.model import Stamp, TopicPartition

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
SHARES = st.sets(st.integers(0, 3), max_size=4)
PARTS = st.integers(0, 1)


class Part(CommandedGroup):
    """A group that can remove the member or damage its membership, and checks what it is informed of."""

    def __init__(self, *, incremental: bool) -> None:
        super().__init__(incremental=incremental)
        self.fetch = FetchInMemory()
        self.is_removed = self.is_damaged = False

    def next_assignment(self, *, fetching: bool, renew: bool = False) -> NextAssignment | NoNeed:
        self._require_membership()
        if self.is_damaged:
            raise RegistrationLost("damaged")
        return super().next_assignment(fetching=fetching, renew=renew)

    def claim(self, share: Share) -> None:
        self._require_membership()
        super().claim(share)

    def release(self, partitions: Collection[TopicPartition], retain: Share | None = None) -> None:
        self._require_membership()
        fetched = partitions & self.fetch.fetched.keys()
        assert not fetched, f"{fetched} are released, and still fetched"
        super().release(partitions, retain)
        if not self.held.partitions:
            self.is_damaged = False  # the pause after it repairs the membership

    def lose(self) -> None:
        assert self.is_removed, "this part has not removed the member"
        assert not self.fetch.fetched.keys() & self.held.partitions.keys(), "still fetched"
        self.is_removed = False
        super().lose()

    def _require_membership(self) -> None:
        if self.is_removed:
            raise MembershipLost("removed")


class CheckedStore(StoreInMemory):
    """Checks before each write that both groups give the partition to this member."""

    def __init__(self, parts: Collection[Part]) -> None:
        super().__init__()
        self._parts = parts

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        stamp: Stamp | None = None,
        may_send: Callable[[], bool] = lambda: True,
        retry: bool = True,
    ) -> set[TopicPartition]:
        if any(part.is_removed for part in self._parts):
            raise MembershipLost("fenced")
        if not may_send():
            raise LeaseLapsed("not sent")
        for partition, offset in offsets.items():
            assert all(partition in part.held.partitions for part in self._parts), f"{partition} is not owned in both"
            assert offset >= self.offsets.get(partition, 0), f"{partition} moves back"
        return super().commit(offsets, may_send=may_send)


class ComposedModel(RuleBasedStateMachine):
    """One member of two groups; each step is a command, a fault, a rebalance, or records that are consumed."""

    @initialize(incremental=st.tuples(st.booleans(), st.booleans()))
    def start(self, incremental: tuple[bool, bool]) -> None:
        self.parts = [Part(incremental=one) for one in incremental]
        self.composed = ComposedGroup(*(cast(GroupProtocol, part) for part in self.parts))
        self.member = Member(
            incremental=False,
            group=cast(CommandedGroup, self.composed),
            store=CheckedStore(self.parts),
        )
        self.fetch = cast(FetchInMemory, self.member.fetch)
        for part in self.parts:
            part.fetch = self.fetch

    @rule(number=PARTS, share=SHARES)
    def command(self, number: int, share: set[int]) -> None:
        self.parts[number].command(*share)

    @rule(number=PARTS, share=SHARES, rebalances=st.booleans())
    def command_and_obey(self, number: int, share: set[int], rebalances: bool) -> None:
        self.parts[number].command(*share)
        if rebalances:
            self.rebalance()

    @rule(number=PARTS)
    def remove(self, number: int) -> None:
        self.parts[number].is_removed = True

    @rule(number=PARTS)
    def damage(self, number: int) -> None:
        self.parts[number].is_damaged = True

    @rule(number=PARTS, conflicts=st.booleans())
    def let_others_own(self, number: int, conflicts: bool) -> None:
        self.parts[number].conflicts = conflicts

    @rule(number=PARTS, seconds=st.sampled_from([0.0, 10.0]))
    def let_the_lease(self, number: int, seconds: float) -> None:
        self.parts[number].lease.seconds = seconds

    @rule(number=st.integers(0, 3), count=st.integers(1, 3))
    def consume(self, number: int, count: int) -> None:
        if self.composed.lease.holds() and PARTITIONS[number] in self.fetch.fetched:
            self.fetch.advance(PARTITIONS[number], count)

    @rule()
    def commit(self) -> None:
        with suppress(LeaseLapsed, MembershipLost):
            self.member.committer.commit_automatically()

    @rule()
    def rebalance(self) -> None:
        """As the loop does: an attempt, and what follows its failure."""
        outcome = self.member.rebalancer.rebalance()
        if isinstance(outcome.error, MembershipLost):
            self.member.rebalancer.membership_lost()
        elif outcome.error is None:
            assert self.fetch.fetched.keys() == self.parts[0].commanded.keys() & self.parts[1].commanded.keys()
        else:
            assert isinstance(outcome.error, (OwnershipConflict, RegistrationLost)), outcome.error

    @invariant()
    def only_what_both_give_is_fetched(self) -> None:
        for part in getattr(self, "parts", ()):
            assert self.fetch.fetched.keys() <= part.held.partitions.keys() or part.is_removed

    @invariant()
    def the_shorter_lease_counts(self) -> None:
        if parts := getattr(self, "parts", None):
            assert self.composed.lease.holds() == all(part.lease.holds() for part in parts)
            assert self.composed.lease.remaining() == min(part.lease.remaining() for part in parts)

    def teardown(self) -> None:
        """Without faults one rebalance, or two after a removal, brings what both give."""
        for part in getattr(self, "parts", ()):
            part.conflicts = False
        for _ in range(4 if hasattr(self, "parts") else 0):
            self.rebalance()
        if hasattr(self, "parts"):
            assert self.fetch.fetched.keys() == self.parts[0].commanded.keys() & self.parts[1].commanded.keys()


TestComposedProtocol = ComposedModel.TestCase
TestComposedProtocol.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
