"""A Kafka broker of the sandbox without ZooKeeper, as all are since Kafka 4 (KRaft mode)."""

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.ensemble import ZooKeeperEnsemble
from zkconsumer.sandbox.java import find_java
from zkconsumer.sandbox.kafka import JVM_OPTIONS, PROPERTIES, KafkaBroker
from zkconsumer.sandbox.lockfile import version_tuple
from zkconsumer.sandbox.ports import HOST, free_port
from zkconsumer.sandbox.process import JvmProcess, java_command
from zkconsumer.sandbox.server import LocalServer
from zkconsumer.sandbox.zookeeper import ZooKeeperServer

KRAFT_ONLY_SINCE: Final = (4,)
"""The first version that does not know ZooKeeper."""

_FORMAT_STALL_S: Final = 60.0
# Brokers are missed, and may register again after they were killed, after this time.
_PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def is_kraft_only(kafka_version: str) -> bool:
    """True if brokers of this version do not know ZooKeeper."""
    return version_tuple(kafka_version) >= KRAFT_ONLY_SINCE


class KRaftBroker(KafkaBroker):
    """A broker of a cluster without ZooKeeper; the first one of a cluster is its controller, too, in one process.

    ``controller`` is that first broker, None for itself. ``zookeeper`` is not used by the broker: it is there for the
    groups of consumers. The other arguments are those of `KafkaBroker`.
    """

    def __init__(
        self,
        directory: Path,
        zookeeper: ZooKeeperServer | ZooKeeperEnsemble,
        jars: Sequence[Path],
        *,
        kafka_version: str,
        broker_id: int = 0,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        controller: "KRaftBroker | None" = None,
    ) -> None:
        super().__init__(
            directory,
            zookeeper,
            jars,
            kafka_version=kafka_version,
            broker_id=broker_id,
            port=port,
            properties=properties,
        )
        self._controller = controller or self
        self._controller_port = free_port() if controller is None else None
        self.cluster_id: str = _new_cluster_id() if controller is None else controller.cluster_id

    def launch(self) -> None:
        """Start the broker without waiting until it serves; a controller lets it register again by itself."""
        LocalServer.launch(self)

    def _command(self) -> list[str]:
        config = self._write_properties(self._all_properties())
        if not (self._log_directory / "meta.properties").exists():
            self._format(config)
        return self._java("kafka.Kafka", str(config))

    def _all_properties(self) -> dict[str, str]:
        first = self._controller
        listeners = f"PLAINTEXT://{self.address}"
        properties = {
            "process.roles": "broker",
            "node.id": str(self.broker_id),
            "controller.quorum.voters": f"{first.broker_id}@{HOST}:{first._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            "log.dirs": str(self._log_directory),
            **PROPERTIES,
            **_PROPERTIES,
            **self._properties,
        }
        if first is self:
            properties["process.roles"] = "broker,controller"
            properties["listeners"] += f",CONTROLLER://{HOST}:{self._controller_port}"
        return properties

    def _format(self, config: Path) -> None:
        """Write the cluster's id into the data directory, which a broker requires before its first start."""
        log = self.directory / f"{self._file_name}-format.log"
        # In one argument: an id may begin with "-", and would be taken for an option.
        arguments = ("format", f"--cluster-id={self.cluster_id}", "--config", str(config))
        tool = JvmProcess(f"{self.name}'s StorageTool", self._java("kafka.tools.StorageTool", *arguments), log)
        tool.start()
        try:
            code = tool.run(lambda: None, _FORMAT_STALL_S, lambda: None)
        finally:
            tool.kill()
        if code:
            raise SandboxError(f"{tool.name} failed with exit code {code}: {tool.log_summary()}")

    def _java(self, main: str, *arguments: str) -> list[str]:
        options = (*JVM_OPTIONS, f"-Djava.io.tmpdir={self.directory}")
        return java_command(find_java().executable, options, self._jars, main, *arguments)


def _new_cluster_id() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
