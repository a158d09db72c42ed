"""A child of this process by fork, as a web server or multiprocessing makes one."""

import os
import signal
import threading


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
