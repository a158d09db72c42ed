"""``run``, and the programs of docs/programs.md, on real servers: signals, poison records, rebalances."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from functools import partial

import pytest

from tests.fixtures.documents import ROOT
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, Retry, Whitelist, run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PROGRAMS = pytest.mark.parametrize("program", ["two_threads", "handler"])
PARTITIONS = 4


def spread(first, last):
    return [{"value": b"%d" % number, "partition": number % PARTITIONS} for number in range(first, last)]


@pytest.fixture
def topic(topic_factory):
    return topic_factory(PARTITIONS)


@pytest.fixture
def offsets(zookeeper, unique_name, topic):
    """The committed offsets of the test's group."""

    def read():
        paths = [f"/consumers/{unique_name}/offsets/{topic}/{number}" for number in range(PARTITIONS)]
        return [int(zookeeper.get(path)[0]) if zookeeper.exists(path) else 0 for path in paths]

    return read


@pytest.fixture
def configure(sandbox, unique_name):
    found = {name.replace(".", "_"): value for name, value in sandbox.connection.items()}
    return partial(
        ConsumerConfig,
        **found,
        group_id=unique_name,
        auto_offset_reset="smallest",
        zookeeper_connection_timeout_ms=20_000,
        rebalance_backoff_ms=600,
        rebalance_max_retries=20,
        auto_commit_interval_ms=3_600_000,
    )


@pytest.fixture
def config(configure):
    return configure()


@pytest.fixture
def start(sandbox, topic, unique_name, tmp_path):
    """Start programs of the page; all are killed at the end."""
    properties = tmp_path / "consumer.properties"
    settings = {
        **sandbox.connection,
        "group.id": unique_name,
        "auto.offset.reset": "smallest",
        "zookeeper.connection.timeout.ms": "20000",
        "rebalance.backoff.ms": "600",
        "rebalance.max.retries": "20",
        "auto.commit.interval.ms": "3600000",
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    started = []

    def start(program):
        number = len(started)
        with (tmp_path / f"output{number}").open("wb") as output:
            command = [sys.executable, ROOT / f"examples/{program}.py", properties, topic, tmp_path / "poison"]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            started.append(subprocess.Popen(command, stdout=output, env=environment))
        started[-1].output = tmp_path / f"output{number}"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def printed(*processes):
    return [int(line) for process in processes for line in process.output.read_text().split()]


@PROGRAMS
def test_a_program_ends_by_sigterm_and_has_committed_what_it_handled(start, program, topic, produce, offsets, tmp_path):
    produce(topic, spread(0, 400))
    produce(topic, [{"value": b"poison", "partition": 0}])
    process = start(program)
    poison = tmp_path / "poison"
    eventually(lambda: len(printed(process)) == 400 and poison.exists() and poison.read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert sorted(printed(process)) == list(range(400))
    assert offsets() == [101, 100, 100, 100]
    assert poison.read_text().split()[:3] == [topic, "0", "100"]


@pytest.mark.slow
@PROGRAMS
def test_programs_share_a_topic_and_one_of_them_is_killed(start, program, topic, produce, offsets):
    produce(topic, spread(0, 400))
    first = start(program)
    eventually(lambda: printed(first))
    second = start(program)
    eventually(lambda: set(printed(first, second)) == set(range(400)))
    produce(topic, spread(400, 600))
    eventually(lambda: set(printed(first, second)) == set(range(600)))
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 0
    produce(topic, spread(600, 800))
    eventually(lambda: set(printed(first, second)) == set(range(800)))
    second.send_signal(signal.SIGINT)
    assert second.wait(60) == 0
    assert offsets() == [200] * PARTITIONS


@contextmanager
def stopping_after(count):
    """A handler that notes records, and ends the run by a signal after so many."""
    handled = []

    def handle(message):
        handled.append(message)
        if len(handled) == count:
            os.kill(os.getpid(), signal.SIGTERM)

    yield handle, handled


@pytest.mark.parametrize("ordered_by", ["partition", "key"])
def test_each_record_is_handled_once_and_in_order(config, topic, produce, offsets, ordered_by):
    records = [(b"key%d" % (number % 10), b"%d" % number) for number in range(1000)]
    produce(topic, [{"key": key, "value": value, "partition": int(value) % 4} for key, value in records])
    with stopping_after(1000) as (handle, handled):
        run(handle, config, Whitelist(topic), ordered_by=ordered_by)
    assert sorted(int(message.value) for message in handled) == list(range(1000))
    by_lane = defaultdict(list)
    for message in handled:
        by_lane[message.partition if ordered_by == "partition" else message.key].append(message.offset)
    if ordered_by == "partition":
        assert all(came == sorted(came) for came in by_lane.values())
    assert offsets() == [250] * PARTITIONS


def test_a_poison_record_ends_the_run_and_is_the_first_that_is_read_again(config, topic, produce, offsets):
    produce(topic, [{"value": value, "partition": 0} for value in values(20)])
    calls = []

    def handle(message):
        calls.append(message.offset)
        if message.offset == 7:
            raise ValueError("poison")

    with pytest.raises(ValueError, match="poison"):
        run(handle, config, [topic], retry=Retry(attempts=3, backoff_s=0.01))
    assert calls == [0, 1, 2, 3, 4, 5, 6, 7, 7, 7]
    assert offsets()[0] == 7
    with stopping_after(13) as (handle, handled):
        run(handle, config, [topic])
    assert [message.offset for message in handled] == list(range(7, 20))


@contextmanager
def ending_after(interfere):
    """Call it on another thread, and end the run by a signal afterwards."""

    def act():
        try:
            interfere()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join()


def test_a_rebalance_in_the_middle_loses_nothing(config, topic, produce, connect, offsets):
    """Another member takes half of the partitions while handlers hold records, and leaves again."""
    produce(topic, spread(0, 800))
    handled, lock = set(), threading.Lock()
    others = set()

    def handle(message):
        time.sleep(0.002)
        with lock:
            handled.add(int(message.value))

    def interfere():
        eventually(lambda: len(handled) > 50)
        with connect() as other:
            (stream,) = other.create_message_streams({topic: 1})[topic]
            for _ in range(20):
                others.add(int(next(stream).value))
            stream.release()
        produce(topic, spread(800, 1000))
        eventually(lambda: len(handled | others) == 1000)

    with ending_after(interfere):
        run(handle, config, [topic])
    assert len(handled | others) == 1000
    assert offsets() == [250] * PARTITIONS


@pytest.mark.parametrize(
    ("protocol", "workers"), [("zookeeper", 1), ("zookeeper", 4), ("coordinator", 4), ("kafka", 1)]
)
def test_what_a_rebalance_gives_to_another_member_is_not_handled_here_too(
    configure, sandbox, topic, produce, connect, protocol, workers
):
    """Records wait for handlers when another member joins, and when it takes its share."""
    produce(topic, spread(0, 400))
    handled, lock = [], threading.Lock()
    others = []
    among = {"group_protocol": protocol, "bootstrap_servers": sandbox.bootstrap_servers}

    def handle(message):
        time.sleep(0.01)
        with lock:
            handled.append(int(message.value))

    def interfere():
        eventually(lambda: len(handled) > 20)
        with connect(**among) as other:
            (stream,) = other.create_message_streams({topic: 1})[topic]
            others.extend(int(next(stream).value) for _ in range(100))
            stream.release()
        eventually(lambda: len({*handled, *others}) == 400)

    with ending_after(interfere):
        run(handle, configure(**among), [topic], workers=workers)
    assert sorted([*handled, *others]) == list(range(400))
