"""Files that are replaced as a whole: a reader, and a process that is killed, leave the former file or the new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a file by one with this text, all at once, so that no reader ever finds a part of it.

    Args:
        path: of the file.
        text: of the file, which is on the disk at the return.
        mode: permissions of a file that does not exist yet.

    Raises:
        OSError: it cannot be written; the former file is as it was.
    """
    with prepared(path, text, mode=mode) as put:
        put()


@contextmanager
def prepared(path: Path, text: str, *, mode: int = 0o644) -> Iterator[Callable[[], None]]:
    """Put the text of a file on the disk; what this yields replaces the file by it, and takes little time.

    Raises OSError as :func:`write_whole`, for which see the arguments, and so does what it yields.
    """
    descriptor, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    aside = Path(name)

    def put() -> None:
        aside.replace(path)
        sync(path.absolute().parent)

    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.chmod(mode if not path.exists() else path.stat().st_mode & 0o7777)
        yield put
    finally:
        aside.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or what a directory lists, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
