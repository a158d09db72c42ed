"""The source's process on Spark's driver: logging and termination."""

from __future__ import annotations

import atexit
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000


def prepare_process(leave: Callable[[], None]) -> None:
    """Leave the group when the process ends, log to standard error, and collect less; see the functions below.

    Args:
        leave: leaves the group; idempotent. It calls :func:`ignore_sigterm` before anything else.
    """
    atexit.register(leave)
    leave_on_sigterm()
    log_to_stderr()
    collect_rarely()


def collect_rarely() -> None:
    """Collect garbage less often.

    A batch of thousands of partitions makes some ten thousand objects, nearly all of which live until the next one:
    with Python's threshold of 700 a third of the time of a plan went into looking through them. Memory that only a
    collection frees is some 10 MiB at most.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])


def log_to_stderr() -> None:
    """Log the events of the group to the driver's log: members that join or leave, partitions that this query owns.

    Spark copies this process's standard error to the driver's; by default Python writes only warnings there. Existing
    logging configuration is not changed.
    """
    logger = logging.getLogger("zkconsumer")
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logging.getLogger("zkconsumer.kazoo").setLevel(logging.WARNING)  # the session logs the same in fewer lines


def leave_on_sigterm() -> None:
    """Turn the first SIGTERM into SystemExit and ignore the rest, so that Spark's runner calls ``stop()``.

    ``query.stop()`` and the end of AvailableNow send SIGTERM, more than once. By default it ends Python at once; then
    the ZooKeeper session is not closed and the group waits for its timeout (notes.md#order-of-sparks-calls).
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit_once)


def ignore_sigterm() -> None:
    """Let nothing interrupt leaving.

    ``query.stop()`` interrupts Spark's thread, which closes the connection to this process if a call was under way.
    The runner then calls ``stop()`` because of the end of its input, and SIGTERM arrives while ``stop()`` runs: the
    SystemExit would end it half way. One that is raised before the first statement of ``stop()`` leaves it to
    :mod:`atexit` to call it again. Without :func:`leave_on_sigterm` before, signals stay as they are.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _exit_once:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _exit_once(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(0)
