"""What a survey makes of brokers that contradict ZooKeeper."""

from tests.fixtures.groups import with_brokers, znodes_of_a_group
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.cluster import brokercatalog
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.survey import read_survey_facts
from zkconsumer.wire.errorcodes import ErrorCode


def test_a_topic_that_zookeeper_describes_exists_although_a_broker_denies_it(monkeypatch):
    """1. The only broker starts; 2. it does not know the topics yet: the offsets would not be migrated."""
    monkeypatch.setattr(brokercatalog, "DENIED_S", 0.2)
    config = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")
    with running_stub_broker() as stub:
        stub.log(TopicPartition("t", 0)).end, stub.log(TopicPartition("t", 1)).end = 9, 9
        stub.topic_errors["t"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (facts,) = read_survey_facts(with_brokers(znodes_of_a_group(), stub.broker), config, ["g"])
    assert [(row.partition.partition, row.exists) for row in facts.partitions] == [(0, True), (1, True)]


def test_a_topic_that_neither_zookeeper_nor_brokers_before_0_11_have_does_not_exist(monkeypatch):
    """They do not list what a client may not describe, so ``init`` would never find the group to be ready."""
    monkeypatch.setattr(brokercatalog, "DENIED_S", 0.0)
    config = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")
    znodes = znodes_of_a_group()
    znodes.write("/consumers/g/offsets/gone/0", b"5")
    with running_stub_broker() as stub:
        stub.log(TopicPartition("t", 0)).end, stub.log(TopicPartition("t", 1)).end = 9, 9
        (facts,) = read_survey_facts(with_brokers(znodes, stub.broker), config, ["g"])
    assert {row.partition.topic: row.exists for row in facts.partitions} == {"gone": False, "t": True}
    assert [problem for problem in facts.problems if "gone" in problem] == []
