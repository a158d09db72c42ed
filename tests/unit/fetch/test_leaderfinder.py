import logging
from contextlib import closing, nullcontext

import pytest

from tests.fixtures.chunks import make_info, make_queue
from tests.fixtures.stubbroker import running_stub_broker
from tests.fixtures.threads import threads_refused
from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ThreadLimit, TopicUnreadable
from zkconsumer.fetch.leaderfinder import LeaderFinder, fetcher_number, join_until
from zkconsumer.fetch.localfetchcontrol import LocalFetchControl
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connectionpool import ConnectionPool
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.rules.denials import PATIENCE

UNSUPPORTED_COMPRESSION_TYPE = 76


@pytest.mark.parametrize(
    ("fetchers", "topic", "partition", "number"),
    [(3, "t8", 0, 1), (3, "t8", 7, 2), (3, "orders", 2, 0), (4, "t8", 7, 3), (4, "page-views", 1, 1), (8, "t8", 0, 4)],
)
def test_partitions_go_to_the_same_fetchers_as_in_the_jvm(fetchers, topic, partition, number):
    """Check values observed on the JVM (jvm-consumer.md#threads)."""
    assert fetcher_number(TopicPartition(topic, partition), fetchers) == number


class Hanging:
    """A thread that does not end; waiting for it advances the clock."""

    name = "hanging"

    def __init__(self, clock):
        self._clock = clock

    def join(self, timeout):
        self._clock.now += timeout

    def is_alive(self):
        return True


class Ending(Hanging):
    name = "ending"

    def join(self, timeout):
        self._clock.now += min(timeout, 0.1)

    def is_alive(self):
        return False


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_threads_that_hang_share_one_deadline():
    clock = Clock()
    threads = [Hanging(clock), Ending(clock), Hanging(clock), Hanging(clock)]
    assert join_until(clock.now + 5, threads, clock) == ["hanging"] * 3
    assert clock.now == 105


@pytest.fixture
def stub():
    with running_stub_broker() as stub:
        yield stub


@pytest.fixture
def find(stub):
    """Look for the leaders of partitions, and fetch them, until the test ends."""
    started = []

    def start(*infos, **settings):
        config = ConsumerConfig(group_id="g", zookeeper_connect="unused:1", refresh_leader_backoff_ms=1, **settings)
        finder = LeaderFinder("g_c", config, lambda: [stub.broker])
        finder.add(infos)
        finder.start()
        started.append(finder)
        return finder

    yield start
    for finder in started:
        finder.close()
        assert finder.join_all(30) == []


def test_a_refusal_is_raised_once_after_a_few_attempts(stub, find, caplog):
    caplog.set_level(logging.INFO)
    queue = make_queue()
    refused, served = make_info(queue, 0), make_info(queue, 0, topic="u")
    for info in (refused, served):
        stub.log(info.partition)
    stub.fetch_errors[refused.partition] = UNSUPPORTED_COMPRESSION_TYPE
    find(refused, served)

    def lines(text):
        return [record for record in caplog.records if text in record.getMessage()]

    for attempt in (1, 2):
        with pytest.raises(
            TopicUnreadable, match=r"topic t cannot be read: broker 0 .*UnsupportedCompressionType.*check"
        ):
            queue.request(60)
        assert refused.denials >= PATIENCE
        seen = refused.denials
        eventually(lambda seen=seen: refused.denials > seen)
        assert queue.request(0) is None
        assert served.readable
        del stub.fetch_errors[refused.partition]
        eventually(lambda: refused.readable)
        eventually(lambda attempt=attempt: len(lines("topic t can be read again")) == attempt)
        stub.fetch_errors[refused.partition] = UNSUPPORTED_COMPRESSION_TYPE
    assert len(lines("topic t can be read again")) == 2
    assert len(lines("topic t cannot be read")) in (2, 3)  # the last one may be refused again


