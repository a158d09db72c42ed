"""OffsetNodes: the offset znodes of a group, for tools: what each holds, and why one that cannot be read is unknown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from zkconsumer.errors import MalformedZnode
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, usable_offset
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths, partition_named
from zkconsumer.zookeeper.rules.znodes import OffsetNode
from zkconsumer.zookeeper.session import ZkSession


class NodeData(Protocol):
    """What a znode holds, now or in a snapshot."""

    @property
    def data(self) -> bytes | None:
        """Its content."""


class OffsetNodes(NamedTuple):
    """Offset znodes of a group.

    Attributes:
        nodes: by partition, also those that hold no offset.
        unreadable: why the offset of a partition is unknown, in a sentence: its znode holds no number, or may not be
            read. Such an offset is not absent: a consumer may be far beyond where it would begin without one.
        problems: these, and what else among the znodes is no offset of a partition, one sentence each.
    """

    nodes: dict[TopicPartition, Znode]
    unreadable: Mapping[TopicPartition, str] = MappingProxyType({})
    problems: tuple[str, ...] = ()

    def offset(self, partition: TopicPartition) -> int | None:
        """The offset; None if there is none, or if it is unknown."""
        return stored_offset("", self.nodes.get(partition))

    def offsets(self) -> dict[TopicPartition, int]:
        """The offsets that consumers would continue at."""
        return {p: offset for p, node in self.nodes.items() if (offset := stored_offset("", node)) is not None}

    def stored(self) -> dict[TopicPartition, StoredOffset]:
        """Every znode's offset, None where it holds none, and its mark."""
        return {p: StoredOffset(stored_offset("", node), node.mzxid) for p, node in self.nodes.items()}

    def has_offsets(self) -> bool:
        """True if there are some, or if that is unknown of a partition."""
        return bool(self.unreadable or self.offsets())


def stored_offset(path: str, node: Znode | NodeData | None) -> int | None:
    """The offset at which a consumer continues by a znode; None if there is none, or if it is unknown."""
    try:
        return None if node is None else usable_offset(OffsetNode.decode(path, node.data))
    except MalformedZnode:
        return None


def why_unreadable(path: str, node: Znode | None) -> str | None:
    """Why the offset in a znode is unknown, in a sentence; None if it is known, or if there is no znode."""
    try:
        if node is not None:
            OffsetNode.decode(path, node.data)
    except MalformedZnode as error:
        return str(error)
    return None


def offset_nodes(
    session: ZkSession, group: str, topics: Collection[str] | None = None, *, without_refused: bool = False
) -> OffsetNodes:
    """Read the offset znodes of a group.

    Args:
        session: an open session.
        group: name of the group.
        topics: read those of these topics; None for all that have some.
        without_refused: what may not be read is a problem of the result, and no error.

    Raises:
        ZooKeeperRefused: the group's list of topics may not be read, or, unless ``without_refused``, another znode.
    """
    if session.is_absent:  # a group of brokers may have a name that no znode can have
        return OffsetNodes({})
    paths = GroupPaths(group)
    if topics is None:
        topics = session.children(paths.offsets) or []
    children = session.children_of(paths.offset_topic(topic) for topic in sorted(topics))
    problems: list[str] = []
    wanted: dict[str, TopicPartition] = {}
    for topic in sorted(topics):
        for name in children.names.get(paths.offset_topic(topic)) or ():
            path = f"{paths.offset_topic(topic)}/{name}"
            if (number := partition_named(name)) is not None:
                wanted[path] = TopicPartition(topic, number)
            else:
                problems.append(f"znode {path!r} is not the offset of a partition")
    reads = session.read_many(wanted)
    if not without_refused:
        for refused in (*children.refused.values(), *reads.refused.values()):
            raise refused
    nodes = {wanted[path]: node for path, node in reads.nodes.items() if node is not None}
    unreadable = {wanted[path]: str(refused) for path, refused in reads.refused.items()}
    for partition, node in nodes.items():
        if (reason := why_unreadable(paths.offset(partition), node)) is not None:
            unreadable[partition] = reason
    problems += map(str, children.refused.values())
    return OffsetNodes(dict(sorted(nodes.items())), unreadable, (*problems, *unreadable.values()))
