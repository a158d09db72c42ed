"""The tables of groups that brokers coordinate."""

import pytest

from zkconsumer.cli.brokergrouptables import member_table, notice, offset_table, state_table
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.groups.brokergroups import ObservedBrokerGroup, describe_group
from zkconsumer.operate.groups.groupdocuments import broker_description_document
from zkconsumer.operate.offsets.brokeroffsets import Logs
from zkconsumer.wire.rules.describedgroup import DescribedGroup, DescribedMember

T0, T1, T2, U0 = (TopicPartition(*one) for one in (("t", 0), ("t", 1), ("t", 2), ("u", 0)))
ONE = DescribedMember("m1", "c", None, frozenset({T2}), "/h1", ("t",))
TWO = DescribedMember("m2", "a client \x1b", "i", frozenset({T0, T1}), "/h2", ("t",), {"t": 2})
LOGS = Logs({}, {T0: 9, T1: 9, T2: 9})


def group(*members, offsets=(), state="Stable"):
    described = DescribedGroup("classic", state, "range", members)
    stored = {partition: StoredOffset(offset) for partition, offset in offsets}
    return ObservedBrokerGroup("g", described, Broker(3, "b", 9092), stored)


def described(*members):
    return describe_group(group(*members), LOGS, ())


def words(lines):
    return [line.split() for line in lines if line]


def test_the_member_with_most_partitions_comes_first_and_what_nobody_has_last():
    observed = group(ONE, TWO, offsets=[(T0, 5), (U0, 7)])
    rows = words(offset_table(describe_group(observed, LOGS, ())))[1:]
    assert [row[1:7] for row in rows] == [
        ["t", "0", "5", "9", "4", "m2"],
        ["t", "1", "-", "9", "-", "m2"],
        ["t", "2", "-", "9", "-", "m1"],
        ["u", "0", "7", "-", "-", "-"],
    ]
    assert rows[0][7:] == ["/h2", "a", "client", "\\x1b"], "names are printable"


def test_instance_ids_have_a_column_where_a_member_has_one():
    assert words(member_table(described(ONE)))[0] == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    heading, *rows = words(member_table(described(ONE, TWO)))
    assert heading[2] == "GROUP-INSTANCE-ID"
    assert [row[1] for row in rows] == ["m2", "m1"]
    assert list(member_table(described())) == []


def test_the_state_names_the_coordinator():
    assert words(state_table(group(ONE)))[1] == ["g", "b:9092", "(3)", "range", "Stable", "1"]


def test_members_of_ours_are_recognised_by_their_streams():
    document = broker_description_document(describe_group(group(ONE, TWO), LOGS, ()))
    assert [(one["id"], one["client"], one["threads"]) for one in document["members"]] == [
        ("m1", None, None),
        ("m2", "zkconsumer", {"t": 2}),
    ]
    assert document["coordinated_by"]["host"] == "b"
    assert {one["protocol"] for one in document["members"]} == {"kafka"}
    assert [one["lag"] for one in document["members"]] == [None, None], "of partitions that were never committed"
    known = broker_description_document(describe_group(group(ONE, TWO, offsets=[(T0, 4), (T1, 9), (T2, 7)]), LOGS, ()))
    assert [one["lag"] for one in known["members"]] == [2, 5]
    assert [row["owner"] for row in document["partitions"]] == ["m2", "m2", "m1"]


NO_MEMBERS, REBALANCES = (
    "Consumer group 'g' has no active members.",
    "Warning: Consumer group 'g' is rebalancing.",
)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("Stable", None),
        ("Empty", NO_MEMBERS),
        *[(state, REBALANCES) for state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")],
        ("AwaitingSync", REBALANCES),  # Kafka 0.9 to 0.11
        ("Dead", NO_MEMBERS),  # Kafka 0.9 and 0.10.0, of a group that has offsets alone
    ],
)
def test_the_notice_is_that_of_kafka_4_whatever_name_a_release_gives_to_a_state(state, text):
    assert notice(group(state=state, offsets=[(T0, 5)])) == text
