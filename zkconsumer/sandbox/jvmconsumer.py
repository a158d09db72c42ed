"""The JVM's own ZooKeeper consumer, to share groups with in tests; driven through py4j, so nothing is compiled.

All that a record passes runs inside the JVM: a thread per stream drains the iterator into a queue, put together from
method handles, and Python fetches the queue's content as one text. A call through py4j for each record would be slower
by two orders of magnitude.
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
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.ports import HOST
from zkconsumer.sandbox.process import java_command
from zkconsumer.sandbox.progress import Progress
from zkconsumer.sandbox.pysparkjars import py4j_jar
from zkconsumer.sandbox.server import LocalServer

DEFAULT_CONSUMER_VERSION: Final = "1.1.1"

_SMALL: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""For a JVM that starts quickly and needs little."""

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
# Up to 0.11 the consumer logs through log4j 1, which says nothing unless it is told where.
_LOG4J: Final = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d [%t] %p %c - %m%n
"""
_BYTES = r"null|\[[-\d, ]*\]"
_ROW: Final = re.compile(rf"\[([\w.-]+), (\d+), (\d+), ({_BYTES}), ({_BYTES})\]")
# One entry of an assignment: "topic-partition" since 1.0, "[topic,partition]" before, then the thread id.
_SHARE: Final = re.compile(r"^\[?([\w.-]+)[-,](\d+)\]? -> (.+)$")
_ASSIGNORS: Final = {"range": "RangeAssignor", "roundrobin": "RoundRobinAssignor"}
_ZOOKEEPER_TIMEOUT_MS: Final = 6000


class JvmRecord(NamedTuple):
    """A record as the JVM consumer handed it out."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class ConsumerJvm(LocalServer):
    """A JVM in which consumers of Kafka ``version`` can be made; see `LocalServer` for its life.

    ``jars`` says where the consumer's jars come from (default: the environment's choice, else Maven Central),
    ``progress`` who is told about fetching them (default: nobody). Killing or pausing it does so to all its consumers.
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
        """True when the JVM does what we tell it; its own word in the log, which nobody else knows, lets us in."""
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
            # It would call the JVM from within Python's garbage collection, where a paused JVM would block any thread.
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
        """The py4j gateway. Raises SandboxError when the JVM does not run."""
        if self._gateway is None:
            raise SandboxError(f"{self.name} is not running; start() it first")
        return self._gateway

    def consumer(self, properties: Mapping[str, str]) -> JvmConsumer:
        """Make a connector, ``kafka.consumer.Consumer.createJavaConsumerConnector``; it joins with its streams.

        Raises SandboxError with the JVM's words when that fails. ``group.id`` and ``consumer.id`` have to be given.
        """
        return JvmConsumer(self, properties)

    def assignment(self, zookeeper_connect: str, group: str, strategy: str) -> dict[TopicPartition, str]:
        """The thread that should own each partition, computed by this JVM's own assignor from the group's znodes.

        Raises SandboxError when the group has a registration that the JVM cannot read.
        """
        shares: dict[TopicPartition, str] = {}
        with _told_by(self), _forgotten(self.gateway) as passing:
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

    Every call raises SandboxError with the JVM's words when it fails there, and when the JVM is gone.
    """

    def __init__(self, jvm: ConsumerJvm, properties: Mapping[str, str]) -> None:
        self._jvm = jvm
        self.consumer_id = f"{properties['group.id']}_{properties['consumer.id']}"
        self._received: list[JvmRecord] = []
        with _told_by(jvm):
            java = jvm.gateway.jvm
            config = java.java.util.Properties()
            for name, value in properties.items():
                config.setProperty(name, value)
            self._connector = java.kafka.consumer.Consumer.createJavaConsumerConnector(
                java.kafka.consumer.ConsumerConfig(config)
            )
            self._queue = java.java.util.concurrent.LinkedBlockingQueue()
        self._threads: list[Any] = []

    def create_streams(self, topics: Mapping[str, int], *, read: bool = True) -> None:
        """Join the group with a static subscription, topic to number of streams, and ``read`` all streams."""
        with _told_by(self._jvm):
            made = self._connector.createMessageStreams(dict(topics))
            for streams in made.values() if read else ():
                self._read(streams)

    def create_streams_by_filter(self, kind: Literal["Whitelist", "Blacklist"], regex: str, streams: int = 1) -> None:
        """Join the group with a filter, whose regex the JVM normalises, and read all streams."""
        with _told_by(self._jvm):
            topic_filter = getattr(self._jvm.gateway.jvm.kafka.consumer, kind)(regex)
            self._read(self._connector.createMessageStreamsByFilter(topic_filter, streams))

    def iterator(self, topic: str) -> JvmIterator:
        """Join with one stream of a topic, whose records are dropped inside the JVM as they are taken."""
        with _told_by(self._jvm):
            return JvmIterator(self._jvm, self._connector.createMessageStreams({topic: 1}).get(topic).get(0).iterator())

    def received(self) -> list[JvmRecord]:
        """Everything that the streams have handed out so far, in the order of each stream."""
        with _told_by(self._jvm), _forgotten(self._jvm.gateway) as passing:
            java = self._jvm.gateway.jvm
            batch = passing(java.java.util.ArrayList())
            if self._queue.drainTo(batch):
                text = java.java.util.Arrays.deepToString(passing(batch.toArray()))
                self._received += (_record(*row) for row in _ROW.findall(text))
        return list(self._received)

    def commit(self) -> None:
        """Commit the offsets of everything that was handed out."""
        with _told_by(self._jvm):
            self._connector.commitOffsets()

    def shutdown(self) -> None:
        """Leave the group, committing unless ``auto.commit.enable`` is off, and wait until the streams have ended."""
        with _told_by(self._jvm):
            self._connector.shutdown()
            for thread in self._threads:
                thread.join()

    def _read(self, streams: Any) -> None:
        """Start a JVM thread per stream that passes the rest of its iterator to a consumer filling the queue."""
        handles = _Handles(self._jvm.gateway)
        sink = handles.interface("java.util.function.Consumer", handles.rows_into(self._queue))
        for stream in streams:
            run = handles.bound("java.util.Iterator", "forEachRemaining", stream.iterator(), sink)
            thread = self._jvm.gateway.jvm.java.lang.Thread(handles.interface("java.lang.Runnable", run))
            thread.setDaemon(True)
            thread.start()
            self._threads.append(thread)


