"""LocalServer, the base of the sandbox's servers: one loopback port, one Java process, one log."""

import signal
from abc import ABC, abstractmethod
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.ports import HOST, free_port, is_free, require_free
from zkconsumer.sandbox.process import JvmProcess


class LocalServer(ABC):
    """A server on a loopback port, with data and log in ``directory``.

    ``name`` is its name in messages. For a ``port`` of None a free one is chosen; it stays the same over restarts.
    ``ready_timeout_s`` limits each wait for the server to serve. Used by one thread at a time.
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
        """True if this server, and not another one on its port, serves clients."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Write the configuration and return the command that starts the server with it."""

    @property
    def port(self) -> int:
        """The port for clients; chosen on first use if none was given."""
        if self._port is None:
            self._port = free_port()
        return self._port

    @property
    def address(self) -> str:
        """The address for clients, ``host:port``."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The file with the server's output, over all its restarts."""
        return self.directory / f"{self._file_name}.log"

    @property
    def _file_name(self) -> str:
        return self.name.lower().replace(" ", "-")

    @property
    def running(self) -> bool:
        """True while the process lives, even if it is paused."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """The id of the Java process. Raises SandboxError if it is not running."""
        if self._process is None:
            raise SandboxError(f"{self.name} was never started; start() it first")
        return self._process.pid

    def start(self) -> None:
        """Start the server on its data and wait until it serves.

        Raises SandboxError if its port is in use, it ends early, or it does not serve in time; the process has then
        ended.
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
            # Between the choice of the port and the server's use of it, another process may have taken it.
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
        """Ask the server to end and wait for its end; kill it after ``timeout_s`` seconds. Its data stay."""
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
        """Freeze the server (SIGSTOP): connections stay open without answers, as with a hanging host."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """Continue a frozen server (SIGCONT)."""
        if self._process is not None:
            self._process.signal(signal.SIGCONT)

    def expect_running(self) -> None:
        """Raise SandboxError, quoting the log, if the process has ended by itself."""
        if self._process is not None:
            self._process.expect_running()
