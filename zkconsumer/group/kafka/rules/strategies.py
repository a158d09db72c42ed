"""Strategies by which the leader of a broker-coordinated group assigns partitions.

The names are those that Kafka's clients put into JoinGroup requests; any of them may lead, and all obey the leader.
Only ``zkconsumer`` is our own: a member with two streams of a topic gets twice as much as one with one stream. An
application may bring further ones (:class:`OwnStrategy`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from zkconsumer.group.rules.assignors import (
    Assignment,
    Partitions,
    Threads,
    natural_roundrobin_assignor,
    range_assignor,
)
from zkconsumer.group.rules.partitionassignor import PartitionAssignor, assign_partitions
from zkconsumer.group.rules.stickyassignor import divide, sticky_assignor
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
        streams: topic to the member's number of consumer threads, by which ``zkconsumer`` assigns; 1 if absent.
        user_data: what the application's assignor of the member wrote; empty if nothing.
    """

    member_id: str
    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    instance_id: str | None = None
    streams: Mapping[str, int] = field(default_factory=dict)
    user_data: bytes = b""


GroupAssignment = Mapping[str, frozenset[TopicPartition]]
"""Member id to its partitions; every member is in it."""

_Compute = Callable[[Threads, Partitions, Assignment], Assignment]

_Slots = Sequence[ConsumerThreadId]
"""What an assignor takes for the consumer threads of one member; the first ones of all members precede the others."""


@dataclass(frozen=True, slots=True)
class GroupStrategy:
    """A way to assign.

    Attributes:
        name: in JoinGroup requests.
        cooperative: True if a partition is assigned to another member only after its owner has given it up.
        weighted: True if a member counts once for each of its consumer threads; False if it counts once.
    """

    name: str
    cooperative: bool
    _compute: _Compute
    weighted: bool = False

    def assign(self, members: Sequence[MemberSubscription], partitions: Partitions) -> GroupAssignment:
        """The partitions of each member.

        Args:
            members: all members of the generation.
            partitions: of every topic that a member subscribes to; topics that do not exist are absent.
        """
        ordered = sorted(
            members, key=lambda member: (member.instance_id is None, member.instance_id or "", member.member_id)
        )
        threads = [self._threads_of(member, partitions) for member in ordered]
        slots = [_slots(place, max(counts.values(), default=1)) for place, counts in enumerate(threads)]
        claims = _claims(members)
        previous = _previous(ordered, _owners(claims), threads, slots)
        computed = self._compute(_subscribers(threads, slots), partitions, previous)
        member_of = {
            slot: ordered[place].member_id for place, member_slots in enumerate(slots) for slot in member_slots
        }
        assigned: dict[str, set[TopicPartition]] = {member.member_id: set() for member in members}
        for partition, slot in computed.items():
            assigned[member_of[slot]].add(partition)
        return _released(assigned, claims) if self.cooperative else _frozen(assigned)

    def _threads_of(self, member: MemberSubscription, partitions: Partitions) -> dict[str, int]:
        """Topic to the number of threads by which a member counts, never more than there are partitions."""
        if not self.weighted:
            return dict.fromkeys(member.topics, 1)
        most = sum(len(partitions.get(topic, ())) for topic in set(member.topics))
        return {topic: max(1, min(most, member.streams.get(topic, 1))) for topic in member.topics}


@dataclass(frozen=True, slots=True)
class OwnStrategy:
    """An assignor of the application as a strategy, with the attributes of :class:`GroupStrategy`.

    Attributes:
        assignor: the application's.
        cooperative: False if its attribute of that name is.
    """

    assignor: PartitionAssignor

    @property
    def name(self) -> str:
        """In JoinGroup requests."""
        return self.assignor.name

    @property
    def cooperative(self) -> bool:
        """See :attr:`GroupStrategy.cooperative`."""
        return bool(getattr(self.assignor, "cooperative", True))

    def assign(self, members: Sequence[MemberSubscription], partitions: Partitions) -> GroupAssignment:
        """See :meth:`GroupStrategy.assign`.

        Raises:
            AssignorFailed: what the assignor returned cannot be used.
        """
        claims = _claims(members)
        owned: dict[str, set[TopicPartition]] = {member.member_id: set() for member in members}
        for partition, member_id in _owners(claims).items():
            owned[member_id].add(partition)
        assigned = assign_partitions(
            self.assignor,
            {member.member_id: {topic: member.streams.get(topic, 1) for topic in member.topics} for member in members},
            {topic: tuple(numbers) for topic, numbers in partitions.items()},
            _frozen(owned),
            {member.member_id: member.user_data for member in members if member.user_data},
        )
        return _released(assigned, claims) if self.cooperative else assigned


