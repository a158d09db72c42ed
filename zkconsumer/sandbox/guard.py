"""Keeps one server process from outliving the process that started it; run as a script between the two.

``python guard.py PARENT_PID REPORT_FD COMMAND...`` starts COMMAND, writes its process id to REPORT_FD, passes on
termination signals, and exits with COMMAND's exit code. When PARENT_PID ends, for whatever reason, COMMAND is killed.

Why PR_SET_PDEATHSIG in the server is not enough: the kernel sends that signal when the *thread* that started the child
ends, and servers are started from any thread. Why a pipe that closes with the parent does not work: processes that the
parent forks (multiprocessing, Spark's daemon) keep a copy of the pipe open. The parent's id has neither problem: it
changes when the parent ends, whichever thread started the child, and however the parent died. The guard checks it four
times a second. The guard itself has only one thread, so PR_SET_PDEATHSIG works between guard and server, where it
covers the guard's own death by SIGKILL.
"""

import ctypes
import os
import signal
import sys
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PARENT_CHECK_S = 0.25
_PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_CANNOT_EXECUTE = 127


def _become(command: list[str], guard: int, mask: set[int]) -> NoReturn:
    """Turn this forked process into the server, bound to the guard's life."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:  # the guard died before the call above took effect
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"Error: cannot execute {command[0]}: {error.strerror}\n".encode())
    os._exit(_CANNOT_EXECUTE)


def _watch(child: int, parent: int) -> int:
    """Wait for the child and return its exit code; kill it when ``parent`` is not this process's parent any more."""
    while True:
        if os.getppid() != parent:
            os.kill(child, signal.SIGKILL)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        received = signal.sigtimedwait(_PASSED_ON | {signal.SIGCHLD}, _PARENT_CHECK_S)
        if received is not None and received.si_signo in _PASSED_ON:
            os.kill(child, received.si_signo)


def main(arguments: list[str]) -> int:
    """Run the script; ``arguments`` are the parent's id, the descriptor to report to, and the command."""
    parent, report, command = int(arguments[0]), int(arguments[1]), arguments[2:]
    # Blocked signals stay pending until sigtimedwait takes them: none is lost between two iterations of the loop.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON | {signal.SIGCHLD})
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(report)
        _become(command, guard, {int(number) for number in mask})
    os.write(report, b"%d\n" % child)
    os.close(report)
    code = _watch(child, parent)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
