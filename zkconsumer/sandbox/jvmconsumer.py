"""The JVM's own ZooKeeper consumer, for groups shared in tests; driven through py4j, so no Java is compiled.

Records are handled inside the JVM: a thread per stream, composed of method handles, drains the iterator into a queue,
and Python fetches the queue's content as one text. A call through py4j for each record would be slower by two orders of
magnitude.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from zkconsumer.errors import SandboxError
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox.jars import JarSource
from zkconsumer.sandbox.java import find_java
from zkconsumer.sandbox.jvmhandles import Handles
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.ports import HOST
from zkconsumer.sandbox.process import java_command
from zkconsumer.sandbox.progress import Progress
from zkconsumer.sandbox.pysparkjars import py4j_jar
from zkconsumer.sandbox.server import LocalServer

DEFAULT_CONSUMER_VERSION: Final = "1.1.1"

_SMALL: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""Options of a JVM that starts quickly and needs little memory."""

OPEN_STREAMS: Final = (
    "--add-opens",
    "java.base/java.util.stream=ALL-UNNAMED",
    "--add-opens",
    "java.base/java.util=ALL-UNNAMED",
)
"""Options of a JVM in which `JvmIterator` is used: py4j calls methods of the JDK's own classes."""

_LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
)
# Up to 0.11 the consumer logs through log4j 1, which logs nothing unless it is configured.
_LOG4J: Final = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d [%t] %p %c - %m%n
"""
_BYTES = r"null|\[[-\d, ]*\]"
_RECORD: Final = rf"([\w.-]+), (\d+), (\d+), ({_BYTES}), ({_BYTES})"
_ROW: Final = re.compile(rf"\[{_RECORD}\]")
_LINE: Final = re.compile(rf"\[{_RECORD}, (\d+)\]")
# One entry of an assignment: "topic-partition" since 1.0, "[topic,partition]" before, then the thread id.
_SHARE: Final = re.compile(r"^\[?([\w.-]+)[-,](\d+)\]? -> (.+)$")
_ASSIGNORS: Final = {"range": "RangeAssignor", "roundrobin": "RoundRobinAssignor"}
_ZOOKEEPER_TIMEOUT_MS: Final = 6000


class JvmRecord(NamedTuple):
    """A record returned by the JVM consumer."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class ConsumerJvm(LocalServer):
    """A JVM in which consumers of Kafka ``version`` can be created; see `LocalServer` for its life cycle.

    ``jars`` is the source of the consumer's jars (default: chosen by the environment, else Maven Central), ``progress``
    reports fetching them (default: no reports). Killing or pausing the JVM kills or pauses all its consumers.
    """

    def __init__(
        self,
        directory: Path,
        *,
        version: str = DEFAULT_CONSUMER_VERSION,
        name: str = "JVM consumer",
        jvm_options: Sequence[str] = _SMALL,
        jars: JarSource | None = None,
        progress: Progress | None = None,
        ready_timeout_s: float = 60.0,
    ) -> None:
        super().__init__(name, directory, None, ready_timeout_s)
        self.version = version
        self._jvm_options = tuple(jvm_options)
        source = jars or JarSource.from_environment()
        self._jars = source.provide(read_lock(f"jvm-consumer-{version}"), progress or Progress(quiet=True))
        self._gateway: Any = None
        self._zk_utils: dict[str, Any] = {}

    def is_serving(self) -> bool:
        """True if the JVM obeys the gateway, to which the secret from its log gives access."""
        word = self._word()
        if word is None:
            return False
        from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]  # it has no types
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        parameters = GatewayParameters(
            address=HOST,
            port=self.port,
            auth_token=word,
            auto_convert=True,
            # It would call the JVM during Python's garbage collection, where a paused JVM would block any thread.
            enable_memory_management=False,
        )
        gateway = JavaGateway(gateway_parameters=parameters)
        try:
            gateway.jvm.java.lang.System.nanoTime()
        except Py4JError:
            gateway.close()
            return False
        self._gateway = gateway
        return True

    def stop(self, timeout_s: float = 15.0) -> None:
        """End the JVM by SIGTERM: consumers that were not shut down leave their groups by session expiry."""
        super().stop(timeout_s)
        self._disconnect()

    def kill(self) -> None:
        """End the JVM by SIGKILL; its consumers leave their groups by session expiry."""
        super().kill()
        self._disconnect()

    @property
    def gateway(self) -> Any:
        """The py4j gateway. Raises SandboxError if the JVM does not run."""
        if self._gateway is None:
            raise SandboxError(f"{self.name} is not running; start() it first")
        return self._gateway

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
        with _as_sandbox_error(self), _released_objects(self.gateway) as passing:
            jvm = self.gateway.jvm
            zookeeper = self._zookeeper(zookeeper_connect)
            assignor = passing(getattr(jvm.kafka.consumer, _ASSIGNORS[strategy])())
            for consumer in passing(zookeeper.getConsumersInGroup(group)).mkString("\n").split():
                context = passing(jvm.kafka.consumer.AssignmentContext(group, consumer, True, zookeeper))
                share = passing(passing(assignor.assign(context)).get(consumer))
                for topic, partition, thread in (_match(_SHARE, line) for line in share.mkString("\n").splitlines()):
                    shares[TopicPartition(topic, int(partition))] = thread
        return shares

    def tool(self, main: str, *args: str) -> list[str]:
        """The command line of a tool of this Kafka version, such as ``kafka.admin.ConsumerGroupCommand``."""
        return java_command(find_java().executable, (*_SMALL, *_LOGGING), self._jars, main, *args)

    def _zookeeper(self, connect: str) -> Any:
        if connect not in self._zk_utils:
            self._zk_utils[connect] = self.gateway.jvm.kafka.utils.ZkUtils.apply(
                connect, _ZOOKEEPER_TIMEOUT_MS, _ZOOKEEPER_TIMEOUT_MS, False
            )
        return self._zk_utils[connect]

    def _word(self) -> str | None:
        """The secret that the gateway wrote to the log after its port."""
        found = re.findall(rf"^{self.port}\n(\S+)\n", self.log.read_text(encoding="utf-8"), re.MULTILINE)
        return found[-1] if found else None

    def _disconnect(self) -> None:
        self._zk_utils.clear()
        if self._gateway is not None:
            self._gateway.close()
            self._gateway = None

    def _command(self) -> list[str]:
        log4j = self.directory / "log4j.properties"
        log4j.write_text(_LOG4J, encoding="utf-8")
        options = (
            *self._jvm_options,
            *_LOGGING,
            f"-Dlog4j.configuration={log4j.as_uri()}",
            f"-Djava.io.tmpdir={self.directory}",
        )
        jars = [*self._jars, py4j_jar()]
        return java_command(
            find_java().executable, options, jars, "py4j.GatewayServer", "--enable-auth", str(self.port)
        )


