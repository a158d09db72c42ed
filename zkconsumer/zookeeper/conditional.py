"""Conditional writes: transactions that change znodes only if they are still as they were read, and their access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
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
from kazoo.security import ACL, Id

from zkconsumer.errors import SessionExpired, ZooKeeperRefused
from zkconsumer.zookeeper.kazooadapter import translated_errors

Access = tuple[tuple[int, str, str], ...]
"""Access of a znode: permission bits, scheme and id of each entry of its ACL."""

OPEN: Final[Access] = ((31, "world", "anyone"),)
"""Access of a znode that every member of a group may write, also with ``zookeeper.set.acl``."""

MOST_CHANGES: Final = 500
"""Changes in one transaction."""

_MOST_BYTES: Final = 0x40000
"""Paths and data in one transaction; the servers' limit (jute.maxbuffer) is 1 MiB unless it is lowered."""

_TRANSACTIONS: Final = 20
"""Transactions under way at once."""

_PIPELINE: Final = 500
"""Reads under way at once; servers make a client with a thousand of them wait."""

_ANY_VERSION: Final = -1
_EPHEMERAL: Final = 1


class Change(NamedTuple):
    """One write that is done only if its node is as it was read.

    Attributes:
        kind: ``create`` and ``create-ephemeral`` need a node that does not exist, the others one that does; ``check``
            changes nothing.
        path: of the node.
        data: ignored for a deletion or a check.
        version: that the node must have to be set, deleted or checked; -1 for any.
        access: of a node to create; None for the session's own default.
    """

    kind: Literal["create", "create-ephemeral", "set", "delete", "check"]
    path: str
    data: bytes | None = None
    version: int = _ANY_VERSION
    access: Access | None = None


class Conflict(NamedTuple):
    """The change that stopped a transaction, of which nothing was done, and why it cannot be done.

    Attributes:
        change: that cannot be done.
        reason: as text for a message.
        refusal: the same as an error if the servers do not allow it, whatever other clients do; None for a node that is
            not as it was read.
    """

    change: Change
    reason: str
    refusal: ZooKeeperRefused | None = None


