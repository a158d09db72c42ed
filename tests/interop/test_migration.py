"""Groups of JVM members and of ours move to Kafka and back; the JVM's own tools see the migrated offsets."""

import json
from collections import Counter

import pytest
from click.testing import CliRunner

from tests.fixtures.migrations import is_record
from tests.fixtures.rounds import report, rounds
from tests.fixtures.serve import serving
from tests.fixtures.waiting import eventually
from zkconsumer.cli.main import command
from zkconsumer.operate.migrate.run import run_plan

PATIENT = ("--timeout", "60000")  # a tool waits 5 s for a broker otherwise
COLUMNS = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")

RECORDS = 20
"""How many the fixture ``migration`` has produced."""


@pytest.fixture
def migrated(migration):
    """A group whose offsets were written to Kafka."""
    migration.group.store(migration.topic, {0: 4, 1: 7})
    assert run_plan(migration.ends(), migration.plan(), migration.file).faults == []
    return migration


@pytest.mark.parametrize(
    ("tool", "main"),
    [
        ("jvm_tool", "kafka.admin.ConsumerGroupCommand"),
        ("newer_tool", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    ],
)
def test_kafkas_tools_show_exactly_the_migrated_offsets(migrated, sandbox, request, tool, main):
    run = request.getfixturevalue(tool)
    group = ("--group", migrated.group.name, "--describe", *PATIENT)
    lines = [line.split() for line in run(main, "--bootstrap-server", sandbox.bootstrap_servers, *group).splitlines()]
    heading = next(line for line in lines if "TOPIC" in line)
    wanted = [heading.index(column) for column in COLUMNS]
    rows = [[line[index] for index in wanted] for line in lines if migrated.topic in line]
    assert sorted(rows) == [[migrated.topic, "0", "4", "10", "6"], [migrated.topic, "1", "7", "10", "3"]]


def test_the_jvms_tool_resets_migrated_offsets(migrated, jvm_tool, sandbox):
    tool = ("kafka.admin.ConsumerGroupCommand", "--bootstrap-server", sandbox.bootstrap_servers, *PATIENT)
    reset = ("--reset-offsets", "--topic", migrated.topic, "--shift-by", "-1", "--execute")
    jvm_tool(*tool, "--group", migrated.group.name, *reset)
    assert migrated.in_kafka() == {0: 3, 1: 6}


def test_a_jvm_consumer_that_returns_after_the_migration_is_reported(group, migrated, sandbox):
    """It does not know the mark, and reads what the new consumers read."""
    assert group.name == migrated.group.name
    group.join_jvm("a", {migrated.topic: 1})
    reason = f"it has members, though it was migrated to kafka:{group.name}"
    status = [
        "groups",
        "status",
        "--group",
        group.name,
        "--interval",
        "50ms",
        "--samples",
        "2",
        "--without-verdict",
        "--json",
    ]
    shown = CliRunner().invoke(command, [*status, "--zookeeper", sandbox.zookeeper_connect])
    found = json.loads(shown.stdout)
    assert (shown.exit_code, found["status"], reason in found["reason"]) == (3, "WARN", True)
    with serving(sandbox.zookeeper_connect, "--match", group.name, "--interval", "200ms") as served:
        eventually(lambda: (served.group(group.name) or {}).get("status") == "WARN")
        assert reason in served.group(group.name)["reason"]


class NewConsumer:
    """Consumers of librdkafka, one after the other, in the group that Kafka coordinates."""

    def __init__(self, bootstrap_servers, group, topic) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
        self._topic = topic
        self.received: list[tuple] = []

    def consume(self, count) -> None:
        """Consume so many records, commit, and leave."""
        from confluent_kafka import Consumer

        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        wanted = len(self.received) + count

        def is_complete():
            message = consumer.poll(0.5)
            if is_record(message):
                self.received.append((message.topic(), message.partition(), message.offset(), message.value()))
            return len(self.received) == wanted

        try:
            eventually(is_complete, 120)
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()


ROUNDS = rounds(default=2)


@pytest.mark.slow
@pytest.mark.timeout(450 * max(2, ROUNDS))
@pytest.mark.parametrize("join", ["join", "join_jvm"])
def test_a_group_moves_to_kafka_and_back_under_load(group, migration, feed, sandbox, join):
    """No record is lost, and none is read by both groups."""
    topic = migration.topic
    new = NewConsumer(sandbox.bootstrap_servers, group.name, topic)
    flowing = feed(topic)

    def migrate():
        plan = migration.plan(missing="earliest")
        assert run_plan(migration.ends(), plan, migration.file).faults == []
        return plan

    def take_back(plan):
        back = migration.plan_back(plan)
        assert run_plan(migration.ends(back.source, back.target), back, migration.file).faults == []

    def leave(member):
        """Leave with nothing in flight: what a member is handed while it leaves need not be in its last commit."""
        with flowing.paused() as produced:

            def all_is_committed():
                member.commit()
                return sum(group.offsets(topic).values()) == RECORDS + len(produced)

            eventually(all_is_committed, 120)
            group.leave(member)

    for _ in range(ROUNDS):
        member = getattr(group, join)("c", {topic: 1})
        before = len(group.received())
        eventually(lambda before=before: len(group.received()) >= before + 200, 120)
        leave(member)
        there = migrate()
        new.consume(200)
        take_back(there)
    getattr(group, join)("c", {topic: 1})
    produced = set(flowing.stop())
    eventually(lambda: produced <= {record[3] for record in (*group.received(), *new.received)}, 120)
    old = Counter(record[:3] for record in group.received())
    at_kafka = Counter(record[:3] for record in new.received)
    assert old.keys().isdisjoint(at_kafka)
    assert max(at_kafka.values()) == 1
    if join == "join":  # a JVM consumer may hand out a record twice by itself, see offsets_received
        assert max(old.values()) == 1
    lost = produced - {record[3] for record in (*group.received(), *new.received)}
    twice = old.total() - len(old) + at_kafka.total() - len(at_kafka)
    report(records=len(produced), lost=len(lost), by_both=len(old.keys() & at_kafka), twice=twice)
