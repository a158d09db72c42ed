"""Reads the offsets of other layouts: consumers of the ZooKeeper era, Spark checkpoints, files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from zkconsumer.errors import MalformedZnode, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.layoutdecoding import (
    last_committed,
    older_receiver_offset,
    parse_offset_log,
    parse_starting_offsets,
    partition_number,
    receiver_offset,
    storm_offset,
)
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.zookeeper.rules.grouppaths import partition_named
from zkconsumer.zookeeper.session import ZkSession


class LayoutOffsets(NamedTuple):
    """The offsets of a layout.

    Attributes:
        offsets: the next offset of each partition.
        problems: znodes that hold something else, one sentence each.
        warnings: what the operator should know.
    """

    offsets: dict[TopicPartition, int]
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_layout(session: ZkSession, end: End) -> LayoutOffsets:
    """The offsets at an end that is neither a group of the JVM's layout nor in Kafka.

    Raises:
        ZkConsumerError: there is nothing, or a file has something else than the layout.
        OSError: a file cannot be read.
    """
    return _READERS[end.kind](session, end.group)


def _storm(session: ZkSession, root: str) -> LayoutOffsets:
    topics = [name for name in _children(session, root) if partition_number(name) is None]
    parents = dict.fromkeys([root, *(f"{root}/{topic}" for topic in topics)], "")
    return _decoded(session, root, _partitions(session, parents, partition_number), storm_offset)


def _receiver(session: ZkSession, root: str) -> LayoutOffsets:
    """The newer layout where there is one; a receiver that was upgraded leaves its older znodes."""
    names = _children(session, root)
    if "offsets" in names:
        parents = {f"{root}/offsets/{topic}": topic for topic in _children(session, f"{root}/offsets")}
        newer = _partitions(session, parents, partition_named)
        return _decoded(session, root, newer, lambda path, data: (newer[path], receiver_offset(path, data)))
    older = _partitions(session, {f"{root}/{topic}/processed": topic for topic in names}, partition_number)
    return _decoded(session, root, older, lambda path, data: (older[path], older_receiver_offset(path, data)))


def _decoded(
    session: ZkSession,
    root: str,
    paths: Collection[str],
    decode: Callable[[str, bytes | None], tuple[TopicPartition, int]],
) -> LayoutOffsets:
    """What the znodes hold; one that cannot be read costs its partition alone."""
    offsets: dict[TopicPartition, int] = {}
    problems: list[str] = []
    for path, node in session.get_many(paths).items():
        if node is None:
            continue
        try:
            partition, offset = decode(path, node.data)
        except MalformedZnode as error:
            problems.append(str(error))
            continue
        if partition in offsets:
            problems.append(f"{root} has two znodes of {partition}, with and without the topic in the path")
        offsets[partition] = offset
    if not offsets and not problems:
        raise ZkConsumerError(f"{root} has no offsets of this layout; check the path")
    return LayoutOffsets(offsets, tuple(problems))


def _partitions(
    session: ZkSession, parents: Mapping[str, str], number_of: Callable[[str], int | None]
) -> dict[str, TopicPartition]:
    """Paths of the znodes below parents, whose topics are given, with the partition that each belongs to."""
    return {
        f"{parent}/{name}": TopicPartition(parents[parent], number)
        for parent, names in session.children_of(parents).existing().items()
        for name in names
        if (number := number_of(name)) is not None
    }


def _children(session: ZkSession, path: str) -> list[str]:
    names = session.children(path)
    if names is None:
        raise ZkConsumerError(f"{path} does not exist in ZooKeeper; check the path and the chroot")
    return sorted(names)


def _checkpoint(_session: ZkSession, path: str) -> LayoutOffsets:
    directory = Path(path)
    if not (directory / "offsets").is_dir():
        raise ZkConsumerError(
            f"{directory} is not the checkpoint of a query in a local directory: it has no offsets; copy offsets and "
            "commits of a remote one"
        )
    commits = directory / "commits"
    batch = last_committed(
        (path.name for path in (directory / "offsets").iterdir()),
        (path.name for path in commits.iterdir()) if commits.is_dir() else (),
    )
    if batch is None:
        raise ZkConsumerError(f"{directory} has no finished batch, so its query begins at its startingOffsets")
    number, has_unfinished = batch
    file = directory / "offsets" / str(number)
    warning = (
        f"batch {number + 1} of {directory} is not finished; its records are read again, from the end of {number} on"
    )
    offsets = parse_offset_log(str(file), file.read_text(encoding="utf-8"))
    return LayoutOffsets(offsets, warnings=(warning,) if has_unfinished else ())


def _options(_session: ZkSession, path: str) -> LayoutOffsets:
    return LayoutOffsets(parse_starting_offsets(path, Path(path).read_text(encoding="utf-8")))


_READERS: Final[Mapping[str, Callable[[ZkSession, str], LayoutOffsets]]] = {
    "storm": _storm,
    "dibbhatt": _receiver,
    "spark": _checkpoint,
    "spark-options": _options,
}
