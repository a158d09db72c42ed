"""The Python contestants of ``python -m benchmarks brokergroup``, as members that one process hosts.

zkconsumer, confluent-kafka and kafka-python have a thread for each member; aiokafka's members share one event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from benchmarks.contest import OURS
from benchmarks.groupclient import Client, Log, Settings, ThreadedClient
from benchmarks.groupevents import Kind
from benchmarks.peers import AIOKAFKA, CONFLUENT

KAFKA_PYTHON: Final = "kafka-python"

_POLL_S: Final = 0.1


class OurClient(ThreadedClient):
    """zkconsumer: one thread reads the stream, another one commits."""

    def __init__(self, member: str, settings: Settings, log: Log) -> None:
        super().__init__(member, settings, log)
        from zkconsumer import ConsumerConfig, ConsumerConnector
        from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener

        note = self._note

        class Listener(ConsumerRebalanceListener):
            def before_releasing_partitions(_, owned: Collection[Any]) -> None:  # noqa: N805 - self is the client
                note(Kind.LOST, owned)

            def before_starting_fetchers(
                _,  # noqa: N805
                consumer_id: str,  # noqa: ARG002 - the only one that this listener serves
                assignment: Mapping[Any, Any],
            ) -> None:
                note(Kind.GAINED, assignment)

        config = ConsumerConfig(
            group_protocol=settings.protocol,
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group,
            auto_offset_reset="largest",
            auto_commit_enable=False,
        )
        if settings.protocol == "kafka":
            config = config.replace(session_timeout_ms=settings.session_ms, heartbeat_interval_ms=settings.heartbeat_ms)
        self._connector = ConsumerConnector(config)
        self._connector.set_rebalance_listener(Listener())

    def _loops(self) -> list[Callable[[], None]]:
        return [self._run, self._commit]

    def _run(self) -> None:
        (stream,) = self._connector.create_message_streams({self._settings.topic: 1})[self._settings.topic]
        for message in stream:
            self._log.add(self._member, Kind.READ, (message.partition,))

    def _commit(self) -> None:
        from zkconsumer.errors import ConsumerClosed, ZkConsumerError

        while not self._closed.wait(self._settings.commit_s):
            if not self._must_commit():
                continue
            try:
                self._connector.commit_offsets()
            except ConsumerClosed:  # not joined yet, or leaving
                self._committed(Kind.NOTHING)
            except ZkConsumerError as error:
                self._committed(Kind.REFUSED, error)
            else:
                self._committed(Kind.ACCEPTED)

    def _end(self) -> None:
        self._connector.shutdown()


class ConfluentClient(ThreadedClient):
    """confluent-kafka, with cooperative-sticky where a member assigns."""

    def __init__(self, member: str, settings: Settings, log: Log) -> None:
        super().__init__(member, settings, log)
        from confluent_kafka import Consumer

        self._consumer = Consumer(
            {
                "bootstrap.servers": settings.bootstrap,
                "group.id": settings.group,
                "auto.offset.reset": "latest",
                "enable.auto.commit": False,
                "on_commit": self._answered,
                "log_level": 3,
                **_confluent_protocol(settings),
            }
        )

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        self._consumer.subscribe(
            [self._settings.topic],
            on_assign=lambda _, partitions: self._note(Kind.GAINED, partitions),
            on_revoke=lambda _, partitions: self._note(Kind.LOST, partitions),
            on_lost=lambda _, partitions: self._note(Kind.LOST, partitions),
        )
        while not self._closed.is_set():
            message = self._consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self._log.add(self._member, Kind.READ, (message.partition() or 0,))
            if self._must_commit():
                try:
                    self._consumer.commit(asynchronous=True)
                except KafkaException as error:
                    self._answered(error.args[0], [])
        self._consumer.close()

    def _answered(self, error: Any, partitions: Collection[Any]) -> None:
        from confluent_kafka import KafkaError

        error = error or next((one.error for one in partitions if one.error is not None), None)
        if error is None:
            self._committed(Kind.ACCEPTED)
        else:
            self._committed(Kind.NOTHING if error.code() == KafkaError._NO_OFFSET else Kind.REFUSED, error)


def _confluent_protocol(settings: Settings) -> Mapping[str, object]:
    if settings.protocol == "consumer":
        return {"group.protocol": "consumer"}
    return {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": settings.session_ms,
        "heartbeat.interval.ms": settings.heartbeat_ms,
    }


class KafkaPythonClient(ThreadedClient):
    """kafka-python with cooperative-sticky."""

    def __init__(self, member: str, settings: Settings, log: Log) -> None:
        super().__init__(member, settings, log)
        from kafka import ConsumerRebalanceListener, KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

        note = self._note

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
            def on_partitions_revoked(_, revoked: Collection[Any]) -> None:  # noqa: N805 - self is the client
                note(Kind.LOST, revoked)

            def on_partitions_assigned(_, assigned: Collection[Any]) -> None:  # noqa: N805
                note(Kind.GAINED, assigned)

        self._listener = Listener()
        self._consumer = KafkaConsumer(
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group,
            auto_offset_reset="latest",
            enable_auto_commit=False,
            partition_assignment_strategy=[CooperativeStickyAssignor],
            session_timeout_ms=settings.session_ms,
            heartbeat_interval_ms=settings.heartbeat_ms,
        )

    def _run(self) -> None:
        self._consumer.subscribe([self._settings.topic], listener=self._listener)
        while not self._closed.is_set():
            for records in self._consumer.poll(int(_POLL_S * 1000)).values():
                for record in records:
                    self._log.add(self._member, Kind.READ, (record.partition,))
            if self._must_commit():
                self._consumer.commit_async(callback=self._answered)
        self._consumer.close()

    def _answered(self, _: Any, answer: Any) -> None:
        refused = isinstance(answer, Exception)
        self._committed(Kind.REFUSED if refused else Kind.ACCEPTED, answer if refused else "")


class AiokafkaClient(Client):
    """aiokafka with its sticky assignor, which is eager: it has no cooperative one. Members share an event loop."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, member: str, settings: Settings, log: Log) -> None:
        super().__init__(member, settings, log)
        self._tasks: list[asyncio.Task[None]] = []
        self._await(self._construct())

    def join(self) -> None:
        """See :class:`Client`."""
        self._event_loop().call_soon_threadsafe(self._begin)

    def leave(self) -> None:
        """See :class:`Client`."""
        self._await(self._stop())

    @classmethod
    def _event_loop(cls) -> asyncio.AbstractEventLoop:
        """The loop that all members of this process share."""
        if cls._loop is None:
            cls._loop = asyncio.new_event_loop()
            threading.Thread(target=cls._loop.run_forever, daemon=True).start()
        return cls._loop

    def _await(self, action: Any) -> None:
        asyncio.run_coroutine_threadsafe(action, self._event_loop()).result()

    async def _construct(self) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._settings.bootstrap,
            group_id=self._settings.group,
            auto_offset_reset="latest",
            enable_auto_commit=False,
            partition_assignment_strategy=(StickyPartitionAssignor,),
            session_timeout_ms=self._settings.session_ms,
            heartbeat_interval_ms=self._settings.heartbeat_ms,
        )
        await self._consumer.start()

    def _begin(self) -> None:
        from aiokafka import ConsumerRebalanceListener

        note = self._note

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
            def on_partitions_revoked(_, revoked: Collection[Any]) -> None:  # noqa: N805 - self is the client
                note(Kind.LOST, revoked)

            def on_partitions_assigned(_, assigned: Collection[Any]) -> None:  # noqa: N805
                note(Kind.GAINED, assigned)

        self._consumer.subscribe([self._settings.topic], listener=Listener())
        self._tasks = [asyncio.ensure_future(self._guarded(one)) for one in (self._read, self._commit)]

    async def _guarded(self, loop: Callable[[], Any]) -> None:
        try:
            await loop()
        except Exception as error:  # noqa: BLE001 - the benchmark reports it
            self._log.add(self._member, Kind.FAILED, text=repr(error))

    async def _read(self) -> None:
        while not self._closed.is_set():
            for records in (await self._consumer.getmany(timeout_ms=int(_POLL_S * 1000))).values():
                for record in records:
                    self._log.add(self._member, Kind.READ, (record.partition,))

    async def _commit(self) -> None:
        from aiokafka.errors import IllegalStateError, KafkaError

        while not self._closed.is_set():
            await asyncio.sleep(self._settings.commit_s)
            if not self._must_commit():
                continue
            try:
                await self._consumer.commit()
            except IllegalStateError:  # nothing is assigned
                self._committed(Kind.NOTHING)
            except KafkaError as error:
                self._committed(Kind.REFUSED, repr(error))
            else:
                self._committed(Kind.ACCEPTED)

    async def _stop(self) -> None:
        self._closed.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._consumer.stop()


CLIENTS: Final[Mapping[str, type[Client]]] = {
    OURS: OurClient,
    CONFLUENT: ConfluentClient,
    AIOKAFKA: AiokafkaClient,
    KAFKA_PYTHON: KafkaPythonClient,
}
"""Contestant to its member."""

PACKAGES: Final[Mapping[str, str]] = {
    OURS: "zkconsumer",
    CONFLUENT: "confluent_kafka",
    AIOKAFKA: "aiokafka",
    KAFKA_PYTHON: "kafka",
}
"""Contestant to the package that it needs."""

CLASSIC_ONLY: Final = frozenset({AIOKAFKA, KAFKA_PYTHON})
"""Contestants that do not know ``group.protocol=consumer``."""
