"""What brokers report of logs, and what the tools make of two stored offsets."""

import socket
from contextlib import closing

import pytest

from tests.fixtures.groups import group_znodes
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.config import ConsumerConfig
from zkconsumer.core.subscription import Subscription
from zkconsumer.kafka.listoffsetsprotocol import Offsets
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.tools.brokeroffsets import BrokerOffsets, LogOffsetReport, log_report
from zkconsumer.tools.groups import counting_offset, existing_partitions
from zkconsumer.tools.groupverification import rebalance_findings

CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")
P = [TopicPartition("t", number) for number in range(12)]


def log_ends(brokers, partitions):
    with closing(BrokerOffsets(CONFIG, lambda: brokers)) as asked:
        return asked.log_ends(partitions)


@pytest.fixture
def dead_broker():
    """A broker whose port refuses connections: it is taken, but nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield Broker(0, "127.0.0.1", taken.getsockname()[1])


def test_each_reason_for_a_missing_log_end_is_given_once():
    refused, moved = dict.fromkeys(P[4:11], 5), {P[0]: 3, P[11]: 3}
    causes = dict.fromkeys(refused, "host:1 refuses us")
    answer = Offsets({P[1]: 7, P[2]: None, P[3]: 0}, {**moved, **refused}, causes)
    ends = log_report(answer, "log ends")
    assert ends.offsets == {P[1]: 7, P[3]: 0}
    assert ends.problems == (
        "log ends of t-0, t-11 are unknown: UNKNOWN_TOPIC_OR_PARTITION (3)",
        "log ends of t-4, t-5, t-6, t-7, t-8 and 2 more are unknown: host:1 refuses us",
    )


def test_leaders_are_asked_for_log_ends():
    with running_stub_broker() as stub:
        stub.log(P[0]).end, stub.log(P[1]).end = 7, 0
        assert log_ends([stub.broker], P[:2]) == ({P[0]: 7, P[1]: 0}, ())


def test_brokers_that_do_not_answer_are_reported(dead_broker):
    offsets, (problem,) = log_ends([dead_broker], P)
    assert offsets == {}
    assert problem.startswith("log ends are unknown: none of 1 brokers answers")


def test_without_brokers_or_partitions_no_broker_is_asked(dead_broker):
    ((), (problem,)) = log_ends([], P)
    assert "no broker is registered" in problem
    assert log_ends([dead_broker], []) == ({}, ())


def test_log_starts_are_named_as_such():
    assert log_report(Offsets({}, {P[0]: 3}), "log starts") == LogOffsetReport(
        {}, ("log starts of t-0 are unknown: UNKNOWN_TOPIC_OR_PARTITION (3)",)
    )


@pytest.mark.parametrize(
    ("in_zookeeper", "in_kafka", "auto", "both"),
    [(None, None, None, None), (5, None, 5, 5), (None, 7, 7, 7), (9, 7, 7, 9), (5, 7, 7, 7)],
)
def test_which_of_two_offsets_counts(in_zookeeper, in_kafka, auto, both):
    chosen = [counting_offset(in_zookeeper, in_kafka, storage) for storage in ("auto", "zookeeper", "kafka", "both")]
    assert chosen == [auto, in_zookeeper, in_kafka, both]


def test_brokers_are_not_asked_about_what_does_not_exist():
    znodes = group_znodes(topics={"t": 1}, offsets={"t-0": 1, "t-1": 1, "gone-0": 1})
    assert existing_partitions([znodes]) == {P[0]}
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
