"""GroupZnodes: everything that ZooKeeper holds of one consumer group, read in few requests and without a write."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from zkconsumer.errors import GroupMissing, MalformedZnode, ZkConsumerError, ZooKeeperRefused
from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.rules.subscription import Blacklist, Subscription
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.group.zookeeper.topicrecords import origins_in, record_paths
from zkconsumer.model import Topic, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.offsets.rules.topicorigins import NOT_STORED, JudgedOffset, TopicOrigin, judge_offset
from zkconsumer.operate.groups.observedgroup import BrokerState, DescribedGroupMember, ZnodeLayout
from zkconsumer.zookeeper.reads import ChildrenReads, Reads, Znode
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths, is_node_name, partition_named
from zkconsumer.zookeeper.rules.znodes import (
    BLACK_LIST,
    STATIC,
    WHITE_LIST,
    MigratedNode,
    MigrationMark,
    OffsetNode,
    PartitionOwnerNode,
)
from zkconsumer.zookeeper.session import ZkSession

if TYPE_CHECKING:
    from zkconsumer.operate.groups.groupcoordinators import GroupCoordinator

T = TypeVar("T")

_MADE_ID: Final = re.compile("(.+)-[0-9]{13}-[0-9a-f]{1,8}")
"""What follows the name of the group in an id that a client has made: jvm-consumer.md#identifiers."""


class StoredOffsetNode(NamedTuple):
    """A committed offset in ZooKeeper: the next offset to consume, the transaction that wrote it, and when (ms)."""

    offset: int
    mzxid: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class GroupZnodes:
    """A group's znodes at one moment; an :class:`ObservedGroup`.

    Attributes:
        group: its name.
        view: members, their subscriptions, brokers.
        live: consumer ids that were registered after the owners had been read.
        owned_topics: topics that some member ever owned partitions of.
        offset_topics: topics with a parent of offset znodes.
        existing: partition numbers of those of the group's topics that exist.
        partitions: every partition of a topic that a member subscribes to, or that the group owned or committed,
            sorted; also those that no longer exist.
        owners: text of each owner znode that there is.
        offsets: each offset znode that there is and that holds an offset.
        foreign_offsets: names of offset znodes that are no partition number, as Kafka 0.7 made them, by topic.
        unreadable: partitions whose offset znode does not hold an offset, or may not be read, with the reason.
        problems: what cannot be read, one sentence each.
        lasting_owners: partitions whose owner znode is persistent; those of members end with their sessions.
        origins: of those of its topics that exist, since when offsets can be of them.
        coordinator: of a group that has members with ``group.protocol=coordinator``.
        mark: of a group that was migrated, or is being; None of others.
        undescribed: topics that may exist, although nothing describes them.
    """

    group: str
    view: GroupView
    live: frozenset[str]
    owned_topics: frozenset[str]
    offset_topics: frozenset[str]
    existing: Mapping[str, tuple[int, ...]]
    partitions: tuple[TopicPartition, ...]
    owners: Mapping[TopicPartition, str]
    offsets: Mapping[TopicPartition, StoredOffsetNode]
    foreign_offsets: Mapping[str, tuple[str, ...]]
    unreadable: Mapping[TopicPartition, ZkConsumerError]
    problems: tuple[str, ...]
    lasting_owners: frozenset[TopicPartition] = frozenset()
    origins: Mapping[str, TopicOrigin] = field(default_factory=dict)
    coordinator: GroupCoordinator | None = None
    mark: MigrationMark | None = None
    undescribed: frozenset[str] = frozenset()

    @property
    def layout(self) -> ZnodeLayout:
        """What the znodes are."""
        if self.foreign_offsets:
            return "kafka-0.7"
        if self.live or self.owned_topics:
            return "consumer"
        return "offsets" if self.offset_topics else "empty"

    @property
    def in_brokers(self) -> BrokerState | None:
        """None: members coordinate it in ZooKeeper."""
        return None

    @property
    def subscribed(self) -> frozenset[str]:
        """See :class:`ObservedGroup`."""
        return frozenset(self.view.threads_by_topic(exclude_internal=True))

    @property
    def absent(self) -> frozenset[str]:
        """See :class:`ObservedGroup`."""
        named = self.subscribed.union(partition.topic for partition in self.partitions)
        return named - self.existing.keys() - self.undescribed

    @property
    def topics(self) -> frozenset[str]:
        """See :class:`ObservedGroup`."""
        return self.offset_topics.union(self.owned_topics, (partition.topic for partition in self.partitions))

    @property
    def newest_commit_ms(self) -> int | None:
        """See :class:`ObservedGroup`."""
        return max((stored.modified_ms for stored in self.offsets.values()), default=None)

    @property
    def is_commanded(self) -> bool:
        """True if all members obey a coordinator, which assigns otherwise than the JVM's members do."""
        return self.coordinator is not None and self.live <= self.coordinator.commands.keys()

    @property
    def in_two_homes(self) -> str:
        """Empty: it has members in ZooKeeper alone."""
        return ""

    @property
    def lost(self) -> str:
        """Empty: ZooKeeper does not show what brokers have."""
        return ""

    def is_live(self, partition: TopicPartition) -> bool:
        """True if the partition has an owner that is a registered member."""
        return PartitionOwnerNode.consumer_of(self.owners.get(partition)) in self.live

    def in_zookeeper(self, partition: TopicPartition) -> int | None:
        """The offset that is stored; None if there is none, it is of an earlier topic, or it cannot be read."""
        return self.judged(partition).counting

    def judged(self, partition: TopicPartition) -> JudgedOffset:
        """What is stored in ZooKeeper, and which topic it was written for."""
        stored = self.offsets.get(partition)
        return NOT_STORED if stored is None else self.judge(partition, StoredOffset(stored.offset, stored.mzxid))

    def judge(self, partition: TopicPartition, stored: StoredOffset) -> JudgedOffset:
        """An offset of the group, in ZooKeeper or in Kafka, and which topic it was written for."""
        return judge_offset(self.origins.get(partition.topic), stored)

    def describe_members(self) -> tuple[DescribedGroupMember, ...]:
        """The members, in the order of their ids; also those whose registration cannot be read."""
        owned = Counter(PartitionOwnerNode.consumer_of(owner) for owner in self.owners.values())
        registered = sorted(self.view.members.keys() | self.view.unreadable.keys())
        return tuple(self._member(consumer_id, owned[consumer_id]) for consumer_id in registered)

    def _member(self, consumer_id: str, owned: int) -> DescribedGroupMember:
        subscription = self.view.members.get(consumer_id)
        threads = None if subscription is None else subscription.expand(self.view.topics, exclude_internal=True)
        obeys = self.coordinator is not None and consumer_id in self.coordinator.commands
        return DescribedGroupMember(
            consumer_id,
            "zkconsumer" if consumer_id in self.view.our_clients else "jvm",
            threads,
            None if subscription is None else pattern_of(subscription),
            self.view.registered_ms.get(consumer_id),
            owned,
            tuple(sorted(threads or ())),
            host_in(self.group, consumer_id),
            protocol="coordinator" if obeys else "zookeeper",
        )


