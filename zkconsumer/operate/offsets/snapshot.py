"""Snapshot: what a write changes and how far it has come, in a file that is on the disk before the first change.

The file is what undoes a write, completes it, or shows that it is complete: ``offsets restore`` reads it, and so do
``migrate run``, ``rollback``, ``mirror`` and ``reverse``, whose file is beside the plan.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import itertools
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from zkconsumer.errors import WriteRefused, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan
from zkconsumer.operate.migrate.rules.planfile import decode_plan, plan_digest
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.wholefiles import prepared, sync
from zkconsumer.zookeeper.access import Access
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.rules.grouppaths import CONSUMERS, offset_partition, partition_named

_VERSION: Final = 2
_KIND: Final = "zkconsumer snapshot"


class NodeState(NamedTuple):
    """A znode's data, and what identifies the write of it.

    ``version`` and ``mzxid`` are -1 for a node that is still to be written; ``access`` is None where it was not read,
    since the node stays, and for a node to create that gets the session's default. A node that a rollback would remove
    has it, for the run after that.
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

    def is_former(self, now: Znode | None) -> bool:
        """True if the znode is the one of before: neither the command has written it since, nor another client."""
        return self.before is not None and now is not None and now.mzxid == self.before.mzxid


class KafkaChange(NamedTuple):
    """What happens to one offset in Kafka; None stands for no offset.

    ``metadata`` is of the new offset, ``former`` of the one before, which may be of an earlier topic; a snapshot of an
    earlier release does not have it.
    """

    partition: TopicPartition
    before: int | None
    after: int | None
    metadata: str = ""
    former: str = ""

    def is_former(self, stored: StoredOffset) -> bool:
        """True if what is stored is known to be the commit of before, even if the new offset is equal to it."""
        return stored.mark == self.former not in ("", self.metadata)


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
        state: how far the command has come.
        plan: SHA-256 of the migration's plan; None for other commands.
        beyond: of a migration, the target's offsets of partitions that the plan does not have, when the run began.
        identities: of the topics, as :attr:`~zkconsumer.model.TopicIdentity.recorded` has them; None of one that did
            not exist. Topics whose identity is unknown are absent.
    """

    command: str
    zookeeper: str
    created_ms: int
    groups: tuple[GroupChange, ...]
    state: WriteState = WriteState.WRITING
    plan: str | None = None
    beyond: Mapping[TopicPartition, int] = field(default_factory=dict)
    identities: Mapping[str, str | int | None] = field(default_factory=dict)


def partition_of(path: str) -> TopicPartition | None:
    """The partition whose offset a znode holds; None for another znode."""
    parts = offset_partition(path)
    number = None if parts is None else partition_named(parts[2])
    return None if parts is None or number is None else TopicPartition(parts[1], number)


def default_path(command: str, directory: Path | None = None) -> Path:
    """A name for a snapshot in ``directory`` (the current one) that no file has; it begins with the time in UTC."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", command)[:80].strip("-.")
    first = f"zkconsumer-{stamp}-{name}-{os.getpid()}"
    names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))  # twice within a second
    paths = ((directory or Path.cwd()) / f"{name}.snapshot.json" for name in names)
    return next(path for path in paths if not path.exists())


