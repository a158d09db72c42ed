"""The examples of the documents on real servers, and the delivery that docs/delivery.md promises for its code."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fixtures.documentexamples import RECORDS, Page
from tests.fixtures.documents import ROOT, examples
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def page(sandbox, topic_factory, unique_name):
    """A page, and a topic of its own with four partitions."""

    def open_page(name):
        topic = topic_factory(partitions=4)
        return Page(name, sandbox, topic, unique_name), topic

    return open_page


def filled(produce, topic):
    """Produces the same records again, over all partitions."""
    records = [{"key": key, "value": value, "partition": n % 4} for n, (key, value) in enumerate(RECORDS)]
    return lambda: produce(topic, records)


def test_the_readme_consumes(page, produce, capsys):
    readme, topic = page("README.md")
    (example,) = [block for block in readme.blocks("python") if "ConsumerConnector" in block]
    filled(produce, topic)()
    lines = []

    def has_all():  # where a slow machine let its timeout pass, the group continues at the next run
        readme.run([example], lambda: None)
        lines.extend(capsys.readouterr().out.splitlines())
        return len(lines) >= len(RECORDS)

    eventually(has_all)
    assert len(lines) == len(RECORDS)


def test_the_quickstart_consumes_in_python(page, produce, capsys):
    quickstart, topic = page("docs/quickstart.md")
    (example,) = [block for block in quickstart.blocks("python") if "ConsumerConnector" in block]
    filled(produce, topic)()
    counts = []

    def has_all():  # where a slow machine let its timeout pass, the group continues at the next run
        quickstart.run([example], lambda: None)
        counts.append(int(capsys.readouterr().out))
        return sum(counts) >= len(RECORDS)

    eventually(has_all)
    assert sum(counts) == len(RECORDS)


def test_the_examples_of_streams_run_one_after_the_other(page, produce, capsys):
    streams, topic = page("docs/streams.md")
    names = streams.run(streams.blocks("python"), filled(produce, topic))
    names["connector"].shutdown()
    assert "user" in capsys.readouterr().out


def test_the_example_of_a_group_that_brokers_coordinate(page, produce, capsys):
    operations, topic = page("docs/operations.md")
    (example,) = [block for block in operations.blocks("python") if "ConsumerConnector" in block]
    produce(topic, [{"value": b"first"}])
    operations.run([example], lambda: None)
    assert " 0 b'first'" in capsys.readouterr().out


def test_the_examples_for_event_loops(page, produce, capsys):
    in_loop, topic = page("docs/asyncio.md")
    in_loop.run(in_loop.blocks("python"), filled(produce, topic))
    assert sum(map(int, capsys.readouterr().out.split())) >= len(RECORDS)


ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
"""Of a shell, which finds the commands of this environment."""


def shell(line):
    """Run one line of a shell."""
    ended = subprocess.run(
        ["bash", "-o", "pipefail"],
        input=line,  # not an argument: `pgrep -f` would find this shell
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, f"{line}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def lines_with(page, *words):
    lines = [line for block in page.blocks("sh") for line in block.splitlines()]
    return [line for line in lines if any(word in line for word in words)]


def column(name, table):
    """The cells below one heading."""
    heading, *rows = [line.split() for line in table.splitlines() if line]
    return [row[heading.index(name)] for row in rows]


@pytest.mark.slow
def test_the_commands_of_the_readme_and_then_of_the_quickstart_do_what_they_say(sandbox, unique_name):
    """Both pages are one path: the quickstart has the topic and the group of the README."""
    readme, quickstart = (Page(name, sandbox, unique_name, unique_name) for name in ("README.md", "docs/quickstart.md"))
    create, produce_them, consume, describe = lines_with(
        readme, "kafka-python", "zkconsumer consume", "zkconsumer groups"
    )
    shell(create)
    shell(produce_them)
    received = []
    # Again where a slow machine let its timeout pass.
    eventually(lambda: received.extend(shell(consume).split()) or len(received) >= 3)
    assert sorted(received) == ["one", "three", "two"]
    assert column("LAG", shell(describe)) == ["0", "0"]

    produce_more, first, second, describe, *_ = lines_with(quickstart, "kafka-python", "--group")
    shell(produce_more)
    assert len(shell(first).split()) == 3
    counts = []
    eventually(lambda: counts.append(int(shell(second))) or sum(counts) >= 997)  # again, as above
    assert sum(counts) == 997
    assert column("LAG", shell(describe)) == ["0", "0"]


@contextlib.contextmanager
def running(line, output):
    """A line that runs in a terminal of its own until the test ends it; ``output`` is what it prints."""
    with output.open("wb") as file, output.with_suffix(".log").open("wb") as log:
        command = ["bash", "-c", line] if ";" in line else line.split()
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=file, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pgrep") is None, reason="the page uses pgrep; install procps")
def test_the_quickstart_kills_a_consumer(sandbox, topic_factory, tmp_path, unique_name):
    topic = topic_factory(partitions=2)
    quickstart = Page("docs/quickstart.md", sandbox, topic, unique_name)
    consume, produce_on, kill = lines_with(quickstart, "shared", "while")
    describe = consume.replace(" consume ", " groups describe ").partition(" --topic")[0] + " --json"

    def owners():
        return [row["owner"] for row in json.loads(shell(describe))["partitions"]]

    outputs = [tmp_path / "one", tmp_path / "other"]
    with running(consume, outputs[0]) as one, running(produce_on, tmp_path / "produced") as producing:
        eventually(lambda: outputs[0].stat().st_size)
        with running(consume, outputs[1]) as other:
            eventually(lambda: outputs[1].stat().st_size)
            assert len({*owners()}) == 2
            shell(kill)
            assert other.wait(10) == -signal.SIGKILL
        assert one.poll() is None
        eventually(lambda: len({*owners()}) == 1 and None not in owners())
        os.killpg(producing.pid, signal.SIGTERM)
        producing.wait()
        ends = [row["log_end"] for row in json.loads(shell(describe))["partitions"]]
        eventually(lambda: sum(len(path.read_text().split()) for path in outputs) >= sum(ends))
        one.send_signal(signal.SIGTERM)
        assert one.wait(30) == 0
    assert [row["lag"] for row in json.loads(shell(describe))["partitions"]] == [0, 0]


CRASHING = r"""
import os, sys, threading
from zkconsumer import ConsumerConfig, ConsumerTimeout

