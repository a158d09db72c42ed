"""Groups described wherever they are."""

import pytest

from tests.fixtures.groups import with_brokers, znodes_of_a_group
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.everydescription import describe_every_group
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import MigratedNode, MigrationMark

CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")


def test_a_group_whose_log_ends_are_unknown_counts_as_partly_read():
    unread = describe_every_group(znodes_of_a_group, CONFIG, ["g"]).unread
    assert unread == ("a part of group g cannot be read: an offset or a log end of a partition",)
    with running_stub_broker() as stub:
        znodes = with_brokers(znodes_of_a_group(), stub.broker)
        stub.log(TopicPartition("t", 0)).end = stub.log(TopicPartition("t", 1)).end = 9
        assert describe_every_group(lambda: znodes, CONFIG, ["g"]).unread == ()


@pytest.mark.parametrize(("state", "is_unhealthy"), [("migrated", False), ("migrating", True)])
def test_a_group_without_members_that_was_migrated_is_healthy(state, is_unhealthy):
    znodes = znodes_of_a_group()
    for path in ("ids/g_a", "owners/t/0", "owners/t/1"):
        znodes.delete(f"/consumers/g/{path}")
    znodes.write(GroupPaths("g").migrated, MigratedNode.encode(MigrationMark(state, "kafka:g", 1)))
    described = describe_every_group(lambda: znodes, CONFIG, ["g"]).groups["g"]
    assert (described.unhealthy() is not None) == is_unhealthy
