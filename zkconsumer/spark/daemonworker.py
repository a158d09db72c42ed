"""The Python worker that a task runs in: its socket to the JVM, and whether an earlier task ran in it.

pyspark passes neither to a task. Both are in local variables of ``pyspark.daemon``, which forks the workers and whose
frames are below those of each task. Looking for them in another way would find what belongs to others: a reused worker
has sockets and objects of the user's functions too. Where the frames are missing, or are not those of the releases that
this was written for, the answers are None and False.
"""

from __future__ import annotations

import socket
import sys
from pathlib import PurePath
from types import FrameType


def jvm_socket() -> socket.socket | None:
    """The socket that the JVM sends tasks on, open as long as the worker runs; None outside of a worker."""
    frame = _caller("worker")
    found = None if frame is None else frame.f_locals.get("sock")
    return found if isinstance(found, socket.socket) else None


def is_first_task() -> bool:
    """True if the worker was forked for the task that calls this, so no other code of a user has run in it."""
    frame = _caller("manager")
    if frame is None:
        return False
    outcome = "code"  # of a task: assigned for the first time when the first one has ended
    return outcome in frame.f_code.co_varnames and outcome not in frame.f_locals


def _caller(function: str) -> FrameType | None:
    """The frame of a function of ``pyspark.daemon`` that this thread is in."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == function and PurePath(code.co_filename).parts[-2:] == ("pyspark", "daemon.py"):
            return frame
        frame = frame.f_back
    return None
