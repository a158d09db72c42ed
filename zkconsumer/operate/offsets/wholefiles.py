"""Files that are replaced as a whole: a reader, and a process that is killed, leave the former file or the new one."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a file by one with this text, all at once, so that no reader ever finds a part of it.

    Args:
        path: of the file; a symbolic link stays, and the file that it leads to is replaced.
        text: of the file, which is on the disk at the return.
        mode: permissions of a file that does not exist yet.

    Raises:
        OSError: it cannot be written, or is no regular file, such as a device; the former file is as it was.
    """
    with prepared(path, text, mode=mode) as put:
        put()


def write_output(path: Path, text: str) -> None:
    """Write what a command prints: :func:`write_whole`, or the text goes into a device or a pipe that exists.

    Raises OSError as :func:`write_whole`, and BrokenPipeError if the reader has closed the pipe.
    """
    if _is_special(path):
        with path.open("w", encoding="utf-8", newline="") as stream:
            stream.write(text)
    else:
        write_whole(path, text)


@contextmanager
def prepared(path: Path, text: str, *, mode: int = 0o644) -> Iterator[Callable[[], None]]:
    """Put the text of a file on the disk; what this yields replaces the file by it, and takes little time.

    Raises OSError as :func:`write_whole`, for which see the arguments, and so does what it yields.
    """
    if _is_special(path):  # a rename would put a regular file in the place of /dev/null
        raise FileExistsError(errno.EEXIST, "it exists, and is no regular file; give another name", str(path))
    path = Path(os.path.realpath(path))
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    aside = Path(name)

    def put() -> None:
        aside.replace(path)
        sync(path.parent)

    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.chmod(mode if not path.exists() else path.stat().st_mode & 0o7777)
        yield put
    finally:
        aside.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """True if something exists there that no file can be put in the place of.

    ``/dev/stdout`` exists, and where it leads to, a pipe, has no path.
    """
    return path.exists() and not Path(os.path.realpath(path)).is_file()


def sync(path: Path) -> None:
    """Wait until a file, or what a directory lists, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
