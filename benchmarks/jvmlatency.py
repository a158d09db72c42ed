"""JvmLatency: the JVM consumer reads a topic from its end, and a thread of the JVM notes each record in a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from benchmarks.latencyreaders import LatencyTask
from benchmarks.members import JVM_OPTIONS
from benchmarks.stamps import LogFile
from jvmclients.gateway import as_sandbox_error
from jvmclients.handles import Handles
from jvmclients.zookeeperconsumer import ConsumerJvm

_OPEN: Final = ("--add-opens", "java.base/java.nio=ALL-UNNAMED", "--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED")
"""py4j calls methods of the JDK's own buffers and channels."""


class JvmLatency:
    """A JVM with one member, which reads until :meth:`close`."""

    def __init__(self, task: LatencyTask, log: LogFile, directory: Path) -> None:
        self._jvm = ConsumerJvm(directory, name="JVM with a latency log", jvm_options=(*JVM_OPTIONS, *_OPEN))
        self._jvm.start()
        try:
            self._consumer = self._jvm.consumer(
                {"zookeeper.connect": task.zookeeper, "group.id": task.group, "consumer.id": "one"}
            )
            with as_sandbox_error(self._jvm):
                sink = _LogHandles(self._jvm.gateway).into(log)
            self._consumer.pass_records(task.topic, sink)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._jvm.pid

    def close(self) -> None:
        """End the JVM."""
        self._jvm.kill()  # an orderly end takes seconds


class _LogHandles(Handles):
    """``log.put(ByteBuffer.wrap(record.message()).getLong()); log.put(System.nanoTime())``."""

    def into(self, log: LogFile) -> Any:
        """A java.util.function.Consumer that notes a record."""
        handles, kind = self._invoke.MethodHandles, self._invoke.MethodType.methodType
        record, array = self._class(self._record_name), self._class("[B")
        buffer, numbers = self._class("java.nio.ByteBuffer"), self._class("java.nio.LongBuffer")
        long = self._gateway.jvm.java.lang.Long.TYPE
        value = self._lookup.findVirtual(record, self._value_name, kind(self._object)).asType(kind(array, record))
        wrap = self._lookup.findStatic(buffer, "wrap", kind(buffer, array))
        first = self._lookup.findVirtual(buffer, "getLong", kind(long))
        created = handles.filterReturnValue(handles.filterReturnValue(value, wrap), first)
        put = self._lookup.findVirtual(numbers, "put", kind(numbers, long)).bindTo(self._mapped(log))
        put = put.asType(kind(self._void, long))
        note = handles.foldArguments(
            handles.filterReturnValue(self._now(), put), handles.filterReturnValue(created, put)
        )
        return self.interface("java.util.function.Consumer", note)

    def _mapped(self, log: LogFile) -> Any:
        """The log as a LongBuffer."""
        java = self._gateway.jvm.java
        channel = java.io.RandomAccessFile(str(log.path), "rw").getChannel()
        mode = self._class("java.nio.channels.FileChannel$MapMode").getField("READ_WRITE").get(None)
        return channel.map(mode, 0, log.bytes).order(java.nio.ByteOrder.nativeOrder()).asLongBuffer()
