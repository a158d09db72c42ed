"""Every command of the pages on operations, offsets, serve and migration, in their order, on real servers."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from tests.fixtures.documentexamples import Page
from tests.fixtures.offsetwrites import OffsetGroup
from zkconsumer.cli.main import command
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.sandbox.ports import HOST

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

FINDS_PROBLEMS = (" status ", " groups verify ", " explain ", " --unhealthy", " guide ", " survey ", " offsets export ")
"""Commands that end with 3 where they found a problem, also in a group of another test."""


class Commands:
    """Runs the commands of a page in a directory of its own."""

    def __init__(self, page: str, sandbox, topic, unique_name, zookeeper, directory) -> None:
        blocks = Page(page, sandbox, topic, unique_name).blocks("sh")
        lines = [line for block in blocks for line in block.splitlines() if line.startswith("zkconsumer ")]
        servers = sandbox.zookeeper_connect
        lines = [line.replace("h1:2181/kafka", servers).replace("h1:2181", servers) for line in lines]
        lines = [line.replace("b1:9092", sandbox.bootstrap_servers) for line in lines]
        lines = [line.replace(".*svc-.*", f"{unique_name}-svc-.*") for line in lines]
        self._lines = [line.replace("/storm/", f"/storm/{unique_name}-") for line in lines]
        self.directory = directory
        self.topic = topic
        self.orders = OffsetGroup(f"{unique_name}-orders", zookeeper)
        self.canary = OffsetGroup(f"{unique_name}-orders-canary", zookeeper)
        self.fleet = [OffsetGroup(f"{unique_name}-svc-{name}", zookeeper) for name in ("a", "b")]
        self.mirror = OffsetGroup(f"{unique_name}-mirror", zookeeper)
        self.spout = f"/storm/{unique_name}-counts"

    def store_spout(self, partition: int, offset: int) -> None:
        """Store an offset as Storm's spout does."""
        document = {"topic": self.topic, "partition": partition, "offset": offset}
        path = f"{self.spout}/partition_{partition}"
        self.orders.client.create(path, json.dumps(document).encode(), makepath=True)

    def until(self, *words: str) -> str:
        """Run the next commands, up to the first one that has all of the words; returns what that one printed."""
        while self._lines:
            line = self._lines.pop(0)
            printed = self._run(line)
            if all(word in line for word in words):
                return printed
        raise AssertionError(f"no command is left with {words}")

    def to_the_end(self) -> None:
        """Run the rest."""
        while self._lines:
            self._run(self._lines.pop(0))

    def _run(self, line: str) -> str:
        if " groups status " in line:  # ten samples in place of a minute and a half
            line = re.sub(r" --interval \S+", " --interval 20ms --without-verdict", line)
            line += "" if "--interval" in line or "--zookeeper" not in line else " --interval 20ms --without-verdict"
        line = line.replace("--for 7d", "--for 1s")
        line = re.sub(r"--zookeeper \S+", r"\g<0> -p zookeeper.session.timeout.ms=30000", line)
        line = line.replace("zkconsumer serve", f"zkconsumer serve --listen {HOST}:0")  # other tests serve, too
        allowed = (0, 3) if any(word in line for word in FINDS_PROBLEMS) else (0,)
        if " watch " in line or " serve " in line:
            return self._interrupt(line, allowed)
        # In this process: starting one and importing takes longer than most commands. The one shell feature is `>`.
        line, _, to = line.partition(" > ")
        with contextlib.chdir(self.directory):
            done = CliRunner().invoke(command, shlex.split(line)[1:])
            assert done.exit_code in allowed, f"{line}\n{done.output}\n{done.exception!r}"
            if to:
                Path(to).write_text(done.stdout, encoding="utf-8")
        return done.stdout

    def _interrupt(self, line: str, allowed: tuple[int, ...]) -> str:
        """Run a command until it has printed a line."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        with subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.directory,
            env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            printed, errors = process.communicate(timeout=120)
        assert process.returncode in allowed, f"{line}\n{first}{printed}\n{errors}"
        assert first, f"{line} printed nothing"
        return first + printed


@pytest.fixture
def commands(sandbox, topic_factory, produce, unique_name, zookeeper, tmp_path):
    """The commands of a page: ``commands("docs/operations.md")``; group ``orders`` is at 4 of 10 records."""
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": number % 2} for number in range(20)])

    def prepare(page):
        made = Commands(page, sandbox, topic, unique_name, zookeeper, tmp_path)
        made.orders.store(topic, {0: 4, 1: 4})
        OffsetGroup(f"{unique_name}-archive", zookeeper).store(topic, {0: 4, 1: 4})
        (tmp_path / "consumer.properties").write_text("group.id=orders\nauto.offset.reset=smallest\n", encoding="utf-8")
        return made

    return prepare


@contextlib.contextmanager
def group_of_brokers(sandbox, unique_name, topic):
    """Group ``archive``, whose offsets are in Kafka."""
    settings = {"bootstrap.servers": sandbox.bootstrap_servers, "group.id": f"{unique_name}-archive"}
    with closing(Consumer(settings)) as consumer:
        consumer.commit(offsets=[KafkaPartition(topic, 0, 4)], asynchronous=False)
        yield lambda: [one.offset for one in consumer.committed([KafkaPartition(topic, n) for n in (0, 1)])]


@pytest.mark.slow
def test_the_commands_of_operations_do_what_the_page_promises(commands, sandbox, unique_name):
    page = commands("docs/operations.md")
    assert page.orders.name in page.until("groups list").splitlines()
    assert page.topic in page.until("groups status")
    page.until("groups explain")
    assert page.until("offsets reset").count(page.topic) == 2
    assert page.orders.offsets(page.topic) == {0: 4, 1: 4}, "a dry run"
    page.until("offsets reset", "--execute")
    assert page.orders.offsets(page.topic) == {0: 0, 1: 0}
    page.until("offsets restore", "--execute")
    assert page.orders.offsets(page.topic) == {0: 4, 1: 4}
    page.until("groups delete")
    assert page.orders.offsets(page.topic) == {0: 4, 1: 4}, "a dry run"
    page.until("groups delete", "--execute")
    assert page.orders.tree() == {}
    with group_of_brokers(sandbox, unique_name, page.topic):  # the page ends with groups of brokers
        pass
    page.to_the_end()


def test_the_cron_job_prints_a_line_for_each_problem(sandbox, topic_factory, produce, unique_name, tmp_path):
    topic = topic_factory(1)
    produce(topic, [{"value": b"v"}] * 4)
    for name, offset in (("prod-a", 9), ("prod-b", 4), ("other", 9)):
        settings = {"bootstrap.servers": sandbox.bootstrap_servers, "group.id": f"{unique_name}-{name}"}
        with closing(Consumer(settings)) as consumer:
            consumer.commit(offsets=[KafkaPartition(topic, 0, offset)], asynchronous=False)
    (block,) = [
        block for block in Page("docs/operations.md", sandbox, topic, unique_name).blocks("sh") if "jq" in block
    ]
    script = block.replace("'prod-.*'", f"'{unique_name}-prod-.*'")
    script = script.replace("--interval 2s", "--interval 20ms --without-verdict")
    script = script.replace("b1:9092", sandbox.bootstrap_servers)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", script],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    line = f"{unique_name}-prod-a: RANGE, {topic}-0: offset 9 lies after the log end 4\n"
    assert (ended.returncode, ended.stdout) == (3, line), ended.stderr


@pytest.mark.slow
def test_the_commands_of_offsets_do_what_the_page_promises(commands, sandbox, unique_name):
    page = commands("docs/offsets.md")
    page.until("offsets export")
    page.orders.client.set(page.orders.path("offsets", page.topic, 1), b"7")
    page.until("offsets import", "--execute")
    assert page.orders.offsets(page.topic) == {0: 4, 1: 4}
    page.until("offsets reset", "--execute")
    assert page.orders.offsets(page.topic) == {0: 0, 1: 0}
    page.until("offsets restore", "--execute")
    assert page.orders.offsets(page.topic) == {0: 4, 1: 4}
    page.until("groups rename")
    assert page.canary.offsets(page.topic) == {0: 4, 1: 4}
    page.until("groups delete")
    assert page.canary.tree() == {}
    page.until("groups clean")
    with group_of_brokers(sandbox, unique_name, page.topic) as committed:
        page.until("offsets reset", "--execute")
        assert committed() == [0, 0]
        page.until("offsets restore")
        assert committed()[0] == 4
        page.until("groups delete")
        assert committed()[0] < 0
        page.to_the_end()


def test_the_command_of_serve_prints_an_address(commands):
    page = commands("docs/serve.md")
    assert page.until("serve").startswith(f"http://{HOST}:")
    page.to_the_end()


def move_the_fleet(page, in_kafka, cluster, partitions):
    for group in page.fleet:
        group.store(page.topic, {0: 3, 1: 4})
    assert "2 not started" in page.until("fleet status")
    page.until("fleet verify")
    names = [group.name for group in page.fleet]
    assert [in_kafka(name) for name in names] == [{0: 3, 1: 4}] * 2
    for name in names:
        assert cluster.commit(name, dict.fromkeys(partitions, StoredOffset(6))) == {}
    assert "4 offsets of 2 groups copied" in page.until("fleet mirror")
    assert cluster.commit(names[0], dict.fromkeys(partitions, StoredOffset(7))) == {}
    page.until("fleet reverse", "--execute")
    assert [group.offsets(page.topic) for group in page.fleet] == [{0: 7, 1: 7}, {0: 6, 1: 6}]


@pytest.mark.slow
def test_the_commands_of_migration_do_what_the_page_promises(commands, cluster):
    page = commands("docs/migration.md")
    partitions = [TopicPartition(page.topic, number) for number in range(2)]

    def in_kafka(group=page.orders.name):
        return {p.partition: one.offset for p, one in cluster.committed(group, partitions).items()}

    assert "start members" in page.until("migrate guide")
    assert "ready" in page.until("migrate survey")
    assert page.until("migrate plan", "--to kafka:").count(page.topic) == 2
    page.until("migrate run")
    assert in_kafka() == {}, "a dry run"
    page.until("migrate run", "--execute")
    assert in_kafka() == {0: 4, 1: 4}
    assert "2 of 2 partitions are equal" in page.until("migrate verify")
    page.until("migrate rollback")
    assert in_kafka() == {0: 4, 1: 4}, "a dry run"
    page.until("migrate rollback", "--execute")
    assert in_kafka() == {}
    page.until("migrate run", "orders.plan.json", "--execute")
    assert in_kafka() == {0: 4, 1: 4}
    assert cluster.commit(page.orders.name, dict.fromkeys(partitions, StoredOffset(6))) == {}
    assert "2 of 2 offsets are to be copied" in page.until("migrate mirror")
    assert page.orders.offsets(page.topic) == {0: 4, 1: 4}, "a dry run"
    assert "2 of 2 offsets copied" in page.until("migrate mirror", "--execute")
    assert page.orders.offsets(page.topic) == {0: 6, 1: 6}
    assert cluster.commit(page.orders.name, dict.fromkeys(partitions, StoredOffset(7))) == {}
    assert page.until("migrate reverse").count(page.topic) == 2
    page.until("migrate run", "back.plan.json", "--execute")
    assert page.orders.offsets(page.topic) == {0: 7, 1: 7}
    page.until("migrate config")
    assert "auto.offset.reset=earliest" in (page.directory / "next.properties").read_text(encoding="utf-8")
    move_the_fleet(page, in_kafka, cluster, partitions)
    page.mirror.store(page.topic, {0: 3, 1: 2})
    page.until("migrate mirror", "mirror.plan.json")
    assert in_kafka(page.mirror.name) == {0: 3, 1: 2}
    page.until("migrate run", "mirror.back.json")
    assert page.mirror.offsets(page.topic) == {0: 3, 1: 2}
    page.until("migrate verify", "spark.plan.json")
    assert json.loads((page.directory / "starting.json").read_text()) == {page.topic: {"0": 7, "1": 7}}
    for number, offset in enumerate((5, 8)):
        page.store_spout(number, offset)
    page.until("migrate verify", "counts.plan.json")
    assert in_kafka(page.mirror.name.replace("-mirror", "-counts")) == {0: 5, 1: 8}
    page.until("migrate rollback", "counts.plan.json")
    assert in_kafka(page.mirror.name.replace("-mirror", "-counts")) == {}
    page.until("offsets export")
    assert (
        f"/consumers/{page.orders.name}/offsets/{page.topic}/0:7" in (page.directory / "last-offsets.txt").read_text()
    )
    assert f"/consumers/{page.mirror.name}/offsets/{page.topic}/1:2" in (page.directory / "last-offsets.txt").read_text(
        encoding="utf-8"
    )
    page.to_the_end()
