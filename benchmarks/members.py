"""Members of consumer groups to be timed: JVM consumers in a JVM, zkconsumer's in separate processes.

All are created first and then join at the same time, each on a thread, so that only joining is timed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from benchmarks.contest import OURS
from benchmarks.hostprocess import HostProcess
from benchmarks.machine import peak_memory_mib
from jvmclients.zookeeperconsumer import ConsumerJvm, JvmConsumer
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.connector.connector import ConsumerConnector
from zkconsumer.connector.stream import MessageStream
from zkconsumer.decode.kernelloader import kernels
from zkconsumer.group.rules.subscription import Whitelist
from zkconsumer.model import Message
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.kafkapython import load_kafka_python

JVM: Final = "JVM consumer 1.1.1"

JVM_OPTIONS: Final = ("-Xmx1g", "-XX:+UseParallelGC", "-XX:-UsePerfData")
"""Enough memory and full compilation, for the best figures of the JVM."""


class Joined(NamedTuple):
    """The time at which members began to join, by ``time.monotonic()``, and the seconds of each."""

    at: float
    seconds: tuple[float, ...]


class Members(Protocol):
    """One kind of member."""

    name: str

    def join(self, properties: Mapping[str, str], ids: Sequence[str], topic: str, *, read: bool = False) -> Joined:
        """Create members with one stream of a topic each, and let them join together; ``read`` drains the streams."""

    def join_by_filter(self, properties: Mapping[str, str], ids: Sequence[str], regex: str) -> Joined:
        """Create members with one stream of all matching topics each, and let them join together."""

    def received(self, consumer: str) -> int:
        """Number of records that a member's stream has handed out so far."""

    def commit(self, consumer: str) -> float:
        """Commit what was handed out; returns the duration in seconds."""

    def leave(self, consumers: Sequence[str]) -> float:
        """Let members leave together; returns the time at which they began."""

    def peak_memory_mib(self) -> float:
        """Peak resident memory of the process of the members, in MiB."""

    def close(self) -> None:
        """End the process."""


class JvmMembers:
    """JVM consumers, all in one JVM, driven by one Python thread each while they join."""

    name = JVM

    def __init__(self, directory: Path, progress: Progress) -> None:
        self._jvm = ConsumerJvm(directory, name="JVM members", jvm_options=JVM_OPTIONS, progress=progress)
        self._jvm.start()
        self._consumers: dict[str, JvmConsumer] = {}

    def join(self, properties: Mapping[str, str], ids: Sequence[str], topic: str, *, read: bool = False) -> Joined:
        """See :class:`Members`."""
        for consumer in ids:
            self._consumers[consumer] = self._jvm.consumer({**properties, "consumer.id": consumer})
        return _together(ids, lambda consumer: self._consumers[consumer].create_streams({topic: 1}, read=read))

    def join_by_filter(self, properties: Mapping[str, str], ids: Sequence[str], regex: str) -> Joined:
        """See :class:`Members`."""
        for consumer in ids:
            self._consumers[consumer] = self._jvm.consumer({**properties, "consumer.id": consumer})
        return _together(ids, lambda consumer: self._consumers[consumer].create_streams_by_filter("Whitelist", regex))

    def received(self, consumer: str) -> int:
        """See :class:`Members`."""
        return len(self._consumers[consumer].received())

    def commit(self, consumer: str) -> float:
        """See :class:`Members`."""
        return _timed(self._consumers[consumer].commit)

    def leave(self, consumers: Sequence[str]) -> float:
        """See :class:`Members`."""
        return _together(consumers, lambda consumer: self._consumers.pop(consumer).shutdown()).at

    def peak_memory_mib(self) -> float:
        """See :class:`Members`."""
        return peak_memory_mib(self._jvm.pid)

    def close(self) -> None:
        """See :class:`Members`."""
        self._jvm.kill()


