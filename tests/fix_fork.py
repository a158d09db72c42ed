"""A child of this process by fork, as a web server or multiprocessing makes one."""

import contextlib
import os
import signal
import threading

import pytest

from zkconsumer.errors import UsageError


def in_forked_child(action, timeout_s=30):
    """Call ``action`` in a child; True if it returned in time without an error."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    killing = threading.Timer(timeout_s, os.kill, [child, signal.SIGKILL])
    killing.start()
    _, status = os.waitpid(child, 0)
    killing.cancel()
    return status == 0


def refused_in_forked_child(action, named):
    """True if ``action`` raises, in a child, the error that tells whose the object is and what to do instead."""

    def attempt():
        with pytest.raises(UsageError, match=f"{named} belongs to process {os.getppid()} .* create it after forking"):
            action()

    return in_forked_child(attempt)


@contextlib.contextmanager
def idle_forked_child():
    """A child that lives, and does nothing, until the block is left."""
    waiting, ending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ending)
        os.read(waiting, 1)
        os._exit(0)
    os.close(waiting)
    try:
        yield
    finally:
        os.close(ending)
        os.waitpid(child, 0)