def host_in(group: str, consumer_id: str) -> str | None:
    """The host that made a consumer id, as both clients make it; None if ``consumer.id`` is set.

    >>> host_in("g", "g_h-1.example-1700000000000-0a1b2c3d"), host_in("g", "g_c")
    ('h-1.example', None)
    """
    found = _MADE_ID.fullmatch(consumer_id.removeprefix(f"{group}_"))
    return None if found is None else found[1]


def pattern_of(subscription: Subscription) -> str:
    """The kind of a subscription, as members register it."""
    if subscription.topic_filter is None:
        return STATIC
    return BLACK_LIST if isinstance(subscription.topic_filter, Blacklist) else WHITE_LIST


class GroupReads(NamedTuple):
    """Many groups, in the order in which they were asked for, and why others cannot be read."""

    groups: dict[str, GroupZnodes]
    failures: dict[str, ZkConsumerError]

    def required(self, failures: dict[str, ZkConsumerError] | None = None) -> list[GroupZnodes]:
        """The groups; raises the failure of the first other one, unless ``failures`` takes them."""
        if failures is not None:
            failures.update(self.failures)
        elif self.failures:
            raise next(iter(self.failures.values()))
        return list(self.groups.values())


def read_group(session: ZkSession, group_reader: GroupReader, group: str) -> GroupZnodes:
    """Read one group; see :func:`read_groups`.

    Raises:
        ZkConsumerError: there is no such group, or ZooKeeper cannot be read.
    """
    (znodes,) = read_groups(session, group_reader, [group]).required()
    return znodes


