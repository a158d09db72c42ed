"""A Kafka broker of the sandbox, in ZooKeeper mode."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.ensemble import ZooKeeperEnsemble
from zkconsumer.sandbox.jars import DEFAULT_KAFKA_VERSION
from zkconsumer.sandbox.java import find_java
from zkconsumer.sandbox.lockfile import version_tuple
from zkconsumer.sandbox.ports import HOST
from zkconsumer.sandbox.probes import known_brokers
from zkconsumer.sandbox.process import java_command
from zkconsumer.sandbox.server import LocalServer
from zkconsumer.sandbox.zookeeper import ZooKeeperServer

_POLL_S = 0.05
JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
)
ZOOKEEPER_PROPERTIES = {
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "30000",
}
# A small broker that starts quickly and does not delay clients; in a container, too.
PROPERTIES = {
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",  # the default takes a quarter of the heap
    # A hundred years: records written with old timestamps must be kept. (0.8.2 does not support -1 for no limit.)
    "log.retention.hours": "876000",
}
# Brokers before 3.x log through log4j, which logs nothing unless it is configured.
_LOG4J = """log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d %p %c - %m%n
"""
_LISTENERS_SINCE = (0, 9)
_TELLS_BROKERS_SINCE = (0, 9)
_IDS = "/brokers/ids/"


class KafkaBroker(LocalServer):
    """A broker of a ZooKeeper's cluster, run from the given jars; see `LocalServer` for its life cycle.

    ``kafka_version`` is that of the jars. ``properties`` are further settings of server.properties and override the
    defaults here. `start` after `kill` waits until ZooKeeper has let the killed broker's session expire, since a broker
    does not start before.
    """

    def __init__(
        self,
        directory: Path,
        zookeeper: ZooKeeperServer | ZooKeeperEnsemble,
        jars: Sequence[Path],
        *,
        kafka_version: str = DEFAULT_KAFKA_VERSION,
        broker_id: int = 0,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        ready_timeout_s: float = 90.0,
    ) -> None:
        super().__init__(f"Kafka broker {broker_id}", directory, port, ready_timeout_s)
        self.broker_id = broker_id
        self.zookeeper = zookeeper
        self._jars = tuple(jars)
        self._version = version_tuple(kafka_version)
        self._properties = dict(properties or {})

    def launch(self) -> None:
        """Start the broker without waiting until it serves, but after its former session has expired."""
        if not self.running:
            self.await_end_of_former_session()
        super().launch()

    def is_serving(self) -> bool:
        """True if the broker answers and the cluster's controller has listed it as alive."""
        if self._version < _TELLS_BROKERS_SINCE:
            return self.broker_id in self.known_brokers() and "/controller" in (self.zookeeper.ephemerals() or ())
        return known_brokers(self.port).get(self.broker_id) == (HOST, self.port)

    def known_brokers(self) -> set[int]:
        """Return the ids of the live brokers known to this broker; empty if it does not answer.

        A broker of 0.8 lists none before there is a topic. For it the registered ones are returned: a broker registers
        as the last step of its start.
        """
        if self._version < _TELLS_BROKERS_SINCE:
            ephemerals = self.zookeeper.ephemerals() or ()
            return {int(path.removeprefix(_IDS)) for path in ephemerals if path.startswith(_IDS)}
        return set(known_brokers(self.port))

    def await_end_of_former_session(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Wait until ZooKeeper reports that no session registers this broker; ``clock`` gives seconds.

        Raises SandboxError if that takes longer than the longest session timeout.
        """
        znode = f"{_IDS}{self.broker_id}"
        limit_s = self.zookeeper.max_session_timeout_ms / 1000 + 10
        deadline = clock() + limit_s
        while (ephemerals := self.zookeeper.ephemerals()) is None or znode in ephemerals:
            if clock() > deadline:
                reason = (
                    f"ZooKeeper does not answer whether {znode} still exists; see {self.zookeeper.log}"
                    if ephemerals is None
                    else f"{znode} still exists after {limit_s:g} s; check for another broker with this id"
                )
                raise SandboxError(f"{self.name}: {reason}")
            time.sleep(_POLL_S)

    def _command(self) -> list[str]:
        log4j = self.directory / "log4j.properties"
        properties = {
            "broker.id": str(self.broker_id),
            "zookeeper.connect": self.zookeeper.address,
            "log.dirs": str(self._log_directory),
            **self._listener(),
            **ZOOKEEPER_PROPERTIES,
            **PROPERTIES,
            **self._properties,
        }
        config = self._write_properties(properties)
        log4j.write_text(_LOG4J, encoding="utf-8")
        options = (*JVM_OPTIONS, f"-Dlog4j.configuration=file:{log4j}", f"-Djava.io.tmpdir={self.directory}")
        return java_command(find_java().executable, options, self._jars, "kafka.Kafka", str(config))

    @property
    def _log_directory(self) -> Path:
        return self.directory / f"kafka-{self.broker_id}"

    def _write_properties(self, properties: Mapping[str, str]) -> Path:
        config = self.directory / f"kafka-{self.broker_id}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
        return config

    def _listener(self) -> dict[str, str]:
        if self._version < _LISTENERS_SINCE:  # 0.8 supports only one plaintext port
            return {"host.name": HOST, "port": str(self.port)}
        return {"listeners": f"PLAINTEXT://{self.address}", "advertised.listeners": f"PLAINTEXT://{self.address}"}