class JvmConsumer:
    """One connector inside a `ConsumerJvm`. Used by one thread at a time.

    Every call raises SandboxError with the JVM's error if it fails there, or if the JVM has ended.
    """

    def __init__(self, jvm: ConsumerJvm, properties: Mapping[str, str]) -> None:
        self._jvm = jvm
        self.consumer_id = f"{properties['group.id']}_{properties['consumer.id']}"
        self._received: list[JvmRecord] = []
        with _as_sandbox_error(jvm):
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
        with _as_sandbox_error(self._jvm):
            made = self._connector.createMessageStreams(dict(topics))
            for streams in made.values() if read else ():
                self._read(streams, output)

    def create_streams_by_filter(self, kind: Literal["Whitelist", "Blacklist"], regex: str, streams: int = 1) -> None:
        """Join the group with a filter, whose regex the JVM normalises, and read all streams."""
        with _as_sandbox_error(self._jvm):
            topic_filter = getattr(self._jvm.gateway.jvm.kafka.consumer, kind)(regex)
            self._read(self._connector.createMessageStreamsByFilter(topic_filter, streams))

    def iterator(self, topic: str) -> JvmIterator:
        """Join with one stream of a topic, whose records are dropped inside the JVM."""
        with _as_sandbox_error(self._jvm):
            return JvmIterator(self._jvm, self._connector.createMessageStreams({topic: 1}).get(topic).get(0).iterator())

    def received(self) -> list[JvmRecord]:
        """All records that the streams have returned so far, in the order of each stream."""
        with _as_sandbox_error(self._jvm), _released_objects(self._jvm.gateway) as passing:
            java = self._jvm.gateway.jvm
            batch = passing(java.java.util.ArrayList())
            if self._queue.drainTo(batch):
                text = java.java.util.Arrays.deepToString(passing(batch.toArray()))
                self._received += (_record(*row) for row in _ROW.findall(text))
        return list(self._received)

    def commit(self) -> None:
        """Commit the offsets of all records that were returned."""
        with _as_sandbox_error(self._jvm):
            self._connector.commitOffsets()

    def shutdown(self) -> None:
        """Leave the group, committing unless ``auto.commit.enable`` is off, and wait until the streams have ended."""
        with _as_sandbox_error(self._jvm):
            self._connector.shutdown()
            for thread in self._threads:
                thread.join()

    def _read(self, streams: Any, output: Path | None = None) -> None:
        """Start a JVM thread per stream that passes all records of its iterator to the queue, or to a file."""
        handles = Handles(self._jvm.gateway)
        rows = handles.rows_into(self._queue) if output is None else handles.lines_into(output)
        sink = handles.interface("java.util.function.Consumer", rows)
        for stream in streams:
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
        with _as_sandbox_error(self._jvm), _released_objects(self._jvm.gateway) as passing:
            java = self._jvm.gateway.jvm.java.util
            elements = passing(java.Spliterators.spliteratorUnknownSize(self._iterator, 0))
            return int(passing(passing(java.stream.StreamSupport.stream(elements, False)).limit(count)).count())


