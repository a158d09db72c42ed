"""What a fenced transaction writes, and what became of each of its operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kazoo.exceptions import NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency, ZookeeperError
from kazoo.protocol.serialization import Create, Delete, SetData

from zkconsumer.errors import SessionExpired, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.zookeeper.kazooadapter import translated_errors

TRANSACTION_SIZE: Final = 500
"""Operations sent in one transaction; 501 small ones stay far below jute.maxbuffer of 1 MiB (DESIGN 4.4)."""

_ANY_VERSION: Final = -1
_EPHEMERAL: Final = 1  # a flag of the request

_JUTE_MAXBUFFER: Final = 0xFFFFF
"""The servers' limit unless it is configured; a longer request makes them close the connection without a word."""

_MOST_REFUSED: Final = 10
"""Refused operations that are taken out one by one, a round trip each; where more are, probably all are."""

Kind = Literal["create-ephemeral", "create", "set", "delete"]
"""What a write does; ``create`` makes a persistent node."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One write of a fenced transaction. ``data`` is ignored for deletions."""

    kind: Kind
    path: str
    data: bytes | None = b""

    def __str__(self) -> str:
        return f"{self.kind.partition('-')[0]} {self.path}"


Outcome = Literal["done", "exists", "missing", "refused"]
"""What became of one operation: done; the node to create exists; the node, or the parent to create in, is missing; the
servers do not allow it."""

MISSED: Final[Mapping[Kind, Outcome]] = {
    "create-ephemeral": "exists",
    "create": "exists",
    "set": "missing",
    "delete": "missing",
}
"""What stands in the way of an operation that does not fit the node's existence."""


class Outcomes(dict[str, Outcome]):
    """Outcome by path.

    Attributes:
        versions: by path, the version that a node has after it was created or set.
        mzxids: by path, the ensemble's transaction that wrote a node which was set; the answer to a creation lacks it.
        refused: by path, why the servers do not allow an operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, int] = {}
        self.mzxids: dict[str, int] = {}
        self.refused: dict[str, ZooKeeperRefused] = {}

    def note_done(self, operations: Sequence[Operation], results: Sequence[Any]) -> None:
        """All of them were done; ``results`` are kazoo's, one for each."""
        for operation, result in zip(operations, results, strict=True):
            self[operation.path] = "done"
            if operation.kind == "set":
                self.versions[operation.path] = result.version
                self.mzxids[operation.path] = result.mzxid
            elif operation.kind != "delete":
                self.versions[operation.path] = 0

    def add(self, others: Outcomes) -> None:
        """Those of further operations, or of the same operations when they were tried again."""
        self.update(others)
        self.versions.update(others.versions)
        self.mzxids.update(others.mzxids)
        self.refused.update(others.refused)

    def note_refused(self, operation: Operation, reason: ZooKeeperRefused) -> None:
        """The servers do not allow it."""
        self[operation.path] = "refused"
        self.refused[operation.path] = reason


@dataclass(frozen=True, slots=True)
class Stop:
    """What stopped a transaction: the index of the operation that cannot be done, and why."""

    index: int
    outcome: Outcome
    reason: ZooKeeperRefused | None = None