Strategy = GroupStrategy | OwnStrategy
"""A strategy of this package, or of the application."""


def _frozen(assigned: Mapping[str, Set[TopicPartition]]) -> GroupAssignment:
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _released(
    assigned: Mapping[str, Set[TopicPartition]], claims: Mapping[TopicPartition, Mapping[str, int]]
) -> GroupAssignment:
    """The assignment without partitions that another member still owns: that member gives them up first."""
    return {
        member_id: frozenset(p for p in partitions if not claims.get(p, {}).keys() - {member_id})
        for member_id, partitions in assigned.items()
    }


def _slots(place: int, count: int) -> _Slots:
    # Assignors order by the text: all members' first threads, then the second ones, so that none is left without a
    # partition because another member has many threads.
    return [ConsumerThreadId(f"{number:09}-{place:09}", 0) for number in range(count)]


def _subscribers(threads: Sequence[Mapping[str, int]], slots: Sequence[_Slots]) -> dict[str, list[ConsumerThreadId]]:
    """Topic to its subscribers in order; topics with the same subscribers share a list, as the assignors expect."""
    subscribers: dict[str, list[ConsumerThreadId]] = defaultdict(list)
    for counts, member_slots in zip(threads, slots, strict=True):
        for topic, count in counts.items():
            subscribers[topic] += member_slots[:count]
    shared: dict[tuple[ConsumerThreadId, ...], list[ConsumerThreadId]] = {}
    return {
        topic: shared.setdefault(tuple(slots_of_topic), slots_of_topic) for topic, slots_of_topic in subscribers.items()
    }


def _previous(
    ordered: Sequence[MemberSubscription],
    owners: Mapping[TopicPartition, str],
    threads: Sequence[Mapping[str, int]],
    slots: Sequence[_Slots],
) -> Assignment:
    """The slot of each owned partition. Members declare no threads with what they own: it is divided evenly here."""
    owned: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition, member_id in owners.items():
        owned[member_id].append(partition)
    previous: Assignment = {}
    for member, counts, member_slots in zip(ordered, threads, slots, strict=True):
        if len(member_slots) == 1:
            previous.update(dict.fromkeys(owned[member.member_id], member_slots[0]))
            continue
        divided = divide("", owned[member.member_id], counts, {})
        previous.update({partition: member_slots[thread.number] for partition, thread in divided.items()})
    return previous


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
        GroupStrategy("zkconsumer", True, sticky_assignor, weighted=True),
        GroupStrategy("range", False, _range),
        GroupStrategy("roundrobin", False, _roundrobin),
        GroupStrategy("sticky", False, sticky_assignor),
        GroupStrategy("cooperative-sticky", True, sticky_assignor),
    )
}
"""Strategies by name."""

_ALIASES: Final = {"roundrobin-natural": "roundrobin"}

_NONE: Final[Mapping[str, PartitionAssignor]] = MappingProxyType({})


def configured_strategies(text: str, own: Mapping[str, PartitionAssignor] = _NONE) -> tuple[Strategy, ...]:
    """The strategies that ``partition.assignment.strategy`` names, preferred ones first.

    Args:
        text: the names, divided by commas.
        own: assignors of the application by the names that they have there.

    Raises:
        KeyError: one of them does not exist.
    """
    names = dict.fromkeys(_ALIASES.get(name.strip(), name.strip()) for name in text.split(","))
    return tuple(OwnStrategy(own[name]) if name in own else STRATEGIES[name] for name in names)
