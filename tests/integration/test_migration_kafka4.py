"""Groups on ZooKeeper move to Kafka 4.2.0, whose brokers are not in ZooKeeper, and back."""

import json

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from tests.fixtures.offsetwrites import OffsetGroup
from tests.fixtures.sandbox import PATIENT, Topics, produce_records
from tests.fixtures.zookeeper import connected
from zkconsumer.cli.main import command

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE = ("-p", "zookeeper.session.timeout.ms=30000")


class Moved:
    """A group of one topic with two partitions of ten records.

    Attributes:
        group: its znodes.
        topic: name.
    """

    def __init__(self, box, group, directory) -> None:
        self._where = ["--zookeeper", box.zookeeper_connect, "--bootstrap-server", box.bootstrap_servers, "--json"]
        self._settings = {"bootstrap.servers": box.bootstrap_servers, "group.id": group.name}
        self._directory = directory
        self.group = group
        self.topic = Topics(box.bootstrap_servers).create(group.name, 2)
        produce_records(
            box.bootstrap_servers, self.topic, [{"value": b"v", "partition": number % 2} for number in range(20)]
        )

    def file(self, name) -> str:
        return str(self._directory / name)

    def migrate(self, *arguments):
        """Run a command: (exit code, document)."""
        ended = CliRunner().invoke(command, ["migrate", *arguments, *self._where, *PATIENCE])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.output
        return ended.exit_code, json.loads(ended.stdout)

    def _places(self, *offsets):
        return [Place(self.topic, number, *offset) for number, *offset in offsets or ((0,), (1,))]

    def in_kafka(self) -> list[int]:
        """What a client of librdkafka finds committed; -1001 without an offset."""
        consumer = Consumer(self._settings)
        try:
            return [place.offset for place in consumer.committed(self._places(), timeout=60)]
        finally:
            consumer.close()

    def commit(self, *offsets) -> None:
        consumer = Consumer(self._settings)
        try:
            consumer.commit(offsets=self._places(*enumerate(offsets)), asynchronous=False)
        finally:
            consumer.close()


@pytest.fixture
def moved(private_sandbox, unique_name, tmp_path):
    box = private_sandbox(kafka_version="4.2.0", **PATIENT)
    with connected(box.zookeeper_connect) as client:
        yield Moved(box, OffsetGroup(unique_name, client), tmp_path)


def test_a_group_moves_to_brokers_without_zookeeper_and_back(moved):
    """The first commit creates the brokers' topic of offsets."""
    moved.group.store(moved.topic, {0: 4, 1: 7})
    name, plan, back = moved.group.name, moved.file("plan"), moved.file("back")
    code, survey = moved.migrate("survey", "--group", name)
    assert (code, survey["verdict"], [broker["release"] for broker in survey["brokers"]]) == (0, "ready", ["4.2"])
    ends = ("--from", f"zookeeper:{name}", "--to", f"kafka:{name}")
    assert moved.migrate("plan", *ends, "--output", plan, "--retention", "30d")[0] == 0
    assert moved.migrate("run", plan, "--execute")[0] == 0
    assert moved.in_kafka() == [4, 7]
    assert moved.migrate("verify", plan)[1]["equal"] is True
    assert moved.migrate("rollback", plan, "--execute")[0] == 0
    assert moved.in_kafka() == [-1001, -1001]
    assert moved.migrate("run", plan, "--execute")[0] == 0
    moved.commit(9, 8)
    assert moved.migrate("reverse", plan, "--output", back)[0] == 0
    assert moved.migrate("run", back, "--execute")[0] == 0
    assert moved.group.offsets(moved.topic) == {0: 9, 1: 8}