@dataclass(slots=True)
class Batch:
    """A transaction under construction.

    Args:
        client: kazoo's.
        acl: access to what is created.
    """

    client: Any
    acl: Sequence[Any]
    _transaction: Any = field(init=False)
    _parts: list[Operation | str] = field(init=False, default_factory=list)
    _size: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._transaction = self.client.transaction()

    def check(self, path: str) -> None:
        """Do nothing unless the node exists."""
        self._transaction.check(path, _ANY_VERSION)
        self._note(f"check {path}", len(path))

    def add(self, operations: Iterable[Operation]) -> None:
        """Do these, all or none."""
        # Not by the methods of kazoo's transaction, which look at every path again: that took half the time of a claim.
        root, acl = self.client.chroot, list(self.acl)
        for operation in operations:
            path = root + operation.path
            if operation.kind == "delete":
                request = Delete(path, _ANY_VERSION)
            elif operation.kind == "set":
                request = SetData(path, operation.data, _ANY_VERSION)
            else:
                request = Create(path, operation.data, acl, _EPHEMERAL if operation.kind == "create-ephemeral" else 0)
            self._transaction.operations.append(request)
            self._note(operation, len(operation.path) + len(operation.data or b""))

    def _note(self, part: Operation | str, size: int) -> None:
        self._parts.append(part)
        self._size += size

    def commit(self, timeout: float) -> Stop | list[Any]:
        """Send it; kazoo's results if it was done, else what stopped it.

        Args:
            timeout: how long to wait for the answer, in seconds.

        Raises:
            ZooKeeperUnavailable: no answer; whether it was done is unknown.
            SessionExpired: nothing was done.
        """
        first, last = self._parts[0], self._parts[-1]
        what = str(first) if len(self._parts) == 1 else f"a transaction from {first} to {last}"
        try:
            with translated_errors(what):
                results = self._transaction.commit_async().get(timeout=timeout)
        except ZooKeeperUnavailable as error:
            if self._size < _JUTE_MAXBUFFER:
                raise
            raise ZooKeeperUnavailable(
                f"{error} Its {self._size} bytes are more than the servers accept unless their jute.maxbuffer is raised"
            ) from error
        for index, result in enumerate(results):
            if isinstance(result, NodeExistsError):
                return Stop(index, "exists")
            if isinstance(result, NoNodeError):
                return Stop(index, "missing")
            if isinstance(result, ZookeeperError) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
                return Stop(index, "refused", self._refusal(index, result))
        return list(results)

    def _refusal(self, index: int, error: ZookeeperError) -> ZooKeeperRefused:
        try:
            with translated_errors(str(self._parts[index])):
                raise error
        except ZooKeeperRefused as refused:
            return refused


@dataclass(frozen=True, slots=True)
class FencedTransactions:
    """Does operations in transactions that each check a fence first; what cannot be done is left out.

    Args:
        client: kazoo's.
        acl: access to what is created.
        timeout: how long to wait for each answer, in seconds.
        read: many nodes by path, None for each that does not exist.
    """

    client: Any
    acl: Sequence[Any]
    timeout: float
    read: Callable[[Iterable[str]], Mapping[str, object | None]]

    def run(self, fence: str, operations: Sequence[Operation], insist: bool) -> Outcomes:
        """See :meth:`ZkSession.try_transact <zkconsumer.zookeeper.session.ZkSession.try_transact>`."""
        outcomes = Outcomes()
        for start in range(0, len(operations), TRANSACTION_SIZE):
            done = self._do_group(fence, operations[start : start + TRANSACTION_SIZE], outcomes, insist)
            if not done and not insist:
                break
        return outcomes

    def _do_group(self, fence: str, group: Sequence[Operation], outcomes: Outcomes, insist: bool) -> bool:
        """True if nothing of the group had to be left out."""
        remaining = list(group)
        while remaining:
            batch = Batch(self.client, self.acl)
            batch.check(fence)
            batch.add(remaining)
            answer = batch.commit(self.timeout)
            if not isinstance(answer, Stop):
                outcomes.note_done(remaining, answer[1:])
                break
            if answer.index == 0:
                if answer.reason is not None:
                    raise answer.reason
                raise SessionExpired(f"session node {fence} is gone: this session owns nothing any more")
            self._take_out(remaining, answer, outcomes, insist)
            remaining = [operation for operation in remaining if operation.path not in outcomes]
            if not insist:
                break
        return all(outcomes.get(operation.path) == "done" for operation in group)

    def _take_out(self, operations: Sequence[Operation], stop: Stop, outcomes: Outcomes, insist: bool) -> None:
        """Note what stopped a transaction: at least one of its operations cannot be done."""
        stopped = operations[stop.index - 1]
        if stop.reason is None:
            # One is impossible, and the server names only the first such: ask for all of them at once.
            found = self._impossible(operations) if insist else {}
            outcomes.update(found or {stopped.path: stop.outcome})
        elif len(outcomes.refused) < _MOST_REFUSED:
            outcomes.note_refused(stopped, stop.reason)
        else:
            raise stop.reason

    def _impossible(self, operations: Sequence[Operation]) -> dict[str, Outcome]:
        creations = [operation for operation in operations if operation.kind.startswith("create")]
        parents = {operation.path: operation.path.rpartition("/")[0] or "/" for operation in creations}
        found = self.read([*(operation.path for operation in operations), *parents.values()])
        impossible = {
            operation.path: MISSED[operation.kind]
            for operation in operations
            if (found[operation.path] is not None) == operation.kind.startswith("create")
        }
        orphans: dict[str, Outcome] = {path: "missing" for path, parent in parents.items() if found[parent] is None}
        return impossible | orphans
