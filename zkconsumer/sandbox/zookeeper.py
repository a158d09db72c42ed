"""A ZooKeeper server of the sandbox."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from zkconsumer.sandbox.java import find_java
from zkconsumer.sandbox.ports import HOST
from zkconsumer.sandbox.probes import four_letter_word, zookeeper_mode
from zkconsumer.sandbox.process import java_command
from zkconsumer.sandbox.pysparkjars import zookeeper_jars
from zkconsumer.sandbox.server import LocalServer

_EPHEMERALS = "ephemeral nodes dump:"
_JVM_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dlog4j2.level=INFO",
    # Up to 3.4 the server wants log4j 1 for this.
    "-Dzookeeper.jmx.log4j.disable=true",
    # Data need not survive a power failure here; a killed process loses none either way.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=4096",
)


class ZooKeeperServer(LocalServer):
    """A ZooKeeper server; see `LocalServer` for its life cycle.

    The server limits session timeouts to between 2 and 20 times ``tick_time_ms``, unless ``min_session_timeout_ms`` or
    ``max_session_timeout_ms`` are given. ``properties`` are further settings of its configuration file. ``jars`` are
    those of a version other than pyspark's. ``name`` also names its files: servers of one directory need different
    names.
    """

    _main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"

    def __init__(  # noqa: PLR0913 - each has its keyword and its default
        self,
        directory: Path,
        *,
        port: int | None = None,
        tick_time_ms: int = 500,
        min_session_timeout_ms: int | None = None,
        max_session_timeout_ms: int | None = None,
        properties: Mapping[str, str] | None = None,
        jars: Sequence[Path] | None = None,
        ready_timeout_s: float = 60.0,
        name: str = "ZooKeeper",
    ) -> None:
        super().__init__(name, directory, port, ready_timeout_s)
        self.tick_time_ms = tick_time_ms
        self.max_session_timeout_ms = max_session_timeout_ms or 20 * tick_time_ms
        self._jars = jars
        self.data = directory / self._file_name
        self._properties = {
            "tickTime": str(tick_time_ms),
            "minSessionTimeout": str(min_session_timeout_ms or 2 * tick_time_ms),
            "maxSessionTimeout": str(self.max_session_timeout_ms),
            "dataDir": str(self.data),
            "clientPortAddress": HOST,
            "maxClientCnxns": "0",
            "4lw.commands.whitelist": "*",
            "admin.enableServer": "false",
            **(properties or {}),
        }

    def is_serving(self) -> bool:
        """True if this server answers on its port: `conf` must name its directory."""
        return self.mode() != "" and f"dataDir={self.data}" in self.ask("conf")

    def mode(self) -> str:
        """Return ``standalone``, ``leader`` or ``follower``; "" when the server does not serve."""
        return zookeeper_mode(self.port)

    def ask(self, word: str) -> str:
        """Return the answer to a four-letter word such as ``mntr``, "" if there is none within two seconds."""
        return four_letter_word(self.port, word)

    def ephemerals(self) -> set[str] | None:
        """Return the paths of all ephemeral nodes (the command ``dump``); None if the server does not list them."""
        dump = self.ask("dump")
        if _EPHEMERALS not in dump:  # no answer, or the server has not loaded its data yet
            return None
        return {line.strip() for line in dump.splitlines() if line.startswith("\t/")}

    def _command(self) -> list[str]:
        config = self.directory / f"{self._file_name}.properties"
        properties = {**self._properties, "clientPort": str(self.port)}
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
        options = (*_JVM_OPTIONS, f"-Djava.io.tmpdir={self.directory}")
        jars = self._jars or zookeeper_jars(tls="secureClientPort" in self._properties)
        return java_command(find_java().executable, options, jars, self._main_class, str(config))
