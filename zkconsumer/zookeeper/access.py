"""Access of znodes: reading it, so that a node can be created with the access of another one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from kazoo.exceptions import NoNodeError
from kazoo.security import ACL, Id

from zkconsumer.errors import ZooKeeperRefused
from zkconsumer.zookeeper.kazooadapter import translated_errors

Access = tuple[tuple[int, str, str], ...]
"""Access of a znode: permission bits, scheme and id of each entry of its ACL."""

OPEN: Final[Access] = ((31, "world", "anyone"),)
"""Access of a znode that every member of a group may write, also with ``zookeeper.set.acl``."""

_PIPELINE: Final = 500
"""Reads under way at once; servers make a client with a thousand of them wait."""


def to_acl(access: Access) -> list[Any]:
    """The access in kazoo's form."""
    return [ACL(permissions, Id(scheme, identity)) for permissions, scheme, identity in access]


def read_access(client: Any, paths: Iterable[str], timeout: float, *, masked: bool = False) -> dict[str, Access]:
    """The access of each node that exists.

    Args:
        client: a connected client of kazoo's.
        paths: paths of nodes; those that do not exist are absent from the result.
        timeout: how long to wait for each answer, in seconds.
        masked: accept ACLs in which the servers hide the hashes of passwords, which are of no use for another node:
            they show the hashes to those only who may change the ACL.

    Raises:
        ZooKeeperUnavailable, ZooKeeperRefused, SessionExpired: an ACL cannot be read.
    """
    wanted, access = list(dict.fromkeys(paths)), dict[str, Access]()
    for start in range(0, len(wanted), _PIPELINE):
        pending = [(path, client.get_acls_async(path)) for path in wanted[start : start + _PIPELINE]]
        for path, answer in pending:
            with translated_errors(f"getAcl {path}"), suppress(NoNodeError):
                entries, _ = answer.get(timeout=timeout)
                access[path] = tuple((entry.perms, entry.id.scheme, entry.id.id) for entry in entries)
                if not masked and any(scheme == "digest" and name.endswith(":x") for _, scheme, name in access[path]):
                    raise ZooKeeperRefused(
                        f"ZooKeeper hides the ACL of {path} from this client, so no node can be created like it; log "
                        "in as a principal that may change it (zookeeper.digest)"
                    )
    return access
