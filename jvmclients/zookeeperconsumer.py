"""The JVM's own ZooKeeper consumer, for groups shared in tests; driven through py4j, so no Java is compiled.

Records are handled inside the JVM: a thread per stream, composed of method handles, drains the iterator into a queue,
and Python fetches the queue's content as one text. A call through py4j for each record would be slower by two orders of
magnitude.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from jvmclients.gateway import (
    RECORD,
    SMALL,
    GatewayJvm,
    JvmRecord,
    as_sandbox_error,
    drained,
    record_of,
    released_objects,
)
from jvmclients.handles import Handles
from zkconsumer.errors import SandboxError
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox.jars import JarSource
from zkconsumer.sandbox.lockfile import known_locks, version_tuple
from zkconsumer.sandbox.progress import Progress

DEFAULT_CONSUMER_VERSION: Final = "1.1.1"

CONSUMER_VERSIONS: Final = ("0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", DEFAULT_CONSUMER_VERSION)
"""Releases with this consumer that have a lock file: one of their own, or that of the broker, whose jars include it."""

OPEN_STREAMS: Final = (
    "--add-opens",
    "java.base/java.util.stream=ALL-UNNAMED",
    "--add-opens",
    "java.base/java.util=ALL-UNNAMED",
)
"""Options of a JVM in which `JvmIterator` is used: py4j calls methods of the JDK's own classes."""

_LINE: Final = re.compile(rf"\[{RECORD}, (\d+)\]")
# One entry of an assignment: "topic-partition" since 1.0, "[topic,partition]" before, then the thread id.
_SHARE: Final = re.compile(r"^\[?([\w.-]+)[-,](\d+)\]? -> (.+)$")
_ASSIGNORS: Final = {"range": "RangeAssignor", "roundrobin": "RoundRobinAssignor"}
_ZOOKEEPER_TIMEOUT_MS: Final = 6000
_ZK_UTILS_IS_A_CLASS_SINCE: Final = (0, 9)


class ConsumerJvm(GatewayJvm):
    """A JVM in which consumers of Kafka ``version`` can be created; for the arguments see `GatewayJvm`."""

    def __init__(
        self,
        directory: Path,
        *,
        version: str = DEFAULT_CONSUMER_VERSION,
        name: str = "JVM consumer",
        jvm_options: Sequence[str] = SMALL,
        jars: JarSource | None = None,
        progress: Progress | None = None,
        ready_timeout_s: float = 60.0,
    ) -> None:
        super().__init__(
            directory,
            lock=own if (own := f"jvm-consumer-{version}") in known_locks() else f"kafka-{version}",
            name=name,
            jvm_options=jvm_options,
            jars=jars,
            progress=progress,
            ready_timeout_s=ready_timeout_s,
        )
        self.version = version
        self._zk_utils: dict[str, Any] = {}

    def consumer(self, properties: Mapping[str, str]) -> JvmConsumer:
        """Create a connector, ``kafka.consumer.Consumer.createJavaConsumerConnector``; it joins with its streams.

        Raises SandboxError with the JVM's error if that fails. ``group.id`` and ``consumer.id`` are required.
        """
        return JvmConsumer(self, properties)

    def assignment(self, zookeeper_connect: str, group: str, strategy: str) -> dict[TopicPartition, str]:
        """The thread that should own each partition, computed by this JVM's own assignor from the group's znodes.

        Raises SandboxError if the group has a registration that the JVM cannot parse.
        """
        shares: dict[TopicPartition, str] = {}
        with as_sandbox_error(self), released_objects(self.gateway) as passing:
            jvm = self.gateway.jvm
            zookeeper, consumers = self._zookeeper(zookeeper_connect), self._consumers(zookeeper_connect, group)
            assignor = passing(getattr(jvm.kafka.consumer, _ASSIGNORS[strategy])())
            for consumer in passing(consumers).mkString("\n").split():
                context = passing(jvm.kafka.consumer.AssignmentContext(group, consumer, True, zookeeper))
                share = passing(assignor.assign(context))
                if self._is_newer_than_0_8:  # before, it returned the share of this consumer only
                    share = passing(share.get(consumer))
                for topic, partition, thread in (_match(_SHARE, line) for line in share.mkString("\n").splitlines()):
                    shares[TopicPartition(topic, int(partition))] = thread
        return shares

    def code_source(self) -> str:
        """The name of the jar that the consumer's class was loaded from, such as ``kafka_2.11-0.8.2.2.jar``."""
        with as_sandbox_error(self):
            connector = self.gateway.jvm.java.lang.Class.forName("kafka.consumer.ZookeeperConsumerConnector")
            return Path(connector.getProtectionDomain().getCodeSource().getLocation().getPath()).name

    @property
    def _is_newer_than_0_8(self) -> bool:
        return version_tuple(self.version) >= _ZK_UTILS_IS_A_CLASS_SINCE

    def _consumers(self, connect: str, group: str) -> Any:
        """Ids of the consumers of a group, a Scala sequence."""
        zookeeper = self._zookeeper(connect)
        if self._is_newer_than_0_8:
            return zookeeper.getConsumersInGroup(group)
        return self.gateway.jvm.kafka.utils.ZkUtils.getConsumersInGroup(zookeeper, group)

    def _zookeeper(self, connect: str) -> Any:
        """What the assignors of this version read ZooKeeper with: a ``ZkUtils``, or in 0.8 a ``ZkClient``."""
        if connect not in self._zk_utils:
            jvm, timeout = self.gateway.jvm, _ZOOKEEPER_TIMEOUT_MS
            if self._is_newer_than_0_8:
                self._zk_utils[connect] = jvm.kafka.utils.ZkUtils.apply(connect, timeout, timeout, False)
            else:
                serializer = getattr(getattr(jvm.kafka.utils, "ZKStringSerializer$"), "MODULE$")
                self._zk_utils[connect] = jvm.org.I0Itec.zkclient.ZkClient(connect, timeout, timeout, serializer)
        return self._zk_utils[connect]

    def _disconnect(self) -> None:
        self._zk_utils.clear()
        super()._disconnect()