def read_groups(session: ZkSession, group_reader: GroupReader, groups: Iterable[str]) -> GroupReads:
    """Read groups, each step for all of them at once: a round trip costs more than what is read.

    The members are read again after the owners: an owner claims its partitions after it has registered, so an owner
    that is not registered then has left or expired.

    Args:
        session: an open session.
        group_reader: of the same session.
        groups: names of groups.

    Raises:
        ZkConsumerError: ZooKeeper cannot be read.
    """
    paths, failures = existing_groups(session, groups)
    views = group_reader.views(paths)
    failures.update(views.failures)
    coordinators = _read_coordinators(session, [group for group, view in views.views.items() if view.our_clients])
    partly = _read_topics(session, paths, views.views, failures)
    wanted = sorted({topic for topics in partly.values() for topic in topics.topics})
    existing = group_reader.describe_topics(wanted)
    missing = frozenset(wanted) - existing.keys()
    undescribed = group_reader.undescribed(missing)
    parents = session.children_of(parent for topics in partly.values() for parent in topics.parents())
    partitions_by_group = {group: _partitions(topics, existing, parents) for group, topics in partly.items()}
    owner_paths = [
        paths[group].owner(p) for group, partitions in partitions_by_group.items() for p in partitions.partitions
    ]
    offset_paths = [
        paths[group].offset(p) for group, partitions in partitions_by_group.items() for p in partitions.partitions
    ]
    marks = {group: paths[group].migrated for group in partitions_by_group}
    records = {group: record_paths(group, partitions.existing) for group, partitions in partitions_by_group.items()}
    of_topics = [path for record in records.values() for path in record]
    nodes = session.read_many([*owner_paths, *offset_paths, *marks.values(), *of_topics])
    ids = session.children_of(paths[group].ids for group in partitions_by_group)
    complete: dict[str, GroupZnodes] = {}
    for group, partitions in partitions_by_group.items():
        live = ids.names.get(paths[group].ids)
        if paths[group].ids in ids.refused:
            failures[group] = ids.refused[paths[group].ids]
        else:
            znodes = _complete(group, partly[group], partitions, nodes, frozenset(live or ()))
            if (mark := nodes.nodes.get(marks[group])) is not None:
                znodes = replace(znodes, mark=MigratedNode.decode(marks[group], mark.data))
            identities = {topic: existing[topic].identity for topic in znodes.existing}
            znodes = _with_origins(znodes, nodes, records[group], identities)
            znodes = replace(znodes, undescribed=undescribed)
            complete[group] = _with_coordinator(znodes, coordinators.get(group))
    return GroupReads(complete, failures)


def _read_coordinators(session: ZkSession, groups: Sequence[str]) -> dict[str, GroupCoordinator]:
    """The coordinators of those groups that may have one."""
    if not groups:
        return {}
    from zkconsumer.operate.groups.groupcoordinators import read_coordinators

    return read_coordinators(session, groups)


def existing_groups(
    session: ZkSession, groups: Iterable[str]
) -> tuple[dict[str, GroupPaths], dict[str, ZkConsumerError]]:
    """The paths of those groups that ZooKeeper has, or may have, and why each of the others is missing, by name."""
    paths: dict[str, GroupPaths] = {}
    failures: dict[str, ZkConsumerError] = {}
    for group in groups:
        try:
            paths[group] = GroupPaths(group)
        except ZkConsumerError as error:
            failures[group] = GroupMissing(str(error))  # brokers allow other names
    roots = session.read_many(group_paths.root for group_paths in paths.values())
    for group in [
        group for group, group_paths in paths.items() if roots.nodes.get(group_paths.root, group_paths) is None
    ]:
        del paths[group]
        failures[group] = GroupMissing(
            f"group {group} does not exist in ZooKeeper; check its name and the chroot (a group that stores offsets in "
            "Kafka and has no ZooKeeper member is not here)"
        )
    return paths, failures


def is_in_zookeeper(session: ZkSession, group: str) -> bool:
    """True if ZooKeeper has the group, or may have it.

    Raises:
        ZkConsumerError: the name would lead to another znode, or ZooKeeper cannot be reached.
    """
    return GroupPaths(group).group in existing_groups(session, [group])[0]


class _Topics(NamedTuple):
    """A group of which members and topics have been read."""

    paths: GroupPaths
    view: GroupView
    owned: frozenset[str]
    committed: frozenset[str]
    topics: frozenset[str]

    def parents(self) -> Iterator[str]:
        """Parents of owner and offset znodes."""
        for topic in sorted(self.topics):
            yield self.paths.offset_topic(topic)
            yield self.paths.owner_topic(topic)


def _read_topics(
    session: ZkSession,
    paths: Mapping[str, GroupPaths],
    views: Mapping[str, GroupView],
    failures: dict[str, ZkConsumerError],
) -> dict[str, _Topics]:
    """The topics of each group; what is refused is added to ``failures``."""
    children = session.children_of(p for group in views for p in (paths[group].owners, paths[group].offsets))
    topics_by_group: dict[str, _Topics] = {}
    for group, view in views.items():
        group_paths = paths[group]
        refused = children.refused.get(group_paths.owners) or children.refused.get(group_paths.offsets)
        if refused is not None:
            failures[group] = refused
            continue
        owned, committed = (
            frozenset(children.names[parent] or ()) for parent in (group_paths.owners, group_paths.offsets)
        )
        subscribed = {
            topic
            for subscription in view.members.values()
            for topic in subscription.expand(view.topics, exclude_internal=True)
            if is_node_name(topic)
        }
        topics_by_group[group] = _Topics(group_paths, view, owned, committed, owned | committed | subscribed)
    return topics_by_group


