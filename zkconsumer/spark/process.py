"""The source's process on Spark's driver: how it logs and how it ends."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from types import FrameType


def log_to_stderr() -> None:
    """Show in the driver's log what the group does: who joined or left, what this query owns.

    Spark copies this process's standard error to the driver's; Python by itself would only write warnings there. A
    process whose logging somebody has set up is left alone.
    """
    logger = logging.getLogger("zkconsumer")
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logging.getLogger("zkconsumer.kazoo").setLevel(logging.WARNING)  # the session tells the same in fewer lines


def leave_on_sigterm() -> None:
    """Turn the first SIGTERM into SystemExit and ignore the rest, so that Spark's runner calls ``stop()``.

    ``query.stop()`` and the end of AvailableNow send SIGTERM, more than once. Python's default is to die on the spot;
    then nobody closes the ZooKeeper session and the group waits for its timeout (FACTS C.2b).
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit_once)


def _exit_once(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(0)
