"""``migrate mirror`` on real servers: znodes follow a group that consumes in Kafka."""

import json
import signal
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.fixtures.migrations import is_record
from tests.fixtures.waiting import eventually
from zkconsumer.operate.migrate.run import run_plan

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture
def migrated(migration):
    """A group whose offsets were written to Kafka."""
    migration.group.store(migration.topic, {0: 4, 1: 7})
    plan = migration.plan()
    assert run_plan(migration.ends(), plan, migration.file).faults == []
    return migration


@pytest.fixture
def mirror(migrated, sandbox):
    """Starts a mirror in a process of its own, which has copied once when it is returned."""
    started = []

    def start():
        arguments = ["migrate", "mirror", str(migrated.file), "--for", "1h", "--interval", "200ms", "--execute"]
        arguments += ["--zookeeper", sandbox.zookeeper_connect, "-p", "zookeeper.session.timeout.ms=15000", "--json"]
        process = subprocess.Popen(
            [sys.executable, "-m", "zkconsumer", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        first = process.stdout.readline()
        assert first, process.stderr.read()
        assert json.loads(first)["faults"] == []
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process):
    """Exit code of a mirror, what it copied, and its standard error."""
    printed, errors = process.communicate(timeout=120)
    copies = [json.loads(line) for line in printed.splitlines()]
    return process.returncode, copies, errors


def follow(migrated, offsets):
    eventually(lambda: migrated.group.offsets(migrated.topic) == offsets, 60)


@pytest.mark.slow
def test_znodes_follow_consumers_in_kafka_and_the_way_back_is_open(migrated, mirror, migrate, sandbox, tmp_path):
    """Also when the mirror is killed and started again."""
    servers = {"bootstrap.servers": sandbox.bootstrap_servers, "enable.auto.commit": False}
    consumer = Consumer({**servers, "group.id": migrated.group.name, "auto.offset.reset": "error"})
    consumer.subscribe([migrated.topic])
    eventually(lambda: is_record(consumer.poll(0.5)), 60)
    mirroring = mirror()
    for number, kill in enumerate([signal.SIGKILL, signal.SIGTERM]):
        consumer.commit(offsets=[TopicPartition(migrated.topic, 0, 6 + number)], asynchronous=False)
        follow(migrated, {0: 6 + number, 1: 7})
        mirroring.send_signal(kill)
        code, copies, errors = ended(mirroring)
        assert code == (-signal.SIGKILL if kill == signal.SIGKILL else 0), errors
        if kill == signal.SIGKILL:
            # It may have been killed in its hold, which refuses another one until its session has ended.
            eventually(lambda: not migrated.group.is_held(migrated.topic), 60)
            mirroring = mirror()
    assert all(copy["faults"] == [] for copy in copies)
    assert migrate("verify", migrated.file)[0] == 3, "consumers have continued"
    consumer.commit(offsets=[TopicPartition(migrated.topic, 1, 9)], asynchronous=False)
    consumer.close()
    back = tmp_path / "back.json"
    code, document = migrate("reverse", migrated.file, "--output", back)
    assert (code, [row["target_before"] for row in document["partitions"]]) == (0, [7, 7])
    assert migrate("run", back, "--execute")[0] == 0
    assert migrated.group.offsets(migrated.topic) == {0: 7, 1: 9}
    assert migrated.group.children("owners", migrated.topic) == [], "holds leave no claim"


def test_a_way_back_is_not_planned_while_the_mirror_runs(migrated, mirror, migrate, tmp_path):
    mirroring = mirror()
    ended_early = subprocess.run(
        [sys.executable, "-m", "zkconsumer", "migrate", "reverse", str(migrated.file), "--output", tmp_path / "back"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended_early.returncode, "or its mirror (of a fleet" in ended_early.stderr) == (3, True), ended_early.stderr
    mirroring.send_signal(signal.SIGINT)
    assert ended(mirroring)[0] == 0


def test_a_consumer_that_returns_ends_the_mirror(migrated, mirror, migrate):
    mirroring = mirror()
    client, path = migrated.group.client, migrated.group.path("ids", f"{migrated.group.name}_h-1")
    client.create(path, b"{}", ephemeral=True, makepath=True)
    migrated.commit({0: 9, 1: 9})
    code, _, errors = ended(mirroring)
    assert (code, "1 live member" in errors) == (3, True), errors
    assert migrated.group.offsets(migrated.topic) == {0: 4, 1: 7}
    client.delete(path)
    client.set(migrated.group.path("offsets", migrated.topic, 0), b"5")
    assert migrate("mirror", migrated.file) == (3, None)


def test_a_dry_run_shows_what_would_be_copied(migrated, migrate):
    migrated.commit({0: 6})
    code, document = migrate("mirror", migrated.file)
    due = [(row["in_kafka"], row["in_zookeeper"], row["due"]) for row in document["partitions"]]
    assert (code, document["executed"], due) == (0, False, [(6, 4, True), (7, 7, False)])
    assert migrated.group.offsets(migrated.topic) == {0: 4, 1: 7}