class _GroupPartitions(NamedTuple):
    partitions: tuple[TopicPartition, ...]
    existing: dict[str, tuple[int, ...]]
    foreign: dict[str, tuple[str, ...]]
    problems: list[str]


def _partitions(group: _Topics, existing: Mapping[str, Topic], parents: ChildrenReads) -> _GroupPartitions:
    """All partitions of the group's topics: those that exist, and those that only its znodes still name."""
    existing_numbers = {topic: existing[topic].partitions for topic in sorted(group.topics) if topic in existing}
    partitions = {TopicPartition(topic, n) for topic, numbers in existing_numbers.items() for n in numbers}
    foreign: dict[str, tuple[str, ...]] = {}
    problems: list[str] = []
    for topic in sorted(group.topics):
        offset_parent = group.paths.offset_topic(topic)
        for parent in (offset_parent, group.paths.owner_topic(topic)):
            if parent in parents.refused:
                problems.append(str(parents.refused[parent]))
                continue
            names = parents.names[parent] or ()
            numbers = {name: partition_named(name) for name in names}
            partitions.update(TopicPartition(topic, number) for number in numbers.values() if number is not None)
            foreign_names = tuple(sorted(name for name, number in numbers.items() if number is None))
            if foreign_names and parent == offset_parent:
                foreign[topic] = foreign_names
    return _GroupPartitions(tuple(sorted(partitions)), existing_numbers, foreign, problems)


def _complete(
    group: str, topics: _Topics, partitions: _GroupPartitions, nodes: Reads, live: frozenset[str]
) -> GroupZnodes:
    owner_path = topics.paths.owner
    owners, unreadable_owners = _decoded(owner_path, partitions.partitions, nodes, _owner)
    offsets, unreadable = _decoded(topics.paths.offset, partitions.partitions, nodes, _offset)
    return GroupZnodes(
        group=group,
        view=topics.view,
        live=live,
        owned_topics=topics.owned,
        offset_topics=topics.committed,
        existing=partitions.existing,
        partitions=partitions.partitions,
        owners=owners,
        offsets=offsets,
        foreign_offsets=partitions.foreign,
        unreadable=unreadable,
        problems=(
            *topics.view.unreadable.values(),
            *partitions.problems,
            *map(str, unreadable_owners.values()),
            *map(str, unreadable.values()),
        ),
        lasting_owners=frozenset(p for p in owners if (node := nodes.nodes[owner_path(p)]) and not node.owner_session),
    )


def _with_origins(
    znodes: GroupZnodes, nodes: Reads, records: Sequence[str], identities: Mapping[str, TopicIdentity]
) -> GroupZnodes:
    if refused := [str(nodes.refused[path]) for path in records if path in nodes.refused]:
        origins = {topic: TopicOrigin(identity) for topic, identity in identities.items()}  # as for members
        return replace(znodes, origins=origins, problems=(*znodes.problems, *refused))
    return replace(znodes, origins=origins_in(nodes.nodes, znodes.group, identities))


def _with_coordinator(znodes: GroupZnodes, coordinator: GroupCoordinator | None) -> GroupZnodes:
    if coordinator is None:
        return znodes
    return replace(znodes, coordinator=coordinator, problems=(*znodes.problems, *coordinator.problems))


def _decoded(
    path_of: Callable[[TopicPartition], str],
    partitions: Iterable[TopicPartition],
    reads: Reads,
    decode: Callable[[str, Znode], T],
) -> tuple[dict[TopicPartition, T], dict[TopicPartition, ZkConsumerError]]:
    """What the znodes of partitions hold, and why others cannot be read."""
    decoded: dict[TopicPartition, T] = {}
    unreadable: dict[TopicPartition, ZkConsumerError] = {}
    for partition in partitions:
        path = path_of(partition)
        node = reads.nodes.get(path)
        try:
            if path in reads.refused:
                raise reads.refused[path]
            if node is not None:
                decoded[partition] = decode(path, node)
        except (MalformedZnode, ZooKeeperRefused) as error:
            unreadable[partition] = error
    return decoded, unreadable


def _owner(path: str, node: Znode) -> str:
    return PartitionOwnerNode.decode(path, node.data)


def _offset(path: str, node: Znode) -> StoredOffsetNode:
    return StoredOffsetNode(OffsetNode.decode(path, node.data), node.mzxid, node.modified_ms)
