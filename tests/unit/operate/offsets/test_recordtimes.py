"""When records were written, as a broker's answers to Fetch tell it."""

from contextlib import closing

import pytest

from tests.fixtures.batches import Record, build
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets.brokeroffsets import BrokerOffsets
from zkconsumer.operate.offsets.recordtimes import RecordTimes
from zkconsumer.wire.errorcodes import ErrorCode

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


@pytest.fixture
def times(stub):
    with closing(BrokerOffsets(CONFIG, lambda: [stub.broker])) as asked:
        asked.logs(P)
        yield RecordTimes(asked.client, CONFIG)


def asked_for(stub):
    return [len(one) for one in stub.fetches]


def test_the_record_at_the_offset_counts_and_is_fetched_once(stub, times):
    wanted = {(P[1], 0), (P[2], 3)}
    assert times.look_up(wanted) == {(P[1], 0): 1, (P[2], 3): 3002}
    assert times.look_up(wanted) == {(P[1], 0): 1, (P[2], 3): 3002}
    assert asked_for(stub) == [2]
    assert times.look_up({(P[1], 2)}) == {(P[1], 2): 2001}, "an offset that moved is fetched again"


def test_a_partition_is_named_once_in_a_request(times):
    both = {(P[1], 0): None, (P[1], 4): None}
    assert [len(times.look_up(both)) for _ in range(2)] == [1, 2]


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
