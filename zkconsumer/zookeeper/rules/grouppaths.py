"""GroupPaths: the paths of a consumer group's znodes, and which names make one.

All paths are relative to the chroot of ``zookeeper.connect``. They are the JVM consumer's
(jvm-consumer.md#zookeeper-layout), but for those below ``zkconsumer``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition

CONSUMERS = "/consumers"

HOLD = "hold@"
"""How the names of hold nodes begin."""


@dataclass(frozen=True, slots=True)
class GroupPaths:
    """Paths below one consumer group.

    Raises:
        ZkConsumerError: the name of the group, or of a topic or a consumer in a method, would lead to another znode.
    """

    group: str

    def __post_init__(self) -> None:
        _require_name(self.group, "group")

    @property
    def root(self) -> str:
        """The group's own znode; any child of ``/consumers`` is a group to the JVM's tools."""
        return f"{CONSUMERS}/{self.group}"

    @property
    def ids(self) -> str:
        """Parent of the members' ephemeral registrations."""
        return f"{self.root}/ids"

    @property
    def owners(self) -> str:
        """Parent of the partition owners, by topic."""
        return f"{self.root}/owners"

    @property
    def offsets(self) -> str:
        """Parent of the committed offsets, by topic."""
        return f"{self.root}/offsets"

    @property
    def members(self) -> str:
        """Parent of our session nodes (architecture.md#fencing); JVM members ignore it."""
        return f"{self.ours}/members"

    @property
    def topics(self) -> str:
        """Parent of the records of the topics that our members have consumed (adr/0025)."""
        return f"{self.ours}/topics"

    @property
    def migrated(self) -> str:
        """The mark of a group that was migrated (adr/0037); no member of ours registers while it exists."""
        return f"{self.ours}/migrated"

    def stamp_topic(self, topic: str) -> str:
        """Parent of the stamps of one topic's offsets (adr/0029)."""
        return f"{self.ours}/commits/{topic}"

    def stamp(self, partition: TopicPartition) -> str:
        """The stamp of the offset of one partition."""
        return f"{self.stamp_topic(partition.topic)}/{partition.partition}"

    @property
    def ours(self) -> str:
        """Parent of all znodes that only zkconsumer knows."""
        return f"{self.root}/zkconsumer"

    def consumer_id(self, consumer_id: str) -> str:
        """The registration of one member."""
        return f"{self.ids}/{_require_name(consumer_id, 'consumer')}"

    def owner_topic(self, topic: str) -> str:
        """Parent of the owner znodes of one topic."""
        return f"{self.owners}/{_require_name(topic, 'topic')}"

    def owner(self, partition: TopicPartition) -> str:
        """The owner znode of one partition."""
        return f"{self.owner_topic(partition.topic)}/{partition.partition}"

    def offset_topic(self, topic: str) -> str:
        """Parent of the offset znodes of one topic."""
        return f"{self.offsets}/{_require_name(topic, 'topic')}"

    def offset(self, partition: TopicPartition) -> str:
        """The offset znode of one partition."""
        return f"{self.offset_topic(partition.topic)}/{partition.partition}"

    def session(self, consumer_id: str, session_id: int) -> str:
        """The session node of one member in one ZooKeeper session; its name fences transactions.

        See architecture.md#fencing.
        """
        return f"{self.members}/{consumer_id}@{session_id:016x}"

    def hold(self, session_id: int) -> str:
        """The node of a tool that holds the group while it writes offsets; its name fences the tool's transactions."""
        return f"{self.ours}/{HOLD}{session_id:016x}"


def offset_partition(path: str) -> tuple[str, str, str] | None:
    """Group, topic and the name of the partition in the path of an offset znode; None if it is another path.

    >>> offset_partition("/consumers/g/offsets/clicks/0"), offset_partition("/consumers/g/owners/clicks/0")
    (('g', 'clicks', '0'), None)
    """
    match path.split("/"):
        case ["", root, group, "offsets", topic, partition] if f"/{root}" == CONSUMERS and group and topic:
            return group, topic, partition
    return None


_PARTITION: Final = re.compile("0|[1-9][0-9]{0,9}")
_MOST_PARTITION: Final = 2**31 - 1


def partition_named(name: str) -> int | None:
    r"""The number of the partition that the znode of an owner or of an offset is named by; None if it is another znode.

    Members look for the plain decimal number only, so ``007`` is no partition's.

    >>> [partition_named(name) for name in ("0", "12", "007", "\u00b2", "-1", "2147483648")]
    [0, 12, None, None, None, None]
    """
    number = int(name) if _PARTITION.fullmatch(name) else None
    return None if number is None or number > _MOST_PARTITION else number


_NOT_IN_NAMES = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
"""Characters that ZooKeeper refuses in the name of a node (``PathUtils.validatePath``), and the slash."""


@lru_cache(maxsize=4096)
def is_node_name(name: str) -> bool:
    r"""True if ZooKeeper allows a znode of this name.

    A registration may name topics that lead to other znodes, such as ``..``, or that no request can carry: a lone
    surrogate, which JSON can hold, is no text in UTF-8, and kazoo's connection would end.

    >>> is_node_name("clicks"), is_node_name(".."), is_node_name("a/b"), is_node_name("\ud800")
    (True, False, False, False)
    """
    return bool(name) and name not in (".", "..") and _NOT_IN_NAMES.search(name) is None


def _require_name(name: str, what: str) -> str:
    """The name of a group, topic or consumer, if a znode can have it."""
    if not is_node_name(name):
        raise ZkConsumerError(f"{name!r} cannot be the name of a {what}: no znode can have it")
    return name
