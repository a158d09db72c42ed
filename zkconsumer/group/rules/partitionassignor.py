"""PartitionAssignor: an assignor that the application brings, and the check of what it returns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from zkconsumer.errors import AssignorFailed, name_some
from zkconsumer.group.rules.assignors import Partitions
from zkconsumer.model import TopicPartition

MOST_USER_DATA: Final = 65_536
"""Most bytes of user data of one member: the member that leads reads those of all."""

_MOST_NAMED: Final = 3


class PartitionAssignor(Protocol):
    """How the member that leads a group assigns its partitions, written by the application.

    ``partition.assignment.strategy=module:object`` names an object that has ``name`` and ``assign``, or a class, which
    is called without arguments. It needs no base class. Every member has one; only that of the leading member is asked.
    Set ``group.protocol`` to ``coordinator`` or ``kafka``.

    Two more attributes are optional:

    - ``user_data(topics) -> bytes`` is called when the member joins, and when it subscribes to other topics, with its
      topics and their numbers of streams. ``assign`` gets these bytes, at most 65,536, of every member that wrote some:
      a rack, for example.
    - ``cooperative = False``, with ``group.protocol=kafka``: all members release everything in each rebalance. By
      default partitions that stay with their member are kept.

    Both run on a thread of the consumer. They should take less than a session timeout, and must not call the
    consumer.
    """

    @property
    def name(self) -> str:
        """The name that the members of the group have in common; not that of an assignor of this package or Kafka's."""

    def assign(
        self,
        members: Mapping[str, Mapping[str, int]],
        partitions: Mapping[str, Sequence[int]],
        owned: Mapping[str, Collection[TopicPartition]],
        user_data: Mapping[str, bytes],
    ) -> Mapping[str, Iterable[tuple[str, int]]]:
        """Assign every partition of every topic that a member subscribes to.

        What it returns is checked before it is used: each partition has to be given to one member that subscribes to
        its topic. An exception, or a wrong map, changes nothing in the group; the streams of this member raise it as
        :class:`AssignorFailed <zkconsumer.AssignorFailed>` after four attempts.

        Args:
            members: id of each member to the topics that it subscribes to, with its number of streams for each.
            partitions: topic to its partition numbers, ascending; topics that do not exist are absent.
            owned: member id to the partitions that it owns at the moment, or is being given; empty if it has none.
            user_data: member id to what its assignor wrote; members that wrote nothing are absent.

        Returns:
            Member id to its partitions, each a topic and a number; members without partitions may be absent.
        """


def assign_partitions(
    assignor: PartitionAssignor,
    members: Mapping[str, Mapping[str, int]],
    partitions: Partitions,
    owned: Mapping[str, Collection[TopicPartition]],
    user_data: Mapping[str, bytes],
) -> dict[str, frozenset[TopicPartition]]:
    """What the assignor returns, checked; every member is in it. For the arguments see :class:`PartitionAssignor`.

    Raises:
        AssignorFailed: the assignor raised an exception, or what it returned cannot be used.
    """
    owned = {member: owned.get(member, frozenset()) for member in members}
    try:
        returned = _read(assignor.assign(members, partitions, owned, user_data))
    except Exception as error:  # it is the application's code
        raise AssignorFailed(
            f"assignor {assignor.name} failed to assign: {type(error).__name__}: {error}; the group keeps the "
            "assignment that it has"
        ) from error
    faults = list(_faults(returned, members, partitions))
    if faults:
        raise AssignorFailed(
            f"assignor {assignor.name} returned an assignment that cannot be used: {name_some(faults, _MOST_NAMED)}; "
            "correct its assign(), the group keeps the assignment that it has"
        )
    return {member: frozenset(returned.get(member, ())) for member in members}


def user_data_of(assignor: PartitionAssignor, topics: Mapping[str, int]) -> bytes:
    """What the assignor writes for its own member; empty if it has no ``user_data``.

    Args:
        assignor: of the member that joins.
        topics: that it subscribes to, and its number of streams for each.

    Raises:
        AssignorFailed: ``user_data`` raised an exception, or returned something else than at most 65,536 bytes.
    """
    write = getattr(assignor, "user_data", None)
    if write is None:
        return b""
    try:
        data: Any = write(topics)
    except Exception as error:  # it is the application's code
        raise AssignorFailed(
            f"user_data() of assignor {assignor.name} failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(data, bytes):
        raise AssignorFailed(f"user_data() of assignor {assignor.name} has to return bytes, not {data!r}")
    if len(data) > MOST_USER_DATA:
        raise AssignorFailed(
            f"user_data() of assignor {assignor.name} returned {len(data)} bytes; {MOST_USER_DATA} are allowed"
        )
    return data


def _read(returned: Mapping[str, Iterable[tuple[str, int]]]) -> dict[str, list[TopicPartition]]:
    """What an assignor returned, as values of this package; raises an exception if it is no map of partitions."""
    return {
        member: [TopicPartition(topic, int(number)) for topic, number in given] for member, given in returned.items()
    }


def _faults(
    returned: Mapping[str, Sequence[TopicPartition]], members: Mapping[str, Mapping[str, int]], partitions: Partitions
) -> Iterator[str]:
    """Why an assignment cannot be used, one text for each partition."""
    wanted = {
        TopicPartition(topic, number)
        for topic in {topic for topics in members.values() for topic in topics}
        for number in partitions.get(topic, ())
    }
    holders: dict[TopicPartition, list[str]] = defaultdict(list)
    for member, given in returned.items():
        for partition in given:
            holders[partition].append(member)
    for partition, holding in holders.items():
        for member in dict.fromkeys(holding):
            if member not in members:
                yield f"partition {partition} is given to {member}, which is no member of the group"
            elif partition.topic not in members[member]:
                yield f"partition {partition} is given to {member}, which does not subscribe to {partition.topic}"
            elif partition not in wanted:
                yield f"partition {partition} is given to {member}, and does not exist"
        if len(holding) > 1:
            yield f"partition {partition} is given twice: to {' and to '.join(holding)}"
    for partition in sorted(wanted - holders.keys()):
        able = [member for member, topics in members.items() if partition.topic in topics]
        yield f"partition {partition} is given to no member; subscribed are {name_some(able, _MOST_NAMED)}"
