"""Java's KafkaConsumer as a member of a group that brokers coordinate, for tests; driven through py4j."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jvmclients.gateway import GatewayJvm, JvmRecord, as_sandbox_error, drained, released_objects
from jvmclients.handles import Handles
from zkconsumer.errors import SandboxError
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox.jars import JarSource
from zkconsumer.sandbox.lockfile import version_tuple
from zkconsumer.sandbox.progress import Progress

DEFAULT_CLIENT_VERSION: Final = "3.9.1"

_POLL_MS: Final = 100
_TAKES_A_DURATION: Final = (2, 0)
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_PARTITION: Final = re.compile(r"([\w.-]+)-(\d+)(?=[,\]])")


class KafkaConsumerJvm(GatewayJvm):
    """A JVM with the client of Kafka ``version``; for the arguments see `GatewayJvm`."""

    def __init__(
        self,
        directory: Path,
        *,
        version: str = DEFAULT_CLIENT_VERSION,
        jars: JarSource | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(
            directory, lock=f"kafka-{version}", name=f"KafkaConsumer {version}", jars=jars, progress=progress
        )
        self.version = version

    def consumer(self, properties: Mapping[str, str], topics: Sequence[str]) -> JavaKafkaConsumer:
        """A consumer that subscribes and is polled from now on; see `JavaKafkaConsumer`."""
        return JavaKafkaConsumer(self, properties, topics, self.version)


class JavaKafkaConsumer:
    """One KafkaConsumer, which a Python thread polls all the time until it is closed.

    Args:
        jvm: where it runs.
        properties: its configuration; the deserializers are given here.
        topics: names of the topics to subscribe to.
        version: of the client.

    Attributes:
        owned: its assignment after the last poll; replaced, never changed.
        failure: the error that ended the polling, None while it continues.

    Raises SandboxError with the JVM's error if the configuration is not valid, or the JVM has ended.
    """

    def __init__(self, jvm: GatewayJvm, properties: Mapping[str, str], topics: Sequence[str], version: str) -> None:
        self._jvm = jvm
        self._closed = threading.Event()
        self._received: list[JvmRecord] = []
        self.owned: frozenset[TopicPartition] = frozenset()
        self.failure: SandboxError | None = None
        with as_sandbox_error(jvm):
            java = jvm.gateway.jvm
            config = java.java.util.Properties()
            for name, value in {**properties, "key.deserializer": _BYTES, "value.deserializer": _BYTES}.items():
                config.setProperty(name, value)
            self._queue = java.java.util.concurrent.LinkedBlockingQueue()
            handles = Handles(jvm.gateway, "org.apache.kafka.clients.consumer.ConsumerRecord", "value")
            self._sink = handles.interface("java.util.function.Consumer", handles.rows_into(self._queue))
            takes_a_duration = version_tuple(version) >= _TAKES_A_DURATION
            self._timeout: Any = java.java.time.Duration.ofMillis(_POLL_MS) if takes_a_duration else _POLL_MS
            self._consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(config)
            self._consumer.subscribe(list(topics))
        self._thread = threading.Thread(target=self._run, name="KafkaConsumer", daemon=True)
        self._thread.start()

    def received(self) -> list[JvmRecord]:
        """All records that polls have returned so far. Used by one thread at a time."""
        if self._jvm.running:
            self._received += drained(self._jvm, self._queue)
        return list(self._received)

    def close(self) -> None:
        """Commit, unless ``enable.auto.commit`` is off, and leave the group. Idempotent.

        Raises:
            SandboxError: polling has failed.
        """
        self._closed.set()
        self._thread.join()
        self.owned = frozenset()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with as_sandbox_error(self._jvm):
                while not self._closed.is_set():
                    self._poll()
                self._consumer.close()
        except SandboxError as error:
            self.failure = error

    def _poll(self) -> None:
        with released_objects(self._jvm.gateway) as passing:
            records = passing(self._consumer.poll(self._timeout))
            if not records.isEmpty():
                records.forEach(self._sink)
            owned = passing(self._consumer.assignment()).toString()
        self.owned = frozenset(TopicPartition(topic, int(number)) for topic, number in _PARTITION.findall(owned))
