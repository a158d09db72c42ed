"""Groups of a fleet that move to Kafka and back, round after round, with tools that are killed at random moments.

`python -m tests.rounds run fleet` makes 50 rounds, `fleet-200` one of 200 groups. Here two are made, in about 50 s.
"""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer

from tests.fixtures.rounds import groups_of_a_fleet, report, rounds
from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout, GroupMigrated
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress

pytestmark = pytest.mark.interop

PARTITIONS, TAKEN, AT_A_TIME = 2, 4, 10
SESSION = ("-p", "zookeeper.session.timeout.ms=2000")
"""A tool that is killed holds its groups until its session ends."""


@pytest.fixture(scope="module")
def box():
    with Sandbox(progress=Progress()) as started:
        yield started


class Ledger:
    """Which offsets the consumers of each store were handed out, by group and partition."""

    def __init__(self):
        self.in_zookeeper, self.in_kafka = Counter(), Counter()

    def figures(self):
        everyone = set(self.in_zookeeper) | set(self.in_kafka)
        read_to = {}
        for group, partition, offset in everyone:
            read_to[group, partition] = max(read_to.get((group, partition), 0), offset + 1)
        return {
            "records": len(everyone),
            "lost": sum(end for end in read_to.values()) - len(everyone),
            "by_both": len(set(self.in_zookeeper) & set(self.in_kafka)),
            "twice": sum(count - 1 for counter in (self.in_zookeeper, self.in_kafka) for count in counter.values()),
        }


def consume_in_zookeeper(box, ledger, group, topic):
    """One of our members takes some records of each partition, commits and leaves."""
    config = ConsumerConfig(
        zookeeper_connect=box.zookeeper_connect,
        group_id=group,
        auto_offset_reset="smallest",
        auto_commit_enable=False,
        consumer_timeout_ms=20_000,
        zookeeper_session_timeout_ms=6000,
    )
    with ConsumerConnector(config) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        taken = 0
        try:
            for message in stream:
                ledger.in_zookeeper[group, message.partition, message.offset] += 1
                taken += 1
                if taken == TAKEN * PARTITIONS:
                    break
        except ConsumerTimeout:
            raise AssertionError(f"{group} got {taken} records") from None
        connector.commit_offsets()


def consume_in_kafka(box, ledger, group, topic):
    """One member of confluent-kafka does the same."""
    settings = {
        "bootstrap.servers": box.bootstrap_servers,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",  # the migration has stored where to begin
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        taken, ends = 0, time.monotonic() + 60
        while taken < TAKEN * PARTITIONS:
            message = consumer.poll(0.2)
            assert time.monotonic() < ends, f"{group} got {taken} records"
            if message is None:
                continue
            assert not message.error(), message.error()
            ledger.in_kafka[group, message.partition(), message.offset()] += 1
            taken += 1
            consumer.commit(message=message, asynchronous=False)


@contextmanager
def producing(box, topic):
    """Records arrive all the time; about 200 a second, of which each group reads what it takes."""
    ended = threading.Event()

    def produce():
        while not ended.wait(0.1):
            produce_records(box.bootstrap_servers, topic, [{"value": b"v", "partition": n} for n in (0, 1)] * 10)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def start_too_early(box, group, topic):
    """An old member that is started after the migration is refused."""
    config = ConsumerConfig(zookeeper_connect=box.zookeeper_connect, group_id=group)
    with ConsumerConnector(config) as connector, pytest.raises(GroupMigrated):
        connector.create_message_streams({topic: 1})


class Tool:
    """``migrate fleet`` on a directory, in processes that may be killed.

    Attributes:
        kills: how many were.
    """

    def __init__(self, directory, chance):
        self._directory, self._chance = directory, chance
        self._took = {}  # seconds of each command that completed
        self.kills = 0

    def killed(self, verb, *words):
        """Begin it, kill it at a random moment of the time that it takes, until it has completed."""
        for _ in range(2):
            process = self._start(verb, *words)
            try:
                process.wait(self._chance.uniform(0.3, self._took.get(verb, 2.0)))
            except subprocess.TimeoutExpired:
                process.kill()
                self.kills += 1
            process.wait()

        def complete():
            began = time.monotonic()
            if self._start(verb, *words).wait() != 0:
                return False
            self._took[verb] = time.monotonic() - began
            return True

        eventually(complete, 120)

    def run(self, verb, *words):
        assert self._start(verb, *words).wait() == 0

    def _start(self, verb, *words):
        line = [sys.executable, "-m", "zkconsumer", "migrate", "fleet", verb, str(self._directory), *words, *SESSION]
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.timeout(600 + 60 * rounds(2))
def test_a_fleet_moves_there_and_back_with_killed_tools(box, unique_name, tmp_path):
    count, chance = rounds(2), random.Random(rounds(2))
    topic = Topics(box.bootstrap_servers).create(f"{unique_name}-t", PARTITIONS)
    groups = [f"{unique_name}-{number}" for number in range(groups_of_a_fleet(10))]
    ledger, tool = Ledger(), Tool(tmp_path / "fleet", chance)
    wave = ("--wave", "1", "--execute")
    with ThreadPoolExecutor(AT_A_TIME) as pool, producing(box, topic):

        def everyone(consume):
            list(pool.map(lambda group: consume(box, ledger, group, topic), groups))

        everyone(consume_in_zookeeper)
        options = ("--match", f"{unique_name}-.*", "--zookeeper", box.zookeeper_connect)
        tool.run("init", *options)
        file = tmp_path / "fleet" / "cluster.toml"
        file.write_text(file.read_text().replace("wave = 0", "wave = 1").replace('window = ""', 'missing = "earliest"'))
        for number in range(count):
            tool.killed("plan", "--wave", "1")
            tool.killed("run", *wave)
            if number % 3 == 1:  # the migration is undone before new consumers start
                tool.killed("rollback", *wave)
                everyone(consume_in_zookeeper)
                tool.killed("plan", "--wave", "1")
                tool.killed("run", *wave)
            start_too_early(box, chance.choice(groups), topic)
            everyone(consume_in_kafka)
            tool.killed("mirror", "--interval", "1s", "--for", "2s", *wave)
            tool.killed("reverse", *wave)
            everyone(consume_in_zookeeper)
    figures = ledger.figures()
    report(**figures, kills=tool.kills)
    assert {name: figures[name] for name in ("lost", "by_both", "twice")} == {"lost": 0, "by_both": 0, "twice": 0}
