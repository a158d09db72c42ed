"""Groups described wherever they are."""

from dataclasses import replace

import pytest

from tests.fixtures.groups import with_brokers, znodes_of_a_group
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.brokergroups import BrokerGroupDescription, ObservedBrokerGroup
from zkconsumer.operate.groups.everydescription import EveryDescription, describe_every_group
from zkconsumer.operate.groups.groupdescription import GroupDescription, PartitionDescription
from zkconsumer.operate.groups.groupdocuments import every_document
from zkconsumer.operate.groups.observedgroup import DescribedGroupMember
from zkconsumer.wire.rules.describedgroup import DescribedGroup
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


def test_a_migrated_group_that_brokers_have_lost_is_unhealthy():
    row = PartitionDescription("t", 0, None, None, 5, 9, 4)
    in_znodes = GroupDescription("g", (), (row,), mark=MigrationMark("migrated", "kafka:g", 1))
    assert EveryDescription(in_znodes, None).unhealthy() is None
    assert EveryDescription(in_znodes, None, is_lost=True).unhealthy() == EveryDescription(in_znodes, None)


def test_a_partition_is_as_healthy_as_what_counts_of_it():
    """The group has moved to brokers without a mark: its znodes stay, and its members live at brokers."""
    znodes = [PartitionDescription("t", n, "g_a-0" if n else None, False if n else None, 5, 9, 4) for n in range(3)]
    znodes.append(PartitionDescription("t", 3, None, None, None, 9, None))
    brokers = [PartitionDescription("t", n, "m", True, None, 9, None) for n in (0, 1)]
    brokers.append(PartitionDescription("t", 3, "m", True, 5, 9, 4))
    in_znodes, at_brokers = GroupDescription("g", (), tuple(znodes)), _at_brokers(*brokers)
    moved = EveryDescription(replace(in_znodes, partitions=tuple(znodes[:2])), at_brokers)
    assert [(row["owner"], row["lag"]) for row in every_document(moved)["partitions"]] == [("m", 4), ("m", 4), ("m", 4)]
    assert moved.unhealthy() is None
    described = EveryDescription(in_znodes, at_brokers)
    every, found = (every_document(one)["partitions"] for one in (described, described.unhealthy()))
    assert [row["partition"] for row in found] == [2, 3], "no member has one, and the offset of the other is unknown"
    assert found == [row for row in every if row["partition"] > 1]


def test_the_lag_of_a_member_is_that_of_the_partitions_as_they_are_shown():
    """The offset in ZooKeeper counts, also of a partition whose member is at brokers."""
    in_znodes = GroupDescription("g", (), (PartitionDescription("t", 0, "g_a-0", False, 5, 9, 4),))
    member = DescribedGroupMember("m", None, None, None, None, 1)
    at_brokers = replace(_at_brokers(PartitionDescription("t", 0, "m", True, None, 9, None)), members=(member,))
    found = every_document(EveryDescription(in_znodes, at_brokers))
    assert [(one["id"], one["lag"]) for one in found["members"]] == [("m", 4)]
    assert [(one["owner"], one["lag"]) for one in found["partitions"]] == [("m", 4)]


def _at_brokers(*rows):
    observed = ObservedBrokerGroup("g", DescribedGroup("classic", "Stable", "range", ()), None, {})
    return BrokerGroupDescription(observed, (), rows, ())
