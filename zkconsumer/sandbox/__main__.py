"""Fetch jars in advance: ``python -m zkconsumer.sandbox [LOCK ...]``."""

import sys
from collections.abc import Sequence

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.jars import JarSource
from zkconsumer.sandbox.lockfile import known_locks, read_lock
from zkconsumer.sandbox.progress import Progress


def main(names: Sequence[str]) -> None:
    """Fetch the jars of lock files of this package, such as ``kafka-3.9.1``, or of all; progress on standard error.

    Raises SandboxError as `JarSource.provide` does.
    """
    source, progress = JarSource.from_environment(), Progress()
    for name in names or known_locks():
        source.provide(read_lock(name), progress)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SandboxError as error:
        sys.exit(f"error: {error}")
