"""Planning of a batch read from a state of ZooKeeper and a broker's answers."""

from dataclasses import replace

import pytest

from tests.fixtures.kafka import ListOffsetsRequest, MetadataRequest
from zkconsumer.errors import (
    BrokerUnavailable,
    MalformedZnode,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    TopicUnreadable,
    UsageError,
)
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.logends import LogEnds
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.batchplan import committed_offsets, plan_batch_read, plan_spans
from zkconsumer.spark.clusterview import ClusterView
from zkconsumer.spark.rules.options import parse_options
from zkconsumer.wire.errorcodes import ErrorCode

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
VIEW = ClusterView((), frozenset({T0, T1, T2}), {T0: 5, T2: None}, frozenset(), frozenset())
"""The offset of T1 cannot be parsed."""


def options(starting="group", **more):
    chosen = {} if more.keys() & {"assign", "subscribePattern"} else {"subscribe": "t"}
    given = {"zookeeper.connect": "unused:1", "group.id": "g", "startingOffsets": starting, **chosen}
    return parse_options({**given, "refresh.leader.backoff.ms": "10", **more})


@pytest.fixture
def plan(stub_broker):
    """Plan a read of one partition that ends at 60, for which the group has committed an offset or none."""
    stub_broker.log(T0).end = 60

    def plan(committed, outdated=frozenset(), also=frozenset(), **given):
        partitions = frozenset({T0}) | also  # the group's offsets of the others cannot be parsed
        view = ClusterView((stub_broker.broker,), partitions, {T0: committed}, frozenset(), frozenset(), outdated)
        asked = options(**given)
        ends = LogEnds(asked.config, lambda: view.brokers, "group g")
        try:
            return plan_spans(asked, view, ends)
        finally:
            ends.close()

    return plan


def test_an_offset_in_kafka_that_may_not_be_read_is_refused_with_the_reason():
    view = replace(VIEW, refused={T1: TopicAuthorizationFailed("no permission", "t", "Describe")})
    with pytest.raises(TopicAuthorizationFailed):
        committed_offsets(options(), view)
    assert committed_offsets(options("earliest"), view) == {T0: 5, T1: None, T2: None}


@pytest.mark.parametrize("starting", ["group", '{"t":{"0":3}}'])
def test_an_unreadable_offset_that_is_needed_is_named(starting):
    with pytest.raises(MalformedZnode, match="znode /consumers/g/offsets/t/1: holds no offset"):
        committed_offsets(options(starting), VIEW)


def test_an_unreadable_offset_of_dual_commit_may_be_in_either_store():
    both = {"offsets.storage": "kafka", "dual.commit.enabled": "true"}
    with pytest.raises(
        MalformedZnode, match=r"/t/1 or __consumer_offsets: one of them holds no offset, .* the log has"
    ):
        committed_offsets(options(**both), VIEW)


@pytest.mark.parametrize("starting", ["earliest", '{"t":{"1":3}}'])
def test_an_unneeded_unreadable_offset_skips_no_partition(starting):
    assert committed_offsets(options(starting), VIEW) == {T0: 5, T1: None, T2: None}


@pytest.mark.parametrize(
    ("committed", "given", "read"),
    [
        (50, {}, Span(50, 60)),
        (None, {"starting": '{"t":{"0":50}}'}, Span(50, 60)),
        (10, {"endingOffsets": '{"t":{"0":55}}'}, Span(10, 55)),
    ],
)
def test_a_log_end_that_steps_back_for_a_moment_is_no_data_loss(plan, stub_broker, committed, given, read):
    left = [40, 40, 40]

    def lag(_):
        stub_broker.log(T0).end = left.pop() if left else 60

    stub_broker.asked = lag
    assert plan(committed, **given) == {T0: read}


@pytest.mark.usefixtures("znodes")
@pytest.mark.parametrize("group_protocol", ["zookeeper", "kafka"])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailed),
        (ErrorCode.LEADER_NOT_AVAILABLE, TopicUnreadable),
        (None, UsageError),
    ],
)
def test_a_topic_that_brokers_do_not_describe_is_not_called_missing(stub_broker, code, error, group_protocol):
    stub_broker.versions[MetadataRequest.API_KEY] = 12
    if code is not None:
        stub_broker.topic_errors["secret"] = code
    more = {"bootstrap.servers": f"127.0.0.1:{stub_broker.port}", "group.protocol": group_protocol}
    with pytest.raises(error, match="topic secret"):
        plan_batch_read(options(subscribe="secret", **more))


