"""start_thread: starts a thread, or raises an error that a caller can handle."""

from __future__ import annotations

import threading

from zkconsumer.errors import ThreadLimit


def start_thread(thread: threading.Thread) -> None:
    """Start a thread; if that fails, it can be tried again with the same object.

    Raises:
        ThreadLimit: the system does not allow another thread.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise ThreadLimit(
            f"thread {thread.name} cannot be started: {error}; check the limits of processes and threads "
            "(pids of the container, ulimit -u) and the free memory"
        ) from error
