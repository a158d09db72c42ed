"""``run``, and the programs of docs/programs.md, on real servers: signals, poison records, rebalances."""

import os
import signal
import threading
import time
from collections import Counter, defaultdict
from contextlib import closing
from functools import partial
from urllib.request import urlopen

import psutil
import pytest
from confluent_kafka import Consumer

from tests.fixtures.brokergroup import leave_in_place_of
from tests.fixtures.consumers import FIRST_OF_BROKER, leave_in_its_name
from tests.fixtures.offsethomes import home_of
from tests.fixtures.pageprograms import (
    PARTITIONS,
    continue_after_a_commit_without_membership,
    end_by_sigterm,
    end_by_sigterm_while_it_joins,
    outlive_the_membership,
    spread,
    starting,
)
from tests.fixtures.running import (
    Handled,
    begin_nothing_while_servers_are_silent,
    end_before_a_record_that_fails,
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
PROTOCOLS = pytest.mark.parametrize(
    "protocol", ["zookeeper", pytest.param("coordinator", marks=pytest.mark.slow), "kafka"]
)
"""That of Kafka 4 is in test_consumergroup.py."""


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
def configure_in(configure, sandbox, protocol):
    """Configurations of a group with the protocol of the test."""
    return partial(configure, group_protocol=protocol, bootstrap_servers=sandbox.bootstrap_servers)


@pytest.fixture
def config(configure):
    return configure()


@pytest.fixture
def start(sandbox, topic, unique_name, tmp_path):
    with starting(sandbox.connection, unique_name, topic, tmp_path) as start:
        yield start


@pytest.fixture
def protocol():
    """For fixtures of tests without this parameter."""
    return "zookeeper"


@pytest.fixture
def home(protocol, zookeeper, sandbox, unique_name):
    """The members and offsets of the test's group."""
    return home_of(protocol, zookeeper, sandbox.bootstrap_servers, unique_name)


@pytest.fixture
def start_in(sandbox, topic, unique_name, tmp_path, protocol):
    """Start programs in a group with the protocol of the test: ``start_in(**properties)``."""
    found = {} if protocol == "kafka" else sandbox.connection
    found = {**found, "bootstrap.servers": sandbox.bootstrap_servers, "group.protocol": protocol}
    return partial(starting, found, unique_name, topic, tmp_path)


def printed(*processes):
    return [number for process in processes for number in process.printed()]


@PROTOCOLS
@PROGRAMS
def test_a_program_ends_by_sigterm_and_has_committed_what_it_handled(start_in, program, topic, produce, home):
    with start_in() as start:
        end_by_sigterm(start, program, topic, produce, home)


@pytest.mark.parametrize(
    ("protocol", "timeout_ms"),
    [
        ("zookeeper", 2000),
        pytest.param("coordinator", 2000, marks=pytest.mark.slow),
        pytest.param("kafka", 6000, marks=pytest.mark.slow),  # brokers refuse shorter ones
    ],
)
@PROGRAMS
def test_a_program_outlives_its_membership(start_in, program, topic, produce, home, timeout_ms):
    timeouts = {"session.timeout.ms": str(timeout_ms), "zookeeper.session.timeout.ms": str(timeout_ms)}
    with start_in(**{**timeouts, "heartbeat.interval.ms": "1000", "auto.commit.interval.ms": "200"}) as start:
        outlive_the_membership(start, program, topic, produce, home)


@pytest.mark.parametrize("protocol", ["zookeeper", "kafka"])
def test_a_commit_without_membership_is_made_up_for_by_the_next_one(
    start_in, sandbox, unique_name, topic, produce, home, protocol
):
    def remove(member):
        if protocol == "kafka":
            leave_in_place_of(sandbox.bootstrap_servers, unique_name, member)
        eventually(lambda: not home.members())

    timeouts = {"session.timeout.ms": "45000", "zookeeper.session.timeout.ms": "2000"}
    with start_in(**timeouts, **{"heartbeat.interval.ms": "15000"}) as start:
        continue_after_a_commit_without_membership(start, topic, produce, home, remove)


def test_a_program_ends_by_sigterm_while_its_partitions_are_owned(start, zookeeper, topic, home, unique_name):
    """Its attempts fail, and it tries again, until SIGTERM."""
    owner = f"/consumers/{unique_name}/owners/{topic}/0"
    zookeeper.create(owner, b"other_host-1-1-0", ephemeral=True, makepath=True)
    end_by_sigterm_while_it_joins(start, home.members)
    assert home.members() == []
    assert zookeeper.get_children(f"/consumers/{unique_name}/owners/{topic}") == ["0"]


@pytest.mark.parametrize("protocol", ["kafka"])
def test_a_program_ends_by_sigterm_while_a_rebalance_waits_for_another_member(
    start_in, sandbox, topic, home, unique_name
):
    """The coordinator answers its JoinGroup only when the other member, which does not poll, joins again."""
    other = Consumer(
        {
            "bootstrap.servers": sandbox.bootstrap_servers,
            "group.id": unique_name,
            "partition.assignment.strategy": "cooperative-sticky",
            "log_level": 3,
        }
    )
    with closing(other), start_in() as start:
        other.subscribe([topic])
        eventually(lambda: other.poll(0.05) or other.assignment())
        end_by_sigterm_while_it_joins(start, lambda: len(home.members()) == 2)
        eventually(lambda: len(home.members()) == 1)


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


def test_by_key_what_is_handled_after_a_record_that_waits_is_handled_again(config, topic, produce, offsets):
    produce(topic, [{"key": b"b" if number else b"a", "value": b"%d" % number, "partition": 0} for number in range(6)])
    handled = []

    def handle(message):
        if message.key == b"a":
            raise ValueError("not yet")
        handled.append(message.offset)
        if len(handled) == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    run(handle, config, [topic], ordered_by="key", retry=Retry(backoff_s=60, limit_s=60))
    assert handled == [1, 2, 3, 4, 5]
    assert offsets()[0] == 0
    again = Handled(0)
    with ending_after(lambda: eventually(lambda: len(again.numbers) == 6)):
        run(again, config, [topic], ordered_by="key")
    assert sorted(again.numbers) == [0, 1, 2, 3, 4, 5]
    assert offsets()[0] == 6


@PROTOCOLS
def test_a_poison_record_ends_the_run_and_is_the_first_that_is_read_again(configure_in, topic, produce, home):
    end_before_a_record_that_fails(configure_in(), topic, produce, home)


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
    ("protocol", "workers", "ordered_by"),
    [
        ("zookeeper", 1, "partition"),
        ("zookeeper", 4, "partition"),
        ("zookeeper", 4, "key"),
        ("coordinator", 4, "partition"),
        ("kafka", 1, "partition"),
        pytest.param("coordinator", 4, "key", marks=pytest.mark.slow),
        pytest.param("kafka", 4, "key", marks=pytest.mark.slow),
    ],
)
def test_what_a_rebalance_gives_to_another_member_is_not_handled_here_too(
    configure_in, sandbox, topic, produce, connect, protocol, workers, ordered_by
):
    other = partial(connect, group_protocol=protocol, bootstrap_servers=sandbox.bootstrap_servers)
    hand_over_each_record_once(configure_in(), topic, produce, other, workers=workers, ordered_by=ordered_by)


