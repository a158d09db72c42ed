"""The closest replica (KIP-392) in readings of ranges: a leader and a follower that a test scripts."""

from contextlib import ExitStack, closing

import pytest

from tests.fixtures.stubbroker import EPOCH_VERSIONS, running_stub_broker
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import OffsetOutOfRange
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.ranges import rangefetcher
from zkconsumer.ranges.decoderpool import DecoderPool
from zkconsumer.ranges.leaderconnections import LeaderConnections
from zkconsumer.ranges.rangereading import RangeReading
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.wire.errorcodes import ErrorCode

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Cluster:
    """A leader that names a follower, and the connections of an executor in the rack of that follower."""

    def __init__(self, stack):
        self.leader, self.follower = (stack.enter_context(running_stub_broker()) for _ in range(2))
        self.follower.number = 1
        for stub in (self.leader, self.follower):
            stub.versions = dict(EPOCH_VERSIONS)
            for partition in (T0, T1):
                stub.log(partition).write(10, 0)
        self.leader.others = [self.follower.broker]
        self.leader.named = {T0: 1, T1: 1}
        self.follower.leaderless = {T0, T1}  # it answers no question about the log
        self.connections = {}
        self.stack = stack

    def read(self, spans, *, rack="r1", epochs=None):
        config = ConsumerConfig(
            group_id="g",
            zookeeper_connect="unused:1",
            refresh_leader_backoff_ms=1,
            fetch_wait_max_ms=5,
            socket_timeout_ms=20_000,
            client_rack=rack,
        )
        if rack not in self.connections:
            self.connections[rack] = self.stack.enter_context(closing(LeaderConnections(config)))
        reading = RangeReading(
            self.connections[rack],
            spans,
            [self.leader.broker],
            epochs or {},
            columns=("offset", "value"),
            decoders=DecoderPool(),
            reader="test",
            fail_on_data_loss=True,
        )
        with closing(reading):
            return sorted(offset for records in reading.records() for offset in records.offsets)

    def sent_by_leader(self):
        """Numbers of Fetch requests to the leader without a rack: those that it had to answer itself."""
        return self.leader.racks.count("")


@pytest.fixture
def cluster():
    with ExitStack() as stack:
        yield Cluster(stack)


def test_a_range_is_read_from_the_follower_that_the_leader_names(cluster):
    assert cluster.read({T0: Span(0, 10), T1: Span(0, 10)}) == sorted([*range(10)] * 2)
    assert cluster.sent_by_leader() == 0
    assert len(cluster.leader.fetches) == 1
    assert cluster.read({T0: Span(5, 10)}) == [*range(5, 10)]
    assert len(cluster.leader.fetches) == 1, "the next reading of this process begins at the follower"


def test_nothing_is_asked_for_without_a_rack(cluster):
    assert cluster.read({T0: Span(0, 10)}, rack=None) == [*range(10)]
    assert cluster.follower.fetches == []


def test_a_follower_that_lags_is_left(cluster, monkeypatch):
    monkeypatch.setattr(rangefetcher, "_FOLLOWERS_PATIENCE_S", 0.05)
    cluster.leader.log(T0).write(5, 0)
    assert cluster.read({T0: Span(0, 15)}) == [*range(15)]
    assert cluster.sent_by_leader() == 1


def test_an_offset_that_a_follower_does_not_have_is_left_to_the_leader(cluster):
    cluster.leader.log(T0).write(5, 0)
    assert cluster.read({T0: Span(12, 15)})[-3:] == [12, 13, 14]


def test_an_offset_that_the_leader_has_lost_is_an_error(cluster):
    for stub in (cluster.leader, cluster.follower):
        stub.log(T0).begin = 5
        stub.log(T0).batches = {}
    cluster.leader.named = {}
    with pytest.raises(OffsetOutOfRange, match="its log begins at 5"):
        cluster.read({T0: Span(0, 10)})


@pytest.mark.parametrize(
    "code",
    [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED],
)
def test_after_an_error_of_the_follower_the_leader_sends_the_records(cluster, code):
    cluster.follower.fetch_errors[T0] = code
    assert cluster.read({T0: Span(0, 10), T1: Span(0, 10)}) == sorted([*range(10)] * 2)
    assert cluster.sent_by_leader() == 1


def test_a_follower_that_is_gone_costs_no_record(cluster):
    cluster.leader.others = [Broker(1, "127.0.0.1", 1)]
    assert cluster.read({T0: Span(0, 10)}) == [*range(10)]


def test_a_range_of_an_earlier_epoch_is_checked_at_the_leader(cluster):
    for stub in (cluster.leader, cluster.follower):
        stub.log(T0).write(5, 1)
    cluster.read({T0: Span(0, 5)}, epochs={T0: 1})
    assert cluster.read({T0: Span(5, 10)}, epochs={T0: 0}) == [*range(5, 10)]
    assert cluster.leader.epoch_questions == [{T0: (0, 1)}]
    assert cluster.follower.epoch_questions == []
