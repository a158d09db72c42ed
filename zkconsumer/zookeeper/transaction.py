"""Fenced transactions: their operations, and the outcome of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)
from kazoo.protocol.serialization import Create, Delete, SetData

from zkconsumer.errors import SessionExpired, ShareChanged, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.zookeeper.kazooadapter import translated_errors

TRANSACTION_SIZE: Final = 500
"""Operations sent in one transaction; 501 small ones stay far below jute.maxbuffer of 1 MiB.

See architecture.md#round-trips.
"""

_ANY_VERSION: Final = -1
_EPHEMERAL: Final = 1  # a flag of the request

_JUTE_MAXBUFFER: Final = 0xFFFFF
"""The servers' limit unless it is configured; they close the connection without an answer to a longer request."""

_MOST_REFUSED: Final = 10
"""Most refused operations that are removed one by one, a round trip each; if there are more, probably all are."""

Kind = Literal["create-ephemeral", "create", "set", "delete"]
"""Kinds of writes; ``create`` makes a persistent node."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One write of a fenced transaction. ``data`` is ignored for deletions."""

    kind: Kind
    path: str
    data: bytes | None = b""

    def __str__(self) -> str:
        return f"{self.kind.partition('-')[0]} {self.path}"


Outcome = Literal["done", "exists", "missing", "changed", "refused"]
"""Outcome of one operation: done; the node to create exists; the node, or the parent to create in, is missing; the node
has another version than the one that was checked; the servers do not allow it."""

MISSED: Final[Mapping[Kind, Outcome]] = {
    "create-ephemeral": "exists",
    "create": "exists",
    "set": "missing",
    "delete": "missing",
}
"""Outcome of an operation whose node exists although it must not, or does not although it must."""


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
        """Record that all operations were done; ``results`` are kazoo's, one for each."""
        for operation, result in zip(operations, results, strict=True):
            self[operation.path] = "done"
            if operation.kind == "set":
                self.versions[operation.path] = result.version
                self.mzxids[operation.path] = result.mzxid
            elif operation.kind != "delete":
                self.versions[operation.path] = 0

    def add(self, others: Outcomes) -> None:
        """Add the outcomes of further operations, or of a repetition of the same operations."""
        self.update(others)
        self.versions.update(others.versions)
        self.mzxids.update(others.mzxids)
        self.refused.update(others.refused)

    def note_refused(self, operation: Operation, reason: ZooKeeperRefused) -> None:
        """Record that the servers do not allow an operation."""
        self[operation.path] = "refused"
        self.refused[operation.path] = reason


@dataclass(frozen=True, slots=True)
class Condition:
    """A node that has to be as it was read.

    Attributes:
        path: of the node.
        version: of the node.
    """

    path: str
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of {self.path}"


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a transaction was not done: the index of the operation that cannot be done, and the reason."""

    index: int
    outcome: Outcome
    reason: ZooKeeperRefused | None = None


@dataclass(slots=True)
class Batch:
    """A transaction under construction.

    Args:
        client: kazoo's client.
        acl: ACL of created nodes.
    """

    client: Any
    acl: Sequence[Any]
    _transaction: Any = field(init=False)
    _parts: list[Operation | str] = field(init=False, default_factory=list)
    _size: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._transaction = self.client.transaction()

    def check(self, path: str, version: int = _ANY_VERSION) -> None:
        """Let the transaction fail unless the node exists, and has this version."""
        self._transaction.check(path, version)
        self._note(f"check {path}", len(path))

    def add(self, operations: Iterable[Operation]) -> None:
        """Add operations, which are done all or none."""
        # Not by the methods of kazoo's transaction, which check every path again: that took half the time of a claim.
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
        """Send the transaction; returns kazoo's results if it was done, otherwise the reason why not.

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
                f"{error}. Its {self._size} bytes exceed what servers accept unless their jute.maxbuffer is raised"
            ) from error
        for index, result in enumerate(results):
            if isinstance(result, NodeExistsError):
                return Stop(index, "exists")
            if isinstance(result, NoNodeError):
                return Stop(index, "missing")
            if isinstance(result, BadVersionError):
                return Stop(index, "changed")
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
    """Does operations in transactions that each check a fence first; operations that cannot be done are skipped.

    Args:
        client: kazoo's client.
        acl: ACL of created nodes.
        timeout: how long to wait for each answer, in seconds.
        read: returns nodes by path, None for each that does not exist.
        condition: a node that each transaction checks as well; None for none.
    """

    client: Any
    acl: Sequence[Any]
    timeout: float
    read: Callable[[Iterable[str]], Mapping[str, object | None]]
    condition: Condition | None = None

    def run(self, fence: str, operations: Sequence[Operation], insist: bool) -> Outcomes:
        """See :meth:`ZkSession.try_transact <zkconsumer.zookeeper.session.ZkSession.try_transact>`."""
        outcomes = Outcomes()
        for start in range(0, len(operations), TRANSACTION_SIZE):
            done = self._do_group(fence, operations[start : start + TRANSACTION_SIZE], outcomes, insist)
            if not done and not insist:
                break
        return outcomes

    def _do_group(self, fence: str, group: Sequence[Operation], outcomes: Outcomes, insist: bool) -> bool:
        """True if all operations of the group were done."""
        remaining = list(group)
        while remaining:
            batch = Batch(self.client, self.acl)
            checks = self._add_checks(batch, fence)
            batch.add(remaining)
            answer = batch.commit(self.timeout)
            if not isinstance(answer, Stop):
                outcomes.note_done(remaining, answer[checks:])
                break
            if answer.index < checks:
                raise self._failed_check(fence, answer)
            self._take_out(remaining, replace(answer, index=answer.index - checks), outcomes, insist)
            remaining = [operation for operation in remaining if operation.path not in outcomes]
            if not insist:
                break
        return all(outcomes.get(operation.path) == "done" for operation in group)

    def _add_checks(self, batch: Batch, fence: str) -> int:
        """Add the checks that come before the operations; returns their number."""
        batch.check(fence)
        if self.condition is None:
            return 1
        batch.check(self.condition.path, self.condition.version)
        return 2

    def _failed_check(self, fence: str, stop: Stop) -> Exception:
        if stop.reason is not None:
            return stop.reason
        if stop.index == 0:
            return SessionExpired(f"session node {fence} is gone: this session owns nothing any more")
        return ShareChanged(f"{self.condition} does not hold any more: the share to be claimed has changed")

    def _take_out(self, operations: Sequence[Operation], stop: Stop, outcomes: Outcomes, insist: bool) -> None:
        """Record the operations that stopped a transaction: at least one of them cannot be done."""
        stopped = operations[stop.index]
        if stop.reason is None:
            # The server reports only the first impossible operation: find all of them at once.
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
