"""JvmReader: the JVM consumer reads a topic in one loop of compiled Java, in a new or a warm JVM."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from benchmarks.machine import peak_memory_mib
from benchmarks.members import JVM_OPTIONS
from benchmarks.task import Clock, Run, Task
from jvmclients.zookeeperconsumer import OPEN_STREAMS, ConsumerJvm, JvmIterator

_AT_ONCE: Final = 50_000
"""Records between two reads of the clock, each of which costs some calls through py4j, one or two milliseconds."""
_TIMEOUT_MS: Final = 60_000
_LOOP_ELEMENTS: Final = 20_000_000


class JvmReader:
    """A JVM in which the consumer reads repeatedly. Used by one thread."""

    def __init__(self, directory: Path, name: str) -> None:
        self._jvm = ConsumerJvm(directory, name=name, jvm_options=(*JVM_OPTIONS, *OPEN_STREAMS))
        self._jvm.start()

    def read(self, task: Task) -> Run:
        """Read as a member of a new group.

        Raises:
            SandboxError: the consumer failed, or found no record for a minute.
        """
        consumer = self._jvm.consumer(
            {
                "zookeeper.connect": task.zookeeper,
                "group.id": task.group,
                "consumer.id": "one",
                "auto.offset.reset": "smallest",
                "auto.commit.enable": "false",
                "consumer.timeout.ms": str(_TIMEOUT_MS),  # a consumer without records fails
            }
        )
        clock = Clock(task)
        records = consumer.iterator(task.topic)
        enough = clock.note(records.take(1))
        while not enough:
            enough = clock.note(records.take(min(_AT_ONCE, clock.left)))
        run = Run(clock.counted, clock.elapsed, peak_memory_mib(self._jvm.pid), clock.began)
        consumer.shutdown()
        return run

    def loop_ns(self) -> float:
        """The cost of the loop itself per record, in nanoseconds, including the calls through py4j."""
        elements = JvmIterator.of_nothing(self._jvm, _LOOP_ELEMENTS)
        began = time.monotonic()
        while elements.take(_AT_ONCE) == _AT_ONCE:
            pass
        return (time.monotonic() - began) / _LOOP_ELEMENTS * 1e9

    def close(self) -> None:
        """End the JVM."""
        self._jvm.kill()  # an orderly end takes seconds