def in_transactions(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """The changes in parts that are small enough for one transaction each, in their order."""
    part: list[Change] = []
    size = 0
    for change in changes:
        weight = len(change.path) + len(change.data or b"")
        if part and (len(part) == MOST_CHANGES or size + weight > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(change)
        size += weight
    if part:
        yield part


def commit_changes(
    client: Any, fence: str, changes: Sequence[Change], acl: Sequence[Any], timeout: float
) -> Conflict | None:
    """Do all of the changes or none, if the node ``fence`` exists; None if they were done.

    Args:
        client: kazoo's.
        fence: path of a node that goes with the session in which the changes may be made.
        changes: at most :data:`MOST_CHANGES`.
        acl: access to what is created without an access of its own.
        timeout: how long to wait for the answer, in seconds.

    Raises:
        SessionExpired: the fence does not exist any more; nothing was changed.
        ZooKeeperUnavailable: no answer; whether it was done is unknown.
    """
    return _send_changes(client, fence, changes, acl)(timeout)


def commit_independent(
    client: Any, fence: str, parts: Iterable[Sequence[Change]], acl: Sequence[Any], timeout: float
) -> list[Conflict | None]:
    """As :func:`commit_changes` for transactions of which none needs another; they do not wait for each other.

    Returns:
        For each part why it was not done, None if it was.

    Raises:
        SessionExpired, ZooKeeperUnavailable: as of :func:`commit_changes`; it is unknown which parts were done.
    """
    remaining, conflicts = iter(parts), list[Conflict | None]()
    while sent := [_send_changes(client, fence, part, acl) for part in islice(remaining, _TRANSACTIONS)]:
        conflicts += [answer(timeout) for answer in sent]
    return conflicts


def _send_changes(
    client: Any, fence: str, changes: Sequence[Change], acl: Sequence[Any]
) -> Callable[[float], Conflict | None]:
    """Send a transaction; the result waits for its answer, so many seconds at most."""
    root = client.chroot
    transaction = client.transaction()
    transaction.operations.append(CheckVersion((root + fence).rstrip("/") or "/", _ANY_VERSION))
    transaction.operations += [_request(root, change, acl) for change in changes]
    what = f"a transaction from {changes[0].path} to {changes[-1].path}"
    with translated_errors(what):
        sent = transaction.commit_async()

    def answer(timeout: float) -> Conflict | None:
        with translated_errors(what):
            results = sent.get(timeout=timeout)
        return _conflict(fence, changes, results)

    return answer


def _conflict(fence: str, changes: Sequence[Change], results: Sequence[Any]) -> Conflict | None:
    if not isinstance(results[0], ZookeeperError):
        return None  # of a transaction that was not done, each result is an error
    for index, result in enumerate(results):
        if isinstance(result, ZookeeperError) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
            if index == 0:
                raise SessionExpired(f"{fence} does not exist any more: the ZooKeeper session that may write has ended")
            return _as_conflict(changes[index - 1], result)
    return None


def _request(root: str, change: Change, acl: Sequence[Any]) -> Any:
    path = root + change.path
    if change.kind == "check":
        return CheckVersion(path, change.version)
    if change.kind == "delete":
        return Delete(path, change.version)
    if change.kind == "set":
        return SetData(path, change.data, change.version)
    entries = list(acl) if change.access is None else to_acl(change.access)
    return Create(path, change.data, entries, _EPHEMERAL if change.kind == "create-ephemeral" else 0)


def _as_conflict(change: Change, error: ZookeeperError) -> Conflict:
    if isinstance(error, NodeExistsError):
        return Conflict(change, "another client has created it")
    if isinstance(error, NoNodeError):
        created = change.kind.startswith("create")
        return Conflict(change, "its parent was deleted" if created else "another client has deleted it")
    if isinstance(error, BadVersionError):
        return Conflict(change, "another client has written it since it was read")
    if isinstance(error, NotEmptyError):
        return Conflict(change, "another client has created a node below it")
    try:
        with translated_errors(f"{change.kind} {change.path}"):
            raise error
    except ZooKeeperRefused as refused:
        return Conflict(change, str(refused), refused)


def to_acl(access: Access) -> list[Any]:
    """The access in kazoo's form."""
    return [ACL(permissions, Id(scheme, identity)) for permissions, scheme, identity in access]


def read_access(client: Any, paths: Iterable[str], timeout: float, *, masked: bool = False) -> dict[str, Access]:
    """The access of each node that exists.

    Args:
        client: kazoo's.
        paths: of the nodes.
        timeout: how long to wait for each answer, in seconds.
        masked: accept ACLs in which the servers hide the hashes of passwords, which are of no use for another node:
            they show the hashes to those only who may change the ACL.

    Raises:
        ZooKeeperUnavailable, ZooKeeperRefused, SessionExpired: an ACL cannot be read.
    """
    wanted, found = list(dict.fromkeys(paths)), dict[str, Access]()
    for start in range(0, len(wanted), _PIPELINE):
        pending = [(path, client.get_acls_async(path)) for path in wanted[start : start + _PIPELINE]]
        for path, answer in pending:
            with translated_errors(f"getAcl {path}"), suppress(NoNodeError):
                entries, _ = answer.get(timeout=timeout)
                found[path] = tuple((entry.perms, entry.id.scheme, entry.id.id) for entry in entries)
                if not masked and any(scheme == "digest" and name.endswith(":x") for _, scheme, name in found[path]):
                    raise ZooKeeperRefused(
                        f"ZooKeeper hides the ACL of {path} from this client, so no node can be created like it; log "
                        "in as a principal that may change it (zookeeper.digest)"
                    )
    return found