class OurMembers:
    """zkconsumer's members, in child processes: a polling benchmark must not share an interpreter with them.

    Args:
        processes: number of processes, to which members are assigned in turn.
    """

    name = OURS

    def __init__(self, processes: int) -> None:
        self._hosts = [HostProcess("zkconsumer members", _host) for _ in range(processes)]
        self._home: dict[str, HostProcess] = {}
        for host in self._hosts:
            host.answer()

    def join(self, properties: Mapping[str, str], ids: Sequence[str], topic: str, *, read: bool = False) -> Joined:
        """See :class:`Members`."""
        self._home.update(zip(ids, cycle(self._hosts), strict=False))
        _everywhere(self._at_home(ids), "make", dict(properties))
        return _all_joined(_everywhere(self._at_home(ids), "join", topic, read))

    def join_by_filter(self, properties: Mapping[str, str], ids: Sequence[str], regex: str) -> Joined:
        """See :class:`Members`."""
        self._home.update(zip(ids, cycle(self._hosts), strict=False))
        _everywhere(self._at_home(ids), "make", dict(properties))
        return _all_joined(_everywhere(self._at_home(ids), "join_by_filter", regex))

    def received(self, consumer: str) -> int:
        """See :class:`Members`."""
        return int(self._home[consumer].call("received", consumer))

    def commit(self, consumer: str) -> float:
        """See :class:`Members`."""
        return float(self._home[consumer].call("commit", consumer))

    def leave(self, consumers: Sequence[str]) -> float:
        """See :class:`Members`."""
        return float(min(_everywhere(self._at_home(consumers), "leave")))

    def peak_memory_mib(self) -> float:
        """See :class:`Members`."""
        return max(peak_memory_mib(host.pid) for host in self._hosts)

    def close(self) -> None:
        """See :class:`Members`."""
        for host in self._hosts:
            host.close()

    def _at_home(self, consumers: Sequence[str]) -> dict[HostProcess, list[str]]:
        homes: dict[HostProcess, list[str]] = {}
        for consumer in consumers:
            homes.setdefault(self._home[consumer], []).append(consumer)
        return homes


class CoordinatedMembers(OurMembers):
    """The same, with a coordinator, which assigns partitions by an assignor of its own."""

    name = f"{OURS}, group.protocol=coordinator"

    def join(self, properties: Mapping[str, str], ids: Sequence[str], topic: str, *, read: bool = False) -> Joined:
        """See :class:`Members`."""
        return super().join({**properties, "group.protocol": "coordinator"}, ids, topic, read=read)


def _all_joined(parts: Sequence[Joined]) -> Joined:
    return Joined(min(one.at for one in parts), tuple(seconds for one in parts for seconds in one.seconds))


def _everywhere(homes: Mapping[HostProcess, list[str]], name: str, *arguments: Any) -> list[Any]:
    """Call a method of every host with its own consumers, all at the same time."""
    for host, consumers in homes.items():
        host.ask(name, consumers, *arguments)
    return [host.answer() for host in homes]


def _host() -> _Hosted:
    """What a child process has."""
    kernels()  # joining is measured, and not loading the decoder
    load_kafka_python()  # or importing libraries
    return _Hosted()


class _Hosted:
    """The members in a child process."""

    def __init__(self) -> None:
        self._connectors: dict[str, ConsumerConnector] = {}
        self._received: dict[str, int] = {}

    def make(self, consumers: list[str], properties: dict[str, str]) -> None:
        for consumer in consumers:
            config = ConsumerConfig.from_properties(properties, consumer_id=consumer)
            self._connectors[consumer] = ConsumerConnector(config)

    def join(self, consumers: list[str], topic: str, read: bool) -> Joined:
        streams: dict[str, MessageStream[Message]] = {}

        def create(consumer: str) -> None:
            (streams[consumer],) = self._connectors[consumer].create_message_streams({topic: 1})[topic]

        joined = _together(consumers, create)
        for consumer, stream in streams.items():
            self._received[consumer] = 0
            if read:
                threading.Thread(target=self._read, args=(consumer, stream), daemon=True).start()
        return joined

    def join_by_filter(self, consumers: list[str], regex: str) -> Joined:
        def create(consumer: str) -> None:
            self._connectors[consumer].create_message_streams_by_filter(Whitelist(regex), 1)

        return _together(consumers, create)

    def _read(self, consumer: str, stream: MessageStream[Message]) -> None:
        for _ in stream:
            self._received[consumer] += 1

    def received(self, consumer: str) -> int:
        return self._received[consumer]

    def commit(self, consumer: str) -> float:
        return _timed(self._connectors[consumer].commit_offsets)

    def leave(self, consumers: list[str]) -> float:
        return _together(consumers, lambda consumer: self._connectors.pop(consumer).shutdown()).at


def _together(consumers: Sequence[str], act: Callable[[str], None]) -> Joined:
    """Call ``act`` for all consumers at the same time, each on a thread."""
    barrier = threading.Barrier(len(consumers) + 1)

    def timed(consumer: str) -> float:
        barrier.wait()
        return _timed(lambda: act(consumer))

    with ThreadPoolExecutor(len(consumers)) as threads:
        acting = [threads.submit(timed, consumer) for consumer in consumers]
        barrier.wait()
        at = time.monotonic()
        return Joined(at, tuple(one.result() for one in acting))


def _timed(call: Callable[[], None]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun
