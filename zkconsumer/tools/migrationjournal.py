"""JournalFile: the journal of a migration on the disk, beside its plan."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zkconsumer.core.migrationfile import plan_digest
from zkconsumer.core.migrationjournal import Event, JournalState, encode_event, read_journal, whole_lines
from zkconsumer.core.migrationplan import MigrationPlan
from zkconsumer.errors import WriteRefused, ZkConsumerError


class JournalFile:
    """A journal on the disk; each line is there before the next step. One process uses it.

    Args:
        path: of the file, which is created by the first line.

    Raises:
        ZkConsumerError: the file is not a journal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        content = path.read_bytes() if path.exists() else b""
        self.state: JournalState = read_journal(str(path), content)
        self._cut = len(whole_lines(content))

    def append(self, event: Event, **fields: object) -> None:
        """Write a line, and wait until it is on the disk."""
        is_new = not self.path.exists()
        with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            file.truncate(self._cut)
            file.seek(self._cut)
            line = encode_event(event, **fields)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._cut += len(line)
        if is_new:
            _sync_directory(self.path)


def _sync_directory(path: Path) -> None:
    directory = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def beside(plan_file: Path, ending: str) -> Path:
    """A file beside a plan: ``g.plan.json`` has ``g.plan.json.journal``."""
    return plan_file.with_name(f"{plan_file.name}.{ending}")


def open_journal(plan: MigrationPlan, plan_file: Path) -> JournalFile:
    """The journal beside a plan, which need not exist yet.

    Raises:
        ZkConsumerError: it is not a journal, or that of another plan.
    """
    journal = JournalFile(beside(plan_file, "journal"))
    if journal.state.plan not in (None, plan_digest(plan)):
        raise ZkConsumerError(f"{journal.path} is of another plan; move it away, and check with `migrate verify`")
    return journal


@contextmanager
def exclusive(plan_file: Path) -> Iterator[None]:
    """Lock a plan. The lock ends with the process.

    Two runs of a plan whose source cannot be held would not notice each other, and a mirror that copies while the way
    back is planned would make that plan stale.

    The file is opened for writing, although nothing is written: NFS locks the range of bytes, and refuses an exclusive
    lock of a file that is open for reading (EBADF).

    Raises:
        WriteRefused: another command has the lock.
        OSError: the file cannot be locked, for example because it may not be written.
    """
    with plan_file.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WriteRefused(
                f"another run of {plan_file}, or its mirror, is under way; wait until it has ended, or end it"
            ) from None
        yield