@pytest.mark.parametrize("refused", ["-leader-finder-thread", "ConsumerFetcherThread"])
def test_a_thread_that_cannot_start_is_tried_again(stub, refused, caplog):
    """As the rebalance thread does it; partitions wait, and are fetched once there may be another thread."""
    queue = make_queue()
    partition, thread = TopicPartition("t", 0), ConsumerThreadId("g_c", 0)
    stub.log(partition)
    config = ConsumerConfig(group_id="g", zookeeper_connect="unused:1", refresh_leader_backoff_ms=1)
    control = LocalFetchControl("g_c", config, lambda: [stub.broker], lambda topic, thread: queue)
    assignment = FetchAssignment(1, {partition: AssignedPartition(thread, 0)})
    with threads_refused(lambda name: refused in name) as seen:
        with pytest.raises(ThreadLimit, match="pids") if "finder" in refused else nullcontext():
            control.start(assignment)
        eventually(lambda: seen.refused)
    if "finder" in refused:
        control.stop()  # as the next attempt does
        assert control.positions(handed_out=True) == {}
        control.start(assignment)
    else:
        eventually(lambda: "ConsumerFetcherThread" in caplog.text)
    try:
        eventually(lambda: control._infos[partition].readable)
    finally:
        control.stop()
    assert "did not end" not in caplog.text


def test_a_finder_that_cannot_start_leaves_no_connection_open(stub):
    """The last client of a pool closes its connections; one that never ran must not count."""
    pool, assigned = ConnectionPool(), AssignedPartition(ConsumerThreadId("g_c", 0), 0)
    config = ConsumerConfig(group_id="g", zookeeper_connect="unused:1")
    control = LocalFetchControl("g_c", config, lambda: [stub.broker], lambda topic, thread: make_queue(), pool)
    with closing(BrokerClient.from_config(lambda: [stub.broker], config, pool=pool)) as client:
        client.metadata(set())
        with threads_refused(lambda name: "finder" in name), pytest.raises(ThreadLimit):
            control.start(FetchAssignment(1, {TopicPartition("t", 0): assigned}))
    assert not pool.has((stub.broker.host, stub.broker.port))


def test_a_partition_that_is_gained_again_during_the_look_up_is_fetched(stub):
    """1. Its leader is looked up; 2. it is released, and gained again; 3. the answer for the former one arrives."""
    queue = make_queue()
    partition, assigned = TopicPartition("t", 0), AssignedPartition(ConsumerThreadId("g_c", 0), 0)
    stub.log(partition)
    looked_up = []

    def live_brokers():
        looked_up.append(1)
        if len(looked_up) == 1:
            control.release([partition])
            control.start(FetchAssignment(2, {partition: assigned}))
        return [stub.broker]

    config = ConsumerConfig(group_id="g", zookeeper_connect="unused:1", refresh_leader_backoff_ms=1)
    control = LocalFetchControl("g_c", config, live_brokers, lambda topic, thread: queue)
    control.start(FetchAssignment(1, {partition: assigned}))
    try:
        eventually(lambda: control._infos[partition].generation == 2 and control._infos[partition].readable)
    finally:
        control.stop()


def test_a_refused_fetcher_keeps_no_partition_of_another_broker_waiting(stub, find):
    """Each broker has its own fetchers, and one of them may run already."""
    queue = make_queue()
    infos = [make_info(queue, topic=topic) for topic in ("t", "u")]
    numbers = {info.partition: fetcher_number(info.partition, 4) for info in infos}
    assert len(set(numbers.values())) == 2
    for info in infos:
        stub.log(info.partition)
    first = f"-{numbers[infos[0].partition]}-{stub.broker.id}"
    with threads_refused(lambda name: name.startswith("ConsumerFetcherThread") and name.endswith(first)):
        find(*infos, num_consumer_fetchers=4)
        eventually(lambda: infos[1].readable)
        assert not infos[0].readable
    eventually(lambda: infos[0].readable)


def test_a_partition_that_is_gained_later_goes_to_the_leader_that_is_known(stub, find):
    first, second = (make_info(make_queue(), number) for number in (0, 1))
    for info in (first, second):
        stub.log(info.partition)
    finder = find(first)
    eventually(lambda: first.readable)
    finder.add([second])
    eventually(lambda: second.readable)
    assert len(stub.described) == 1


def test_a_leader_is_looked_up_again_for_a_partition_that_comes_back(stub, find):
    """1. The leader that is known refuses a partition; 2. brokers name the present one."""
    first, second = (make_info(make_queue(), number) for number in (0, 1))
    for info in (first, second):
        stub.log(info.partition)
    finder = find(first)
    eventually(lambda: first.readable)
    stub.fetch_errors[second.partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    finder.add([second])
    eventually(lambda: len(stub.described) > 1)
    del stub.fetch_errors[second.partition]
    eventually(lambda: second.readable)
