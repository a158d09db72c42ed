"""Members of consumer groups to be timed: JVM consumers in a JVM, ours in a process of their own.

Both kinds are made first and join then, all at the same moment, each on a thread, so that what is timed is joining.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from zkconsumer.bench.contest import OURS
from zkconsumer.bench.machine import peak_memory_mib
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector.connector import ConsumerConnector
from zkconsumer.connector.stream import MessageStream
from zkconsumer.errors import SandboxError
from zkconsumer.model import Message
from zkconsumer.sandbox.jvmconsumer import ConsumerJvm, JvmConsumer
from zkconsumer.sandbox.progress import Progress

JVM: Final = "JVM consumer 1.1.1"

_JVM_OPTIONS: Final = ("-Xmx1g", "-XX:+UseParallelGC", "-XX:-UsePerfData")
"""Room enough, and the compiler unrestrained: the JVM at its best."""


class Joined(NamedTuple):
    """When some members began to join, by ``time.monotonic()``, and how many seconds each needed."""

    at: float
    seconds: tuple[float, ...]


class Members(Protocol):
    """One kind of member."""

    name: str

    def join(self, properties: Mapping[str, str], ids: Sequence[str], topic: str, *, read: bool = False) -> Joined:
        """Make members with one stream of a topic each, let them join together; ``read`` drains the streams."""

    def received(self, consumer: str) -> int:
        """Records that a member's stream has handed out so far."""

    def commit(self, consumer: str) -> float:
        """Commit what was handed out; seconds that it took."""

    def leave(self, consumers: Sequence[str]) -> float:
        """Let members leave; the moment at which they began."""

    def peak_memory_mib(self) -> float:
        """Peak resident memory of the process that all of them live in."""

    def close(self) -> None:
        """End the process."""


class JvmMembers:
    """JVM consumers, all in one JVM, driven by one Python thread each while they join."""

    name = JVM

    def __init__(self, directory: Path, progress: Progress) -> None:
        self._jvm = ConsumerJvm(directory, name="JVM members", jvm_options=_JVM_OPTIONS, progress=progress)
        self._jvm.start()
        self._consumers: dict[str, JvmConsumer] = {}

    def join(self, properties: Mapping[str, str], ids: Sequence[str], topic: str, *, read: bool = False) -> Joined:
        """See :class:`Members`."""

        def make(consumer: str) -> JvmConsumer:
            return self._jvm.consumer({**properties, "consumer.id": consumer})

        def create(consumer: JvmConsumer) -> None:
            consumer.create_streams({topic: 1}, read=read)

        made, joined = _together(ids, make, create)
        self._consumers.update(zip(ids, made, strict=True))
        return joined

    def received(self, consumer: str) -> int:
        """See :class:`Members`."""
        return len(self._consumers[consumer].received())

    def commit(self, consumer: str) -> float:
        """See :class:`Members`."""
        return _timed(self._consumers[consumer].commit)

    def leave(self, consumers: Sequence[str]) -> float:
        """See :class:`Members`."""
        at = time.monotonic()
        for consumer in consumers:
            self._consumers.pop(consumer).shutdown()
        return at

    def peak_memory_mib(self) -> float:
        """See :class:`Members`."""
        return peak_memory_mib(self._jvm.pid)

    def close(self) -> None:
        """See :class:`Members`."""
        self._jvm.kill()


class OurMembers:
    """Our members, all in one child process: a benchmark that polls must not share an interpreter with them."""

    name = OURS

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="our-members", daemon=True)
        self._process.start()
        theirs.close()

    def join(self, properties: Mapping[str, str], ids: Sequence[str], topic: str, *, read: bool = False) -> Joined:
        """See :class:`Members`."""
        return Joined(*self._call("join", dict(properties), list(ids), topic, read))

    def received(self, consumer: str) -> int:
        """See :class:`Members`."""
        return int(self._call("received", consumer))

    def commit(self, consumer: str) -> float:
        """See :class:`Members`."""
        return float(self._call("commit", consumer))

    def leave(self, consumers: Sequence[str]) -> float:
        """See :class:`Members`."""
        return float(self._call("leave", list(consumers)))

    def peak_memory_mib(self) -> float:
        """See :class:`Members`."""
        assert self._process.pid is not None
        return peak_memory_mib(self._process.pid)

    def close(self) -> None:
        """See :class:`Members`."""
        self._connection.close()  # the child sees it and ends
        self._process.join(10)
        self._process.kill()

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            self._connection.send((name, arguments))
            failure, result = self._connection.recv()
        except (OSError, EOFError) as error:
            raise SandboxError(f"the process with our members has ended: {error!r}") from error
        if failure is not None:
            raise SandboxError(f"our members failed in {name}: {failure}")
        return result


def _serve(connection: Connection) -> None:
    """Serve one :class:`OurMembers`, in the child process, until it closes the connection."""
    hosted = _Hosted()
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send((None, getattr(hosted, name)(*arguments)))
        except Exception:  # noqa: BLE001 - reported to the parent
            connection.send((traceback.format_exc(), None))


class _Hosted:
    """What lives in the child process."""

    def __init__(self) -> None:
        self._connectors: dict[str, ConsumerConnector] = {}
        self._received: dict[str, int] = {}

    def join(self, properties: dict[str, str], ids: list[str], topic: str, read: bool) -> tuple[Any, ...]:
        def make(consumer: str) -> ConsumerConnector:
            return ConsumerConnector(ConsumerConfig.from_properties(properties, consumer_id=consumer))

        streams: dict[ConsumerConnector, MessageStream[Message]] = {}

        def create(connector: ConsumerConnector) -> None:
            (streams[connector],) = connector.create_message_streams({topic: 1})[topic]

        made, joined = _together(ids, make, create)
        for consumer, connector in zip(ids, made, strict=True):
            self._connectors[consumer] = connector
            self._received[consumer] = 0
            if read:
                threading.Thread(target=self._read, args=(consumer, streams[connector]), daemon=True).start()
        return tuple(joined)

    def _read(self, consumer: str, stream: MessageStream[Message]) -> None:
        for _ in stream:
            self._received[consumer] += 1

    def received(self, consumer: str) -> int:
        return self._received[consumer]

    def commit(self, consumer: str) -> float:
        return _timed(self._connectors[consumer].commit_offsets)

    def leave(self, consumers: list[str]) -> float:
        at = time.monotonic()
        for consumer in consumers:
            self._connectors.pop(consumer).shutdown()
        return at


def _together(ids: Sequence[str], make: Callable[[str], Any], join: Callable[[Any], None]) -> tuple[list[Any], Joined]:
    """Make a member for each id, then let all of them join at the same moment."""
    barrier = threading.Barrier(len(ids) + 1)

    def timed(member: Any) -> float:
        barrier.wait()
        return _timed(lambda: join(member))

    with ThreadPoolExecutor(len(ids)) as threads:
        made = list(threads.map(make, ids))
        joining = [threads.submit(timed, member) for member in made]
        barrier.wait()
        at = time.monotonic()
        return made, Joined(at, tuple(one.result() for one in joining))


def _timed(call: Callable[[], None]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun
