"""RangeReading with more leaders than it reads from at a time; one broker at a real socket plays all of them."""

import threading
from contextlib import closing

import pytest

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.ranges import rangefetcher, rangereading
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
    reading = RangeReading(
        connections,
        dict.fromkeys(PARTITIONS, Span(0, 20)),
        [stub_broker.broker],
        {},
        columns=("offset",),
        decoders=DecoderPool(),
        reader="test",
        fail_on_data_loss=True,
    )
    with closing(reading):
        assert sum(len(records.offsets) for records in reading.records()) == 20 * len(PARTITIONS)
    assert len(fetchers) == len(PARTITIONS)
    assert max(fetchers) <= most
    assert set(requested) == {most_bytes}
    assert len(connections.idle_since()) == len(PARTITIONS)
