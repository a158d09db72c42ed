"""The closest replica (KIP-392) in a consumer's fetch path: a leader and a follower that a test scripts."""

import logging
from contextlib import ExitStack

import pytest

from tests.fixtures.chunks import THREAD, make_queue, take
from tests.fixtures.stubbroker import EPOCH_VERSIONS, running_stub_broker
from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.localfetchcontrol import LocalFetchControl
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.wire.errorcodes import ErrorCode

P = TopicPartition("t", 0)


class Cluster:
    """A leader that names a follower, and a consumer in the rack of that follower."""

    def __init__(self, stack):
        self.leader, self.follower = (stack.enter_context(running_stub_broker()) for _ in range(2))
        self.follower.number = 1
        for stub in (self.leader, self.follower):
            stub.versions = dict(EPOCH_VERSIONS)
        self.leader.others = [self.follower.broker]
        self.leader.named[P] = 1
        self.follower.leaderless.add(P)  # it answers no question about the log
        self.stack = stack

    def write(self, count, *, follower=True):
        self.leader.log(P).write(count, 0)
        if follower:
            self.follower.log(P).write(count, 0)

    def start(self, offset=0, **settings):
        self.queue = make_queue(max_chunks=100)
        self.reader = ChunkReader(self.queue)
        settings = {"client_rack": "r1", "metadata_max_age_ms": 600_000, "fetch_wait_max_ms": 5, **settings}
        config = ConsumerConfig(group_id="g", zookeeper_connect="unused:1", refresh_leader_backoff_ms=1, **settings)
        control = LocalFetchControl("g_c", config, lambda: [self.leader.broker], lambda topic, thread: self.queue)
        self.stack.callback(control.stop)
        control.start(FetchAssignment(1, {P: AssignedPartition(THREAD, offset)}))

    def read(self, count):
        offsets = []
        while len(offsets) < count:
            chunk = take(self.reader, self.queue, 30)
            assert chunk is not None, f"only {offsets}"
            offsets += chunk.batch["offset"].to_pylist()
        return offsets


@pytest.fixture
def cluster():
    with ExitStack() as stack:
        yield Cluster(stack)


def test_records_come_from_the_follower_that_the_leader_names(cluster):
    cluster.write(10)
    cluster.start()
    assert cluster.read(10) == [*range(10)]
    cluster.write(5)
    assert cluster.read(5) == [*range(10, 15)]
    assert {offset for asked in cluster.leader.fetches for offset, _ in asked.values()} == {0}
    assert cluster.leader.racks[0] == "r1"


def test_nothing_is_asked_for_without_a_rack(cluster):
    cluster.write(10)
    cluster.start(client_rack=None)
    assert cluster.read(10) == [*range(10)]
    assert set(cluster.leader.racks) == {""}
    assert cluster.follower.fetches == []


def test_the_leader_is_asked_again_after_a_while(cluster):
    cluster.write(10)
    cluster.start(metadata_max_age_ms=50)
    assert cluster.read(10) == [*range(10)]
    eventually(lambda: len([asked for asked in cluster.leader.fetches if asked.get(P, (0, 0))[0] == 10]) > 2)
    cluster.write(5)
    assert cluster.read(5) == [*range(10, 15)]


def test_an_offset_that_a_follower_does_not_have_is_left_to_the_leader(cluster, caplog):
    """It is not out of range: the follower lags."""
    cluster.write(10)
    cluster.write(5, follower=False)
    cluster.start(12)
    assert cluster.read(3) == [12, 13, 14]
    assert "out of range" not in caplog.text
    assert cluster.leader.racks[-1] == "", "the leader must not name it again at once"


def test_an_offset_that_the_leader_does_not_have_either_is_reset(cluster, caplog):
    cluster.write(10)
    cluster.start(99, auto_offset_reset="smallest")
    assert cluster.read(10) == [*range(10)]
    assert "offset 99 of t-0 is out of range" in caplog.text


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REPLICA_NOT_AVAILABLE]
)
def test_after_an_error_of_the_follower_the_leader_sends_the_records(cluster, code):
    cluster.write(10)
    cluster.follower.fetch_errors[P] = code
    cluster.start()
    assert cluster.read(10) == [*range(10)]
    assert (cluster.leader.racks[0], cluster.leader.racks[-1]) == ("r1", "")


def test_a_denial_of_a_follower_is_left_to_the_leader(cluster, caplog):
    """A permission may not have reached the follower yet."""
    caplog.set_level(logging.DEBUG)
    cluster.write(10)
    cluster.follower.fetch_errors[P] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster.start()
    assert cluster.read(10) == [*range(10)]
    assert "looking for its leader again" in caplog.text
    assert "trying again" not in caplog.text, "it is no denial of the leader"
    assert cluster.leader.racks[-1] == ""


def test_a_follower_that_is_gone_costs_no_record(cluster, caplog):
    caplog.set_level(logging.INFO)
    cluster.write(10)
    cluster.leader.others = [Broker(1, "127.0.0.1", 1)]
    cluster.start()
    assert cluster.read(10) == [*range(10)]
    assert "looking for the leaders" in caplog.text


def test_a_follower_that_is_not_in_the_metadata_is_not_looked_for(cluster):
    cluster.write(10)
    cluster.leader.others = []
    cluster.start()
    assert cluster.read(10) == [*range(10)]
    assert cluster.follower.fetches == []


def test_a_new_leader_epoch_is_checked_at_the_leader(cluster):
    """1. The follower serves epoch 0; 2. a leader of epoch 1 is elected; 3. both refuse epoch 0."""
    cluster.write(10)
    cluster.start()
    assert cluster.read(10) == [*range(10)]
    for stub in (cluster.leader, cluster.follower):
        stub.log(P).write(5, 1)
    assert cluster.read(5) == [*range(10, 15)]
    assert cluster.leader.epoch_questions == [{P: (0, 1)}]
    assert cluster.follower.epoch_questions == []
