"""ReaderClaim: one reader of a group in one Spark driver, unless each reader has its own ``memberName``.

Spark creates a reader for each use of a stream in a query: for a stream that is joined with itself, two. They are
members of one group, so each would read only its share of the partitions, and the join would lose rows without an
error. A reader does not know its query. Readers of one driver find each other by a lock in the driver's own directory
(notes.md#sparks-data-source-api), which the kernel releases when the process of a reader ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zkconsumer.config.serveraddresses import server_addresses
from zkconsumer.errors import UsageError
from zkconsumer.spark.rules.options import SourceOptions

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = 10.0
"""How long a reader waits for another one to end: Spark does not wait for the process of a query that it stops."""

_POLL_S: Final = 0.05
"""``flock`` has no timeout, so the lock is tried again this often."""


def driver_directory(environment: Mapping[str, str]) -> Path | None:
    """A directory of the Spark driver that runs this process: it has an id in its name, and is removed with the driver.

    None if Spark did not start this process.
    """
    first = Path(environment.get("SPARK_LOCAL_DIRS", "").split(",")[0])
    return first if first.name.startswith("blockmgr-") and first.is_dir() else None


class ReaderClaim:
    """The place of one reader of a group in its driver; held until :meth:`release`, or until the process ends.

    A reader without a name excludes all others, one with a name those that have the same name or none.

    Args:
        directory: the driver's directory; None for no claim.
        patience_s: how long to wait for another reader to end, in seconds.

    Raises:
        UsageError: another reader of this group has not ended in that time.
    """

    def __init__(self, options: SourceOptions, directory: Path | None, patience_s: float = _PATIENCE_S) -> None:
        self._descriptors: list[int] = []
        if directory is None:
            return
        name = options.member_name
        groups = [directory / f"zkconsumer-{identity}.lock" for identity in _identities(options)]
        locks = [(group, fcntl.LOCK_EX if name is None else fcntl.LOCK_SH) for group in groups]
        if name is not None:
            locks += [(group.with_suffix(f".{_digest(name)}.lock"), fcntl.LOCK_EX) for group in groups]
        deadline = time.monotonic() + patience_s
        try:
            for path, kind in locks:
                self._lock(path, kind, deadline)
        except TimeoutError:
            self.release()
            raise UsageError(_refusal(options, patience_s)) from None
        except OSError as error:
            _log.warning("cannot see whether other readers of the group run under this driver: %s", error)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give up the claim; to be called when the reader has left its group. Idempotent."""
        for descriptor in self._descriptors:
            with contextlib.suppress(OSError):  # the file system has no locks
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked has the descriptor, too
            os.close(descriptor)
        self._descriptors = []

    def _lock(self, path: Path, kind: int, deadline: float) -> None:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._descriptors.append(descriptor)
        waits = False
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                return
            if time.monotonic() > deadline:
                raise TimeoutError
            if not waits:
                _log.info("waiting until another reader of the group under this driver has left it")
                waits = True
            time.sleep(_POLL_S)


def claim_reader(options: SourceOptions) -> ReaderClaim:
    """Claim the place of this process.

    Raises:
        UsageError: see :class:`ReaderClaim`.
    """
    return ReaderClaim(options, driver_directory(os.environ))


def _identities(options: SourceOptions) -> list[str]:
    """The group in its cluster, as names of files: one for each server, since two readers may name different ones."""
    config = options.config
    named = config.bootstrap_servers if config.brokers_coordinate else config.zookeeper_connect
    addresses = server_addresses(named or "")
    return [_digest(f"{server}{addresses.chroot} {config.group_id}") for server in sorted(set(addresses.servers))]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _refusal(options: SourceOptions, patience_s: float) -> str:
    group, name = options.config.group_id, options.member_name
    named = "" if name is None else f" with memberName={name}, or without memberName,"
    return (
        f"another reader of group {group}{named} runs under this Spark driver, and has not ended within {patience_s:g} "
        "s. Members of a group share its partitions, so each of them would read only a part of the records. A query "
        "has a reader for each use of a stream: two where a stream is joined with itself. To read all records in "
        "each, call load() once for each use, each with a group.id of its own. To share the group on purpose, set "
        "another memberName for each"
    )
