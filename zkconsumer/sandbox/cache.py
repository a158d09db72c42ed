"""The directory in which the sandbox keeps fetched files between runs and for other processes."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.progress import Progress

CACHE_VARIABLE = "ZKCONSUMER_CACHE"


def cache_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the user's cache directory of zkconsumer; it is created if it is missing.

    It is ``$ZKCONSUMER_CACHE``, else ``$XDG_CACHE_HOME/zkconsumer``, else ``~/.cache/zkconsumer``.
    Raises SandboxError when it cannot be created.
    """
    environ = os.environ if environ is None else environ
    try:
        directory = _choose(environ).absolute()
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: Path.home() knows no home directory
        raise SandboxError(
            f"no usable cache directory ({error}); set {CACHE_VARIABLE} to a writable directory"
        ) from error
    return directory


def _choose(environ: Mapping[str, str]) -> Path:
    if own := environ.get(CACHE_VARIABLE):
        return Path(own).expanduser()
    if xdg := environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "zkconsumer"
    return Path.home() / ".cache" / "zkconsumer"


@contextmanager
def exclusive(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock file ``path`` exclusively among all processes; report a wait for another one.

    The kernel drops the lock when its holder dies, so a killed process does not block others. Raises SandboxError if
    the lock file cannot be opened or locked.
    """
    try:
        handle = path.open("a")
    except OSError as error:
        raise SandboxError(
            f"cannot open the lock file {path} ({error.strerror}); check its owner and permissions"
        ) from error
    with handle:
        try:
            _lock(handle.fileno(), path, progress)
        except OSError as error:
            raise SandboxError(
                f"cannot lock {path} ({error.strerror}); set {CACHE_VARIABLE} to a directory on a local disk"
            ) from error
        yield


def _lock(descriptor: int, path: Path, progress: Progress) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        progress.write_line(f"waiting for another process that is filling {path.parent}")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
