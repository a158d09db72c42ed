"""LocalServer, the base of the sandbox's servers: one loopback port, one Java process, one log."""

import signal
from abc import ABC, abstractmethod
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.ports import HOST, free_port, is_free, require_free
from zkconsumer.sandbox.process import JvmProcess


class LocalServer(JvmProcess, ABC):
    """A server on a loopback port, with data and log in ``directory``. Its data stay when it ends.

    ``name`` is its name in messages. For a ``port`` of None a free one is chosen; it stays the same over restarts.
    ``ready_timeout_s`` limits each wait for the server to serve. Used by one thread at a time.
    """

    def __init__(self, name: str, directory: Path, port: int | None, ready_timeout_s: float) -> None:
        self._file_name = name.lower().replace(" ", "-")
        super().__init__(name, (), directory / f"{self._file_name}.log")
        self.directory = directory
        self._ready_timeout_s = ready_timeout_s
        self._port_is_ours_to_choose = port is None
        self._port = port

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
        super().start()

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
        try:
            self.wait_until(self.is_serving, "it served", self._ready_timeout_s)
        except BaseException:
            self.kill()
            raise

    def restart(self) -> None:
        """Stop and start the server on the same port and data."""
        self.stop()
        self.start()

    def resume(self) -> None:
        """Continue a frozen server (SIGCONT)."""
        self.signal(signal.SIGCONT)
