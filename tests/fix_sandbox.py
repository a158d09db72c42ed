"""Fixtures around a real ZooKeeper and Kafka: one pair for the whole session, private ones where servers are harmed."""

import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress

# A record to produce: its value, or (key, value), or the keyword arguments of confluent_kafka's Producer.produce.
Record = bytes | tuple[bytes | None, bytes | None] | Mapping[str, Any]

_DEADLINE_S = 30.0


class Topics:
    """Creates, grows and deletes topics of one cluster, each call returning when all brokers show the result."""

    def __init__(self, bootstrap_servers: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})

    def create(
        self, name: str, partitions: int = 1, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(name, partitions, replication, config=dict(config or {}))
        self._admin.create_topics([topic])[name].result(_DEADLINE_S)
        self._await_leaders(name, partitions)
        return name

    def grow(self, name: str, partitions: int) -> None:
        from confluent_kafka.admin import NewPartitions

        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(_DEADLINE_S)
        self._await_leaders(name, partitions)

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(_DEADLINE_S)
        _await(lambda: self._could_be_created(name), f"{name} is not deleted altogether")

    def _could_be_created(self, name: str) -> bool:
        """True when no znode of the topic is left: brokers stop listing a topic some time before that."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        try:
            self._admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name].result(_DEADLINE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    def _await_leaders(self, name: str, partitions: int) -> None:
        from tests.fix_fetch import brokers_of
        from zkconsumer.errors import BrokerUnavailable
        from zkconsumer.kafka.client import BrokerClient
        from zkconsumer.model import TopicPartition
        from zkconsumer.sandbox.admin import known_and_served

        wanted = {TopicPartition(name, number) for number in range(partitions)}

        def all_serve() -> bool:
            try:
                return known_and_served(client, [name]) == (wanted, wanted)
            except BrokerUnavailable:
                return False

        servers = partial(brokers_of, self._bootstrap_servers)
        with closing(BrokerClient(servers, client_id="topics", timeout_ms=10_000)) as client:
            _await(all_serve, f"{name} has not {partitions} partitions whose leaders all brokers know")


def produce_records(
    bootstrap_servers: str, topic: str, records: Iterable[Record], **settings: Any
) -> list[tuple[int, int]]:
    """Produce records and return the (partition, offset) of each; ``settings``: librdkafka's, ``_`` for ``.``."""
    from confluent_kafka import Message, Producer

    config = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "acks": "all", **config})
    positions: dict[int, tuple[int, int]] = {}
    failures: list[str] = []

    def report(number: int) -> Callable[[Any, Message], None]:
        def delivered(error: Any, message: Message) -> None:
            if error is not None:
                failures.append(str(error))
            else:
                positions[number] = (message.partition(), message.offset())

        return delivered

    for number, record in enumerate(records):
        arguments = _arguments(record)
        while True:
            try:
                producer.produce(topic, **arguments, on_delivery=report(number))
            except BufferError:
                producer.poll(0.1)
            else:
                break
        producer.poll(0)
    left = producer.flush(_DEADLINE_S)
    assert not failures, f"{len(failures)} records were not delivered to {topic}: {failures[0]}"
    assert left == 0, f"{left} records were not delivered to {topic} within {_DEADLINE_S} s"
    return [positions[number] for number in sorted(positions)]


@pytest.fixture(scope="session")
def sandbox(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One ZooKeeper (tick 500 ms: sessions of 1-10 s) and one broker for all tests; nobody may stop these."""
    with Sandbox(progress=Progress()) as box:
        yield box
        keep_logs(box, request, tmp_path_factory)


@pytest.fixture
def private_sandbox(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Sandbox]]:
    """Start sandboxes (the arguments are Sandbox's) whose servers a test may stop, kill and pause."""
    started: list[Sandbox] = []

    def start(**arguments: Any) -> Sandbox:
        box = Sandbox(**{"progress": Progress(), **arguments})
        box.start()
        started.append(box)
        return box

    yield start
    for box in started:
        keep_logs(box, request, tmp_path_factory)
        box.close()


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """A name for a group or topic that no other test has, and that tells in a log which test it was."""
    test = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name).strip("-")
    return f"{test[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topics(sandbox: Sandbox) -> Topics:
    """Topics of the session's sandbox."""
    return Topics(sandbox.bootstrap_servers)


@pytest.fixture
def topic_factory(topics: Topics, unique_name: str) -> Callable[..., str]:
    """Create topics with names of their own: ``topic_factory(partitions=3, replication=1, config={...}) -> name``."""
    count = iter(range(1_000_000))

    def create(partitions: int = 1, replication: int = 1, config: Mapping[str, str] | None = None) -> str:
        return topics.create(f"{unique_name}-t{next(count)}", partitions, replication, config)

    return create


@pytest.fixture
def produce(sandbox: Sandbox) -> Callable[..., list[tuple[int, int]]]:
    """Produce to the session's sandbox: ``produce(topic, records, **librdkafka_settings) -> [(partition, offset)]``."""

    def run(topic: str, records: Iterable[Record], **settings: Any) -> list[tuple[int, int]]:
        return produce_records(sandbox.bootstrap_servers, topic, records, **settings)

    return run


def _arguments(record: Record) -> dict[str, Any]:
    if isinstance(record, bytes):
        return {"value": record}
    if isinstance(record, tuple):
        return {"key": record[0], "value": record[1]}
    return dict(record)


def _await(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{otherwise} after {_DEADLINE_S} s"
        time.sleep(0.01)  # a broker only answers questions: there is nothing to wait on


def keep_logs(box: Sandbox, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """After a failure, copy the logs to pytest's own temporary directory, which pytest tidies up itself."""
    if request.session.testsfailed and box.running:
        kept = tmp_path_factory.mktemp("sandbox-logs")
        for log in box.directory.glob("*.log"):
            shutil.copy(log, kept)
        print(f"logs of the sandbox: {kept}")
