"""Which partitions the tools ask brokers about, and what is wrong with a rebalance."""

import pytest

from tests.fixtures.groups import group_znodes
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.groupdescription import existing_partitions
from zkconsumer.operate.groups.groupverification import rebalance_findings

P0 = TopicPartition("t", 0)


def test_brokers_are_not_asked_about_what_does_not_exist():
    znodes = group_znodes(topics={"t": 1}, offsets={"t-0": 1, "t-1": 1, "gone-0": 1})
    assert existing_partitions([znodes]) == {P0}
    assert existing_partitions([znodes], is_elsewhere=True) == set(znodes.partitions)


MEMBERS = {"g_a": Subscription({"t": 2})}


@pytest.mark.parametrize(
    ("znodes", "finding"),
    [
        (group_znodes(), "no consumer of group g is registered"),
        (group_znodes(members=MEMBERS), "topic t does not exist"),
        (group_znodes(members=MEMBERS, topics={"t": 1}), "no owner for partition t-0"),
        (
            group_znodes(members=MEMBERS, topics={"t": 1}, owners={"t-0": "g_b-0"}),
            "owner g_b-0 of partition t-0 is not",
        ),
        (
            group_znodes(members=MEMBERS, topics={"t": 1}, owners={"t-0": "g_a-2"}),
            "owner g_a-2 of partition t-0 is not",
        ),
        (group_znodes(unreadable={"g_x": "not JSON"}), "the registration of consumer g_x cannot be read: not JSON"),
    ],
)
def test_what_is_wrong_with_a_rebalance_is_found(znodes, finding):
    (found,) = rebalance_findings(znodes)
    assert found.startswith(finding)


def test_partitions_that_live_threads_own_are_a_success():
    znodes = group_znodes(members=MEMBERS, topics={"t": 2, "u": 1}, owners={"t-0": "g_a-0", "t-1": "g_a-1"})
    assert list(rebalance_findings(znodes)) == []
