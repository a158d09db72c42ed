"""Stale files: recognises temporary files and directories of killed processes by a lock that running ones hold.

A running process holds a lock (``flock``) on what it has claimed. The kernel releases the lock when the process ends,
in whatever way. Where the file system has no locks, no file is considered abandoned.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from zkconsumer.process.forks import Owner

_log = logging.getLogger(__name__)

_CLAIM: Final = "owner.lock"
"""The file in a temporary directory that the owner holds locked."""


class Claim:
    """A new file that is locked until :meth:`release`, or until this process and all its forked children have ended.

    Args:
        path: where the file is created.

    Raises:
        OSError: it cannot be created.
    """

    def __init__(self, path: Path) -> None:
        # The file is locked before it gets its name. Otherwise: 1. this process creates it; 2. another process finds it
        # unlocked and removes it; 3. this process locks a file that has no name any more, and writes into it.
        new = path.with_name(f"{path.name}.new")
        self._descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            with contextlib.suppress(OSError):  # the file system has no locks
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(path)
        except BaseException:
            self.release()
            new.unlink(missing_ok=True)
            raise

    def release(self) -> None:
        """Give up the lock; the file stays. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def remove_abandoned_files(paths: Iterable[Path]) -> list[int]:
    """Remove claimed files whose process has ended.

    Returns:
        The size in bytes of each that was removed.
    """
    removed = []
    for path in paths:
        # An error: another process was faster, or this one has no permission.
        with contextlib.suppress(OSError), path.open("rb") as file:
            if _is_abandoned(file.fileno()):
                size = os.fstat(file.fileno()).st_size
                path.unlink()
                removed.append(size)
    return removed


class OwnedDirectory:
    """A new temporary directory of mode 0700. Those of the same prefix whose process has ended are removed first.

    Args:
        prefix: how the directory's name begins.
        parent: where it is created; None for the directory of temporary files.

    Attributes:
        path: path of the directory.

    Raises:
        OSError: it cannot be created.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        _remove_abandoned_directories(parent, prefix)
        self._owner = Owner()
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            self._claim = Claim(self.path / _CLAIM)
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Remove the directory and everything in it. Idempotent; in a forked child nothing is done."""
        if not self._owner.is_here():
            return
        shutil.rmtree(self.path, ignore_errors=True)
        self._claim.release()

    def leave(self) -> None:
        """Keep the directory until a process of this user creates the next one with this prefix. Idempotent."""
        self._claim.release()


def _remove_abandoned_directories(parent: Path, prefix: str) -> None:
    for claim in parent.glob(f"{prefix}*/{_CLAIM}"):
        with contextlib.suppress(OSError):  # as above
            if claim.parent.lstat().st_uid != os.geteuid() or claim.parent.is_symlink():
                continue
            with claim.open("rb") as file:
                if _is_abandoned(file.fileno()):
                    _remove(claim)
                    _log.info("removed %s, the temporary directory of a process that was killed", claim.parent)


def _remove(claim: Path) -> None:
    """Remove a directory, its claim last: if a process still writes into it, the next owner removes the rest."""
    for path in claim.parent.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != claim:
            path.unlink()
    shutil.rmtree(claim.parent)


def _is_abandoned(descriptor: int) -> bool:
    """True if no running process holds the lock; then this one does, until the descriptor is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is held, or the file system has no locks
        return False
    return True
