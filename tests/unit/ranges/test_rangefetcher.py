import re
import threading
import time

import pytest

from tests.fixtures.batches import build, empty
from tests.fixtures.kafka import FetchRequest
from tests.fixtures.stubbroker import EPOCH_VERSIONS, InTransit
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.decode.batchdecoder import BatchDecoder
from zkconsumer.errors import (
    BrokerUnavailable,
    CorruptRecord,
    LeaderUnknown,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    TopicUnreadable,
)
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.fetchedqueue import FetchedQueue
from zkconsumer.ranges.leaderconnections import PooledConnection
from zkconsumer.ranges.rangefetcher import FetcherEnded, RangeEpochs, RangeFetcher
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.sandbox.producer import Record
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.rules.leaderepochs import UNKNOWN_EPOCH

LONG_S = 30.0
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def read(stub_broker, decoder):
    """Read ranges of the stub broker with one fetcher; returns the received offsets, and the end of the fetcher."""

    def read_ranges(
        ranges, *, fail_on_data_loss=False, bytes_per_offset=None, scanner=BatchDecoder, settings=None, **config
    ):
        broker = stub_broker.broker
        connection = BrokerConnection(broker.host, broker.port, client_id="test", timeout_ms=60_000)
        connection.connect()
        properties = ConsumerConfig(zookeeper_connect="unused:1", group_id="g", **config)
        settings = {"reader": "group g", "fail_on_data_loss": fail_on_data_loss, **(settings or {})}
        queue = FetchedQueue(1 << 30)
        pooled = PooledConnection(connection, bytes_per_offset or {})
        fetcher = RangeFetcher(pooled, scanner(), broker, ranges, queue, properties, **settings)
        fetcher.start()
        offsets: list[int] = []
        try:
            while not isinstance(item := queue.get(LONG_S), FetcherEnded):
                assert item is not None, "the fetcher neither delivers nor ends"
                offsets += [offset for records in item.records(decoder) for offset in records.offsets]
        finally:
            queue.close()
            fetcher.join(LONG_S)
            connection.close()
        return offsets, item

    return read_ranges


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_leader_move_during_a_log_start_look_up_loses_no_record(stub_broker, read, fail_on_data_loss):
    stub_broker.log(T0).end = 10
    stub_broker.fetch_errors[T0] = ErrorCode.OFFSET_OUT_OF_RANGE
    stub_broker.offset_errors[T0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    offsets, ended = read({T0: Span(2, 8)}, fail_on_data_loss=fail_on_data_loss)
    assert offsets == []
    assert isinstance(ended.error, LeaderUnknown)
    assert (ended.left, ended.connection_is_reusable) == ({T0: Span(2, 8)}, True)


def test_a_log_that_has_grown_past_the_position_has_lost_nothing(stub_broker, read):
    """1. The log ends before the position; 2. it grows past it; 3. its start and end are looked up."""
    log = stub_broker.log(T0)

    def grow(_):
        if not log.batches:
            log.write(10, 0)

    stub_broker.asked = grow
    offsets, ended = read({T0: Span(2, 8)})
    assert (offsets, ended.error) == (list(range(2, 8)), None)


def test_a_range_beyond_the_end_of_its_log_is_lost(stub_broker, read, caplog):
    stub_broker.log(T0).write(10, 0)
    offsets, ended = read({T0: Span(12, 15)})
    assert (offsets, ended.error) == ([], None)
    assert "t-0 has lost offsets 12 to 15: its log ends at 10; they are skipped" in caplog.text
    _, ended = read({T0: Span(12, 15)}, fail_on_data_loss=True)
    assert isinstance(ended.error, OffsetOutOfRange)


def test_a_failed_look_up_of_the_log_start_is_retriable(stub_broker, read):
    stub_broker.log(T0).end = 10
    stub_broker.fetch_errors[T0] = ErrorCode.OFFSET_OUT_OF_RANGE
    stub_broker.offset_errors[T0] = ErrorCode.REQUEST_TIMED_OUT
    _, ended = read({T0: Span(2, 8)})
    assert isinstance(ended.error, BrokerUnavailable)
    assert ended.left == {T0: Span(2, 8)}
    assert "REQUEST_TIMED_OUT (7)" in str(ended.error)


@pytest.mark.parametrize(
    ("code", "name"), [(ErrorCode.REQUEST_TIMED_OUT, "REQUEST_TIMED_OUT"), (13, "Network"), (6, "NOT_LEADER")]
)
def test_an_error_that_may_pass_is_retriable(stub_broker, read, code, name):
    stub_broker.log(T0).end = 10
    stub_broker.fetch_errors[T0] = code
    _, ended = read({T0: Span(2, 8)})
    assert isinstance(ended.error, LeaderUnknown)
    assert (ended.left, ended.connection_is_reusable) == ({T0: Span(2, 8)}, True)
    assert re.search(f"does not serve t-0: {name}", str(ended.error))


@pytest.mark.parametrize("fetch_error", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_a_missing_permission_ends_the_task(stub_broker, read, fetch_error):
    stub_broker.log(T0).end = 10
    stub_broker.fetch_errors[T0] = fetch_error
    stub_broker.offset_errors[T0] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    _, ended = read({T0: Span(2, 8)})
    assert isinstance(ended.error, TopicAuthorizationFailed)


def test_an_answer_that_waiting_does_not_change_ends_the_task(stub_broker, read):
    """Also where the broker is asked for the ends of a log: it is refused there by the rule that fetches follow."""
    stub_broker.log(T0).end = 10
    stub_broker.fetch_errors[T0] = ErrorCode.OFFSET_OUT_OF_RANGE
    stub_broker.offset_errors[T0] = ErrorCode.UNSUPPORTED_VERSION
    _, ended = read({T0: Span(2, 8)})
    assert isinstance(ended.error, TopicUnreadable)


def ten_records(offset):
    return build([Record(b"v")] * 10, offset=offset)


IMPATIENT = {"socket_timeout_ms": 50, "fetch_wait_max_ms": 1}


def test_a_log_that_ends_inside_a_range_ends_the_range_or_fails_the_task(stub_broker, read):
    log = stub_broker.log(T0)
    log.end, log.batches = 10, {0: ten_records(0)}
    offsets, ended = read({T0: Span(2, 15)}, **IMPATIENT)
    assert offsets == list(range(2, 10))
    assert (ended.error, ended.left) == (None, {})
    offsets, ended = read({T0: Span(2, 15)}, fail_on_data_loss=True, **IMPATIENT)
    assert offsets == list(range(2, 10))
    assert isinstance(ended.error, OffsetOutOfRange)


def test_missing_records_inside_the_log_fail_the_task(stub_broker, read):
    stub_broker.log(T0).end = 20
    _, ended = read({T0: Span(2, 15)}, **IMPATIENT)
    assert isinstance(ended.error, OffsetOutOfRange)


def test_a_moved_leader_is_not_the_end_of_the_log(stub_broker, read):
    log = stub_broker.log(T0)
    log.end, log.batches = 10, {0: ten_records(0)}
    stub_broker.offset_errors[T0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    _, ended = read({T0: Span(2, 15)}, **IMPATIENT)
    assert isinstance(ended.error, LeaderUnknown)
    assert ended.left == {T0: Span(10, 15)}


def test_a_range_of_compacted_batches_ends_by_the_offsets_that_they_cover(stub_broker, read):
    log = stub_broker.log(T0)
    log.end = 500
    log.batches = {
        0: empty(0, 99),
        100: build([Record(b"v")] * 3, offset=100, last_delta=299),
        400: empty(400, 99),
    }
    offsets, ended = read({T0: Span(0, 500)}, fail_on_data_loss=True, **IMPATIENT)
    assert offsets == [100, 101, 102]
    assert (ended.error, ended.left) == (None, {})
    offsets, ended = read({T0: Span(102, 350)}, fail_on_data_loss=True, **IMPATIENT)
    assert offsets == [102]
    assert (ended.error, ended.left) == (None, {})
    offsets, ended = read({T0: Span(200, 210)}, fail_on_data_loss=True, **IMPATIENT)
    assert (offsets, ended.error) == ([], None)


def log_of(batches, *damaged):
    """Batches of ten records; in the damaged ones a byte has changed since their checksums were computed."""
    held = {10 * number: ten_records(10 * number) for number in range(batches)}
    return {base: data[:-1] + bytes([data[-1] ^ 1]) if base in damaged else data for base, data in held.items()}


TWO_BATCHES = {
    "fetch_message_max_bytes": 2 * len(ten_records(0)),
    "fetch_max_bytes": 2 * len(ten_records(0)),
    **IMPATIENT,
}


def test_received_records_are_not_requested_again(stub_broker, read):
    for partition in (T0, T1):
        stub_broker.log(partition).end, stub_broker.log(partition).batches = 60, log_of(6)
    offsets, ended = read({T0: Span(0, 55), T1: Span(5, 20)}, fail_on_data_loss=True, **TWO_BATCHES)
    assert sorted(offsets) == sorted([*range(55), *range(5, 20)])
    assert (ended.error, ended.left, ended.connection_is_reusable) == (None, {}, True)
    asked = [{partition: offset for partition, (offset, _) in fetch.items()} for fetch in stub_broker.fetches]
    assert asked == [{T0: 0, T1: 5}, {T0: 20}, {T0: 40}]


def test_the_next_request_is_sent_before_the_last_partition_is_delivered(stub_broker, read):
    log = stub_broker.log(T0)
    log.end, log.batches = 40, log_of(4)
    arrived = threading.Semaphore(0)

    class Fetches(list):
        def append(self, fetch):
            super().append(fetch)
            arrived.release()

    class ScansLater(BatchDecoder):
        def scan(self, topic, partition, requested, *rest):
            second = requested == 20 or all(arrived.acquire(timeout=LONG_S) for _ in range(2))
            assert second, "no second request has arrived"
            return super().scan(topic, partition, requested, *rest)

    stub_broker.fetches = Fetches()
    offsets, ended = read({T0: Span(0, 40)}, scanner=ScansLater, **TWO_BATCHES)
    assert (offsets, ended.error) == (list(range(40)), None)


def test_an_answer_for_a_wrongly_expected_offset_is_dropped(stub_broker, read):
    log = stub_broker.log(T0)
    log.end, log.batches = 60, log_of(6, 10)
    offsets, ended = read({T0: Span(0, 60)}, on_corrupt="skip", **TWO_BATCHES)
    assert offsets == [*range(10), *range(20, 60)]
    assert (ended.error, ended.left, ended.connection_is_reusable) == (None, {}, True)
    assert [fetch[T0][0] for fetch in stub_broker.fetches] == [0, 20, 10, 30, 10, 30, 10, 30, 20, 40]


def test_damaged_bytes_that_are_fetched_again_are_not_missing_records(stub_broker, read):
    """Each answer takes longer than the patience for a log without these records."""
    log = stub_broker.log(T0)
    log.end, log.batches = 20, log_of(2, 10)
    stub_broker.fetching = lambda: time.sleep(0.06)
    offsets, ended = read({T0: Span(0, 20)}, on_corrupt="skip", **IMPATIENT)
    assert (offsets, ended.error) == ([*range(10)], None)


def test_bytes_that_hold_no_complete_batch_end_in_an_error(stub_broker, read):
    """Fewer bytes than requested, and first in the response: no broker cuts those, so the length is damaged."""
    log = stub_broker.log(T0)
    log.end, log.batches = 10, {0: ten_records(0)[:-1]}
    offsets, ended = read({T0: Span(0, 10)})
    assert (offsets, ended.left) == ([], {T0: Span(0, 10)})
    with pytest.raises(CorruptRecord, match=r"t-0 at offset 0: .* bytes hold no complete batch"):
        raise ended.error


def test_a_topic_that_a_broker_refuses_to_serve_is_named(stub_broker, read):
    stub_broker.log(T0).end = 10
    stub_broker.fetch_errors[T0] = ErrorCode.INVALID_TOPIC_EXCEPTION
    _, ended = read({T0: Span(0, 10)})
    with pytest.raises(
        TopicUnreadable, match=r"topic t cannot be read \(t-0 at offset 0\): .* INVALID_TOPIC_EXCEPTION"
    ):
        raise ended.error


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_damage_in_transit_is_fixed_by_fetching_again(stub_broker, read, policy):
    """Batches whose offsets were lowered, raised, and raised beyond the log end."""
    log = stub_broker.log(T0)
    for damaged in ({10: ten_records(0)}, {10: ten_records(12)}, {20: ten_records(20 + 2**40)}):
        log.end, log.batches = 30, InTransit(log_of(3), damaged)
        offsets, ended = read({T0: Span(10, 30)}, on_corrupt=policy)
        assert (offsets, ended.error) == (list(range(10, 30)), None)


def test_a_range_that_is_given_up_is_not_read_further(stub_broker, read):
    for partition in (T0, T1):
        stub_broker.log(partition).end, stub_broker.log(partition).batches = 60, log_of(6)

    class GivenUp(BatchDecoder):
        def scan(self, *arguments):
            threading.current_thread().give_up(T0)
            return super().scan(*arguments)

    offsets, ended = read({T0: Span(0, 60), T1: Span(0, 60)}, scanner=GivenUp, **TWO_BATCHES)
    assert (ended.error, ended.left, ended.connection_is_reusable) == (None, {}, True)
    assert [offset for offset in offsets if offset >= 40] == list(range(40, 60)), "of the other range only"


def test_a_batch_with_an_implausible_offset_fails_the_task_or_is_skipped(stub_broker, read):
    log = stub_broker.log(T0)
    log.end, log.batches = 30, log_of(3) | {10: ten_records(0)}
    offsets, ended = read({T0: Span(10, 30)})
    assert (offsets, ended.left) == ([], {T0: Span(10, 30)})
    assert isinstance(ended.error, CorruptRecord)
    offsets, ended = read({T0: Span(10, 30)}, on_corrupt="skip")
    assert (offsets, ended.error) == (list(range(20, 30)), None)


def test_little_more_than_the_rest_of_a_range_is_requested(stub_broker, read):
    records = build([Record(b"v" * 1000)] * 500)
    log = stub_broker.log(T0)
    log.end, log.batches = 1500, {0: records, 500: build([Record(b"v" * 1000)] * 1000, offset=500)}
    one_batch = {"response_bytes": 0}
    offsets, ended = read({T0: Span(0, 510)}, fetch_message_max_bytes=len(records), settings=one_batch)
    assert (offsets, ended.error) == (list(range(510)), None)
    first, *others = [fetch[T0] for fetch in stub_broker.fetches]
    assert first == (0, len(records))
    assert {offset for offset, _ in others} == {500}
    assert 10 * 1000 < others[0][1] < len(records)
    assert others[-1][1] > 1000 * 1000, "a batch that is longer than expected is received in the end"


def test_a_pooled_connection_remembers_how_long_records_are(stub_broker, read):
    log = stub_broker.log(T0)
    log.end, log.batches = 10, log_of(1)
    read({T0: Span(0, 10)}, bytes_per_offset={T0: 1e3})
    read({T0: Span(0, 10)}, bytes_per_offset={T0: 1e5})
    few, many = [fetch[T0][1] for fetch in stub_broker.fetches]
    assert 10e3 < few < many < 2e6


def test_requests_to_an_old_broker_name_the_partitions_that_fit(stub_broker, read):
    """Before 0.10.1 there is no limit for a response, so requests name the partitions in turn."""
    stub_broker.versions[FetchRequest.API_KEY] = 2
    partitions = [TopicPartition("t", number) for number in range(10)]
    for partition in partitions:
        stub_broker.log(partition).end = 2
        stub_broker.log(partition).batches = {0: build([Record(b"a"), Record(b"b")])}
    offsets, ended = read(dict.fromkeys(partitions, Span(0, 2)), queued_max_bytes=4 << 20)
    assert ended.error is None
    assert sorted(offsets) == [0] * 10 + [1] * 10
    assert all(sum(size for _, size in asked.values()) <= 4 << 20 for asked in stub_broker.fetches)
    assert len(stub_broker.fetches) > 1


@pytest.fixture
def log(stub_broker):
    """30 records of epoch 0, the last 20 of which were lost in an unclean election, and 25 of epoch 1."""
    stub_broker.versions = dict(EPOCH_VERSIONS)
    log = stub_broker.log(T0)
    log.write(10, 0)
    log.write(20, 0)
    log.elect_uncleanly(10, 25, 1)
    return log


def read_in_epochs(read, *span, fail_on_data_loss=False, **epochs):
    settings = {"epochs": {T0: RangeEpochs(**epochs)}}
    return read({T0: Span(*span)}, settings=settings, fail_on_data_loss=fail_on_data_loss)


@pytest.mark.usefixtures("log")
def test_a_range_that_was_planned_in_an_earlier_epoch_ends_with_the_log_of_that_epoch(read, caplog):
    offsets, ended = read_in_epochs(read, 5, 30, planned=0, leader=1)
    assert (offsets, ended.error, ended.fetcher.checked) == (list(range(5, 10)), None, {T0: 1})
    assert "t-0 has lost offsets 10 to 30: the log of leader epoch 0 ends at 10; they are skipped" in caplog.text
    assert read_in_epochs(read, 20, 30, planned=0, leader=1)[0] == []


@pytest.mark.usefixtures("log")
def test_a_lost_range_fails_the_task(read):
    _, ended = read_in_epochs(read, 5, 30, planned=0, leader=1, fail_on_data_loss=True)
    assert isinstance(ended.error, OffsetOutOfRange)
    assert "t-0 has lost offsets 10 to 30: the log of leader epoch 0 ends at 10" in str(ended.error)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("epochs", "until"), [({"planned": 1}, 35), ({"planned": UNKNOWN_EPOCH}, 35), ({"planned": 0}, 10)]
)
def test_a_range_that_the_log_contains_is_read(read, epochs, until):
    assert read_in_epochs(read, 5, until, **epochs, leader=1, fail_on_data_loss=True)[0] == list(range(5, until))


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(("named", "fenced"), [(0, {T0: 0}), (2, {})])
@pytest.mark.parametrize("planned", [UNKNOWN_EPOCH, 0])
def test_a_leader_of_another_epoch_reads_nothing(read, named, fenced, planned):
    offsets, ended = read_in_epochs(read, 5, 30, planned=planned, leader=named, fail_on_data_loss=True)
    assert (offsets, ended.left, ended.fetcher.fenced) == ([], {T0: Span(5, 30)}, fenced)
    assert isinstance(ended.error, LeaderUnknown)


@pytest.mark.usefixtures("log")
def test_a_range_that_cannot_be_checked_is_read(read, stub_broker, caplog):
    stub_broker.epoch_errors[T0] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    offsets, ended = read_in_epochs(read, 5, 30, planned=0, leader=1, fail_on_data_loss=True)
    assert (offsets, ended.fetcher.checked) == (list(range(5, 30)), {})
    assert "cannot report if t-0 has lost records: CLUSTER_AUTHORIZATION_FAILED (31)" in caplog.text
