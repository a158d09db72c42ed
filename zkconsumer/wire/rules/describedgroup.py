"""KafkaGroup: a consumer group that brokers coordinate, as its coordinator describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Final, Literal, NamedTuple

from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition

DEAD: Final = "Dead"
"""State of a group that the coordinator does not have."""

_FIRST_WITH_GROUPS: Final = (0, 9)
_WITHOUT_MEMBERS: Final = frozenset({"Empty", DEAD})


class KafkaGroup(NamedTuple):
    """A group that brokers coordinate.

    Attributes:
        state: as brokers name it: ``Empty``, ``Stable``, ``PreparingRebalance``, ``Dead`` and others.
        protocol_type: ``consumer``; empty for a group that has had simple commits only.
        members: number of its members; None if unknown.
    """

    state: str
    protocol_type: str = ""
    members: int | None = 0

    @property
    def has_members(self) -> bool:
        """True unless the coordinator accepts commits of clients that are no members."""
        return self.state not in _WITHOUT_MEMBERS


class DescribedMember(NamedTuple):
    """One member of a group.

    Attributes:
        member_id: its id.
        client_id: ``client.id`` of the member.
        instance_id: ``group.instance.id`` of a static member; None of others, and from brokers before 2.4.
        assigned: its partitions; none while the group rebalances.
        host: where it connects from, as the coordinator writes it: ``/10.0.0.1``.
        topics: that it subscribes to, as far as the coordinator describes them.
        streams: of a member of ours, topic to number of its consumer threads; None if it does not tell them.
    """

    member_id: str
    client_id: str
    instance_id: str | None
    assigned: frozenset[TopicPartition]
    host: str = ""
    topics: tuple[str, ...] = ()
    streams: Mapping[str, int] | None = None


class DescribedGroup(NamedTuple):
    """A group of consumers with its members.

    Attributes:
        kind: ``classic`` if a member assigns, ``consumer`` if the coordinator does (KIP-848).
        state: as in :class:`KafkaGroup`.
        strategy: name of the strategy by which it is assigned; empty if unknown.
        members: in the order of the answer.
    """

    kind: Literal["classic", "consumer"]
    state: str
    strategy: str
    members: tuple[DescribedMember, ...]


def exists_at_brokers(state: str, offsets: Sized) -> bool:
    """True if the brokers have a group of that state and with these offsets; it may have members and no offsets."""
    return bool(offsets) or state != DEAD


def why_no_groups(releases: Mapping[int, tuple[int, ...]]) -> str | None:
    """Why brokers of these releases, by broker id, cannot coordinate consumer groups; None if they can."""
    old = sorted(number for number, release in releases.items() if release < _FIRST_WITH_GROUPS)
    if not old:
        return None
    return (
        f"brokers {name_some(old)} are older than 0.9, or do not report their release (then set "
        "broker.version.fallback): they coordinate no consumer groups"
    )
