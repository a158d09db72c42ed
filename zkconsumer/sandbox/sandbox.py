"""The sandbox as a whole: ZooKeeper, some Kafka brokers, one temporary directory."""

import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType

from zkconsumer.errors import SandboxError, UsageError
from zkconsumer.process.forks import Owner
from zkconsumer.process.stalefiles import OwnedDirectory
from zkconsumer.sandbox.cache import cache_directory
from zkconsumer.sandbox.ensemble import ZooKeeperEnsemble
from zkconsumer.sandbox.jars import DEFAULT_KAFKA_VERSION, JarSource
from zkconsumer.sandbox.kafka import KafkaBroker
from zkconsumer.sandbox.kraft import KRaftBroker, is_kraft_only
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.ports import require_free
from zkconsumer.sandbox.progress import Progress
from zkconsumer.sandbox.server import LocalServer
from zkconsumer.sandbox.zookeeper import ZooKeeperServer

_POLL_S = 0.1
_AGREEMENT_TIMEOUT_S = 30.0


class Sandbox:
    """A ZooKeeper and ``brokers`` Kafka brokers (0: ZooKeeper only), running inside a ``with`` block.

    Kafka 4 does not use ZooKeeper, which is then there for groups of consumers only.

    ``zookeepers`` is the number of ZooKeeper servers; more than one are an ensemble. It may be 0 with Kafka 4, for
    groups that brokers coordinate (``group.protocol=kafka``); UsageError with an earlier version. For a port of None a
    free one is chosen; ``zookeeper_port`` and ``kafka_port`` are those of the first server and broker.
    ``max_session_timeout_ms`` is the longest session that ZooKeeper grants (default: 20 times ``tick_time_ms``).
    ``jars`` is the source of Kafka's jars (default: chosen by the environment, else Maven Central), ``progress``
    reports waits (default: no reports). ``kafka_properties`` are server properties of every broker,
    ``zookeeper_properties`` of every ZooKeeper server. Used by one thread at a time.

    The temporary directory is removed at the end. After a failed start, the logs are in ``failed-sandbox`` of the
    user's cache directory until the next failed start. If a server failed later, or the process was killed, the
    directory stays until a sandbox is started again.
    """

    def __init__(  # noqa: PLR0913 - each has its keyword and its default
        self,
        *,
        kafka_version: str = DEFAULT_KAFKA_VERSION,
        zookeepers: int = 1,
        brokers: int = 1,
        zookeeper_port: int | None = None,
        kafka_port: int | None = None,
        tick_time_ms: int = 500,
        max_session_timeout_ms: int | None = None,
        kafka_properties: Mapping[str, str] | None = None,
        zookeeper_properties: Mapping[str, str] | None = None,
        jars: JarSource | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.kafka_version = kafka_version
        if zookeepers == 0 and brokers > 0 and not self.has_brokers_without_zookeeper:
            raise UsageError(f"Kafka {kafka_version} needs a ZooKeeper; versions from 4 on do not")
        self.brokers: list[KafkaBroker] = []
        self._zookeeper_count = zookeepers
        self._broker_count = brokers
        self._zookeeper_port = zookeeper_port
        self._kafka_port = kafka_port
        self._tick_time_ms = tick_time_ms
        self._max_session_timeout_ms = max_session_timeout_ms
        self._kafka_properties = dict(kafka_properties or {})
        self._zookeeper_properties = dict(zookeeper_properties or {})
        self._jars = jars
        self._jar_paths: list[Path] | None = None
        self._progress = progress or Progress(quiet=True)
        self._directory: OwnedDirectory | None = None
        self._owner = Owner()
        self._ensemble: ZooKeeperEnsemble | None = None

    @property
    def running(self) -> bool:
        """True between `start` and `close`, even if servers have ended."""
        return self._directory is not None

    @property
    def directory(self) -> Path:
        """The temporary directory with data, configuration and logs. Raises UsageError before `start`."""
        if self._directory is None:
            raise UsageError("the sandbox is not running; use it in a with block")
        return self._directory.path

    @property
    def ensemble(self) -> ZooKeeperEnsemble:
        """All ZooKeeper servers: one, several or none. Raises UsageError before `start`."""
        if self._ensemble is None:
            raise UsageError("the sandbox is not running; use it in a with block")
        return self._ensemble

    @property
    def zookeeper(self) -> ZooKeeperServer:
        """The first ZooKeeper server. Raises UsageError before `start`, and if there is none."""
        if not self.ensemble.members:
            raise UsageError("this sandbox has no ZooKeeper")
        return self.ensemble.members[0]

    @property
    def zookeeper_connect(self) -> str:
        """The value for zookeeper.connect: every server, running or not; empty if there is none."""
        return self.ensemble.address

    @property
    def bootstrap_servers(self) -> str:
        """The value for bootstrap.servers: all brokers, running or not."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def has_brokers_without_zookeeper(self) -> bool:
        """True if ZooKeeper knows nothing of the brokers, so that consumers need bootstrap.servers."""
        return is_kraft_only(self.kafka_version)

    @property
    def connection(self) -> dict[str, str]:
        """The properties with which a consumer finds ZooKeeper and the brokers; without ZooKeeper the group, too."""
        if not self.ensemble.members:
            return {"group.protocol": "kafka", "bootstrap.servers": self.bootstrap_servers}
        properties = {"zookeeper.connect": self.zookeeper_connect}
        if self.has_brokers_without_zookeeper:
            properties["bootstrap.servers"] = self.bootstrap_servers
        return properties

    def start(self) -> None:
        """Start all servers and wait until they serve.

        Raises SandboxError if jars or Java are missing or a server does not start; then no server runs, and only logs
        remain.
        """
        if self.running:
            raise UsageError("the sandbox is running already")
        self._require_given_ports()
        if self._broker_count > 0:
            self._provide_jars()  # before any server starts: it may take long, and may fail
        self._owner = Owner()
        self._directory = OwnedDirectory("zkconsumer-sandbox-")
        try:
            self._start_servers()
        except BaseException:
            self.close()
            raise

    def add_brokers(self, count: int = 1, *, port: int | None = None) -> list[KafkaBroker]:
        """Start further brokers together, wait until all brokers know each other, and return the new ones.

        ``port`` is that of the first new one. Raises SandboxError as `start` does.
        """
        if count == 0:
            return []
        self._owner.require(f"sandbox {self.directory}")
        first = len(self.brokers)
        for number in range(first, first + count):
            self.brokers.append(self._new_broker(number, port if number == first else None))
        added = self.brokers[first:]
        with self._progress.step(f"starting Kafka {self.kafka_version}"):
            for broker in added:
                broker.launch()
            for broker in added:
                broker.wait_until_serving()
            self._wait_for_agreement()
        return added

    def _new_broker(self, number: int, port: int | None) -> KafkaBroker:
        make: Callable[..., KafkaBroker] = KafkaBroker
        if self.has_brokers_without_zookeeper:
            first = next((broker for broker in self.brokers if isinstance(broker, KRaftBroker)), None)
            make = partial(KRaftBroker, controller=first)
        return make(
            self.directory,
            self.ensemble,
            self._provide_jars(),
            kafka_version=self.kafka_version,
            broker_id=number,
            port=port,
            properties=self._kafka_properties,
        )

    def wait(self) -> None:
        """Wait until interrupted. Raises SandboxError if a server ends meanwhile."""
        while True:
            for server in self._servers():
                server.expect_running()
            time.sleep(_POLL_S)

    def close(self, *, keep_directory: bool = False) -> None:
        """End all servers and remove the directory, unless ``keep_directory``. Idempotent.

        No effect in a forked child: servers and directory belong to the parent.
        """
        if self.running and self._owner.spares(f"sandbox {self.directory}"):
            return
        for server in reversed(self._servers()):
            server.kill()  # no data must survive, and an orderly stop takes seconds
        if self._directory is not None:
            if keep_directory:
                self._directory.leave()
            else:
                self._directory.remove()
        # After the removal, so that a call after an interrupt removes the rest.
        self._directory, self._ensemble, self.brokers = None, None, []

    def __enter__(self) -> "Sandbox":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(keep_directory=isinstance(error, SandboxError))

    def _servers(self) -> list[LocalServer]:
        return [*([] if self._ensemble is None else self._ensemble.members), *self.brokers]

    def _require_given_ports(self) -> None:
        """Refuse ports in use before jars are fetched or files are created."""
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
        """Copy the logs to the directory for those of a failed start; returns the error with their new paths."""
        try:
            kept = cache_directory() / "failed-sandbox"
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(exist_ok=True)
            for log in self.directory.glob("*.log"):
                shutil.copy(log, kept)
        except (OSError, SandboxError):  # there is no cache directory, or the disk is full: the logs stay in place
            self.close(keep_directory=True)
            return error
        return SandboxError(str(error).replace(str(self.directory), str(kept)))

    def _start_zookeeper(self) -> None:
        self._ensemble = ZooKeeperEnsemble(
            self.directory,
            self._zookeeper_count,
            port=self._zookeeper_port,
            tick_time_ms=self._tick_time_ms,
            max_session_timeout_ms=self._max_session_timeout_ms,
            properties=self._zookeeper_properties,
        )
        if self._zookeeper_count > 0:
            with self._progress.step("starting ZooKeeper"):
                self._ensemble.start()

    def _wait_for_agreement(self) -> None:
        """Wait until each running broker lists all running ones: then a topic can be replicated over them."""
        running = [broker for broker in self.brokers if broker.running]
        deadline = time.monotonic() + _AGREEMENT_TIMEOUT_S
        for broker in running:
            while not {peer.broker_id for peer in running} <= broker.known_brokers():
                broker.expect_running()
                if time.monotonic() > deadline:
                    known = sorted(broker.known_brokers())
                    raise SandboxError(f"{broker.name} lists only brokers {known}; see {broker.log}")
                time.sleep(_POLL_S)