class SnapshotFile:
    """The file of a write. One process writes it.

    Args:
        path: of the file, which need not exist.
        is_new: the file must not exist when it is begun; otherwise it is the file of one plan, whose runs replace it.

    Attributes:
        snapshot: what the file holds; None before it is begun.

    Raises:
        ZkConsumerError: the file is not a snapshot.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, *, is_new: bool = True) -> None:
        self.path = path
        self._is_new = is_new
        self.snapshot = None if is_new or not path.exists() else read_snapshot(path)

    @property
    def state(self) -> WriteState | None:
        """How far the write has come; None if it has not begun."""
        return None if self.snapshot is None else self.snapshot.state

    @contextmanager
    def prepared(self, snapshot: Snapshot) -> Iterator[Callable[[], None]]:
        """Prepare what is about to be written; what this yields records it, and waits until it is on the disk.

        Raises:
            OSError: the file cannot be written, or exists although it should be new; also when it is recorded.
        """
        snapshot = replace(snapshot, state=WriteState.WRITING)
        if self._is_new and self.path.exists():
            raise FileExistsError(
                errno.EEXIST, "the file exists, so nothing was written; give a new name", str(self.path)
            )
        with self._on_disk(snapshot) as put:

            def begin() -> None:
                if self._is_new:
                    self._create()
                    self._is_new = False
                self._put(snapshot, put)

            yield begin

    def begin(self, snapshot: Snapshot) -> None:
        """Record what is about to be written, as :meth:`prepared` does and raises."""
        with self.prepared(snapshot) as begin:
            begin()

    def mark(self, state: WriteState) -> None:
        """Record how far the write has come; raises OSError as :meth:`begin`."""
        assert self.snapshot is not None
        if state is not self.state:
            snapshot = replace(self.snapshot, state=state)
            with self._on_disk(snapshot) as put:
                self._put(snapshot, put)

    def restore(self, state: WriteState | None) -> None:
        """Nothing was written since the write had come as far as ``state``: the file is what it was then.

        Raises:
            OSError: as :meth:`begin`.
        """
        if state is not None:
            self.mark(state)
        elif self.snapshot is not None:
            self._remove()
            self.snapshot = None

    def _on_disk(self, snapshot: Snapshot) -> AbstractContextManager[Callable[[], None]]:
        return prepared(self.path, "".join(_lines(snapshot)), mode=0o600)

    def _create(self) -> None:
        """The empty file, readable by its owner only, so that no file of another command is replaced."""
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    def _put(self, snapshot: Snapshot, put: Callable[[], None]) -> None:
        """Replace the file; if that fails, it is what it was.

        Otherwise: 1. the file of a plan's run is replaced, and the disk fails before the directory is on it; 2. nothing
        is written; 3. consumers begin at the target by auto.offset.reset, commit and are stopped; 4. the next run takes
        them for consumers that have continued after a run that was killed.
        """
        try:
            put()
        except OSError:
            with suppress(OSError):
                self._put_back()
            raise
        self.snapshot = snapshot

    def _remove(self) -> None:
        """Remove the file. :meth:`_put` explains why it must not come back after a power failure."""
        self.path.unlink(missing_ok=True)
        sync(self.path.absolute().parent)

    def _put_back(self) -> None:
        if self.snapshot is None:
            self._remove()
        else:
            with self._on_disk(self.snapshot) as put:
                put()


OF_RUNS: Final = "snapshot.json"
OF_MIRROR: Final = "mirror"


def beside(plan_file: Path, ending: str) -> Path:
    """A file beside a plan: ``g.plan.json`` has ``g.plan.json.snapshot.json``."""
    return plan_file.with_name(f"{plan_file.name}.{ending}")


def snapshot_of_plan(plan: MigrationPlan, plan_file: Path, ending: str = OF_RUNS) -> SnapshotFile:
    """The file of a plan's runs, or with another ending that of its mirror; it need not exist yet.

    Raises:
        ZkConsumerError: the file is not a snapshot, or that of another plan.
        OSError: it cannot be read.
    """
    path = beside(plan_file, ending)
    try:
        file = SnapshotFile(path, is_new=False)
    except ZkConsumerError as error:
        raise ZkConsumerError(
            f"{path} is broken: put a copy of it back, or move it away, and check with `migrate verify` ({error})"
        ) from None
    if file.snapshot is not None and file.snapshot.plan != plan_digest(plan):
        raise ZkConsumerError(f"{file.path} is of another plan; move it away, and check with `migrate verify`")
    return file


@contextmanager
def exclusive(plan_file: Path, plan: MigrationPlan | None = None) -> Iterator[None]:
    """Lock a plan. The lock ends with the process.

    With ``plan`` the file must still have it: 1. a command reads a plan; 2. another one replaces it; 3. the first one
    would run what is in no file, and what runs keep beside the file would be of another plan.

    Two runs of a plan whose source cannot be held would not notice each other, and a mirror that copies while the way
    back is planned would make that plan stale.

    The file is opened for writing, although nothing is written: NFS locks the range of bytes, and refuses an exclusive
    lock of a file that is open for reading (EBADF).

    Raises:
        WriteRefused: another command has the lock, or has replaced the plan.
        OSError: the file cannot be locked, for example because it may not be written.
    """
    with plan_file.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WriteRefused(
                f"another run of {plan_file}, or its mirror (of a fleet, one process for all groups of its wave), is "
                f"under way; wait until it has ended, or end it: `fuser {shlex.quote(str(plan_file))}` names its pid"
            ) from None
        is_replaced = not os.path.samestat(os.fstat(file.fileno()), plan_file.stat())
        if is_replaced or (plan is not None and decode_plan(str(plan_file), file.read()) != plan):
            raise WriteRefused(
                f"{plan_file} was replaced by another plan meanwhile; look at it, and repeat the command"
            )
        yield


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
        plan = document["plan"]
        return Snapshot(
            document["command"],
            document["zookeeper"],
            int(document["created_ms"]),
            tuple(map(_group, document["groups"])),
            WriteState(document["state"]),
            None if plan is None else str(plan),
            {TopicPartition(str(topic), int(number)): int(offset) for topic, number, offset in document["beyond"]},
            {
                str(topic): None if identity is None else _identity(identity)
                for topic, identity in document["identities"].items()
            },
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
        "state": snapshot.state,
        "plan": snapshot.plan,
        "beyond": [[p.topic, p.partition, offset] for p, offset in sorted(snapshot.beyond.items())],
        "identities": dict(sorted(snapshot.identities.items())),
    }
    yield f'{json.dumps(head)[:-1]}, "groups": ['
    for number, change in enumerate(snapshot.groups):
        yield f'{"," if number else ""}\n{{"group": {json.dumps(change.group)}, "nodes": ['
        yield from _array(map(_encode_change, change.nodes))
        yield '], "kafka": ['
        yield from _array(map(_encode_kafka, change.kafka))
        yield "]}" if change.held_group == change.group else f'], "held": {json.dumps(change.held_group)}}}'
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
        **({"former": change.former} if change.former else {}),
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
                TopicPartition(str(entry["topic"]), int(entry["partition"])),
                None if entry["before"] is None else int(entry["before"]),
                None if entry["after"] is None else int(entry["after"]),
                str(entry["metadata"]),
                str(entry.get("former", "")),
            )
            for entry in document["kafka"]
        ),
    )
    return change.holding(None if held is None else str(held))


def _identity(recorded: Any) -> str | int:
    return recorded if isinstance(recorded, int) else str(recorded)


def _path(path: Any) -> str:
    if not isinstance(path, str) or not path.startswith(f"{CONSUMERS}/"):
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
        None if access is None else tuple((int(bits), str(scheme), str(name)) for bits, scheme, name in access),
    )
