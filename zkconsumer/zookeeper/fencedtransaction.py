"""Transactions: conditional writes that are done all or none, behind a fence; and what stopped one that was not done.

Every transaction that this package sends is built here. :mod:`~zkconsumer.zookeeper.partialtransactions` skips what
cannot be done, :mod:`~zkconsumer.zookeeper.ephemerals` creates missing parents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData

from zkconsumer.errors import SessionExpired, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.zookeeper.access import Access, to_acl
from zkconsumer.zookeeper.kazooadapter import translated_errors
from zkconsumer.zookeeper.rules.requestparts import in_parts

NO_FENCE: Final = "/"
"""A node that always exists, as the fence of what is written in any case."""

MOST_OPERATIONS: Final = 500
"""Operations in one transaction (architecture.md#round-trips)."""

_JUTE_MAXBUFFER: Final = 0xFFFFF
"""The servers' limit unless it is configured; they close the connection without an answer to a longer request."""

_TRANSACTIONS: Final = 20
"""Transactions under way at once."""

_ANY_VERSION: Final = -1
_EPHEMERAL: Final = 1  # a flag of the request

Kind = Literal["create", "create-ephemeral", "set", "delete", "check"]
"""What an operation does; ``create`` makes a persistent node, ``check`` changes nothing."""

Outcome = Literal["done", "exists", "missing", "changed", "not empty", "refused"]
"""Outcome of an operation: done; the node to create exists; the node, or the parent to create in, is missing; the node
has another version than it must have; the node to delete has children; the servers do not allow it."""


class Operation(NamedTuple):
    """One operation of a transaction.

    Attributes:
        kind: see :data:`Kind`.
        path: of the node.
        data: ignored for a deletion or a check.
        version: that the node must have to be set, deleted or checked; -1 for any.
        access: of a node to create; None for the session's own default.
    """

    kind: Kind
    path: str
    data: bytes | None = b""
    version: int = _ANY_VERSION
    access: Access | None = None

    def __str__(self) -> str:
        return f"{self.kind.partition('-')[0]} {self.path}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """The operation that stopped a transaction, of which nothing was done.

    Attributes:
        index: of the operation, in the transaction.
        operation: that cannot be done.
        outcome: why it cannot be done.
        refusal: the same as an error if the servers do not allow it, whatever other clients do; None for a node that is
            not as it was read.
    """

    index: int
    operation: Operation
    outcome: Outcome
    refusal: ZooKeeperRefused | None = None

    @property
    def reason(self) -> str:
        """Why it cannot be done, as text for a message."""
        if self.outcome == "missing" and self.operation.kind.startswith("create"):
            return "its parent was deleted"
        return str(self.refusal) if self.refusal is not None else _REASONS[self.outcome]


_OUTCOMES: Final[Mapping[type[ZookeeperError], Outcome]] = MappingProxyType(
    {NodeExistsError: "exists", NoNodeError: "missing", BadVersionError: "changed", NotEmptyError: "not empty"}
)
_REASONS: Final[Mapping[Outcome, str]] = MappingProxyType(
    {
        "exists": "another client has created it",
        "missing": "another client has deleted it",
        "changed": "another client has written it since it was read",
        "not empty": "another client has created a node below it",
    }
)


Answer = Callable[[float], Conflict | Sequence[Any]]
"""Waits for the answer to a transaction, so many seconds at most; see :func:`send`."""


def in_transactions(operations: Iterable[Operation], together: int = 1) -> Iterator[list[Operation]]:
    """The operations in parts that are small enough for one transaction each, in their order.

    Args:
        operations: to be done.
        together: so many operations that follow each other are never parted, counted from the first one.
    """
    return in_parts(operations, MOST_OPERATIONS, _size, together)


def _size(operation: Operation) -> int:
    return len(operation.path) + len(operation.data or b"")


def send(client: Any, operations: Sequence[Operation], acl: Sequence[Any]) -> Answer:
    """Send a transaction, and do not wait.

    Args:
        client: a connected client of kazoo's.
        operations: to do all or none.
        acl: access to what is created without an access of its own.

    Returns:
        Waits for the answer, so many seconds at most. It returns kazoo's results, one for each operation, or what
        stopped the transaction. It raises :class:`ZooKeeperUnavailable` without an answer (whether it was done is
        unknown), and :class:`SessionExpired`.
    """
    # Not by the methods of kazoo's transaction, which check every path again: that took half the time of a claim.
    transaction = client.transaction()
    transaction.operations += [_request(client.chroot, operation, acl) for operation in operations]
    first, last = operations[0], operations[-1]
    description = str(first) if len(operations) == 1 else f"a transaction from {first} to {last}"
    with translated_errors(description):
        sent = transaction.commit_async()

    def answer(timeout: float) -> Conflict | Sequence[Any]:
        try:
            with translated_errors(description):
                results: Sequence[Any] = sent.get(timeout=timeout)
        except ZooKeeperUnavailable as error:
            if (size := sum(map(_size, operations))) < _JUTE_MAXBUFFER:
                raise
            raise ZooKeeperUnavailable(
                f"{error}. Its {size} bytes exceed what servers accept unless their jute.maxbuffer is raised"
            ) from error
        return _conflict(operations, results) or results

    return answer


def _request(root: str, operation: Operation, acl: Sequence[Any]) -> Any:
    path = (root + operation.path).rstrip("/") or "/"
    match operation.kind:
        case "check":
            return CheckVersion(path, operation.version)
        case "delete":
            return Delete(path, operation.version)
        case "set":
            return SetData(path, operation.data, operation.version)
    entries = list(acl) if operation.access is None else to_acl(operation.access)
    return Create(path, operation.data, entries, _EPHEMERAL if operation.kind == "create-ephemeral" else 0)


def _conflict(operations: Sequence[Operation], results: Sequence[Any]) -> Conflict | None:
    if not isinstance(results[0], ZookeeperError):
        return None  # of a transaction that was not done, each result is an error
    for index, result in enumerate(results):
        if isinstance(result, ZookeeperError) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
            outcome = _OUTCOMES.get(type(result), "refused")
            refusal = _refusal(operations[index], result) if outcome == "refused" else None
            return Conflict(index, operations[index], outcome, refusal)
    return None


def _refusal(operation: Operation, error: ZookeeperError) -> ZooKeeperRefused:
    try:
        with translated_errors(str(operation)):
            raise error
    except ZooKeeperRefused as refused:
        return refused


def send_fenced(client: Any, fence: str, operations: Sequence[Operation], acl: Sequence[Any]) -> Answer:
    """As :func:`send`, if the node ``fence`` exists: the transaction checks that first.

    Args:
        client: kazoo's.
        fence: path of a node that goes with the session in which the operations may be done.
        operations: to do all or none.
        acl: access to what is created without an access of its own.

    Returns:
        Waits for the answer, as that of :func:`send`; results and index of a conflict are those of the operations.
        It also raises :class:`SessionExpired` if the fence does not exist any more, and :class:`ZooKeeperRefused` if
        the servers do not allow the check; then nothing was changed.
    """
    wait = send(client, [Operation("check", fence), *operations], acl)

    def answer(timeout: float) -> Conflict | Sequence[Any]:
        result = wait(timeout)
        if not isinstance(result, Conflict):
            return result[1:]
        if result.index == 0:
            raise result.refusal or lost_fence(fence)
        return replace(result, index=result.index - 1)

    return answer


def lost_fence(fence: str) -> SessionExpired:
    """The exception for a fence that does not exist any more, wherever that is noticed: nothing can be written."""
    return SessionExpired(
        f"session node {fence} is gone: the session that may write has ended, or another client has deleted the node, "
        "which ends the membership as well"
    )


# -- all or none ------------------------------------------------------------------------------------------------------


def commit_changes(
    client: Any, fence: str, changes: Sequence[Operation], acl: Sequence[Any], timeout: float
) -> Conflict | None:
    """Do all of the changes or none, if the node ``fence`` exists; None if they were done.

    Args:
        client: kazoo's.
        fence: path of a node that goes with the session in which the changes may be made.
        changes: at most :data:`MOST_OPERATIONS`.
        acl: access to what is created without an access of its own.
        timeout: how long to wait for the answer, in seconds.

    Raises:
        SessionExpired: the fence does not exist any more; nothing was changed.
        ZooKeeperUnavailable: no answer; whether it was done is unknown.
    """
    (conflict,) = commit_independent(client, fence, [changes], acl, timeout)
    return conflict


def commit_independent(
    client: Any, fence: str, parts: Iterable[Sequence[Operation]], acl: Sequence[Any], timeout: float
) -> list[Conflict | None]:
    """As :func:`commit_changes` for transactions of which none needs another; they do not wait for each other.

    Returns:
        For each part why it was not done, None if it was.

    Raises:
        SessionExpired, ZooKeeperUnavailable: as of :func:`commit_changes`; it is unknown which parts were done.
    """
    answers = (answer for _, answer in sent_together(lambda part: send_fenced(client, fence, part, acl), parts))
    return [result if isinstance(result := answer(timeout), Conflict) else None for answer in answers]


def sent_together(
    send_part: Callable[[Sequence[Operation]], Answer],
    parts: Iterable[Sequence[Operation]],
    most: int = _TRANSACTIONS,
) -> Iterator[tuple[Sequence[Operation], Answer]]:
    """Send transactions of which none needs another, at most ``most`` before the first of them is waited for.

    Returns:
        Each part with what waits for its answer, in order.
    """
    remaining = iter(parts)
    while sent := [(part, send_part(part)) for part in islice(remaining, most)]:
        yield from sent
