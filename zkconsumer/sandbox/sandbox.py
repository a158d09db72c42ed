"""The sandbox as a whole: one ZooKeeper, some Kafka brokers, one temporary directory."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from zkconsumer.errors import SandboxError, UsageError
from zkconsumer.forks import Owner
from zkconsumer.leftovers import OwnedDirectory
from zkconsumer.sandbox.cache import cache_directory
from zkconsumer.sandbox.jars import DEFAULT_KAFKA_VERSION, JarSource
from zkconsumer.sandbox.kafka import KafkaBroker
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.ports import require_free
from zkconsumer.sandbox.progress import Progress
from zkconsumer.sandbox.server import LocalServer
from zkconsumer.sandbox.zookeeper import ZooKeeperServer

_POLL_S = 0.1
_AGREEMENT_TIMEOUT_S = 30.0


class Sandbox:
    """A ZooKeeper and ``brokers`` Kafka brokers (0: ZooKeeper alone), running inside a ``with`` block.

    Ports given as None are free ones; ``kafka_port`` is the first broker's. ``jars`` says where Kafka's jars come from
    (default: the environment's choice, else Maven Central), ``progress`` who is told about waiting (default: nobody).
    ``kafka_properties`` are server properties of every broker. Used by one thread at a time.

    The temporary directory is removed at the end. After a start that failed, the logs are in ``failed-sandbox`` of the
    user's cache directory until the next one that fails. If a server failed later, or the process was killed, the
    directory stays until a sandbox is started again.
    """

    def __init__(
        self,
        *,
        kafka_version: str = DEFAULT_KAFKA_VERSION,
        brokers: int = 1,
        zookeeper_port: int | None = None,
        kafka_port: int | None = None,
        tick_time_ms: int = 500,
        kafka_properties: Mapping[str, str] | None = None,
        jars: JarSource | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.kafka_version = kafka_version
        self.brokers: list[KafkaBroker] = []
        self._broker_count = brokers
        self._zookeeper_port = zookeeper_port
        self._kafka_port = kafka_port
        self._tick_time_ms = tick_time_ms
        self._kafka_properties = dict(kafka_properties or {})
        self._jars = jars
        self._jar_paths: list[Path] | None = None
        self._progress = progress or Progress(quiet=True)
        self._directory: OwnedDirectory | None = None
        self._owner = Owner()
        self._zookeeper: ZooKeeperServer | None = None

    @property
    def running(self) -> bool:
        """True between `start` and `close`, whatever became of the servers."""
        return self._directory is not None

    @property
    def directory(self) -> Path:
        """The temporary directory with data, configuration and logs. Raises UsageError before `start`."""
        if self._directory is None:
            raise UsageError("the sandbox is not running; use it in a with block")
        return self._directory.path

    @property
    def zookeeper(self) -> ZooKeeperServer:
        """The ZooKeeper server. Raises UsageError before `start`."""
        if self._zookeeper is None:
            raise UsageError("the sandbox is not running; use it in a with block")
        return self._zookeeper

    @property
    def zookeeper_connect(self) -> str:
        """What to give as zookeeper.connect."""
        return self.zookeeper.address

    @property
    def bootstrap_servers(self) -> str:
        """What to give as bootstrap.servers: every broker, running or not."""
        return ",".join(broker.address for broker in self.brokers)

    def start(self) -> None:
        """Start everything and wait until it serves.

        Raises SandboxError when something cannot be had or does not start; then nothing runs, and only logs are left.
        """
        if self.running:
            raise UsageError("the sandbox is running already")
        self._require_given_ports()
        if self._broker_count > 0:
            self._provide_jars()  # before anything runs: it may take long, and may fail
        self._owner = Owner()
        self._directory = OwnedDirectory("zkconsumer-sandbox-")
        try:
            self._start_servers()
        except BaseException:
            self.close()
            raise

    def add_brokers(self, count: int = 1, *, port: int | None = None) -> list[KafkaBroker]:
        """Start further brokers, together, and wait until all brokers know each other; return the new ones.

        ``port`` is the first new one's. Raises SandboxError as `start` does.
        """
        if count == 0:
            return []
        self._owner.require(f"sandbox {self.directory}")
        first = len(self.brokers)
        jars = self._provide_jars()
        added = [
            KafkaBroker(
                self.directory,
                self.zookeeper,
                jars,
                kafka_version=self.kafka_version,
                broker_id=number,
                port=port if number == first else None,
                properties=self._kafka_properties,
            )
            for number in range(first, first + count)
        ]
        self.brokers += added
        with self._progress.step(f"starting Kafka {self.kafka_version}"):
            for broker in added:
                broker.launch()
            for broker in added:
                broker.wait_until_serving()
            self._wait_for_agreement()
        return added

    def wait(self) -> None:
        """Wait until interrupted. Raises SandboxError when a server ends meanwhile."""
        while True:
            for server in self._servers():
                server.expect_running()
            time.sleep(_POLL_S)

    def close(self, *, keep_directory: bool = False) -> None:
        """End all servers and remove the directory, unless ``keep_directory``. Idempotent.

        In a forked child nothing is done: servers and directory are the parent's.
        """
        if self.running and self._owner.spares(f"sandbox {self.directory}"):
            return
        for server in reversed(self._servers()):
            server.kill()  # nothing has to survive, and an orderly stop takes seconds
        if self._directory is not None:
            if keep_directory:
                self._directory.leave()
            else:
                self._directory.remove()
        # After the removal, so that a call after an interrupt removes what is left.
        self._directory, self._zookeeper, self.brokers = None, None, []

    def __enter__(self) -> "Sandbox":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(keep_directory=isinstance(error, SandboxError))

    def _servers(self) -> list[LocalServer]:
        return [*([] if self._zookeeper is None else [self._zookeeper]), *self.brokers]

    def _require_given_ports(self) -> None:
        """Refuse ports that are taken before anything is fetched or left behind."""
        if self._zookeeper_port is not None:
            require_free(self._zookeeper_port, "ZooKeeper")
        if self._kafka_port is not None and self._broker_count > 0:
            require_free(self._kafka_port, "Kafka")

    def _provide_jars(self) -> list[Path]:
        if self._jar_paths is None:
            source = self._jars or JarSource.from_environment()
            self._jar_paths = source.provide(read_lock(f"kafka-{self.kafka_version}"), self._progress)
        return self._jar_paths

    def _start_servers(self) -> None:
        try:
            self._start_zookeeper()
            self.add_brokers(self._broker_count, port=self._kafka_port)
        except SandboxError as error:
            raise self._with_kept_logs(error) from error

    def _with_kept_logs(self, error: SandboxError) -> SandboxError:
        """Copy the logs to the one place for those of a failed start; the error with their new paths."""
        try:
            kept = cache_directory() / "failed-sandbox"
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(exist_ok=True)
            for log in self.directory.glob("*.log"):
                shutil.copy(log, kept)
        except (OSError, SandboxError):  # there is no such place, or the disk is full: they stay where they are
            self.close(keep_directory=True)
            return error
        return SandboxError(str(error).replace(str(self.directory), str(kept)))

    def _start_zookeeper(self) -> None:
        self._zookeeper = ZooKeeperServer(self.directory, port=self._zookeeper_port, tick_time_ms=self._tick_time_ms)
        with self._progress.step("starting ZooKeeper"):
            self._zookeeper.start()

    def _wait_for_agreement(self) -> None:
        """Wait until each running broker lists all running ones: a topic may be replicated over them from then on."""
        running = [broker for broker in self.brokers if broker.running]
        deadline = time.monotonic() + _AGREEMENT_TIMEOUT_S
        for broker in running:
            while not {other.broker_id for other in running} <= broker.known_brokers():
                broker.expect_running()
                if time.monotonic() > deadline:
                    known = sorted(broker.known_brokers())
                    raise SandboxError(f"{broker.name} knows only brokers {known}; see {broker.log}")
                time.sleep(_POLL_S)
