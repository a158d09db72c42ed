"""ObservedGroup: a consumer group at one moment, as tools see it, whoever coordinates it; and where groups are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from zkconsumer.errors import GroupMissing, ZkConsumerError, name_some
from zkconsumer.zookeeper.rules.znodes import mark_verdict

if TYPE_CHECKING:
    from zkconsumer.model import TopicPartition
    from zkconsumer.operate.groups.rules.lagstretches import LagSample
    from zkconsumer.operate.offsets.recordtimes import RecordTimes
    from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer
    from zkconsumer.zookeeper.rules.znodes import MigrationMark

ZnodeLayout = Literal["consumer", "offsets", "kafka-0.7", "empty"]
"""What a group's znodes are: those of a group with members, offsets alone (a simple consumer's, or imported ones),
those of Kafka 0.7, whose offset znodes are named broker-partition, or none."""

Layout = ZnodeLayout | Literal["kafka"]
"""The same, or that the group has no znodes: brokers have it."""


@dataclass(frozen=True, slots=True)
class DescribedGroupMember:
    """One member. What only one kind of group has is None for the other.

    Attributes:
        id: its consumer id, or the member id that its coordinator gave it.
        client: ``jvm`` or ``zkconsumer``; None if the coordinator does not describe it.
        threads: number of its threads, by topic; None for members of brokers that are not ours, and if it is unknown.
        pattern: the kind of its subscription in ZooKeeper; None if it is unknown.
        registered_ms: since when it is registered, in ms since the epoch by its own clock; None if it did not write it.
        partitions: number of partitions that it owns.
        topics: that it subscribes to, as far as they are known, sorted.
        host: where it connects to its coordinator from, such as ``/10.0.0.1``; in ZooKeeper the name in its id, None if
            ``consumer.id`` is set.
        client_id: ``client.id``, as its coordinator knows it.
        instance_id: ``group.instance.id`` of a static member of a group of brokers.
        protocol: ``group.protocol`` by which it takes part: ``zookeeper``, ``coordinator``, ``kafka`` or ``consumer``.
    """

    id: str
    client: str | None
    threads: Mapping[str, int] | None
    pattern: str | None
    registered_ms: int | None
    partitions: int = 0
    topics: tuple[str, ...] = ()
    host: str | None = None
    client_id: str | None = None
    instance_id: str | None = None
    protocol: str | None = None


class BrokerState(NamedTuple):
    """What the coordinator of a group of brokers reports of it.

    Attributes:
        protocol: ``classic`` or ``consumer`` (KIP-848).
        state: as brokers name it.
        strategy: by which it is assigned; empty if unknown.
    """

    protocol: str
    state: str
    strategy: str


class ObservedGroup(Protocol):
    """A group at one moment.

    What the members of ZooKeeper's groups write, and what the coordinator of a group of brokers reports, in the same
    terms. Reading these costs little, but for :meth:`describe_members`.
    """

    @property
    def group(self) -> str:
        """Its name."""

    @property
    def layout(self) -> Layout:
        """What it is made of."""

    @property
    def in_brokers(self) -> BrokerState | None:
        """What brokers report of it; None for a group in ZooKeeper alone."""

    @property
    def live(self) -> frozenset[str]:
        """Ids of its members."""

    @property
    def owners(self) -> Mapping[TopicPartition, str]:
        """The owner of each partition that has one: a thread of a member, or a member."""

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """Its partitions, sorted; also those that no longer exist."""

    @property
    def existing(self) -> Mapping[str, tuple[int, ...]]:
        """Partition numbers of those of its topics that exist, as far as it was asked."""

    @property
    def undescribed(self) -> frozenset[str]:
        """Topics that may exist, although nothing describes them."""

    @property
    def absent(self) -> frozenset[str]:
        """Topics that members subscribe to, or of which it has partitions, that are known not to exist."""

    @property
    def subscribed(self) -> frozenset[str]:
        """Topics that members subscribe to, whether they exist or not."""

    @property
    def topics(self) -> frozenset[str]:
        """Topics that it subscribes to, owned or committed."""

    @property
    def newest_commit_ms(self) -> int | None:
        """When an offset in ZooKeeper was last written, in ms since the epoch; None if there is none."""

    @property
    def mark(self) -> MigrationMark | None:
        """The mark of a group in ZooKeeper that was migrated, or is being."""

    @property
    def in_two_homes(self) -> str:
        """That it has members in ZooKeeper and at brokers, in a sentence; empty if it has not."""

    @property
    def lost(self) -> str:
        """That brokers do not have it, to which it was migrated, in a sentence; empty if it is not so, or unknown."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What cannot be read of it, one sentence each."""

    def is_live(self, partition: TopicPartition) -> bool:
        """True if the partition has an owner that is a member now."""

    def in_zookeeper(self, partition: TopicPartition) -> int | None:
        """The offset stored in ZooKeeper; None if there is none."""

    def describe_members(self) -> tuple[DescribedGroupMember, ...]:
        """Its members, in the order of their ids."""


