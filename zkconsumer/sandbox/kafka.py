"""A Kafka broker of the sandbox, in ZooKeeper mode."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.java import find_java
from zkconsumer.sandbox.ports import HOST
from zkconsumer.sandbox.probes import known_brokers
from zkconsumer.sandbox.process import java_command
from zkconsumer.sandbox.server import LocalServer
from zkconsumer.sandbox.zookeeper import ZooKeeperServer

_POLL_S = 0.05
_JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
)
# A small broker that starts quickly and makes clients wait for nothing.
_PROPERTIES = {
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "30000",
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
    "log.cleaner.dedupe.buffer.size": "4194304",  # the default takes a quarter of our heap
    "log.retention.hours": "-1",  # records written with old timestamps must not vanish
}


class KafkaBroker(LocalServer):
    """A broker of a ZooKeeper's cluster, from the jars given; see `LocalServer` for its life.

    ``properties`` are further settings of server.properties and outrank ours. `start` after `kill` waits until
    ZooKeeper has let the killed broker's session expire, since a broker does not start before that.
    """

    def __init__(
        self,
        directory: Path,
        zookeeper: ZooKeeperServer,
        jars: Sequence[Path],
        *,
        broker_id: int = 0,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        ready_timeout_s: float = 90.0,
    ) -> None:
        super().__init__(f"Kafka broker {broker_id}", directory, port, ready_timeout_s)
        self.broker_id = broker_id
        self.zookeeper = zookeeper
        self._jars = tuple(jars)
        self._properties = dict(properties or {})

    def launch(self) -> None:
        """Start the broker without waiting until it serves, but after its former session is gone."""
        if not self.running:
            self._wait_for_former_session()
        super().launch()

    def is_serving(self) -> bool:
        """True when the broker answers and the cluster's controller has told it that it is alive itself."""
        return self.known_brokers().get(self.broker_id) == (HOST, self.port)

    def known_brokers(self) -> dict[int, tuple[str, int]]:
        """Return the live brokers by id, as this broker knows them; empty when it does not answer."""
        return known_brokers(self.port)

    def _wait_for_former_session(self) -> None:
        znode = f"/brokers/ids/{self.broker_id}"
        limit_s = self.zookeeper.max_session_timeout_ms / 1000 + 10
        deadline = time.monotonic() + limit_s
        while znode in self.zookeeper.ephemerals():
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"{self.name}: {znode} is still there after {limit_s:g} s; check for another broker with this id"
                )
            time.sleep(_POLL_S)

    def _command(self) -> list[str]:
        config = self.directory / f"kafka-{self.broker_id}.properties"
        properties = {
            "broker.id": str(self.broker_id),
            "zookeeper.connect": self.zookeeper.address,
            "log.dirs": str(self.directory / f"kafka-{self.broker_id}"),
            "listeners": f"PLAINTEXT://{self.address}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            **_PROPERTIES,
            **self._properties,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
        options = (*_JVM_OPTIONS, f"-Djava.io.tmpdir={self.directory}")
        return java_command(find_java().executable, options, self._jars, "kafka.Kafka", str(config))
