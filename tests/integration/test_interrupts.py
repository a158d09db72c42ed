"""A member of a group is interrupted while it reads from a real broker: no record is skipped or repeated."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import pytest

from tests.fixtures.consumers import IN_BROKER_GROUP, collect, owned, parts
from tests.fixtures.interrupts import Alarm, by_next_batch, by_next_message, by_record, read_under_fire
from tests.fixtures.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300, method="thread"),  # the other method needs the timer of the test
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PARTITIONS = 2
RECORDS = 100_000


def by_batch(stream, got):
    for batch in stream.batches(max_rows=100):
        got.append(batch)


def rows(got):
    return sum(1 if isinstance(item, tuple) else item.num_rows for item in got)


def records(got):
    for item in got:
        if isinstance(item, tuple):
            yield item.partition, item.offset, item.value
        else:
            columns = (item.column(name).to_pylist() for name in ("partition", "offset", "value"))
            yield from zip(*columns, strict=True)


def value_of(partition, offset):
    return b"%d" % (offset * PARTITIONS + partition) * 20


def fill(produce, topic, numbers):
    """Append records with these numbers, to the partitions in turn."""
    produce(topic, [{"value": b"%d" % number * 20, "partition": number % PARTITIONS} for number in numbers])


@pytest.fixture
def member(connect, sandbox, protocol):
    """Make members of a group with the protocol that is a parameter of the test."""
    if protocol == "kafka":
        return partial(connect, bootstrap_servers=sandbox.bootstrap_servers, **IN_BROKER_GROUP)
    return partial(connect, group_protocol=protocol)


def case(protocol, reader, *, marks=pytest.mark.slow):
    return pytest.param(protocol, reader, marks=marks, id=f"{protocol}-{reader.__name__}")


@pytest.mark.parametrize(
    ("protocol", "reader"),
    [
        case("zookeeper", by_batch, marks=()),
        case("zookeeper", by_record),
        case("zookeeper", by_next_message),
        case("zookeeper", by_next_batch),
        case("coordinator", by_batch),
        case("coordinator", by_next_message),
        case("coordinator", by_next_batch),
        case("kafka", by_batch),
        case("kafka", by_next_message),
        case("kafka", by_next_batch),
    ],
)
def test_signals_skip_nothing_that_a_real_broker_sends(member, topic_factory, produce, reader):
    topic = topic_factory(partitions=PARTITIONS)
    fill(produce, topic, range(RECORDS))
    connector = member(consumer_timeout_ms=2000, fetch_message_max_bytes=50_000, auto_commit_enable=False)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    got, weapon = [], Alarm()
    with weapon.active():
        interrupts = read_under_fire(reader, stream, got, weapon, lambda: rows(got) >= RECORDS)
    assert interrupts > 0
    assert Counter(partition for partition, *_ in records(got)) == dict.fromkeys(range(PARTITIONS), RECORDS // 2)
    for partition in range(PARTITIONS):
        came = [(offset, value) for where, offset, value in records(got) if where == partition]
        assert came == [(at, value_of(partition, at)) for at in range(RECORDS // PARTITIONS)]
    states = {state.partition: state.consumed for state in connector.partition_states()}
    assert states == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


@pytest.mark.parametrize(
    ("protocol", "reader"),
    [
        case("kafka", by_next_message, marks=()),
        case("zookeeper", by_next_batch),
        case("coordinator", by_batch),
        case("kafka", by_next_batch),
    ],
)
def test_signals_skip_nothing_while_another_member_comes_and_goes(member, topic_factory, produce, reader):
    """Records are produced before it joins, while both share the topic, and after it has left."""
    topic, part = topic_factory(partitions=PARTITIONS), 2000
    everything = {*range(3 * part)}
    got, received, weapon = [], [], Alarm()
    connector = member(consumer_timeout_ms=500, fetch_message_max_bytes=5_000)
    (stream,) = connector.create_message_streams({topic: 1})[topic]

    def come_and_go():
        fill(produce, topic, range(part))
        eventually(lambda: got)
        other = member()
        streams = other.create_message_streams({topic: 1})[topic]
        eventually(lambda: (len(owned(connector)), len(owned(other))) == (1, 1))
        received.append(collect(streams))
        fill(produce, topic, range(part, 2 * part))
        eventually(lambda: received[0])
        other.shutdown()
        eventually(lambda: owned(connector) == parts(topic, 0, 1))
        fill(produce, topic, range(2 * part, 3 * part))

    def of_the_other():
        return {int(value[: len(value) // 20]) for values in received for value in values}

    def missing():
        ours = {offset * PARTITIONS + partition for partition, offset, _ in records(got)}
        return everything - ours - of_the_other()

    def is_over():
        return time.monotonic() > deadline or (coming.done() and (coming.exception() is not None or not missing()))

    deadline = time.monotonic() + 200
    with ThreadPoolExecutor(1) as pool, weapon.active():
        coming = pool.submit(come_and_go)
        interrupts = read_under_fire(reader, stream, got, weapon, is_over)
        coming.result()
    assert not missing()
    assert interrupts > 0
    assert of_the_other()
    assert all(value == value_of(partition, offset) for partition, offset, value in records(got))
    for partition in range(PARTITIONS):
        came = [offset for where, offset, _ in records(got) if where == partition]
        returns = sum(following <= offset for offset, following in pairwise(came))
        assert returns < connector.describe().generation, "offsets go back in a rebalance only"