class JvmIterator:
    """Takes elements of a Java iterator in a loop of the JDK, ``while (hasNext()) next()`` with a count.

    The JVM has to be started with :data:`OPEN_STREAMS`. Calls raise SandboxError as those of `JvmConsumer`.
    """

    def __init__(self, jvm: ConsumerJvm, iterator: Any) -> None:
        self._jvm = jvm
        self._iterator = iterator

    @classmethod
    def of_nothing(cls, jvm: ConsumerJvm, count: int) -> JvmIterator:
        """The cheapest iterator with so many elements: what taking them costs is the cost of the loop."""
        return cls(jvm, jvm.gateway.jvm.java.util.Collections.nCopies(count, "").iterator())

    def take(self, count: int) -> int:
        """Take so many elements, or those that there are, and return their number."""
        with _told_by(self._jvm), _forgotten(self._jvm.gateway) as passing:
            java = self._jvm.gateway.jvm.java.util
            elements = passing(java.Spliterators.spliteratorUnknownSize(self._iterator, 0))
            return int(passing(passing(java.stream.StreamSupport.stream(elements, False)).limit(count)).count())


class _Handles:
    """Puts Java functions together from method handles."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._invoke = gateway.jvm.java.lang.invoke
        self._lookup = self._invoke.MethodHandles.publicLookup()
        self._object = self._class("java.lang.Object")
        self._void = gateway.jvm.java.lang.Void.TYPE

    def rows_into(self, queue: Any) -> Any:
        """A function that adds topic, partition, offset, key and value of a MessageAndMetadata to a queue."""
        record = self._class("kafka.message.MessageAndMetadata")
        row = self._class("[Ljava.lang.Object;")
        primitive = self._gateway.jvm.java.lang
        results = {
            "topic": self._class("java.lang.String"),
            "partition": primitive.Integer.TYPE,
            "offset": primitive.Long.TYPE,
            "key": self._object,
            "message": self._object,
        }
        as_object = self._invoke.MethodType.methodType(self._object, record)
        getters = [
            self._lookup.findVirtual(record, name, self._invoke.MethodType.methodType(result)).asType(as_object)
            for name, result in results.items()
        ]
        handles = self._invoke.MethodHandles
        collect = handles.identity(row).asCollector(row, len(getters))
        collect = handles.filterArguments(
            collect, 0, self._array(self._class("java.lang.invoke.MethodHandle"), getters)
        )
        every_time = self._array(primitive.Integer.TYPE, [0] * len(getters))  # all from argument 0
        collect = handles.permuteArguments(collect, self._invoke.MethodType.methodType(row, record), every_time)
        add = self._lookup.findVirtual(
            self._class("java.util.Collection"),
            "add",
            self._invoke.MethodType.methodType(primitive.Boolean.TYPE, self._object),
        ).bindTo(queue)
        return handles.filterReturnValue(collect.asType(as_object), add)

    def bound(self, interface: str, method: str, receiver: Any, argument: Any) -> Any:
        """The call ``receiver.method(argument)`` of a method that takes a Consumer and returns nothing."""
        takes = self._class("java.util.function.Consumer")
        kind = self._invoke.MethodType.methodType(self._void, takes)
        return self._lookup.findVirtual(self._class(interface), method, kind).bindTo(receiver).bindTo(argument)

    def interface(self, name: str, handle: Any) -> Any:
        """An object of an interface with one method, which calls the handle."""
        return self._invoke.MethodHandleProxies.asInterfaceInstance(self._class(name), handle)

    def _class(self, name: str) -> Any:
        return self._gateway.jvm.java.lang.Class.forName(name)

    def _array(self, kind: Any, values: list[Any]) -> Any:
        array = self._gateway.jvm.java.lang.reflect.Array.newInstance(kind, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array


@contextmanager
def _told_by(jvm: ConsumerJvm) -> Iterator[None]:
    """Turn py4j's errors into SandboxError with what the JVM said."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise SandboxError(f"{jvm.name}: {error.java_exception.toString()}; see {jvm.log}") from error
    except Py4JError as error:
        raise SandboxError(f"{jvm.name} did not answer: {error}; see {jvm.log}") from error


@contextmanager
def _forgotten(gateway: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield a function through which to pass Java objects that the JVM need not keep for us afterwards."""
    objects: list[Any] = []

    def passing(one: Any) -> Any:
        objects.append(one)
        return one

    try:
        yield passing
    finally:
        for one in objects:
            gateway.detach(one)


def _record(topic: str, partition: str, offset: str, key: str, value: str) -> JvmRecord:
    return JvmRecord(topic, int(partition), int(offset), _bytes(key), _bytes(value))


def _bytes(text: str) -> bytes | None:
    """Read Java's text of a byte array, whose elements are signed."""
    if text == "null":
        return None
    return bytes(int(number) & 0xFF for number in text.strip("[]").split(",") if number)


def _match(pattern: re.Pattern[str], line: str) -> tuple[str, ...]:
    found = pattern.match(line)
    if found is None:
        raise SandboxError(f"the JVM said {line!r} where an assignment was expected")
    return found.groups()
