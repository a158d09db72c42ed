"""RangeReading with stub brokers at real sockets: leaders beyond those that it reads from at a time, silent leaders."""

import threading
from contextlib import closing

import pytest

from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.ranges import decoderpool, rangefetcher, rangereading
from zkconsumer.ranges.decoderpool import DecoderPool
from zkconsumer.ranges.leaderconnections import LeaderConnections
from zkconsumer.ranges.rangereading import RangeReading
from zkconsumer.ranges.rules.spans import Span

PARTITIONS = [TopicPartition("t", number) for number in range(7)]


@pytest.fixture
def connections(stub_broker):
    """Leaders of partitions are different brokers, as far as the reading knows."""
    for partition in PARTITIONS:
        stub_broker.log(partition).write(10, 0)
        stub_broker.log(partition).write(10, 0)
    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g", refresh_leader_backoff_ms=60_000)
    with closing(LeaderConnections(config)) as made:
        made.leaders = {p: Broker(p.partition, "127.0.0.1", stub_broker.port) for p in PARTITIONS}
        yield made


def reading_of(connections, stub_broker, ranges, decoders=None):
    return RangeReading(
        connections,
        ranges,
        [stub_broker.broker],
        {},
        columns=("offset",),
        decoders=decoders or DecoderPool(),
        reader="test",
        fail_on_data_loss=True,
    )


@pytest.fixture
def fetchers(monkeypatch):
    """How many fetchers run whenever one begins."""
    seen = []

    class Fetcher(rangereading.RangeFetcher):
        def run(self):
            seen.append(sum(thread.name.startswith("range-fetcher") for thread in threading.enumerate()))
            super().run()

    monkeypatch.setattr(rangereading, "RangeFetcher", Fetcher)
    return seen


@pytest.fixture
def requested(monkeypatch):
    """Most bytes of each request."""
    seen = []

    class Conversation(rangefetcher.FetchConversation):
        def send(self, partitions, *, max_bytes, **others):
            seen.append(max_bytes)
            super().send(partitions, max_bytes=max_bytes, **others)

    monkeypatch.setattr(rangefetcher, "FetchConversation", Conversation)
    return seen


@pytest.mark.parametrize(("most", "most_bytes"), [(1, 8 << 20), (3, 8 << 20), (16, (32 << 20) // 7)])
def test_few_leaders_are_read_from_at_a_time(
    connections, stub_broker, fetchers, requested, monkeypatch, most, most_bytes
):
    """The next one begins when one has ended, not after the pause between two attempts."""
    monkeypatch.setattr(rangereading, "_MOST_FETCHERS", most)
    with closing(reading_of(connections, stub_broker, dict.fromkeys(PARTITIONS, Span(0, 20)))) as reading:
        assert sum(len(records.offsets) for records in reading.records()) == 20 * len(PARTITIONS)
    assert len(fetchers) == len(PARTITIONS)
    assert max(fetchers) <= most
    assert set(requested) == {most_bytes}
    assert len(connections.idle_since()) == len(PARTITIONS)


@pytest.mark.parametrize("most", [1, 3])
def test_the_decoder_of_an_ended_fetcher_is_used_again(connections, stub_broker, monkeypatch, most):
    made = []

    def make(settings):
        made.append(BatchDecoder(settings))
        return made[-1]

    monkeypatch.setattr(decoderpool, "BatchDecoder", make)
    monkeypatch.setattr(rangereading, "_MOST_FETCHERS", most)
    ranges, decoders, kept = dict.fromkeys(PARTITIONS, Span(0, 20)), DecoderPool(), []
    for _ in range(2):
        with closing(reading_of(connections, stub_broker, ranges, decoders)) as reading:
            kept += reading.records()
    assert sorted(offset for records in kept for offset in records.offsets) == sorted([*range(20)] * 14)
    assert len(made) <= 1 + most, "one more is that of the reading thread"


@pytest.fixture
def silent_leader(stub_broker):
    """Connections with one to a leader that has fallen silent; the brokers name the stub broker as the leader."""
    stub_broker.log(PARTITIONS[0]).write(10, 0)
    config = ConsumerConfig(
        zookeeper_connect="unused:1",
        group_id="g",
        refresh_leader_backoff_ms=10,
        fetch_wait_max_ms=5,
        socket_timeout_ms=300,
    )
    ended = threading.Event()
    with running_stub_broker() as silent, closing(LeaderConnections(config)) as made:
        silent.log(PARTITIONS[0])
        silent.number = 1
        silent.fetching = ended.wait
        made.leaders = {PARTITIONS[0]: silent.broker}
        made.return_connection(silent.broker, made.take_connection(silent.broker))
        made.silent = silent
        try:
            yield made
        finally:
            ended.set()


def read_one_range(connections, stub_broker):
    with closing(reading_of(connections, stub_broker, {PARTITIONS[0]: Span(0, 10)})) as reading:
        return [offset for records in reading.records() for offset in records.offsets]


def test_the_leader_after_a_silent_one_is_read_from(silent_leader, stub_broker):
    assert read_one_range(silent_leader, stub_broker) == [*range(10)]


def test_the_leader_after_a_silent_one_is_read_from_although_an_idle_connection_was_broken(silent_leader, stub_broker):
    """That is no failure of the broker: 1. it is asked again over another connection; 2. it falls silent."""
    fall_silent = silent_leader.silent.fetching
    stub_broker.elsewhere[PARTITIONS[0]] = silent_leader.silent.broker

    def break_first():
        def then():
            del stub_broker.elsewhere[PARTITIONS[0]]
            fall_silent()

        silent_leader.silent.fetching = then
        raise ConnectionError

    silent_leader.silent.fetching = break_first
    assert read_one_range(silent_leader, stub_broker) == [*range(10)]


def test_a_silent_leader_without_another_one_is_an_error_after_a_while(silent_leader, stub_broker):
    stub_broker.leaderless = {PARTITIONS[0]}
    with pytest.raises(BrokerUnavailable, match=r"for 0.3 s: .*last error: brokers name no leader"):
        read_one_range(silent_leader, stub_broker)
    assert len(stub_broker.described) > 3
