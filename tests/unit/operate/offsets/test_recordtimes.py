"""When records were written, as a broker's answers to Fetch tell it."""

from contextlib import closing, contextmanager

import pytest

from tests.fixtures.batches import ABORT, Record, build, control, spoil
from tests.fixtures.stubbroker import InTransit, running_stub_broker
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets.brokeroffsets import BrokerOffsets
from zkconsumer.operate.offsets.recordtimes import RecordTimes
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.rules.fetchanswers import BELIEVED_AT

CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")
P = [TopicPartition("t", number) for number in range(100)]


@pytest.fixture
def stub():
    with running_stub_broker() as running:
        for partition in P:
            log = running.log(partition)
            records = [Record(b"v", None, 1000 * number + partition.partition, ()) for number in range(5)]
            log.batches, log.end = {0: build(records)}, 5
        yield running


@contextmanager
def times_with(stub, **changes):
    config = CONFIG.replace(**changes)
    with closing(BrokerOffsets(config, lambda: [stub.broker])) as asked:
        asked.logs(P)
        yield RecordTimes(asked.client, config)


@pytest.fixture
def times(stub):
    with times_with(stub) as made:
        yield made


def asked_for(stub):
    return [len(one) for one in stub.fetches]


def test_the_record_at_the_offset_counts_and_is_fetched_once(stub, times):
    wanted = {(P[1], 0), (P[2], 3)}
    assert times.look_up(wanted) == {(P[1], 0): 1, (P[2], 3): 3002}
    assert times.look_up(wanted) == {(P[1], 0): 1, (P[2], 3): 3002}
    assert asked_for(stub) == [2]
    assert times.look_up({(P[1], 2)}) == {(P[1], 2): 2001}, "an offset that moved is fetched again"


def test_offsets_of_one_partition_are_fetched_in_further_requests(stub, times):
    wanted = [(P[1], 0), (P[1], 4), (P[2], 0)]
    assert len(times.look_up(wanted)) == 3
    assert asked_for(stub) == [2, 1]


def test_requests_of_one_look_are_bounded(stub, times):
    """Groups that are stuck at many offsets of one partition would fetch its records without end."""
    log = stub.log(P[1])
    log.batches, log.end = {0: build([Record(b"v", None, 7, ())] * 100)}, 100
    wanted = [(P[1], offset) for offset in range(20)]
    assert [len(times.look_up(wanted)) for _ in range(3)] == [8, 16, 20]


def test_an_offset_that_moves_does_not_stand_in_the_way_of_one_that_is_stuck(stub, times):
    """Each of the groups before it consumes and has another offset in each sample."""
    log = stub.log(P[1])
    log.batches, log.end = {0: build([Record(b"v", None, 7, ())] * 100)}, 100
    stuck = (P[1], 99)
    found = [times.look_up([*((P[1], offset) for offset in range(s, s + 10)), stuck]) for s in (0, 10)]
    assert [stuck in one for one in found] == [False, True]


def test_a_leader_without_an_answer_is_asked_once_in_a_look(stub, times):
    stub.fetch_errors[P[1]] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert times.look_up([(P[1], 0), (P[1], 4)]) == {}
    assert asked_for(stub) == [1]


def test_a_bounded_number_is_fetched_at_a_time(stub, times):
    wanted = [(partition, 1) for partition in P]
    assert [len(times.look_up(wanted)) for _ in range(3)] == [64, 100, 100]
    assert asked_for(stub) == [64, 36]


@pytest.mark.parametrize("damage", ["damaged", "refused", "empty"])
def test_what_cannot_be_read_is_unknown(stub, times, damage):
    if damage == "damaged":
        stub.log(P[0]).batches = {0: b"\0" * 100}
    elif damage == "refused":
        stub.fetch_errors[P[0]] = ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        stub.log(P[0]).batches = {}
    assert times.look_up({(P[0], 1), (P[1], 1)}) == {(P[1], 1): 1001}


def test_partitions_that_are_not_answered_do_not_stand_in_the_way_of_others(stub, times):
    for partition in P[:70]:
        stub.log(partition).batches = {}
    wanted = [(partition, 1) for partition in P]
    found = [len(times.look_up(wanted)) for _ in range(3)]
    assert found[-1] == 30


def test_a_partition_without_a_known_leader_is_not_asked_for(times):
    assert times.look_up({(TopicPartition("other", 0), 1)}) == {}


@pytest.mark.parametrize(
    ("code", "is_final"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.REQUEST_TIMED_OUT, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
        (ErrorCode.OFFSET_OUT_OF_RANGE, True),
    ],
)
def test_a_leader_that_moved_or_failed_is_asked_again(stub, times, code, is_final):
    stub.fetch_errors[P[0]] = code
    assert times.look_up({(P[0], 1)}) == {}
    del stub.fetch_errors[P[0]]
    assert times.look_up({(P[0], 1)}) == ({} if is_final else {(P[0], 1): 1000})


def test_records_that_arrive_damaged_are_fetched_again(stub, times):
    good = stub.log(P[0]).batches
    stub.log(P[0]).batches = InTransit(good, {0: spoil(good[0])})
    assert [times.look_up({(P[0], 1)}) for _ in range(2)] == [{}, {(P[0], 1): 1000}]


def test_records_that_stay_damaged_are_not_fetched_for_ever(stub, times):
    """A group that is stuck stays at this offset: each sample would fetch the batch again, ahead of other groups."""
    log = stub.log(P[0])
    log.batches = {0: spoil(log.batches[0])}
    assert [times.look_up({(P[0], 1)}) for _ in range(10)] == [{}] * 10
    assert len(stub.fetches) == BELIEVED_AT


def test_what_is_too_large_once_decompressed_is_unknown(stub):
    stub.log(P[0]).batches = {0: build([Record(bytes(2000), None, 7, ())], codec="gzip")}
    for most, found in ((1000, {}), (4000, {(P[0], 0): 7})):
        with times_with(stub, decompressed_max_bytes=most) as times:
            assert times.look_up({(P[0], 0)}) == found


@pytest.mark.parametrize(("isolation", "ms"), [("read_committed", 20), ("read_uncommitted", 10)])
def test_an_aborted_record_counts_only_for_who_reads_it(stub, isolation, ms):
    log = stub.log(P[0])
    log.batches = {
        0: build([Record(b"aborted", None, 10, ())], producer=5, attributes=0x10),
        1: control(1, ABORT, producer=5),
        2: build([Record(b"v", None, 20, ())], offset=2),
    }
    if isolation == "read_committed":
        log.aborted = [(5, 0)]
    with times_with(stub, isolation_level=isolation) as times:
        assert times.look_up({(P[0], 0)}) == {(P[0], 0): ms}
