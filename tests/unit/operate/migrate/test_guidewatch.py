"""The tail of the topic of offsets, with a scripted broker."""

from contextlib import closing
from types import SimpleNamespace

import pytest

from tests.fixtures.batches import build
from tests.fixtures.stubbroker import EPOCH_VERSIONS, running_stub_broker
from zkconsumer import ConsumerConfig
from zkconsumer.connector.simpleconsumer import SimpleConsumer
from zkconsumer.errors import ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC
from zkconsumer.operate.migrate.guidewatch import CommitTail, GroupWatch, watch_group
from zkconsumer.operate.migrate.rules.guidance import Evidence, WatchedPartition
from zkconsumer.sandbox.producer import Record

P0 = TopicPartition(OFFSETS_TOPIC, 0)
COMMIT = Record(None, bytes.fromhex("0001 0001 67 0001 74 00000002"))
"""Of group g, which deletes its offset of t-2."""


@pytest.fixture
def log():
    """The only partition of the topic, which holds a commit at each of the offsets 0 to 19."""
    with running_stub_broker() as stub:
        stub.versions = EPOCH_VERSIONS
        log = stub.log(P0)
        log.batches, log.end = {base: build([COMMIT] * 10, offset=base) for base in (0, 10)}, 20
        log.broker = stub.broker
        yield log


def cluster_of(log, **more):
    config = more.pop("config", ConsumerConfig.without_group(bootstrap_servers="localhost:1"))
    return SimpleNamespace(config=config, offsets_topic_leaders=lambda: {P0: log.broker}, **more)


def tail_of(log, **properties):
    config = ConsumerConfig.without_group(bootstrap_servers="localhost:1", **properties)
    return CommitTail(cluster_of(log, config=config), "g")


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_tail_begins_after_an_open_transaction(log, isolation):
    """Otherwise it would take what is stored already for new commits, and miss new ones until that transaction ends."""
    log.stable = 10
    with closing(tail_of(log, isolation_level=isolation)) as tail:
        assert tail.read() == []
        log.batches[20], log.end = build([COMMIT], offset=20), 21
        assert len(tail.read()) == 1


@pytest.mark.parametrize(
    ("begin", "end", "before", "after"),
    [
        pytest.param(0, 10, 0, 1, id="the log was truncated, and old commits are no new ones"),
        pytest.param(30, 40, 10, 1, id="commits were deleted before they were read"),
    ],
)
def test_a_tail_out_of_range_continues_at_the_nearest_end(log, begin, end, before, after):
    with closing(tail_of(log)) as tail:
        log.batches = {base: build([COMMIT] * 10, offset=base) for base in range(begin, end, 10)}
        log.begin, log.end = begin, end
        assert len(tail.read()) == before
        log.batches[end], log.end = build([COMMIT], offset=end), end + 1
        assert len(tail.read()) == after


def test_a_watch_that_cannot_begin_closes_its_connection(log, monkeypatch):
    """1. The tail is connected; 2. the coordinator refuses to show the group's offsets."""
    closed = []

    def close(consumer, close=SimpleConsumer.close):
        closed.append(consumer)
        close(consumer)

    def committed(*_):
        raise ProtocolError("no ACL")

    monkeypatch.setattr(SimpleConsumer, "close", close)
    cluster = cluster_of(log, committed=committed)
    with pytest.raises(ProtocolError):
        GroupWatch(SimpleNamespace(get_many=lambda _: {}), cluster, "g", [])
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("in_kafka", "evidence"),
    [((90, 100), Evidence.PROVEN), ((90, 90), Evidence.CONTRADICTED), ((100,), Evidence.PROVEN)],
)
def test_a_watch_that_is_over_looks_once_more_at_a_znode_that_is_ahead(in_kafka, evidence):
    """A member of zkconsumer writes the znode first, and its commit to Kafka is under way."""
    looks = [
        WatchedPartition(TopicPartition("t", 0), "m-0", 100, True, offset, (80, 90), former_znode=former)
        for offset, former in zip(in_kafka, (90, 100), strict=False)
    ]
    left, clock = iter(looks), iter([0.0, 0.0, 1.0])
    (seen,) = watch_group(SimpleNamespace(look=lambda: [next(left)]), 0.0, clock=lambda: next(clock))
    assert (seen.evidence, list(left)) == (evidence, [])


def test_a_second_is_left_for_a_commit_that_is_under_way():
    """Commits of other groups end each look at once."""
    times = iter([0.0, 0.0, 0.01, 0.02, 0.03])
    looks = [(90, 90), (90, 100), (90, 100), (100, 100)]
    left = (
        [WatchedPartition(TopicPartition("t", 0), "m-0", 100, True, offset, (80, 90), former_znode=former)]
        for offset, former in looks
    )
    (seen,) = watch_group(SimpleNamespace(look=lambda: next(left)), 0.0, clock=lambda: next(times))
    assert (seen.evidence, list(left)) == (Evidence.PROVEN, [])
