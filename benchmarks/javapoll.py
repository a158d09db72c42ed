"""JavaMembers: Java's KafkaConsumers in one JVM, each polled by a loop that is composed of method handles.

The loop, the rebalance listener and the callback of commits run inside the JVM and add rows to a queue there; Python
fetches its content as one text. So a record costs no call through py4j, and no Java is compiled.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.groupclient import Settings
from benchmarks.groupevents import Kind, Row
from benchmarks.machine import peak_memory_mib
from benchmarks.members import JVM_OPTIONS
from jvmclients.gateway import GatewayJvm, as_sandbox_error, released_objects
from jvmclients.handles import Handles
from jvmclients.kafkaconsumer import DEFAULT_CLIENT_VERSION
from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.progress import Progress

JAVA: Final = f"Java's KafkaConsumer {DEFAULT_CLIENT_VERSION}"

_CLIENTS: Final = "org.apache.kafka.clients.consumer"
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_COOPERATIVE: Final = f"{_CLIENTS}.CooperativeStickyAssignor"
_POLL_MS: Final = 100
_LEAVE_S: Final = 60.0
_POLL_S: Final = 0.05
# An error's text may have several lines; the next row begins with a time.
_ROW: Final = re.compile(r"^\[(\d+), ([\w-]+), (\w+), (.*?)\](?=\n\[\d+, |\Z)", re.MULTILINE | re.DOTALL)
_PARTITION: Final = re.compile(r"[\w.-]+-(\d+)(?=[,\]])")
_READ, _COMMITTING, _ANSWERED, _FAILED = "read", "committing", "answered", "failed"
_NO_ERROR: Final = "null"
_CHANGES: Final = {
    "onPartitionsAssigned": Kind.GAINED,
    "onPartitionsRevoked": Kind.LOST,
    "onPartitionsLost": Kind.LOST,
}


class JavaMembers:
    """See :class:`~benchmarks.grouphosts.GroupMembers`.

    Args:
        directory: for the log of the JVM.
        progress: reports fetching its jars.
    """

    def __init__(self, directory: Path, progress: Progress) -> None:
        self._jvm = GatewayJvm(
            directory, lock=f"kafka-{DEFAULT_CLIENT_VERSION}", name=JAVA, jvm_options=JVM_OPTIONS, progress=progress
        )
        self._jvm.start()
        self._members: dict[str, _JavaMember] = {}
        self._leaving: list[_JavaMember] = []
        self._rows: list[Row] = []
        try:
            with as_sandbox_error(self._jvm):
                concurrent = self._jvm.gateway.jvm.java.util.concurrent
                self._queue = concurrent.LinkedBlockingQueue()
                self._timer = concurrent.Executors.newScheduledThreadPool(1)
        except BaseException:
            self._jvm.kill()
            raise

    def make(self, settings: Settings, ids: Sequence[str]) -> None:
        """See :class:`GroupMembers`."""
        self.take()
        with as_sandbox_error(self._jvm):
            self._members = {
                member: _JavaMember(self._jvm.gateway, member, settings, self._queue, self._timer) for member in ids
            }

    def join(self, ids: Sequence[str], at: float) -> None:
        """See :class:`GroupMembers`."""
        with as_sandbox_error(self._jvm):
            for member in ids:
                self._members[member].join(at)

    def commit(self) -> None:
        """See :class:`GroupMembers`."""
        with as_sandbox_error(self._jvm):
            for member in self._members.values():
                member.commit()

    def leave(self, ids: Sequence[str]) -> None:
        """See :class:`GroupMembers`."""
        with as_sandbox_error(self._jvm):
            for member in ids:
                self._rows.append(Row(time.monotonic(), member, Kind.LEAVING))
                self._members[member].leave()
                self._leaving.append(self._members[member])

    def await_left(self) -> None:
        """See :class:`GroupMembers`."""
        deadline = time.monotonic() + _LEAVE_S
        with as_sandbox_error(self._jvm):
            while any(member.is_alive() for member in self._leaving):
                if time.monotonic() > deadline:
                    raise SandboxError(f"a member of {JAVA} has not left within {_LEAVE_S:g} s; see {self._jvm.log}")
                time.sleep(_POLL_S)  # a thread of the JVM must be polled
        self._leaving = []

    def take(self) -> list[Row]:
        """See :class:`GroupMembers`."""
        rows, self._rows = self._rows, []
        with as_sandbox_error(self._jvm), released_objects(self._jvm.gateway) as passing:
            java = self._jvm.gateway.jvm.java
            batch = passing(java.util.ArrayList())
            self._queue.drainTo(batch)
            text = java.lang.String.join("\n", batch)
        return [*rows, *parse_rows(text)]

    def peak_memory_mib(self) -> float:
        """See :class:`GroupMembers`."""
        return peak_memory_mib(self._jvm.pid)

    def close(self) -> None:
        """See :class:`GroupMembers`."""
        self._jvm.kill()


class _JavaMember:
    """One KafkaConsumer and its thread."""

    def __init__(self, gateway: Any, member: str, settings: Settings, queue: Any, timer: Any) -> None:
        java = gateway.jvm
        self._topic, self._timer = settings.topic, timer
        self._nanoseconds = java.java.util.concurrent.TimeUnit.NANOSECONDS
        config = java.java.util.Properties()
        for name, value in _properties(settings).items():
            config.setProperty(name, value)
        self._consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(config)
        self._open = java.java.util.concurrent.atomic.AtomicBoolean(True)
        handles = LoopHandles(gateway, member, queue)
        self._listener = handles.listener()
        self._may_commit = java.java.util.concurrent.Semaphore(0)
        commit = handles.commit(self._consumer, self._may_commit, timer, settings.commit_s)
        self._thread = java.java.lang.Thread(handles.runnable(handles.loop(self._consumer, commit, self._open)))
        self._starting = handles.runnable(handles.call(self._thread, "java.lang.Thread", "start"))

    def join(self, at: float) -> None:
        """Subscribe now, which sends nothing, and poll from this time on."""
        self._consumer.subscribe([self._topic], self._listener)
        self._timer.schedule(self._starting, max(0, round((at - time.monotonic()) * 1e9)), self._nanoseconds)

    def commit(self) -> None:
        """Commit from now on, one at a time."""
        self._may_commit.release()

    def leave(self) -> None:
        """End the loop, which closes the consumer."""
        self._open.set(False)

    def is_alive(self) -> bool:
        """True until the consumer is closed."""
        return bool(self._thread.isAlive())


class LoopHandles(Handles):
    """The parts of a member's loop, each of which adds rows to a queue: time, member, what, and an object's text."""

    def __init__(self, gateway: Any, member: str, queue: Any) -> None:
        super().__init__(gateway, f"{_CLIENTS}.ConsumerRecord", "value")
        self._handles = self._invoke.MethodHandles
        self._member = member
        rows = self._handles.identity(self._row).asCollector(self._row, 4)
        text = self._class("java.lang.String")
        as_text = self._lookup.findStatic(self._class("java.util.Arrays"), "toString", self._type(text, self._row))
        add = self._lookup.findVirtual(
            self._class("java.util.Collection"),
            "add",
            self._type(self._gateway.jvm.java.lang.Boolean.TYPE, self._object),
        ).bindTo(queue)
        add = add.asType(self._type(self._void, text))
        rows = self._handles.filterReturnValue(self._handles.filterReturnValue(rows, as_text), add)
        clock = self._lookup.findStatic(
            self._class("java.lang.System"), "nanoTime", self._type(self._gateway.jvm.java.lang.Long.TYPE)
        )
        rows = self._inserted(rows, 1, member)
        self._named = self._handles.collectArguments(rows, 0, clock.asType(self._type(self._object)))

    def loop(self, consumer: Any, commit: Any, is_open: Any) -> Any:
        """``do { consumer.poll(..).forEach(note); commit } while (is_open)``, then ``close()``; an error ends it."""
        duration = self._class("java.time.Duration")
        records = self._class(f"{_CLIENTS}.ConsumerRecords")
        poll = self._lookup.findVirtual(
            self._class(f"{_CLIENTS}.KafkaConsumer"), "poll", self._type(records, duration)
        ).bindTo(consumer)
        poll = poll.bindTo(self._gateway.jvm.java.time.Duration.ofMillis(_POLL_MS))
        takes = self._class("java.util.function.Consumer")
        each = self._lookup.findVirtual(self._class("java.lang.Iterable"), "forEach", self._type(self._void, takes))
        each = self._inserted(each, 1, self.interface("java.util.function.Consumer", self._reading()))
        read = self._handles.filterReturnValue(poll, each.asType(self._type(self._void, records)))
        goes_on = self.call(is_open, "java.util.concurrent.atomic.AtomicBoolean", "get", "Boolean")
        loop = self._handles.doWhileLoop(None, self._in_turn(read, commit), goes_on)
        run = self._in_turn(loop, self.call(consumer, f"{_CLIENTS}.KafkaConsumer", "close"))
        error = self._class("java.lang.Throwable")
        failed = self._noting(_FAILED).asType(self._type(self._void, error))
        return self._handles.catchException(run, error, failed)

    def commit(self, consumer: Any, may_commit: Any, timer: Any, every_s: float) -> Any:
        """``if (may_commit.tryAcquire()) consumer.commitAsync(..)``; the semaphore is released after the answer."""
        release = self.runnable(self.call(may_commit, "java.util.concurrent.Semaphore", "release"))
        unit = self._class("java.util.concurrent.TimeUnit")
        kind = self._type(
            self._class("java.util.concurrent.ScheduledFuture"),
            self._class("java.lang.Runnable"),
            self._gateway.jvm.java.lang.Long.TYPE,
            unit,
        )
        schedule = self._lookup.findVirtual(
            self._class("java.util.concurrent.ScheduledExecutorService"), "schedule", kind
        ).bindTo(timer)
        schedule = self._inserted(
            schedule, 0, release, round(every_s * 1e9), self._gateway.jvm.java.util.concurrent.TimeUnit.NANOSECONDS
        ).asType(self._type(self._void))
        answered = self._dropping(self._noting(_ANSWERED), self._object)
        answered = self._handles.foldArguments(self._dropping(schedule, self._object, self._object), answered)
        callback = self._class(f"{_CLIENTS}.OffsetCommitCallback")
        ask = self._lookup.findVirtual(
            self._class(f"{_CLIENTS}.KafkaConsumer"), "commitAsync", self._type(self._void, callback)
        ).bindTo(consumer)
        ask = ask.bindTo(self.interface(f"{_CLIENTS}.OffsetCommitCallback", answered))
        return self._handles.guardWithTest(
            self.call(may_commit, "java.util.concurrent.Semaphore", "tryAcquire", "Boolean"),
            self._in_turn(self._inserted(self._noting(_COMMITTING), 0, ""), ask),
            self._handles.empty(self._type(self._void)),
        )

    def listener(self) -> Any:
        """A ConsumerRebalanceListener that notes the name and the partitions of each call."""
        method = self._class("java.lang.reflect.Method")
        text = self._class("java.lang.String")
        name = self._lookup.findVirtual(method, "getName", self._type(text))
        as_text = self._lookup.findStatic(self._class("java.util.Arrays"), "deepToString", self._type(text, self._row))
        filters = [
            name.asType(self._type(self._object, method)),
            as_text.asType(self._type(self._object, self._row)),
        ]
        called = self._handles.filterArguments(
            self._named, 0, self._array(self._class("java.lang.invoke.MethodHandle"), filters)
        )
        called = self._dropping(called, self._object).asType(self._type(self._object, self._object, method, self._row))
        handler = self.interface("java.lang.reflect.InvocationHandler", called)
        listener = self._class(f"{_CLIENTS}.ConsumerRebalanceListener")
        return self._gateway.jvm.java.lang.reflect.Proxy.newProxyInstance(
            listener.getClassLoader(), self._array(self._class("java.lang.Class"), [listener]), handler
        )

    def call(self, receiver: Any, owner: str, method: str, result: str = "Void") -> Any:
        """The call ``receiver.method()`` of a method of a class that returns nothing, or a primitive."""
        kind = self._type(getattr(self._gateway.jvm.java.lang, result).TYPE)
        return self._lookup.findVirtual(self._class(owner), method, kind).bindTo(receiver)

    def runnable(self, handle: Any) -> Any:
        """A Runnable that calls the handle."""
        return self.interface("java.lang.Runnable", handle)

    def _reading(self) -> Any:
        record = self._class(self._record_name)
        partition = self._lookup.findVirtual(record, "partition", self._type(self._gateway.jvm.java.lang.Integer.TYPE))
        partition = partition.asType(self._type(self._object, record))
        return self._handles.filterReturnValue(partition, self._noting(_READ))

    def _noting(self, what: str) -> Any:
        """A function of an object that adds a row."""
        return self._inserted(self._named, 0, what)

    def _in_turn(self, first: Any, second: Any) -> Any:
        return self._handles.foldArguments(second, first)

    def _inserted(self, handle: Any, position: int, *values: Any) -> Any:
        return self._handles.insertArguments(handle, position, self._array(self._object, list(values)))

    def _dropping(self, handle: Any, *kinds: Any) -> Any:
        """The same function with further arguments before its own, which it ignores."""
        return self._handles.dropArguments(handle, 0, self._array(self._class("java.lang.Class"), list(kinds)))

    def _type(self, result: Any, *arguments: Any) -> Any:
        if not arguments:
            return self._invoke.MethodType.methodType(result)
        return self._invoke.MethodType.methodType(result, self._array(self._class("java.lang.Class"), list(arguments)))


def parse_rows(text: str) -> list[Row]:
    """The rows in the text that :class:`LoopHandles` make, one in a line."""
    return [_row(int(at) / 1e9, member, what, rest) for at, member, what, rest in _ROW.findall(text)]


def _row(at: float, member: str, what: str, rest: str) -> Row:
    if what == _READ:
        return Row(at, member, Kind.READ, (int(rest),))
    if what in _CHANGES:
        return Row(at, member, _CHANGES[what], tuple(int(number) for number in _PARTITION.findall(rest)))
    if what == _ANSWERED:
        return Row(at, member, Kind.ACCEPTED) if rest == _NO_ERROR else Row(at, member, Kind.REFUSED, text=rest)
    return Row(at, member, Kind.COMMITTING if what == _COMMITTING else Kind.FAILED, text=rest)


def _properties(settings: Settings) -> dict[str, str]:
    protocol = {"group.protocol": "consumer"}
    if settings.protocol == "kafka":
        protocol = {
            "partition.assignment.strategy": _COOPERATIVE,
            "session.timeout.ms": str(settings.session_ms),
            "heartbeat.interval.ms": str(settings.heartbeat_ms),
        }
    return {
        "bootstrap.servers": settings.bootstrap,
        "group.id": settings.group,
        "auto.offset.reset": "latest",
        "enable.auto.commit": "false",
        "key.deserializer": _BYTES,
        "value.deserializer": _BYTES,
        **protocol,
    }