@contextmanager
def _as_sandbox_error(jvm: ConsumerJvm) -> Iterator[None]:
    """Turn py4j's errors into SandboxError with the JVM's error."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise SandboxError(f"{jvm.name}: {error.java_exception.toString()}; see {jvm.log}") from error
    except Py4JError as error:
        raise SandboxError(f"{jvm.name} did not answer: {error}; see {jvm.log}") from error


@contextmanager
def _released_objects(gateway: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that registers Java objects which the JVM may drop afterwards."""
    objects: list[Any] = []

    def passing(one: Any) -> Any:
        objects.append(one)
        return one

    try:
        yield passing
    finally:
        for one in objects:
            gateway.detach(one)


def read_output(output: Path) -> list[tuple[JvmRecord, float]]:
    """What was written to the ``output`` of :meth:`JvmConsumer.create_streams`, each record with its time.

    On Linux the time is that of ``time.monotonic()``.
    """
    if not output.exists():
        return []
    whole, _, _ = output.read_text(encoding="utf-8").rpartition("\n")
    return [(_record(*row[:-1]), int(row[-1]) / 1e9) for row in _LINE.findall(whole)]


def _record(topic: str, partition: str, offset: str, key: str, value: str) -> JvmRecord:
    return JvmRecord(topic, int(partition), int(offset), _bytes(key), _bytes(value))


def _bytes(text: str) -> bytes | None:
    """Parse Java's text of a byte array, whose elements are signed."""
    if text == "null":
        return None
    return bytes(int(number) & 0xFF for number in text.strip("[]").split(",") if number)


def _match(pattern: re.Pattern[str], line: str) -> tuple[str, ...]:
    found = pattern.match(line)
    if found is None:
        raise SandboxError(f"the JVM returned {line!r} instead of an assignment")
    return found.groups()
