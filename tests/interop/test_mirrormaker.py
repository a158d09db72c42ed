"""MirrorMaker 1.1.1 as the group that migrates: with the ZooKeeper consumer, with the new one, and back."""

import subprocess
from collections import Counter
from contextlib import closing

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer

from tests.fixtures.jvm import SETTINGS
from tests.fixtures.migrations import is_record
from tests.fixtures.sandbox import Topics
from tests.fixtures.waiting import eventually
from zkconsumer.cli.main import command

MIRRORED = [b"%d" % number for number in range(20)]
"""Values that the fixture ``migration`` has produced."""


class MirrorMaker:
    """Runs of MirrorMaker with one of its two consumers, one after the other.

    Args:
        command: of MirrorMaker, without the file of its consumer.
        directory: for its files.
    """

    def __init__(self, command, directory) -> None:
        self._command = command
        self._log = directory / "mirrormaker.log"
        self._process = None

    def start(self, consumer_file) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "--consumer.config", str(consumer_file)], stdout=log, stderr=subprocess.STDOUT
            )

    def stop(self) -> None:
        """As an operator does: it sends what it has read, and commits."""
        if self._process is not None:
            assert self._process.poll() is None, self._log.read_text(encoding="utf-8")[-4000:]
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Audit:
    """Counts the values that have arrived."""

    def __init__(self, bootstrap_servers, topic) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "audit", "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([topic])
        self.found: Counter[bytes] = Counter()

    def until(self, condition) -> None:
        """Read until the condition is true of the values."""

        def is_true():
            message = self._consumer.poll(0.5)
            while is_record(message):
                self.found[message.value()] += 1
                message = self._consumer.poll(0.05)
            return condition(self.found)

        eventually(is_true, 120)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def target(private_sandbox, migration):
    """The cluster that is mirrored to."""
    box = private_sandbox()
    Topics(box.bootstrap_servers).create(migration.topic, 2)
    return box


@pytest.fixture
def mirrormaker(jvm, migration, target, tmp_path):
    producer = tmp_path / "producer.properties"
    producer.write_text(f"bootstrap.servers={target.bootstrap_servers}\n", encoding="utf-8")
    options = ("--producer.config", str(producer), "--whitelist", migration.topic)
    with closing(MirrorMaker(jvm.tool("kafka.tools.MirrorMaker", *options), tmp_path)) as made:
        yield made


@pytest.fixture
def audit(target, migration):
    with closing(Audit(target.bootstrap_servers, migration.topic)) as made:
        yield made


@pytest.fixture
def old_file(migration, sandbox, tmp_path):
    """Its consumer's file: ``zookeeper.connect`` selects the ZooKeeper consumer."""
    path = tmp_path / "consumer.properties"
    properties = {**SETTINGS, "zookeeper.connect": sandbox.zookeeper_connect, "group.id": migration.group.name}
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
    return path


@pytest.fixture
def new_file(old_file, sandbox, tmp_path):
    """The same for the new consumer, as ``migrate config`` writes it."""
    path = tmp_path / "next.properties"
    options = ("--target", "java", "--bootstrap-server", sandbox.bootstrap_servers)
    done = CliRunner().invoke(command, ["migrate", "config", str(old_file), *options])
    assert done.exit_code == 0, done.output
    path.write_text(done.stdout, encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_mirrormaker_moves_to_the_new_consumer_and_back_under_load(
    migration, feed, mirrormaker, audit, migrate, old_file, new_file, tmp_path
):
    """No record is lost, and none is mirrored twice."""
    there, back = tmp_path / "there.json", tmp_path / "back.json"
    source, target = migration.forward

    def mirror(consumer_file):
        before = audit.found.total()
        mirrormaker.start(consumer_file)
        audit.until(lambda found: found.total() >= before + 200)

    flowing = feed(migration.topic)
    mirror(old_file)
    mirrormaker.stop()
    assert migrate("plan", "--from", source, "--to", target, "--output", there)[0] == 0
    assert migrate("run", there, "--execute")[0] == 0
    mirror(new_file)
    mirrormaker.stop()
    assert migrate("reverse", there, "--output", back)[0] == 0
    assert migrate("run", back, "--execute")[0] == 0
    mirror(old_file)
    produced = Counter([*MIRRORED, *flowing.stop()])
    audit.until(lambda found: produced <= found)
    mirrormaker.stop()
    assert audit.found == produced
