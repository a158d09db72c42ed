"""Which partitions the tools ask brokers about, and what is wrong with a rebalance."""

from dataclasses import replace

import pytest

from tests.fixtures.groups import group_znodes
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, our_metadata
from zkconsumer.offsets.rules.topicorigins import TopicOrigin
from zkconsumer.operate.groups.groupdescription import counting_stored, existing_partitions, without_offset
from zkconsumer.operate.groups.groupverification import rebalance_findings
from zkconsumer.operate.offsets.brokeroffsets import BrokersAnswer
from zkconsumer.zookeeper.rules.znodes import MigrationMark

P0 = TopicPartition("t", 0)


def test_brokers_are_not_asked_about_what_does_not_exist():
    znodes = group_znodes(topics={"t": 1}, offsets={"t-0": 1, "t-1": 1, "gone-0": 1})
    assert existing_partitions([znodes]) == {P0}
    assert existing_partitions([replace(znodes, undescribed=frozenset({"t", "gone"}))]) == set(znodes.partitions)


@pytest.mark.parametrize(("topic_id", "counts"), [("old", 7), ("new", 9)])
def test_an_offset_in_kafka_of_an_earlier_topic_does_not_count(topic_id, counts):
    znodes = replace(
        group_znodes(topics={"t": 1}, offsets={"t-0": 7}), origins={"t": TopicOrigin(TopicIdentity("new", 1))}
    )
    in_kafka = BrokersAnswer({P0: StoredOffset(9, our_metadata("1", topic_id))})
    assert counting_stored(znodes, in_kafka, P0, "auto").offset == counts
    assert without_offset(znodes, in_kafka, "auto") == {}
    assert without_offset(znodes, in_kafka, "kafka") == ({P0: 9} if topic_id == "old" else {})


MEMBERS = {"g_a": Subscription({"t": 2})}


@pytest.mark.parametrize(
    ("znodes", "finding"),
    [
        (group_znodes(), "no consumer of group g is registered"),
        (group_znodes(members=MEMBERS), "topic t does not exist"),
        (replace(group_znodes(members=MEMBERS), undescribed=frozenset({"t"})), "partitions of topic t are unknown"),
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


@pytest.mark.parametrize("live", [(), ("g_b",)])
def test_members_that_leave_while_a_group_is_read_are_none(live):
    """What they owned is owned by no member, or by one that has not rebalanced yet."""
    znodes = group_znodes(members=MEMBERS, topics={"t": 2}, owners={"t-0": "g_a-0", "t-1": "g_a-1"})
    assert list(rebalance_findings(replace(znodes, live=frozenset(live)))) == ["no consumer of group g is registered"]


@pytest.mark.parametrize(("state", "fails"), [("migrated", False), ("migrating", True)])
def test_a_group_without_members_that_was_migrated_is_a_success(state, fails):
    znodes = replace(group_znodes(topics={"t": 1}), mark=MigrationMark(state, "kafka:g", 1))
    assert bool(list(rebalance_findings(znodes))) == fails


@pytest.mark.parametrize(("metadata", "counts"), [("", None), (our_metadata("1", "new"), 9)])
def test_what_may_be_a_copy_of_an_offset_of_an_earlier_topic_does_not_count_for_who_reads_both(metadata, counts):
    origin = TopicOrigin(TopicIdentity("new", 500), 500)
    znodes = replace(group_znodes(topics={"t": 1}, offsets={"t-0": 7}), origins={"t": origin})
    in_kafka = BrokersAnswer({P0: StoredOffset(9, metadata)})
    assert counting_stored(znodes, in_kafka, P0, "both").offset == counts
    assert counting_stored(znodes, in_kafka, P0, "auto").offset == 9, "members of brokers continue there"


@pytest.mark.parametrize(
    ("state", "members", "found"),
    [
        ("migrated", {}, []),
        ("migrated", {"g_a": Subscription({"t": 1})}, ["members in ZooKeeper read the same records: g_a"]),
        ("migrating", {}, ["is being migrated to kafka:g", "no consumer of group g is registered"]),
    ],
)
def test_verification_reports_the_mark_of_a_migration(state, members, found):
    owners = {"t-0": "g_a-0"} if members else {}
    znodes = replace(
        group_znodes(members=members, topics={"t": 1}, owners=owners), mark=MigrationMark(state, "kafka:g", 1)
    )
    lines = list(rebalance_findings(znodes))
    assert len(lines) == len(found)
    assert all(part in line for part, line in zip(found, lines, strict=True))