class JvmConsumer:
    """One connector inside a `ConsumerJvm`. Used by one thread at a time.

    Every call raises SandboxError with the JVM's error if it fails there, or if the JVM has ended.
    """

    def __init__(self, jvm: ConsumerJvm, properties: Mapping[str, str]) -> None:
        self._jvm = jvm
        self.consumer_id = f"{properties['group.id']}_{properties['consumer.id']}"
        self._received: list[JvmRecord] = []
        with as_sandbox_error(jvm):
            java = jvm.gateway.jvm
            config = java.java.util.Properties()
            for name, value in properties.items():
                config.setProperty(name, value)
            self._connector = java.kafka.consumer.Consumer.createJavaConsumerConnector(
                java.kafka.consumer.ConsumerConfig(config)
            )
            self._queue = java.java.util.concurrent.LinkedBlockingQueue()
        self._threads: list[Any] = []

    def create_streams(self, topics: Mapping[str, int], *, read: bool = True, output: Path | None = None) -> None:
        """Join the group with a static subscription, topic to number of streams, and ``read`` all streams.

        With ``output`` records are appended to that file, which outlasts a JVM that is killed, and not to what
        :meth:`received` returns; :func:`read_output` reads it.
        """
        with as_sandbox_error(self._jvm):
            made = self._connector.createMessageStreams(dict(topics))
            for streams in made.values() if read else ():
                self._read(streams, output)

    def create_streams_by_filter(self, kind: Literal["Whitelist", "Blacklist"], regex: str, streams: int = 1) -> None:
        """Join the group with a filter, whose regex the JVM normalises, and read all streams."""
        with as_sandbox_error(self._jvm):
            topic_filter = getattr(self._jvm.gateway.jvm.kafka.consumer, kind)(regex)
            self._read(self._connector.createMessageStreamsByFilter(topic_filter, streams))

    def iterator(self, topic: str) -> JvmIterator:
        """Join with one stream of a topic, whose records are dropped inside the JVM."""
        with as_sandbox_error(self._jvm):
            return JvmIterator(self._jvm, self._connector.createMessageStreams({topic: 1}).get(topic).get(0).iterator())

    def pass_records(self, topic: str, sink: Any) -> None:
        """Join with one stream of a topic; a thread of the JVM passes its records to a java.util.function.Consumer."""
        with as_sandbox_error(self._jvm):
            self._drain(self._connector.createMessageStreams({topic: 1}).get(topic).get(0), sink)

    def received(self) -> list[JvmRecord]:
        """All records that the streams have returned so far, in the order of each stream."""
        self._received += drained(self._jvm, self._queue)
        return list(self._received)

    def commit(self) -> None:
        """Commit the offsets of all records that were returned."""
        with as_sandbox_error(self._jvm):
            self._connector.commitOffsets()

    def shutdown(self) -> None:
        """Leave the group, committing unless ``auto.commit.enable`` is off, and wait until the streams have ended."""
        with as_sandbox_error(self._jvm):
            self._connector.shutdown()
            for thread in self._threads:
                thread.join()

    def _read(self, streams: Any, output: Path | None = None) -> None:
        """Start a JVM thread per stream that passes all records of its iterator to the queue, or to a file."""
        handles = Handles(self._jvm.gateway)
        rows = handles.rows_into(self._queue) if output is None else handles.lines_into(output)
        sink = handles.interface("java.util.function.Consumer", rows)
        for stream in streams:
            self._drain(stream, sink)

    def _drain(self, stream: Any, sink: Any) -> None:
        """Start a JVM thread that passes all records of a stream to a sink."""
        handles = Handles(self._jvm.gateway)
        run = handles.bound("java.util.Iterator", "forEachRemaining", stream.iterator(), sink)
        thread = self._jvm.gateway.jvm.java.lang.Thread(handles.interface("java.lang.Runnable", run))
        thread.setDaemon(True)
        thread.start()
        self._threads.append(thread)


class JvmIterator:
    """Takes elements of a Java iterator in a loop of the JDK, ``while (hasNext()) next()`` with a count.

    The JVM must be started with :data:`OPEN_STREAMS`. Calls raise SandboxError as those of `JvmConsumer`.
    """

    def __init__(self, jvm: ConsumerJvm, iterator: Any) -> None:
        self._jvm = jvm
        self._iterator = iterator

    @classmethod
    def of_nothing(cls, jvm: ConsumerJvm, count: int) -> JvmIterator:
        """The cheapest iterator with ``count`` elements, to measure the cost of the loop itself."""
        return cls(jvm, jvm.gateway.jvm.java.util.Collections.nCopies(count, "").iterator())

    def take(self, count: int) -> int:
        """Take at most ``count`` elements, and return the number of those taken."""
        with as_sandbox_error(self._jvm), released_objects(self._jvm.gateway) as passing:
            java = self._jvm.gateway.jvm.java.util
            elements = passing(java.Spliterators.spliteratorUnknownSize(self._iterator, 0))
            return int(passing(passing(java.stream.StreamSupport.stream(elements, False)).limit(count)).count())


def read_output(output: Path) -> list[tuple[JvmRecord, float]]:
    """What was written to the ``output`` of :meth:`JvmConsumer.create_streams`, each record with its time.

    On Linux the time is that of ``time.monotonic()``.
    """
    if not output.exists():
        return []
    whole, _, _ = output.read_text(encoding="utf-8").rpartition("\n")
    return [(record_of(*row[:-1]), int(row[-1]) / 1e9) for row in _LINE.findall(whole)]


def _match(pattern: re.Pattern[str], line: str) -> tuple[str, ...]:
    match = pattern.match(line)
    if match is None:
        raise SandboxError(f"the JVM returned {line!r} instead of an assignment")
    return match.groups()
