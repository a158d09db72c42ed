from contextlib import closing

import pytest

from tests.fixtures.batches import build
from tests.fixtures.stubbroker import EPOCH_VERSIONS
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.sandbox.producer import Record
from zkconsumer.spark import worker
from zkconsumer.wire.connection import BrokerConnection

P = TopicPartition("t", 0)


def test_a_decoder_has_one_user_at_a_time_and_is_reused():
    def borrow(columns=("value",), **settings):
        return worker.borrowed_decoder(DecoderSettings(**settings), columns)

    with borrow() as first, borrow() as second:
        assert first is not second
    with borrow(columns=("topic", "key")) as again, borrow(check_crcs=False) as other:
        assert again in (first, second)
        assert other not in (first, second)
        batch = again.decode("t", 0, 0, memoryview(build([Record(b"v", b"k", 0)]))).batch
        assert batch.to_pylist() == [{"topic": "t", "key": b"k"}]


def test_unused_state_of_other_queries_is_closed():
    workers = {}

    def of(group):
        return worker.this_worker(ConsumerConfig(zookeeper_connect="unused:1", group_id=group), workers)

    old, busy = of("old"), of("busy")
    connection = BrokerConnection("127.0.0.1", 1, client_id="test", timeout_ms=1000)
    old.return_connection(Broker(0, "127.0.0.1", 1), worker.PooledConnection(connection))
    old.used_at -= 60
    assert of("busy") is busy
    assert connection._transport.closed
    assert of("old") is not old


@pytest.fixture
def leader(stub_broker):
    """A broker that leads in epoch 5."""
    stub_broker.versions = dict(EPOCH_VERSIONS)
    stub_broker.log(P).epochs = {5: 0}
    return stub_broker


def test_a_leader_of_an_epoch_before_the_plan_is_outdated(leader):
    with closing(worker.Worker(ConsumerConfig(zookeeper_connect="unused:1", group_id="g"))) as one:
        assert one.find_leaders([P], [leader.broker]) == {P: leader.broker}
        assert one.epochs == {P: 5}
        assert one.find_leaders([P], [leader.broker], {P: 6}) == {}
        leader.log(P).epochs = {6: 0}
        assert one.find_leaders([P], [leader.broker], {P: 6}) == {P: leader.broker}
        assert one.find_leaders([P], [leader.broker], {P: 5}) == {P: leader.broker}
        assert (one.epochs, len(leader.described)) == ({P: 6}, 3), "the last one is known"
        one.forget_leaders([P], [P])
        assert one.find_leaders([P], [leader.broker]) == {P: leader.broker}
        assert len(leader.described) == 4
