"""Real brokers of every release that there are pinned jars for, with what their age asks of an independent client."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.fix_sandbox import Record, keep_logs, produce_records
from tests.fix_waiting import eventually
from zkconsumer.sandbox import Sandbox, known_kafka_versions
from zkconsumer.sandbox.progress import Progress

# The codecs that librdkafka compresses with for a broker of that release; for others it silently sends plain records.
_CODECS_SINCE = {"none": (0, 8), "gzip": (0, 8), "snappy": (0, 8), "lz4": (0, 10), "zstd": (2, 1)}
_NEGOTIATES_SINCE = (0, 10)
_TRANSACTIONS_SINCE = (0, 11)


class VersionedBroker:
    """One broker of one release and its own ZooKeeper, for all tests of a session; nobody may stop these.

    ``codecs`` are those that an independent client can produce with, ``client_settings`` are librdkafka's for it.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.version = sandbox.kafka_version
        self.release = tuple(int(part) for part in self.version.split("."))
        self.codecs = [codec for codec, since in _CODECS_SINCE.items() if self.release >= since]
        self.has_transactions = self.release >= _TRANSACTIONS_SINCE
        negotiates = self.release >= _NEGOTIATES_SINCE
        self.client_settings: dict[str, Any] = {"bootstrap.servers": sandbox.bootstrap_servers}
        if not negotiates:
            self.client_settings |= {"api.version.request": False, "broker.version.fallback": self.version}

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic by its znodes, which is how Kafka's own command does it for all these releases."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        zookeeper = KazooClient(self.sandbox.zookeeper_connect)
        zookeeper.start()
        try:
            settings = {"version": 1, "config": dict(config or {})}
            zookeeper.create(f"/config/topics/{name}", json.dumps(settings).encode(), makepath=True)
            replicas = {"version": 1, "partitions": {str(number): [0] for number in range(partitions)}}
            zookeeper.create(f"/brokers/topics/{name}", json.dumps(replicas).encode())
        finally:
            zookeeper.stop()
            zookeeper.close()
        admin = AdminClient(self.client_settings)

        def all_led() -> bool:
            try:
                found = admin.list_topics(timeout=30).topics.get(name)
            except KafkaException:  # a broker that has just started answers that it knows a part only
                return False
            return found is not None and [p.leader for p in found.partitions.values()] == [0] * partitions

        eventually(all_led)
        return name

    def produce(self, topic: str, records: Iterable[Record], **settings: Any) -> list[tuple[int, int]]:
        """As `produce_records`, in the newest message format that the broker takes."""
        own = {key.replace(".", "_"): value for key, value in self.client_settings.items()}
        return produce_records(own.pop("bootstrap_servers"), topic, records, **{**own, **settings})

    def produce_transactions(self, topic: str) -> Any:
        """Five committed records, five aborted, five committed, five of a transaction left open; their producer."""
        from confluent_kafka import Producer

        producer = Producer({**self.client_settings, "transactional.id": topic})
        producer.init_transactions(30)
        for number, outcome in enumerate(("commit_transaction", "abort_transaction", "commit_transaction", None)):
            producer.begin_transaction()
            for record in range(5):
                producer.produce(topic, b"%d-%d" % (number, record), partition=0)
            producer.flush(30)
            if outcome:
                getattr(producer, outcome)(30)
        return producer

    def consume(self, topic: str, count: int, partition: int = 0, **settings: Any) -> list[Any]:
        """The first ``count`` records of a partition as librdkafka's ``Message`` objects."""
        from confluent_kafka import Consumer, TopicPartition

        own = {"group.id": f"check-{topic}", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        consumer = Consumer({**self.client_settings, **own, **settings})
        messages: list[Any] = []

        def complete() -> bool:
            # An error that is not fatal is news (a broker hung up, say), not an answer: librdkafka goes on by itself.
            messages.extend(message for message in consumer.consume(count, timeout=1) if message.error() is None)
            return len(messages) >= count

        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            eventually(complete, seconds=40)
        finally:
            consumer.close()
        return messages[:count]


@pytest.fixture(scope="session", params=known_kafka_versions())
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersionedBroker]:
    """A broker of each known release in turn: a test that asks for this runs once with each."""
    with Sandbox(kafka_version=request.param, progress=Progress()) as box:
        yield VersionedBroker(box)
        keep_logs(box, request, tmp_path_factory)
