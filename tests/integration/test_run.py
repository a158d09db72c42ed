"""``run``, and the programs of docs/programs.md, on real servers: signals, poison records, rebalances."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from functools import partial
from urllib.request import urlopen

import psutil
import pytest

from tests.fixtures.consumers import leave_in_its_name
from tests.fixtures.documents import ROOT
from tests.fixtures.running import (
    ending_after,
    hand_over_each_record_once,
    lose_nothing_when_the_membership_is_lost,
)
from tests.fixtures.sandbox import Topics, produce_records, values
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected, expire
from zkconsumer import ConsumerConfig, Retry, Whitelist, run
from zkconsumer.sandbox.ports import free_port

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


@contextmanager
def starting(connection, group, topic, directory, **more):
    """Start programs of the page; all are killed at the end."""
    properties = directory / "consumer.properties"
    settings = {
        **connection,
        "group.id": group,
        "auto.offset.reset": "smallest",
        "zookeeper.connection.timeout.ms": "20000",
        "rebalance.backoff.ms": "600",
        "rebalance.max.retries": "20",
        "auto.commit.interval.ms": "3600000",
        **more,
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    started = []

    def start(program):
        number = len(started)
        with (directory / f"output{number}").open("wb") as output, (directory / f"log{number}").open("wb") as log:
            command = [sys.executable, ROOT / f"examples/{program}.py", properties, topic, directory / "poison"]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            started.append(subprocess.Popen(command, stdout=output, stderr=log, env=environment))
        started[-1].output, started[-1].log = directory / f"output{number}", directory / f"log{number}"
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture
def start(sandbox, topic, unique_name, tmp_path):
    with starting(sandbox.connection, unique_name, topic, tmp_path) as start:
        yield start


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
    first.kill()
    produce(topic, spread(600, 800))
    eventually(lambda: set(printed(first, second)) == set(range(800)))
    second.send_signal(signal.SIGINT)
    assert second.wait(60) == 0
    assert offsets() == [200] * PARTITIONS


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["zookeeper", "coordinator"])
def test_a_commit_that_fails_is_made_up_for_by_the_next_one(private_sandbox, unique_name, tmp_path, protocol):
    """1. ZooKeeper stops, and the 100th record of a thread is handled; 2. its commit fails; 3. ZooKeeper continues."""
    box = private_sandbox()
    with connected(box.zookeeper_connect) as zookeeper:
        topic = Topics(box.bootstrap_servers).create(unique_name, PARTITIONS)
        more = {"group.protocol": protocol}
        with starting(box.connection, unique_name, topic, tmp_path, **more) as start:
            program = start("two_threads")
            produce_records(box.bootstrap_servers, topic, spread(0, 180))
            eventually(lambda: len(printed(program)) == 180)
            box.zookeeper.pause()
            produce_records(box.bootstrap_servers, topic, spread(180, 260))
            eventually(lambda: "not committed, the next commit covers it" in program.log.read_text())
            box.zookeeper.resume()
            produce_records(box.bootstrap_servers, topic, spread(260, 600))
            eventually(lambda: {*printed(program)} == {*range(600)})
            program.send_signal(signal.SIGTERM)
            assert program.wait(60) == 0, program.log.read_text()
        paths = [f"/consumers/{unique_name}/offsets/{topic}/{number}" for number in range(PARTITIONS)]
        assert [int(zookeeper.get(path)[0]) for path in paths] == [150] * PARTITIONS


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
    lock, running, most, together = threading.Lock(), Counter(), [], []
    by_lane = defaultdict(list)

    def handle(message):
        lane = message.partition if ordered_by == "partition" else (message.partition, message.key)
        with lock:
            running[lane] += 1
            most.append(running.total())
            together.append(running[lane] > 1)
            by_lane[lane].append(message.offset)
        time.sleep(0.0005)
        with lock:
            running[lane] -= 1
            if len(most) == 1000 and not running.total():
                os.kill(os.getpid(), signal.SIGTERM)

    run(handle, config, Whitelist(topic), workers=3, ordered_by=ordered_by)
    assert sum(map(len, by_lane.values())) == 1000
    assert all(came == sorted(set(came)) for came in by_lane.values())
    assert not any(together), "two records of one partition or key were handled at once"
    assert max(most) == 3, "as many as there are workers, and no more"
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
    among = {"group_protocol": protocol, "bootstrap_servers": sandbox.bootstrap_servers}
    hand_over_each_record_once(configure(**among), topic, produce, partial(connect, **among), workers=workers)


@pytest.mark.parametrize("protocol", ["zookeeper", "coordinator", "kafka"])
def test_a_membership_that_is_lost_in_the_middle_loses_no_record(configure, sandbox, topic, produce, protocol):
    config = configure(group_protocol=protocol, bootstrap_servers=sandbox.bootstrap_servers)

    leave = partial(leave_in_its_name, sandbox.bootstrap_servers)
    lose_nothing_when_the_membership_is_lost(config, topic, produce, leave if protocol == "kafka" else expire)


def test_a_dead_letter_that_fails_ends_the_run_before_its_record(config, topic, produce, offsets):
    produce(topic, [{"value": value, "partition": 0} for value in values(20)])

    def handle(message):
        if message.offset == 7:
            raise ValueError("poison")

    def dead_letter(message, error):
        raise OSError("disk is full") from error

    with pytest.raises(OSError, match="disk is full"):
        run(handle, config, [topic], retry=Retry(unless=(ValueError,)), dead_letter=dead_letter)
    assert offsets()[0] == 7


def listening():
    """The ports on which this process takes connections."""
    connections = psutil.Process().net_connections(kind="tcp")
    return {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize("has_metrics", [True, False])
def test_metrics_are_served_as_the_properties_say_and_no_other_port_is_opened(configure, topic, produce, has_metrics):
    produce(topic, values(1))
    port, before, pages = free_port(), listening(), []

    def handle(_):
        if has_metrics:
            pages.append(urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read())
        assert listening() - before == ({port} if has_metrics else set())
        os.kill(os.getpid(), signal.SIGTERM)

    run(handle, configure(metrics_port=port) if has_metrics else configure(), [topic], retry=Retry(attempts=1))
    assert all(b"zkconsumer_delivering" in page for page in pages)
