"""The servers of all trials, which hold the groups of one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from tests.chaos.cluster import Cluster
from tests.chaos.kinds import SESSION_S
from tests.chaos.members import JvmPool
from tests.fixtures.sandbox import Topics
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.jars import DEFAULT_KAFKA_VERSION
from zkconsumer.sandbox.server import LocalServer

_RETRIES_S: Final = 60.0

_OF_THE_BROKER: Final = {
    "group.min.session.timeout.ms": "1000",
    # Kafka 4 only; others ignore them.
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(round(SESSION_S * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(round(SESSION_S * 1000 / 6)),
}
_OF_SEVERAL_BROKERS: Final = {
    "offsets.topic.replication.factor": "3",
    # One that is killed is missed soon, and may start again.
    "zookeeper.session.timeout.ms": "4000",
}


class Servers:
    """ZooKeeper, brokers and JVMs that serve one trial after the other.

    Args:
        directory: of what members and JVMs write.
        kafka_version: of the brokers.
        brokers: their number.
        zookeepers: number of ZooKeeper's servers.
    """

    def __init__(
        self, directory: Path, kafka_version: str = DEFAULT_KAFKA_VERSION, *, brokers: int = 1, zookeepers: int = 1
    ) -> None:
        self.directory = directory
        properties = _OF_THE_BROKER if brokers == 1 else {**_OF_THE_BROKER, **_OF_SEVERAL_BROKERS}
        # As low as a session in this sandbox's ZooKeeper.
        self.box = Sandbox(
            zookeepers=zookeepers, brokers=brokers, kafka_version=kafka_version, kafka_properties=properties
        )
        self.box.start()
        self.cluster = Cluster(self.box)
        self.jvms = JvmPool(directory)
        # On a slow machine its connection is lost when ZooKeeper is paused; `retry` then reads again.
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0, deadline=_RETRIES_S)
        self.zookeeper = KazooClient(self.box.zookeeper_connect, timeout=30, command_retry=retry)
        self.zookeeper.start()
        self.topics = Topics(self.box.bootstrap_servers)

    def restart_broker(self, *, hard: bool) -> None:
        """Stop or kill the broker, and start it again on its data."""
        _restart(self.box.brokers[0], hard=hard)

    def restart_zookeeper(self, *, hard: bool) -> None:
        """Stop or kill ZooKeeper, and start it again on its data."""
        _restart(self.box.zookeeper, hard=hard)

    def hurt_ensemble(self, *, everyone: bool) -> None:
        """Kill the leader of ZooKeeper's servers, or stop all and start them again, and wait until most serve."""
        ensemble = self.box.ensemble
        if everyone:
            ensemble.stop()
            for server in ensemble.members:
                server.launch()
        else:
            ensemble.leader().kill()
        ensemble.await_leader()

    def complete_ensemble(self) -> None:
        """Let all of ZooKeeper's servers serve."""
        self.box.ensemble.start()
        for server in self.box.ensemble.members:
            server.wait_until_serving()

    def restore(self) -> None:
        """Let all servers run."""
        for server in self.box.ensemble.members:
            server.resume()
        self.box.ensemble.start()
        self.cluster.restore()

    def close(self) -> None:
        """End everything."""
        self.zookeeper.stop()
        self.zookeeper.close()
        self.jvms.close()
        self.box.close()


def _restart(server: LocalServer, *, hard: bool) -> None:
    if hard:
        server.kill()
    else:
        server.stop()
    server.start()
