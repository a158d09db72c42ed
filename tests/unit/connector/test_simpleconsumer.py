"""SimpleConsumer with a scripted broker; with real ones see tests/integration/test_simple.py."""

import pytest

from tests.fixtures.batches import build, spoil
from tests.fixtures.stubbroker import InTransit, running_stub_broker
from zkconsumer import ConsumerConfig, SimpleConsumer, TopicPartition
from zkconsumer.errors import CorruptRecord, RecordTooLarge, TopicUnreadable
from zkconsumer.sandbox.producer import Record
from zkconsumer.wire.errorcodes import ErrorCode

TP = TopicPartition("t", 0)
INTACT = {base: build([Record(b"v")] * 5, offset=base) for base in (0, 5)}
DAMAGED = {
    "checksum": spoil(INTACT[5]),
    "offset lowered": build([Record(b"v")] * 5),
    "offset raised": build([Record(b"v")] * 5, offset=5 + 2**40),
}
TOO_LARGE = build([Record(bytes(2000))] * 5, offset=5, codec="gzip")


@pytest.fixture
def fetch():
    """Fetch from offset 5 of a log with these batches."""
    config = ConsumerConfig.without_group(bootstrap_servers="localhost:1", decompressed_max_bytes=1000)
    with running_stub_broker() as stub, SimpleConsumer("127.0.0.1", stub.port, config=config) as simple:

        def fetch_from_log(batches):
            stub.log(TP).end, stub.log(TP).batches = 10, batches
            return [message.offset for message in simple.fetch(TP, 5)]

        yield fetch_from_log


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_in_transit_is_fixed_by_fetching_again(fetch, name):
    assert fetch(InTransit(INTACT, {5: DAMAGED[name]})) == [5, 6, 7, 8, 9]


def test_a_batch_is_too_large_if_it_is_so_when_it_is_fetched_again(fetch):
    assert fetch(InTransit(INTACT, {5: TOO_LARGE})) == [5, 6, 7, 8, 9]
    with pytest.raises(RecordTooLarge, match=r"raise decompressed\.max\.bytes"):
        fetch(INTACT | {5: TOO_LARGE})


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_on_the_broker_s_disk_is_raised(fetch, name):
    with pytest.raises(CorruptRecord, match=r"t-0 at offset 5 \(fetched from 5\)"):
        fetch(INTACT | {5: DAMAGED[name]})


def test_a_topic_that_a_broker_refuses_is_reported_like_everywhere_and_by_the_one_that_answered(stub_broker):
    config = ConsumerConfig.without_group(bootstrap_servers=f"127.0.0.1:{stub_broker.port}")
    with SimpleConsumer("127.0.0.1", stub_broker.port, config=config) as simple:
        stub_broker.log(TP).end = 1
        stub_broker.offset_errors[TP] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        stub_broker.topic_errors["t"] = ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(TopicUnreadable, match="INVALID_TOPIC_EXCEPTION"):
            simple.earliest(TP)
        stub_broker.coordinator = stub_broker.broker
        stub_broker.committed_errors[TP] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(TopicUnreadable, match="the coordinator of group g"):
            simple.fetch_offsets("g", [TP], storage="kafka")
