"""Snapshot: what a write is going to change, kept in a file before the first change."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.conditional import Access

_VERSION: Final = 1
_KIND: Final = "zkconsumer snapshot"


class NodeState(NamedTuple):
    """A znode's data, and what identifies the write of it.

    ``version`` and ``mzxid`` are -1 for a node that is still to be written; ``access`` is None where it was not read,
    since the node stays, and for a node to create that gets the session's default.
    """

    data: bytes | None
    version: int = -1
    mzxid: int = -1
    access: Access | None = None


class NodeChange(NamedTuple):
    """What happens to one znode; None stands for no node."""

    path: str
    before: NodeState | None
    after: NodeState | None


class KafkaChange(NamedTuple):
    """What happens to one offset in Kafka; None stands for no offset."""

    partition: TopicPartition
    before: int | None
    after: int | None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupChange:
    """What happens to one group.

    Attributes:
        group: its name.
        nodes: changes of znodes.
        kafka: changes of offsets in Kafka.
        held: the group in ZooKeeper whose members are kept from consuming meanwhile, if it has another name.
        is_held: False if there is no such group, since offsets move between other stores.
    """

    group: str
    nodes: tuple[NodeChange, ...]
    kafka: tuple[KafkaChange, ...] = ()
    held: str | None = None
    is_held: bool = True

    @property
    def held_group(self) -> str | None:
        """The group in ZooKeeper whose members are kept from consuming meanwhile; None if there is no such group."""
        if not self.is_held:
            return None
        return self.group if self.held is None else self.held

    def holding(self, group: str | None) -> GroupChange:
        """The same change while another group in ZooKeeper is held, or none."""
        return replace(self, held=None if group == self.group else group, is_held=group is not None)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one command changes.

    Attributes:
        command: what the operator asked for, for readers of the file.
        zookeeper: servers and chroot, as given.
        created_ms: ms since the epoch.
        groups: in the order in which they are written.
    """

    command: str
    zookeeper: str
    created_ms: int
    groups: tuple[GroupChange, ...]


def default_path(command: str, directory: Path | None = None) -> Path:
    """A name for a snapshot in ``directory`` (the current one) that no file has; it begins with the time in UTC."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", command)[:80].strip("-.")
    first = f"zkconsumer-{stamp}-{name}-{os.getpid()}"
    names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))  # twice within a second
    paths = ((directory or Path.cwd()) / f"{name}.snapshot.json" for name in names)
    return next(path for path in paths if not path.exists())


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write a new file, readable by its owner only, and wait until it is on the disk.

    Raises:
        OSError: it cannot be written, or exists.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(_lines(snapshot))
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_snapshot(path: Path) -> Snapshot:
    """Read the file.

    Raises:
        ZkConsumerError: it is not a snapshot.
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    with _as_fault(path):
        document = json.loads(content)
        if document["kind"] != _KIND or document["version"] != _VERSION:
            raise ValueError("another kind or version of file")
        return Snapshot(
            document["command"],
            document["zookeeper"],
            int(document["created_ms"]),
            tuple(map(_group, document["groups"])),
        )


@contextmanager
def _as_fault(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ZkConsumerError(
            f"{path} is not a snapshot of this release ({error!r}); give the path that the writing command printed"
        ) from None


def _lines(snapshot: Snapshot) -> Iterator[str]:
    """One JSON document, with a line for each change: json's own indentation would take most of a restore's time."""
    head = {
        "kind": _KIND,
        "version": _VERSION,
        "command": snapshot.command,
        "zookeeper": snapshot.zookeeper,
        "created_ms": snapshot.created_ms,
    }
    yield f'{json.dumps(head)[:-1]}, "groups": ['
    for number, one in enumerate(snapshot.groups):
        yield f'{"," if number else ""}\n{{"group": {json.dumps(one.group)}, "nodes": ['
        yield from _array(map(_encode_change, one.nodes))
        yield '], "kafka": ['
        yield from _array(map(_encode_kafka, one.kafka))
        yield "]}" if one.held_group == one.group else f'], "held": {json.dumps(one.held_group)}}}'
    yield "\n]}\n"


def _array(documents: Iterable[dict[str, Any]]) -> Iterator[str]:
    for number, document in enumerate(documents):
        yield f"{',' if number else ''}\n {json.dumps(document)}"


def _encode_change(change: NodeChange) -> dict[str, Any]:
    return {"path": change.path, "before": _encode_node(change.before), "after": _encode_node(change.after)}


def _encode_kafka(change: KafkaChange) -> dict[str, Any]:
    return {
        "topic": change.partition.topic,
        "partition": change.partition.partition,
        "before": change.before,
        "after": change.after,
        "metadata": change.metadata,
    }


def _encode_node(state: NodeState | None) -> dict[str, Any] | None:
    if state is None:
        return None
    document: dict[str, Any] = {}
    try:
        document["data"] = None if state.data is None else state.data.decode("utf-8")
    except UnicodeDecodeError:
        document["data_base64"] = base64.b64encode(state.data or b"").decode()
    document |= {"version": state.version, "mzxid": state.mzxid}
    if state.access is not None:
        document["access"] = [list(entry) for entry in state.access]
    return document


def _group(document: Any) -> GroupChange:
    group = str(document["group"])
    held = document.get("held", group)
    change = GroupChange(
        group,
        tuple(NodeChange(_path(n["path"]), _state(n["before"]), _state(n["after"])) for n in document["nodes"]),
        tuple(
            KafkaChange(
                TopicPartition(str(k["topic"]), int(k["partition"])),
                None if k["before"] is None else int(k["before"]),
                None if k["after"] is None else int(k["after"]),
                str(k["metadata"]),
            )
            for k in document["kafka"]
        ),
    )
    return change.holding(None if held is None else str(held))


def _path(path: Any) -> str:
    if not isinstance(path, str) or not path.startswith("/consumers/"):
        raise ValueError(f"path {path!r} is not below /consumers")
    return path


def _state(document: Any) -> NodeState | None:
    if document is None:
        return None
    if "data_base64" in document:
        data: bytes | None = base64.b64decode(document["data_base64"], validate=True)
    else:
        data = None if document["data"] is None else document["data"].encode()
    access = document.get("access")
    return NodeState(
        data,
        int(document["version"]),
        int(document["mzxid"]),
        None if access is None else tuple((int(p), str(s), str(i)) for p, s, i in access),
    )