@pytest.mark.parametrize("chosen", [{"subscribe": "secret"}, {"subscribe": None, "subscribePattern": "t|sec.*"}])
def test_a_topic_whose_znode_is_damaged_is_neither_missing_nor_skipped(znodes, chosen):
    """Without its records what is read would be incomplete."""
    znodes.ensure_path("/brokers/ids/1", b'{"version":1,"host":"h","port":1}')
    znodes.ensure_path("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
    znodes.ensure_path("/brokers/topics/secret", b"{")
    with pytest.raises(TopicUnreadable, match="topic secret cannot be read, since it is not described"):
        plan_batch_read(options(**chosen))


@pytest.mark.usefixtures("znodes")
@pytest.mark.parametrize("chosen", [{"subscribe": "t"}, {"subscribe": None, "subscribePattern": "t.*"}])
def test_without_a_broker_a_read_is_not_empty(chosen):
    """1. The brokers are of Kafka 4; 2. ``bootstrap.servers`` is not set, so no topic matches the pattern."""
    with pytest.raises(BrokerUnavailable, match=r"no broker is registered in ZooKeeper.*set bootstrap.servers"):
        plan_batch_read(options(**chosen))


def test_an_offset_beyond_a_log_that_stays_short_is_data_loss(plan):
    with pytest.raises(OffsetOutOfRange, match=r"t-0: wanted 70, the log has \[0, 60\)"):
        plan(70)


def test_an_assigned_read_needs_no_other_partition(plan, stub_broker):
    stub_broker.log(T1).end = 70
    assert plan(50, also=frozenset({T1}), assign='{"t":[0]}') == {T0: Span(50, 60)}
    assert plan(50, also=frozenset({T1}), starting="earliest", assign='{"t":[1]}') == {T1: Span(0, 70)}


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"assign": '{"t":[0,7],"u":[0]}'}, "topic u, partition t-7 does"),
        ({"starting": '{"t":{"0":1,"7":1}}'}, "partition t-7 does"),
        ({"endingOffsetsByTimestamp": '{"t":{"7":1}}'}, "partition t-7 does"),
        ({"subscribePattern": "t|u", "starting": '{"u":{"0":1}}'}, "partition u-0 does"),
    ],
)
def test_partitions_that_do_not_exist_are_refused(plan, given, missing):
    with pytest.raises(UsageError, match=f"^{missing} not exist in the cluster of unused:1"):
        plan(50, **given)


@pytest.mark.parametrize("committed", [None, -1])
def test_a_read_without_an_offset_warns_that_it_starts_at_the_end(plan, caplog, committed):
    assert plan(committed) == {T0: Span(60, 60)}
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    message = record.getMessage()
    assert message.startswith("group g has no committed offset of t-0: ")
    assert "startingOffsets=earliest" in message


@pytest.mark.parametrize(
    ("committed", "given"),
    [
        (60, {}),
        (None, {"starting": "latest"}),
        (None, {"starting": "earliest"}),
        (None, {"auto.offset.reset": "smallest"}),
        (None, {"starting": '{"t":{"0":-1}}'}),
    ],
)
def test_a_read_whose_start_is_specified_does_not_warn(plan, caplog, committed, given):
    plan(committed, **given)
    assert not caplog.records


def test_an_offset_of_an_earlier_topic_is_ignored(plan, caplog):
    assert plan(50, frozenset({T0})) == {T0: Span(0, 60)}
    assert "t-0 (offset 50): read from the earliest offset" in caplog.text
    assert plan(50, frozenset({T0}), starting="latest") == {T0: Span(60, 60)}


@pytest.fixture
def open_transaction(stub_broker):
    """A transaction is open from offset 40 on."""
    stub_broker.versions[ListOffsetsRequest.API_KEY] = 2
    stub_broker.log(T0).stable = 40


@pytest.mark.parametrize(("committed", "read"), [(10, Span(10, 40)), (50, Span(50, 50))])
def test_a_read_of_committed_records_ends_at_an_open_transaction(plan, open_transaction, committed, read):
    assert plan(committed, **{"isolation.level": "read_committed"}) == {T0: read}
    assert plan(committed) == {T0: Span(committed, 60)}


def test_an_end_after_an_open_transaction_is_refused_with_the_reason(plan, open_transaction):
    with pytest.raises(OffsetOutOfRange, match=r"t-0: 50, the last stable offset is 40 \(a transaction is open\)"):
        plan(10, endingOffsets='{"t":{"0":50}}', **{"isolation.level": "read_committed"})