@pytest.mark.parametrize(
    ("protocol", "ordered_by"),
    [
        *((name, "partition") for name in ("zookeeper", "coordinator", "kafka")),
        ("zookeeper", "key"),
        pytest.param("coordinator", "key", marks=pytest.mark.slow),
        pytest.param("kafka", "key", marks=pytest.mark.slow),
    ],
)
def test_a_membership_that_is_lost_in_the_middle_loses_no_record(
    configure_in, sandbox, topic, produce, protocol, ordered_by
):
    lose = partial(leave_in_its_name, sandbox.bootstrap_servers) if protocol == "kafka" else expire
    lose_nothing_when_the_membership_is_lost(configure_in(), topic, produce, lose, ordered_by=ordered_by)


@pytest.mark.parametrize("protocol", ["zookeeper", pytest.param("coordinator", marks=pytest.mark.slow)])
def test_run_begins_nothing_while_zookeeper_is_silent(configure_in, start_zookeeper, topic, produce):
    server = start_zookeeper()
    config = configure_in(zookeeper_connect=server.address, zookeeper_session_timeout_ms=2000)
    begin_nothing_while_servers_are_silent(config, topic, produce, server.pause, server.resume)


@pytest.mark.slow
def test_run_begins_nothing_while_its_broker_is_silent(private_sandbox, unique_name):
    box = private_sandbox(kafka_version="4.2.0", zookeepers=0)
    config = ConsumerConfig(
        group_protocol="kafka",
        bootstrap_servers=box.bootstrap_servers,
        group_id=unique_name,
        auto_offset_reset="smallest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        **FIRST_OF_BROKER,
    )
    topic = Topics(box.bootstrap_servers).create(unique_name, PARTITIONS)
    produce = partial(produce_records, box.bootstrap_servers)
    (broker,) = box.brokers
    begin_nothing_while_servers_are_silent(config, topic, produce, broker.pause, broker.resume)


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
