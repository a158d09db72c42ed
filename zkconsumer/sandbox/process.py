"""One Java process: start it, wait for a condition, signal it, end it, and quote its log if it failed."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.process.forks import Owner

_POLL_S = 0.05
_STOP_S = 30.0
_STOPPED_STATES = ("T", "t")
_GUARD = Path(__file__).with_name("guard.py")
_INFORMATIVE = re.compile(r"Exception|Error\b|ERROR|FATAL|Unrecognized|Could not|refused|UNRESOLVED|not found")


class JvmProcess:
    """A Java process that never outlives this Python process (see ``guard.py`` for how). Forked children cannot end it.

    ``name`` is its name in messages; standard output and error are appended to ``log``. Used by one thread at a time.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._arguments = tuple(command)
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._owner = Owner()
        self._log_start = 0

    @property
    def running(self) -> bool:
        """True from start until the process has ended."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the Java process itself. Raises SandboxError if it is not running."""
        if self._pid is None or not self.running:
            raise SandboxError(f"{self.name} is not running; start() it first (its log: {self.log})")
        return self._pid

    def start(self) -> None:
        """Start the process without waiting. Raises SandboxError if it cannot be started."""
        if self.running:
            raise SandboxError(f"{self.name} is running already; stop() it first")
        self._owner, self._pid = Owner(), None
        read_end, write_end = os.pipe()
        try:
            with os.fdopen(read_end, "rb") as report:
                with os.fdopen(write_end, "wb"), self.log.open("ab") as log:
                    self._log_start = log.seek(0, os.SEEK_END)
                    self._guard = subprocess.Popen(
                        [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(write_end), *self._command()],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        pass_fds=(write_end,),
                        start_new_session=True,  # Ctrl-C must reach only this process, which ends servers
                    )
                self._pid = int(report.readline() or b"0") or None
        except OSError as error:
            raise SandboxError(f"{self.name} cannot be started: {error}; check memory and process limits") from error

    def _command(self) -> Sequence[str]:
        return self._arguments

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Poll ``condition`` until it holds.

        Raises SandboxError, quoting the log, when the process ends or after ``timeout_s`` seconds; ``what`` describes
        the condition in the message.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.expect_running(what)
            if time.monotonic() > deadline:
                raise SandboxError(f"{self.name} was not ready ({what}) within {timeout_s:g} s; {self.log_summary()}")
            self._wait(_POLL_S)
        self.expect_running(what)  # another process may have answered

    def expect_running(self, what: str = "it was stopped") -> None:
        """Raise SandboxError, quoting the log, if the process has ended."""
        if not self.running:
            code = None if self._guard is None else self._guard.returncode
            raise SandboxError(f"{self.name} ended with exit code {code} before {what}; {self.log_summary()}")

    def run(self, tick: Callable[[], None], stall_s: float, activity: Callable[[], object]) -> int:
        """Wait for the process to end by itself and return its exit code, calling ``tick`` meanwhile.

        ``activity`` returns a value that changes while the process makes progress. Raises SandboxError, and kills the
        process, if the value does not change for ``stall_s`` seconds.
        """
        state, deadline = activity(), time.monotonic() + stall_s
        while (code := self._wait(_POLL_S)) is None:
            tick()
            if (now_state := activity()) != state:
                state, deadline = now_state, time.monotonic() + stall_s
            elif time.monotonic() > deadline:
                self.kill()
                raise SandboxError(f"{self.name} made no progress for {stall_s:g} s; {self.log_summary()}")
        return code

    def stop(self, timeout_s: float = 15.0) -> None:
        """Ask the process to end (SIGTERM) and wait for it; kill it if it has not ended after ``timeout_s`` seconds."""
        if self._owner.spares(self.name):
            return
        self.signal(signal.SIGCONT)  # a stopped process does not handle SIGTERM
        self.signal(signal.SIGTERM)
        if self._wait(timeout_s) is None:
            self.kill()

    def kill(self) -> None:
        """End the process by SIGKILL and wait for its end; no effect if it does not run."""
        if self._owner.spares(self.name):
            return
        self.signal(signal.SIGKILL)
        if self._guard is not None:
            if self._pid is None:  # an interrupt came before the guard reported it; the guard's end kills it
                self._guard.kill()
            self._guard.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the Java process; no effect if it does not run, or in a forked child."""
        if self._owner.spares(self.name):
            return
        if self._pid is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def pause(self) -> None:
        """Stop the process (SIGSTOP) and wait until no thread of it runs; no effect if it does not run.

        The kernel stops each thread on its own, after it has accepted the signal: until then they may still answer.
        """
        if self._pid is None or not self.running or self._owner.spares(self.name):
            return
        self.signal(signal.SIGSTOP)
        self.wait_until(lambda: _is_stopped(self._pid), "all its threads were stopped", _STOP_S)

    def log_summary(self) -> str:
        """Return the most informative line of the log since the last start, and the path of the log."""
        line = self._informative_line()
        text = (f"its log has: {line}; " if line else "its log is empty; ") + f"see {self.log}"
        return (
            text
            if self._has_space()
            else f"no space is left in {self.log.parent}; set TMPDIR to another directory; {text}"
        )

    def _has_space(self) -> bool:
        try:
            return shutil.disk_usage(self.log.parent).free > 0
        except OSError:  # it is gone
            return True

    def _informative_line(self) -> str:
        try:
            with self.log.open("rb") as file:
                file.seek(self._log_start)
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        # Stack frames are indented; servers log their orderly shutdown after its cause.
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
        informative = [line for line in lines if _INFORMATIVE.search(line)]
        return (informative or lines or [""])[-1][:400]

    def _wait(self, timeout_s: float) -> int | None:
        if self._guard is None:
            return None
        try:
            return self._guard.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None


def _is_stopped(pid: int | None) -> bool:
    """True if each thread of a process is stopped, and where the system has no ``/proc`` to look at."""
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.is_dir():
        return True
    # proc(5): the state follows the name, which is in parentheses and may contain some.
    states = (task.joinpath("stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir())
    try:
        return all(state in _STOPPED_STATES for state in states)
    except OSError:  # a thread, or the process, ended meanwhile
        return False


def java_command(java: Path, options: Sequence[str], classpath: Sequence[Path], main: str, *args: str) -> list[str]:
    """Return the command line that runs class ``main`` with the jars of ``classpath``."""
    return [str(java), *options, "-cp", os.pathsep.join(map(str, classpath)), main, *args]
