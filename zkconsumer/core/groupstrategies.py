"""Strategies by which the leader of a broker-coordinated group assigns partitions, and the division over threads.

The names are those that Kafka's clients put into JoinGroup requests; any of them may lead, and all obey the leader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zkconsumer.core.assignors import (
    Assignment,
    Partitions,
    Threads,
    natural_roundrobin_assignor,
    range_assignor,
)
from zkconsumer.core.stickyassignor import sticky_assignor
from zkconsumer.model import ConsumerThreadId, TopicPartition

NO_GENERATION: Final = -1
"""Generation of a member that has had no assignment, or whose client does not report it."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member declared when it joined.

    Attributes:
        member_id: assigned by the coordinator.
        topics: names of the topics that it subscribes to.
        owned: partitions that it owns, or for ``sticky`` owned before.
        generation: of the assignment that gave it ``owned``.
        instance_id: ``group.instance.id`` of a static member.
    """

    member_id: str
    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    instance_id: str | None = None


GroupAssignment = Mapping[str, frozenset[TopicPartition]]
"""Member id to its partitions; every member is in it."""

_Compute = Callable[[Threads, Partitions, Assignment], Assignment]


@dataclass(frozen=True, slots=True)
class GroupStrategy:
    """A way to assign.

    Attributes:
        name: in JoinGroup requests.
        cooperative: True if a partition is assigned to another member only after its owner has given it up.
    """

    name: str
    cooperative: bool
    _compute: _Compute

    def assign(self, members: Sequence[MemberSubscription], partitions: Partitions) -> GroupAssignment:
        """The partitions of each member.

        Args:
            members: all members of the generation.
            partitions: of every topic that a member subscribes to; topics that do not exist are absent.
        """
        ordered = sorted(members, key=lambda one: (one.instance_id is None, one.instance_id or "", one.member_id))
        slots = {member.member_id: ConsumerThreadId(f"{number:09}", 0) for number, member in enumerate(ordered)}
        claims = _claims(members)
        previous = {partition: slots[member_id] for partition, member_id in _owners(claims).items()}
        computed = self._compute(_threads(ordered, slots), partitions, previous)
        member_of = {slot: member_id for member_id, slot in slots.items()}
        assigned: dict[str, set[TopicPartition]] = {member.member_id: set() for member in members}
        for partition, slot in computed.items():
            member_id = member_of[slot]
            if not (self.cooperative and claims.get(partition, {}).keys() - {member_id}):
                assigned[member_id].add(partition)
        return {member_id: frozenset(theirs) for member_id, theirs in assigned.items()}


def _threads(
    ordered: Sequence[MemberSubscription], slots: Mapping[str, ConsumerThreadId]
) -> dict[str, list[ConsumerThreadId]]:
    """Topic to its subscribers in order; topics with the same subscribers share a list, as the assignors expect."""
    subscribers: dict[str, list[ConsumerThreadId]] = defaultdict(list)
    for member in ordered:
        for topic in set(member.topics):
            subscribers[topic].append(slots[member.member_id])
    shared: dict[tuple[ConsumerThreadId, ...], list[ConsumerThreadId]] = {}
    return {topic: shared.setdefault(tuple(theirs), theirs) for topic, theirs in sorted(subscribers.items())}


def _claims(members: Iterable[MemberSubscription]) -> dict[TopicPartition, dict[str, int]]:
    """Partition to the members that declare to own it, with the generation of each declaration."""
    claims: dict[TopicPartition, dict[str, int]] = defaultdict(dict)
    for member in members:
        for partition in member.owned:
            claims[partition][member.member_id] = member.generation
    return claims


def _owners(claims: Mapping[TopicPartition, Mapping[str, int]]) -> dict[TopicPartition, str]:
    """The owner of each declared partition: that of the newest generation; none if two have the same.

    A declaration without a generation counts where it stands alone. Kafka's clients before 3.0 dropped it, and such a
    member never kept a partition (KAFKA-12984).
    """
    owners = {}
    for partition, generations in claims.items():
        newest = max(generations.values())
        claimants = [member_id for member_id, generation in generations.items() if generation == newest]
        if len(claimants) == 1:
            owners[partition] = claimants[0]
    return owners


def _range(threads: Threads, partitions: Partitions, _previous: Assignment) -> Assignment:
    return range_assignor(threads, partitions)


def _roundrobin(threads: Threads, partitions: Partitions, _previous: Assignment) -> Assignment:
    return natural_roundrobin_assignor(threads, partitions)


STRATEGIES: Final[Mapping[str, GroupStrategy]] = {
    strategy.name: strategy
    for strategy in (
        GroupStrategy("range", False, _range),
        GroupStrategy("roundrobin", False, _roundrobin),
        GroupStrategy("sticky", False, sticky_assignor),
        GroupStrategy("cooperative-sticky", True, sticky_assignor),
    )
}
"""Strategies by name."""

_ALIASES: Final = {"roundrobin-natural": "roundrobin"}


def configured_strategies(text: str) -> tuple[GroupStrategy, ...]:
    """The strategies that ``partition.assignment.strategy`` names, preferred ones first.

    Raises:
        KeyError: one of them does not exist.
    """
    names = dict.fromkeys(_ALIASES.get(name.strip(), name.strip()) for name in text.split(","))
    return tuple(STRATEGIES[name] for name in names)


def divide(
    consumer_id: str,
    partitions: Collection[TopicPartition],
    streams: Mapping[str, int],
    held: Mapping[TopicPartition, ConsumerThreadId],
) -> dict[TopicPartition, ConsumerThreadId]:
    """Divide the partitions of one member over its consumer threads, as evenly as possible.

    Args:
        consumer_id: id of the member.
        partitions: assigned to it; those of other topics than ``streams`` has are ignored.
        streams: topic to its number of threads.
        held: partitions that stay with their thread, if that keeps the division even.
    """
    numbers: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        if partition.topic in streams:
            numbers[partition.topic].append(partition.partition)
    lists = {count: [ConsumerThreadId(consumer_id, n) for n in range(count)] for count in set(streams.values())}
    return sticky_assignor({topic: lists[streams[topic]] for topic in numbers}, numbers, held)