class GroupsLook(NamedTuple):
    """Groups that were looked at once.

    Attributes:
        groups: by name.
        samples: of each partition of each group.
        failures: why others cannot be read, by name.
        problems: what is unknown, one sentence each.
        partly_read: why groups that are found cannot be read where they may be, too, by name.
    """

    groups: dict[str, ObservedGroup]
    samples: dict[str, dict[TopicPartition, LagSample]]
    failures: dict[str, ZkConsumerError]
    problems: tuple[str, ...]
    partly_read: Mapping[str, ZkConsumerError] = MappingProxyType({})


class GroupSource(Protocol):
    """Where groups are read; one thread uses it."""

    @property
    def times(self) -> RecordTimes:
        """When records of the groups' partitions were written."""

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Which groups are missing from the last :meth:`names`, one sentence each."""

    def begin_round(self) -> None:
        """Ask brokers again that did not answer: each is asked once for names and the look that follows."""

    def names(self) -> list[str]:
        """Names of all groups that there are now, sorted.

        Raises:
            ZkConsumerError: they cannot be listed.
        """

    def look(self, groups: Sequence[str], at: float) -> GroupsLook:
        """Look at groups once.

        Args:
            groups: names of groups.
            at: the time, in seconds of a clock that does not step.

        Raises:
            ZooKeeperUnavailable: no server answers.
        """

    def servers(self) -> tuple[ServerAnswer, ...]:
        """The servers that were asked in this round, and those that have not answered since; no further question."""

    def close(self) -> None:
        """Close the connections to brokers. Idempotent."""


def unread_groups(
    found: Collection[object],
    failures: Mapping[str, ZkConsumerError],
    named: Collection[str],
    partly_read: Mapping[str, ZkConsumerError] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Why groups, or parts of them, cannot be read, in sentences: a command shows the rest, and its exit code says so.

    A group that was listed, and not named, may have been deleted since.

    Raises:
        ZkConsumerError: groups are named, and none of them can be read.
    """
    if named and failures and not found:
        raise next(iter(failures.values()))
    counting = {n: error for n, error in failures.items() if n in named or not isinstance(error, GroupMissing)}
    return (*why_unread(counting), *why_unread(partly_read, "a part of "))


UNREAD_LAG: Final = ZkConsumerError("an offset or a log end of a partition")
"""Why a part of a group cannot be read: one that may exist; see :class:`LagSample`, ``is_unread``."""


def why_unread(failures: Mapping[str, ZkConsumerError], part: str = "") -> Iterator[str]:
    """A sentence for each reason: a server that does not answer may have thousands of groups."""
    by_reason: dict[str, list[str]] = {}
    for group, failure in failures.items():
        by_reason.setdefault(str(failure), []).append(group)
    for reason, groups in by_reason.items():
        yield f"{part}group{'s' if len(groups) > 1 else ''} {name_some(groups)} cannot be read: {reason}"


def is_migrated(mark: MigrationMark | None, live: Collection[str]) -> bool:
    """True if a group with this mark and these members in ZooKeeper was migrated, and has none of them.

    Nothing of it in ZooKeeper is a fault then, since its consumers continue elsewhere.
    """
    return mark is not None and mark_verdict(mark, has_members=bool(live)) == "done"


def may_exist(group: ObservedGroup, partition: TopicPartition) -> bool:
    """True if the cluster has a partition of the group, or nothing describes its topic."""
    return partition.topic in group.undescribed or partition.partition in group.existing.get(partition.topic, ())


def missing_topics(group: ObservedGroup) -> list[str]:
    """Why the log ends of topics are unknown that do not exist, in a sentence if there are such topics."""
    missing = sorted(group.absent)
    return [f"log ends of {name_some(missing)} are unknown: no such topic"] if missing else []


def undescribed_topics(group: ObservedGroup) -> Iterator[str]:
    """Why it cannot be verified that members have all partitions of topics that they subscribe to, in sentences."""
    absent = group.absent
    for topic in sorted(group.subscribed & (absent | group.undescribed)):
        yield f"topic {topic} does not exist" if topic in absent else f"partitions of topic {topic} are unknown"
