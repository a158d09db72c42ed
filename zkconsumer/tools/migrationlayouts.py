"""Reads the offsets of other layouts: consumers of the ZooKeeper era, Spark checkpoints, files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from zkconsumer.core.migrationend import End
from zkconsumer.core.migrationlayouts import (
    last_committed,
    older_receiver_offset,
    parse_offset_log,
    parse_starting_offsets,
    partition_number,
    receiver_offset,
    storm_offset,
)
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.session import ZkSession


class LayoutOffsets(NamedTuple):
    """The next offset of each partition, and what the operator should know of them."""

    offsets: dict[TopicPartition, int]
    warnings: tuple[str, ...] = ()


def read_layout(session: ZkSession, end: End) -> LayoutOffsets:
    """The offsets at an end that is neither a group of the JVM's layout nor in Kafka.

    Raises:
        ZkConsumerError: there is nothing, or something else than the layout has.
        OSError: a file cannot be read.
    """
    match end.kind:
        case "storm":
            return LayoutOffsets(_storm(session, end.group))
        case "dibbhatt":
            return LayoutOffsets(_receiver(session, end.group))
        case "spark":
            return _checkpoint(Path(end.group))
    path = Path(end.group)
    return LayoutOffsets(parse_starting_offsets(str(path), path.read_text(encoding="utf-8")))


def _storm(session: ZkSession, root: str) -> dict[TopicPartition, int]:
    names = _children(session, root)
    paths = [f"{root}/{name}" for name in names if partition_number(name) is not None]
    topics = [f"{root}/{name}" for name in names if partition_number(name) is None]
    for parent, below in session.children_of(topics).existing().items():
        paths += [f"{parent}/{name}" for name in below if partition_number(name) is not None]
    found: dict[TopicPartition, int] = {}
    for path, node in _nodes(session, paths).items():
        partition, offset = storm_offset(path, node.data)
        if partition in found:
            raise ZkConsumerError(f"{root} has two znodes of {partition}, with and without the topic in the path")
        found[partition] = offset
    return _some(root, found)


def _receiver(session: ZkSession, root: str) -> dict[TopicPartition, int]:
    """The newer layout where there is one; a receiver that was upgraded leaves its older znodes."""
    names = _children(session, root)
    if "offsets" in names:
        parents = {f"{root}/offsets/{topic}": topic for topic in _children(session, f"{root}/offsets")}
        newer = _partitions(session, parents, lambda name: int(name) if name.isascii() and name.isdigit() else None)
        return _some(root, {newer[p]: receiver_offset(p, node.data) for p, node in _nodes(session, newer).items()})
    parents = {f"{root}/{topic}/processed": topic for topic in names}
    older = _partitions(session, parents, partition_number)
    return _some(root, {older[p]: older_receiver_offset(p, node.data) for p, node in _nodes(session, older).items()})


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


def _nodes(session: ZkSession, paths: Mapping[str, TopicPartition] | list[str]) -> dict[str, Znode]:
    return {path: node for path, node in session.get_many(paths).items() if node is not None}


def _some(root: str, found: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    if not found:
        raise ZkConsumerError(f"{root} has no offsets of this layout; check the path")
    return found


def _checkpoint(directory: Path) -> LayoutOffsets:
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
    return LayoutOffsets(
        parse_offset_log(str(file), file.read_text(encoding="utf-8")), (warning,) if has_unfinished else ()
    )