zookeeper, group, output, crash_after, database = sys.argv[1:]
config = ConsumerConfig(
    zookeeper_connect=zookeeper, group_id=group, auto_offset_reset="smallest",
    consumer_timeout_ms=4000 if crash_after == "-1" else 60_000,
    auto_commit_interval_ms=200, zookeeper_session_timeout_ms=3000, zookeeper_connection_timeout_ms=20_000,
    rebalance_max_retries=30, rebalance_backoff_ms=600,
)
processed, lock = 0, threading.Lock()

def note(partition, offset):
    global processed
    with lock:
        if processed == int(crash_after):
            os._exit(9)  # as with kill -9 nothing is flushed, committed or closed
        processed += 1
        with open(output, "a") as file:
            file.write(f"{partition} {offset}\n")

def of_message(message):
    note(message.partition, message.offset)

def of_batch(batch):
    for partition, offset in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist()):
        note(partition, offset)

class NotedResults(Results):
    def store(self, batch):
        super().store(batch)
        of_batch(batch)

try:
    %s
except ConsumerTimeout:
    pass
"""

WANTED = {f"{partition} {offset}" for partition in range(4) for offset in range(len(RECORDS) // 4)}


class Crashes:
    """Processes that execute the code of docs/delivery.md and end in the middle of their work."""

    def __init__(self, sandbox, group, topic, directory):
        examples_of_page = "\n".join(examples(ROOT / "docs/delivery.md", "python"))
        self._code = examples_of_page.replace('"clicks"', f'"{topic}"') + CRASHING
        self._where = [sandbox.zookeeper_connect, group]
        self._noted = directory / "noted"
        self.database = directory / "results.sqlite"

    def run(self, call, is_complete=lambda: True):
        """Call it in three processes, of which two crash; how often each record was processed.

        A slow machine may let the timeout of the third one pass too early: then there is another one.
        """
        self._run(call, 50, 9)
        self._run(call, 70, 9)

        def ended():
            self._run(call, -1, 0)
            return is_complete()

        eventually(ended, 120)
        return self.processed()

    def _run(self, call, crash_after, code):
        arguments = [*self._where, str(self._noted), str(crash_after), str(self.database)]
        ended = subprocess.run(
            [sys.executable, "-c", self._code % call, *arguments], check=False, timeout=120, capture_output=True
        )
        assert ended.returncode == code, ended.stderr.decode()

    def processed(self):
        """How often each record was processed up to now."""
        return Counter(self._noted.read_text().splitlines())

    def stored(self):
        """How often each record is in the database."""
        with contextlib.closing(sqlite3.connect(self.database)) as opened:
            return Counter(opened.execute("SELECT partition, offset FROM results"))


@pytest.fixture
def crashes(sandbox, unique_name, topic_factory, produce, tmp_path):
    topic = topic_factory(partitions=4)
    filled(produce, topic)()
    return Crashes(sandbox, unique_name, topic, tmp_path)


@pytest.mark.slow
def test_at_least_once_misses_nothing(crashes):
    processed = crashes.run("at_least_once(config, of_message)", lambda: crashes.processed().keys() >= WANTED)
    assert processed.keys() == WANTED


@pytest.mark.slow
def test_processing_in_a_pool_misses_nothing(crashes):
    """Records that waited for a thread when the process crashed are not committed."""
    processed = crashes.run("in_a_pool(config, of_message)", lambda: crashes.processed().keys() >= WANTED)
    assert processed.keys() == WANTED


@pytest.mark.slow
def test_at_most_once_repeats_nothing(crashes):
    processed = crashes.run("at_most_once(config, of_batch)")
    assert set(processed.values()) == {1}
    assert processed.keys() <= WANTED


@pytest.mark.slow
def test_at_most_once_repeats_nothing_if_a_member_joins(sandbox, unique_name, topic_factory, produce):
    """The new member gets the only partition while the first one holds a batch that it has not committed yet."""
    topic, processed = topic_factory(), []
    produce(topic, [{"key": key, "value": value} for key, value in RECORDS])
    (example,) = [text for text in examples(ROOT / "docs/delivery.md", "python") if "def at_most_once" in text]
    names = {}
    exec(example.replace('"clicks"', f'"{topic}"'), names)

    def consume(consumer_id, connector):
        names["ConsumerConnector"] = connector
        config = ConsumerConfig(
            zookeeper_connect=sandbox.zookeeper_connect,
            group_id=unique_name,
            consumer_id=consumer_id,
            auto_offset_reset="smallest",
            consumer_timeout_ms=10_000,
            rebalance_backoff_ms=600,
            rebalance_max_retries=50,
            zookeeper_session_timeout_ms=30_000,
            zookeeper_connection_timeout_ms=20_000,
        )
        with contextlib.suppress(ConsumerTimeout):
            names["at_most_once"](config, lambda batch: processed.extend(batch["offset"].to_pylist()))

    class Overtaken(ConsumerConnector):
        """Its first commit waits until another member has joined."""

        def commit_offsets(self, *arguments, **options):
            if not others:
                others.append(executor.submit(consume, "a", ConsumerConnector))  # its name is the first, so it gets it
                eventually(lambda: not self.describe().owned and self.describe().generation >= 2)
            super().commit_offsets(*arguments, **options)

    others = []
    with ThreadPoolExecutor(1) as executor:
        consume("b", Overtaken)
        others[0].result()
    assert sorted(processed) == list(range(len(RECORDS)))


@pytest.mark.slow
def test_effectively_once_stores_each_record_once(crashes):
    """Each crash comes after a transaction and before its offsets are committed to the group."""
    crashes.run("effectively_once(config, NotedResults(database))", lambda: len(crashes.stored()) >= len(WANTED))
    stored = crashes.stored()
    assert set(stored.values()) == {1}
    assert {f"{partition} {offset}" for partition, offset in stored} == WANTED
