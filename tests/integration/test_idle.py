"""A reader that is stuck costs its member the partitions, and the group nothing (``max.stream.idle.ms``)."""

import logging
from contextlib import suppress

import pytest

from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerClosed, ConsumerTimeout, StreamIdle

pytestmark = pytest.mark.integration


def has_left(zookeeper, connector, group):
    return zookeeper.exists(f"/consumers/{group}/ids/{connector.consumer_id}") is None


@pytest.mark.parametrize(("fetch_bytes", "count"), [(50, 5), (1 << 20, 4)])
def test_the_partitions_of_a_stuck_reader_go_to_another(
    connect, topic_factory, produce, zookeeper, caplog, fetch_bytes, count
):
    """The unread data is a chunk after the one that is being read, or only the rest of that one."""
    taken = []
    with caplog.at_level(logging.WARNING):
        while len(taken) < count:  # again if the machine stood still for so long between two records
            topic = topic_factory(partitions=1)
            for values in ([b"0", b"1", b"2", b"3", b"4"], [b"5", b"6", b"7", b"8", b"9"]):
                produce(topic, values)
            stuck = connect(max_stream_idle_ms=3000, fetch_message_max_bytes=fetch_bytes)
            streams = stuck.create_message_streams({topic: 2})[topic]
            with suppress(StreamIdle):
                taken = [next(streams[0]).value for _ in range(count)]
        eventually(lambda: has_left(zookeeper, stuck, connect.group))
    assert taken == [b"%d" % number for number in range(count)]
    (warning,) = [text for text in caplog.messages if "max.stream.idle.ms" in text and topic in text]
    assert all(name in warning for name in (connect.group, stuck.consumer_id, f"{stuck.consumer_id}-0", f"{topic}-0"))
    (stream,) = connect().create_message_streams({topic: 1})[topic]
    # The stuck reader had got the last one: whether it was processed is unknown.
    assert [next(stream).value for _ in range(11 - count)] == [b"%d" % number for number in range(count - 1, 10)]
    for one in streams:
        for _ in range(2):
            with pytest.raises(StreamIdle, match="create a new connector"):
                next(one)
    with pytest.raises(ConsumerClosed):
        stuck.commit_offsets()


def test_a_live_member_takes_over_while_the_other_is_stuck(connect, topic_factory, produce):
    topic = topic_factory(partitions=2)
    stuck = connect(max_stream_idle_ms=500)
    stuck.create_message_streams({topic: 1})
    other = connect()
    (stream,) = other.create_message_streams({topic: 1})[topic]
    eventually(lambda: len(stuck.partition_states()) == len(other.partition_states()) == 1)
    produce(topic, [{"value": b"%d" % number, "partition": number % 2} for number in range(10)])
    assert sorted(int(next(stream).value) for _ in range(10)) == list(range(10))


def test_a_reader_without_data_is_never_idle(connect, topic_factory, produce, zookeeper):
    topic = topic_factory()
    connector = connect(max_stream_idle_ms=2500, consumer_timeout_ms=5000)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    produce(topic, [b"only"])
    received = []

    def has_come():  # five seconds may pass on a slow machine
        with suppress(ConsumerTimeout):
            received.append(next(stream).value)
        return received

    eventually(has_come)
    assert received == [b"only"]
    with pytest.raises(ConsumerTimeout):
        next(stream)
    assert not has_left(zookeeper, connector, connect.group)
