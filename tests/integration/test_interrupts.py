"""A member of a group is interrupted while it reads from a real broker: no record is skipped or repeated."""

from collections import Counter

import pytest

from tests.fixtures.interrupts import Alarm, read_under_fire

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300, method="thread"),  # the other method needs the timer of the test
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PARTITIONS = 2
RECORDS = 100_000


def by_record(stream, got):
    for message in stream:
        got.append((message.partition, message.offset, message.value))


def by_batch(stream, got):
    for batch in stream.batches(max_rows=100):
        got.append(batch)


def rows(got):
    return sum(1 if isinstance(item, tuple) else item.num_rows for item in got)


def records(got):
    for item in got:
        if isinstance(item, tuple):
            yield item
        else:
            columns = (item.column(name).to_pylist() for name in ("partition", "offset", "value"))
            yield from zip(*columns, strict=True)


@pytest.mark.parametrize(
    "reader", [pytest.param(by_record, marks=pytest.mark.slow), by_batch], ids=["by_record", "by_batch"]
)
def test_signals_skip_nothing_that_a_real_broker_sends(connect, topic_factory, produce, reader):
    topic = topic_factory(partitions=PARTITIONS)
    produce(topic, [{"value": b"%d" % number * 20, "partition": number % PARTITIONS} for number in range(RECORDS)])
    connector = connect(consumer_timeout_ms=2000, fetch_message_max_bytes=50_000, auto_commit_enable=False)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    got, weapon = [], Alarm()
    with weapon.active():
        interrupts = read_under_fire(reader, stream, got, weapon, lambda: rows(got) >= RECORDS)
    assert interrupts > 0
    assert Counter(partition for partition, *_ in records(got)) == dict.fromkeys(range(PARTITIONS), RECORDS // 2)
    for partition in range(PARTITIONS):
        came = [(offset, value) for where, offset, value in records(got) if where == partition]
        assert came == [(at, b"%d" % (at * PARTITIONS + partition) * 20) for at in range(RECORDS // PARTITIONS)]
    states = {state.partition: state.consumed for state in connector.partition_states()}
    assert states == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
