from contextlib import closing

import pytest

from tests.fixtures.stubbroker import EPOCH_VERSIONS
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.leaderconnections import LeaderConnections
from zkconsumer.wire.rules import leaderepochs
from zkconsumer.wire.rules.leaderepochs import UNKNOWN_EPOCH

P = TopicPartition("t", 0)


@pytest.fixture
def leader(stub_broker):
    """A broker that leads in epoch 5."""
    stub_broker.versions = dict(EPOCH_VERSIONS)
    stub_broker.log(P).epochs = {5: 0}
    return stub_broker


def test_a_leader_of_an_epoch_before_the_plan_is_outdated(leader):
    with closing(LeaderConnections(ConsumerConfig(zookeeper_connect="unused:1", group_id="g"))) as one:
        assert one.find_leaders([P], [leader.broker]) == {P: leader.broker}
        assert one.epochs == {P: 5}
        assert one.find_leaders([P], [leader.broker], {P: 6}) == {}
        leader.log(P).epochs = {6: 0}
        assert one.find_leaders([P], [leader.broker], {P: 6}) == {P: leader.broker}
        assert one.find_leaders([P], [leader.broker], {P: 5}) == {P: leader.broker}
        assert (one.epochs, len(leader.described)) == ({P: 6}, 3), "the last one is known"
        one.forget_leaders([P], {P: 6})
        assert one.find_leaders([P], [leader.broker]) == {P: leader.broker}
        assert len(leader.described) == 4


def test_a_leader_that_refuses_the_epoch_in_metadata_stays_known(leader, monkeypatch):
    """Brokers before 2.4 may report an outdated epoch during the whole reassignment of a partition (KAFKA-9212)."""
    monkeypatch.setattr(leaderepochs, "PATIENCE_S", 0.0)
    leader.described_epochs = {P: 4}
    with closing(LeaderConnections(ConsumerConfig(zookeeper_connect="unused:1", group_id="g"))) as one:
        one.find_leaders([P], [leader.broker], {P: 5})
        one.forget_leaders([P], {P: 4})
        for _ in range(3):
            assert one.find_leaders([P], [leader.broker], {P: 5}) == {P: leader.broker}
        assert one.epochs == {P: UNKNOWN_EPOCH}
        assert len(leader.described) == 2
