"""MirrorMaker 1.1.1 as the group that migrates: with the ZooKeeper consumer, with the new one, and back."""

import subprocess
from collections import Counter
from contextlib import closing

import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.fixtures.jvm import SETTINGS
from tests.fixtures.migrations import is_record
from tests.fixtures.rounds import report, rounds
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
            self._process.wait(120)
            self._process = None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Audit:
    """Counts the values that have arrived in the two partitions of a topic."""

    def __init__(self, bootstrap_servers, topic) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "none", "enable.auto.commit": False}
        )
        # Without a group, so that nothing makes it begin again.
        self._partitions = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(2)]
        self._consumer.assign(self._partitions)
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

    def read_all(self) -> None:
        """Read all records that the topic has now; nothing is mirrored meanwhile."""
        ends = [self._consumer.get_watermark_offsets(partition, timeout=60)[1] for partition in self._partitions]
        self.until(lambda found: found.total() == sum(ends))

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
    properties = {
        **SETTINGS,
        "zookeeper.session.timeout.ms": "60000",  # no session is to expire here
        "zookeeper.connect": sandbox.zookeeper_connect,
        "group.id": migration.group.name,
    }
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


ROUNDS = rounds(default=2)


@pytest.mark.slow
@pytest.mark.timeout(900 * ROUNDS)
def test_a_mirrormaker_moves_to_the_new_consumer_and_back_under_load(
    migration, feed, mirrormaker, audit, migrate, old_file, new_file, tmp_path
):
    """No record is lost, and none is mirrored again after a change of consumers.

    Within one of its runs MirrorMaker may mirror a record twice: while the old consumer rebalances, it may be sending
    one that is not committed (jvm-consumer.md#in-flight-data).
    """
    source, target = migration.forward

    def mirror(consumer_file):
        before = Counter(audit.found)
        mirrormaker.start(consumer_file)
        audit.until(lambda found: len(found) >= len(before) + 200)
        return before

    def stop(before):
        mirrormaker.stop()
        audit.read_all()
        again = {value for value, count in before.items() if audit.found[value] > count}
        repeated.update(again - set(MIRRORED))
        assert not repeated, "but for values that were produced twice"

    repeated = set()
    flowing = feed(migration.topic)
    for number in range(ROUNDS):
        there, back = tmp_path / f"there-{number}.json", tmp_path / f"back-{number}.json"
        stop(mirror(old_file))
        assert migrate("plan", "--from", source, "--to", target, "--output", there)[0] == 0
        assert migrate("run", there, "--execute")[0] == 0
        stop(mirror(new_file))
        assert migrate("reverse", there, "--output", back)[0] == 0
        assert migrate("run", back, "--execute")[0] == 0
    before = mirror(old_file)
    produced = Counter([*MIRRORED, *flowing.stop()])
    audit.until(lambda found: produced <= found)
    stop(before)
    assert audit.found.keys() == produced.keys()
    lost = produced - audit.found
    twice = audit.found - produced
    report(records=produced.total(), lost=lost.total(), by_both=len(repeated), twice=twice.total())
