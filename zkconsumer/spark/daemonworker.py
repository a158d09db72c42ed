"""The Python worker of a task: its socket to the JVM, and whether it ran an earlier task.

pyspark passes neither to a task. Both are in local variables of ``pyspark.daemon``, which forks the workers and whose
frames are below those of each task. Another search could find sockets and objects of the user's functions, which a
reused worker has too. If the frames are missing, or differ from those of the releases that this was written for, the
results are None and False.
"""

from __future__ import annotations

import socket
import sys
from pathlib import PurePath
from types import FrameType


def jvm_socket() -> socket.socket | None:
    """The socket on which the JVM sends tasks, open as long as the worker runs; None outside of a worker."""
    frame = _caller("worker")
    local = None if frame is None else frame.f_locals.get("sock")
    return local if isinstance(local, socket.socket) else None


def is_first_task() -> bool:
    """True if the worker was forked for the calling task, so no other user code has run in it."""
    frame = _caller("manager")
    if frame is None:
        return False
    outcome = "code"  # exit code of a task: assigned for the first time when the first task has ended
    return outcome in frame.f_code.co_varnames and outcome not in frame.f_locals


def _caller(function: str) -> FrameType | None:
    """The frame of a function of ``pyspark.daemon`` in the stack of this thread."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == function and PurePath(code.co_filename).parts[-2:] == ("pyspark", "daemon.py"):
            return frame
        frame = frame.f_back
    return None
