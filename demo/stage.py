"""Stage: the demo's servers with the topic, and the state that all acts share."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from demo.brokerreader import BrokerReader
from demo.flights import Records
from demo.observer import SampleReader, ZnodeReader
from demo.story import Story
from demo.timeline import Event, Sample, Timeline
from demo.workspace import Workspace
from zkconsumer.errors import SandboxError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.sandbox import DEFAULT_KAFKA_VERSION, Sandbox, is_kraft_only
from zkconsumer.sandbox.admin import create_topics
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.zookeeper.session import ZkSession

TOPIC = "flights"
PARTITIONS = 8

_CLIENT_TIMEOUT_MS = 10_000
_TOPIC_CONFIG = {
    # The records have the times of their flights, months apart: without this each week would begin a new segment.
    "segment.ms": str(2**63 - 1),
    "retention.ms": "-1",
}


class Servers:
    """A sandbox with the demo's topic, running inside a ``with`` block.

    Args:
        logs: directory to which the servers' logs are copied at the end.
        progress: reports waits.
        kafka_version: version of the broker.
        brokers_coordinate: the groups are those of ``group.protocol=kafka``; there is no ZooKeeper unless the broker
            needs it.
    """

    def __init__(
        self,
        logs: Path,
        progress: Progress,
        kafka_version: str = DEFAULT_KAFKA_VERSION,
        *,
        brokers_coordinate: bool = False,
    ) -> None:
        self.partitions = tuple(TopicPartition(TOPIC, number) for number in range(PARTITIONS))
        self.brokers: tuple[Broker, ...] = ()
        self._logs = logs
        self._brokers_coordinate = brokers_coordinate
        zookeepers = 0 if brokers_coordinate and is_kraft_only(kafka_version) else 1
        self._sandbox = Sandbox(kafka_version=kafka_version, zookeepers=zookeepers, progress=progress)
        self._session: ZkSession | None = None

    @property
    def names(self) -> str:
        """What runs, for the demo's output."""
        kafka = f"Kafka {self._sandbox.kafka_version}"
        return f"ZooKeeper and {kafka}" if self._sandbox.zookeeper_connect else f"{kafka} without ZooKeeper"

    @property
    def connection(self) -> dict[str, str]:
        """The properties with which consumers find the servers."""
        if self._brokers_coordinate:
            return {"group.protocol": "kafka", "bootstrap.servers": self._sandbox.bootstrap_servers}
        return self._sandbox.connection

    def reader(self, group: str) -> SampleReader:
        """A reader of one group, to be closed by the caller."""
        if self._brokers_coordinate:
            return BrokerReader(self.brokers, group, self.partitions)
        assert self._session is not None, "only inside the with block"
        return ZnodeReader(self._session, self.brokers, group, self.partitions)

    def read(self, group: str, at: float) -> Sample:
        """Read a group once, with separate connections to the brokers."""
        reader = self.reader(group)
        try:
            return reader.read(at)
        finally:
            reader.close()

    def expect_alive(self) -> None:
        """Raise SandboxError, quoting the log, if a server has ended by itself."""
        try:
            for server in (*self._sandbox.ensemble.members, *self._sandbox.brokers):
                server.expect_running()
        except SandboxError as error:
            # When the message is read, the logs have been moved.
            raise SandboxError(str(error).replace(str(self._sandbox.directory), str(self._logs))) from error

    def __enter__(self) -> Self:
        self._sandbox.start()
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def _open(self) -> None:
        if not self._brokers_coordinate:
            self._session = ZkSession(
                self._sandbox.zookeeper_connect,
                session_timeout_ms=_CLIENT_TIMEOUT_MS,
                connection_timeout_ms=_CLIENT_TIMEOUT_MS,
            )
            self._session.open()
        self.brokers = bootstrap_brokers(self._sandbox.bootstrap_servers)
        client = BrokerClient(lambda: self.brokers, client_id="zkconsumer-demo", timeout_ms=_CLIENT_TIMEOUT_MS)
        try:
            create_topics(client, {TOPIC: PARTITIONS}, config=_TOPIC_CONFIG)
        finally:
            client.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
        if self._sandbox.running:
            for log in self._sandbox.directory.glob("*.log"):
                shutil.copy(log, self._logs)
        self._sandbox.close()


@dataclass
class Stage:
    """State that all acts share."""

    servers: Servers
    records: Records
    workspace: Workspace
    story: Story
    clock: Callable[[], float]
    """Seconds since the demo began."""
    timeline: Timeline = field(default_factory=Timeline)
    names: dict[str, str] = field(default_factory=dict)
    """Consumer id to the name in the picture, in the order of appearance."""

    def mark(self, text: str, kill: str | None = None) -> None:
        """Record an event for the picture."""
        self.timeline.events.append(Event(self.clock(), text, kill))


def stopwatch() -> Callable[[], float]:
    """A clock that returns the seconds since its creation."""
    begun = time.monotonic()
    return lambda: time.monotonic() - begun
