"""What the sandbox's servers have in common: one loopback port, one Java process, one log, start and stop."""

import signal
from abc import ABC, abstractmethod
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.ports import HOST, free_port, is_free, require_free
from zkconsumer.sandbox.process import JvmProcess


class LocalServer(ABC):
    """A server on a loopback port whose data and log lie in ``directory``.

    ``name`` is what messages call it. ``port`` None means a free one; it stays the same over restarts.
    ``ready_timeout_s`` bounds each wait for the server to serve. Used by one thread at a time.
    """

    def __init__(self, name: str, directory: Path, port: int | None, ready_timeout_s: float) -> None:
        self.name = name
        self.directory = directory
        self._ready_timeout_s = ready_timeout_s
        self._port_is_ours_to_choose = port is None
        self._port = port
        self._process: JvmProcess | None = None

    @abstractmethod
    def is_serving(self) -> bool:
        """True when this very server, not another one on its port, does what it is for."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Write the configuration and return the command that starts the server with it."""

    @property
    def port(self) -> int:
        """The port for clients; chosen on the first use when none was given."""
        if self._port is None:
            self._port = free_port()
        return self._port

    @property
    def address(self) -> str:
        """Where clients connect, ``host:port``."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The file with everything the server has said, over all its restarts."""
        return self.directory / f"{self.name.lower().replace(' ', '-')}.log"

    @property
    def running(self) -> bool:
        """True while the process lives, also when it is paused."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """The id of the Java process. Raises SandboxError when it is not running."""
        if self._process is None:
            raise SandboxError(f"{self.name} was never started; start() it first")
        return self._process.pid

    def start(self) -> None:
        """Start the server on its data and wait until it serves.

        Raises SandboxError when its port is taken, when it ends early and when it does not serve in time; the process
        is gone then.
        """
        self.launch()
        self.wait_until_serving()

    def launch(self) -> None:
        """Start the server without waiting, so that several can start at the same time. Raises SandboxError."""
        if self.running:
            raise SandboxError(f"{self.name} is running already; stop() it first")
        self.directory.mkdir(parents=True, exist_ok=True)
        require_free(self.port, self.name)
        self._process = JvmProcess(self.name, self._command(), self.log)
        self._process.start()

    def wait_until_serving(self) -> None:
        """Wait for the server after `launch`; raises SandboxError as `start` does."""
        try:
            self._await()
        except SandboxError:
            # Between our choice of the port and the server's use of it, somebody else may have taken it.
            if not self._port_is_ours_to_choose or is_free(self.port):
                raise
            self._port = None
            self.launch()
            self._await()
        self._port_is_ours_to_choose = False  # clients know it now

    def _await(self) -> None:
        process = self._process
        if process is None:
            raise SandboxError(f"{self.name} was never started; start() it first")
        try:
            process.wait_until(self.is_serving, "it served", self._ready_timeout_s)
        except BaseException:
            process.kill()
            raise

    def stop(self, timeout_s: float = 15.0) -> None:
        """Ask the server to end and wait until it has; kill it after ``timeout_s`` seconds. Its data stay."""
        if self._process is not None:
            self._process.stop(timeout_s)

    def kill(self) -> None:
        """End the server by SIGKILL. Its data stay."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Stop and start the server on the same port and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open and nothing answers, as with a host that hangs."""
        if self._process is not None:
            self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen server go on (SIGCONT)."""
        if self._process is not None:
            self._process.signal(signal.SIGCONT)

    def expect_running(self) -> None:
        """Raise SandboxError, quoting the log, when the process has ended by itself."""
        if self._process is not None:
            self._process.expect_running()
