"""End: where a migration reads offsets, or writes them, as a URI names it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from zkconsumer.zookeeper.rules.grouppaths import GroupPaths, is_node_name

EndKind = Literal["zookeeper", "kafka", "storm", "dibbhatt", "spark", "spark-options"]
"""A group in ZooKeeper or in Kafka; Storm's spout; the receiver by dibbhatt; a checkpoint of Spark; a file with the
JSON of its option ``startingOffsets``."""

_KINDS: Final[Mapping[str, EndKind]] = {
    "zookeeper": "zookeeper",
    "kafka": "kafka",
    "storm": "storm",
    "dibbhatt": "dibbhatt",
    "spark": "spark",
    "spark-options": "spark-options",
}
_IN_ZOOKEEPER: Final = ("zookeeper", "storm", "dibbhatt")
_TARGETS: Final = ("zookeeper", "kafka", "spark-options")
_FORMS: Final = (
    "zookeeper:GROUP[@HOST:PORT/CHROOT], kafka:GROUP, storm:/ROOT/ID, dibbhatt:/PATH/ID, spark:CHECKPOINT or "
    "spark-options:FILE"
)
_SERVERS: Final = re.compile(r"[^@/\s]+:\d+(,[^@/\s]+:\d+)*(/\S*)?")


class End(NamedTuple):
    """Where offsets are read, or written.

    Attributes:
        kind: see :data:`EndKind`.
        group: name of the group; for other kinds the path of its znodes, or of the directory or file.
        servers: servers and chroot of ZooKeeper; None for those of the command.
    """

    kind: EndKind
    group: str
    servers: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.group}{f'@{self.servers}' if self.servers else ''}"


def parse_end(text: str) -> End:
    """An end from its URI, such as ``zookeeper:GROUP[@HOST:PORT[,..][/CHROOT]]`` or ``kafka:GROUP``.

    Raises:
        ValueError: another form.

    >>> parse_end("zookeeper:clicks@h1:2181,h2:2181/kafka")
    End(kind='zookeeper', group='clicks', servers='h1:2181,h2:2181/kafka')
    """
    kind, _, rest = text.partition(":")
    group, servers = rest, None
    if kind in _IN_ZOOKEEPER and "@" in rest and _SERVERS.fullmatch(rest.rpartition("@")[2]):
        group, _, servers = rest.rpartition("@")
    if kind not in _KINDS or not _fits(kind, group):
        raise ValueError(f"{text!r} is no end of a migration; write {_FORMS}")
    return End(_KINDS[kind], group, servers)


def _fits(kind: str, name: str) -> bool:
    """True if it can be the name of a group, the absolute path of a znode, or a path of files."""
    if kind in ("storm", "dibbhatt"):
        return name.startswith("/") and all(is_node_name(part) for part in name[1:].split("/"))
    return bool(name) if kind.startswith("spark") else is_node_name(name)


def check_ends(source: End, target: End) -> None:
    """Refuse ends between which nothing can be migrated.

    Raises:
        ValueError: the target is read only, both are groups in ZooKeeper or both in Kafka, or one would overwrite the
            other.
    """
    if source.kind == "dibbhatt" and target.kind == "zookeeper" and source.group == GroupPaths(target.group).root:
        raise ValueError(f"{target} has the znodes of {source}, which would be overwritten; give another group")
    if target.kind not in _TARGETS:
        raise ValueError(f"{target} can only be read; the target is zookeeper:, kafka: or spark-options:")
    if source.kind == target.kind:
        raise ValueError(
            f"{source} and {target} are in one kind of store; `zkconsumer offsets copy` copies within ZooKeeper"
        )


def check_servers(source: End, target: End, *, has_servers: bool) -> str | None:
    """The servers of ZooKeeper for the group, and for the brokers if they are found there.

    Servers in the URI of an end apply to that end. Only for a source that is read beside a group in Kafka they also
    apply to the brokers, where the command names no others.

    Args:
        source: where offsets are read.
        target: where they are written.
        has_servers: the command names servers of its own.

    Returns:
        The servers that an end names; None for those of the command.

    Raises:
        ValueError: the source names servers, and neither the group nor the command does.
    """
    for end in (source, target):
        if end.kind == "zookeeper" and end.servers is not None:
            return end.servers
    if source.servers is None or has_servers:
        return None
    if target.kind == "zookeeper":
        raise ValueError(
            f"the servers of {source} are not those of {target}; give --zookeeper, or write {target}@HOST:PORT/CHROOT"
        )
    return source.servers
