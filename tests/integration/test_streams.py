"""What streams offer beyond iteration, on a real group and broker; and fairness among the partitions of a queue."""

import json
from collections import Counter
from contextlib import suppress
from itertools import groupby, takewhile

import pytest

from tests.fixtures import fetch as fetch_fixtures
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerRebalanceListener, ConsumerTimeout, NotOwner, TopicPartition, Whitelist

pytestmark = pytest.mark.integration
reader = fetch_fixtures.reader


def spread(count, partitions, size=100, start=0):
    """Numbered values, the number padded to ``size`` bytes, dealt to the partitions in turn."""
    return [
        {"value": b"%d" % number + b"." * (size - len(str(number))), "partition": number % partitions}
        for number in range(start, start + count)
    ]


def read_to_timeout(stream):
    places = []
    try:
        for message in stream:
            places.append((message.partition, message.offset))
    except ConsumerTimeout:
        return places


def read_until(stream, places, complete):
    """Read into ``places`` until that is complete and nothing more comes; silence alone may be a slow machine's."""
    eventually(lambda: places.extend(read_to_timeout(stream)) or complete())


def patient_next(stream):
    """The next record, however often its short ``consumer.timeout.ms`` passes."""
    messages = []

    def comes():
        with suppress(ConsumerTimeout):
            messages.append(next(stream))
        return messages

    eventually(comes)
    return messages[0]


def test_a_paused_partition_stops_and_continues_where_it_was(connect, topic_factory, produce):
    topic = topic_factory(partitions=2)
    paused = TopicPartition(topic, 0)
    produce(topic, spread(2000, 2), batch_size=4000)
    connector = connect(fetch_message_max_bytes=5000, consumer_timeout_ms=1000)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    places = []
    while Counter(partition for partition, _ in places)[0] < 20:
        message = patient_next(stream)
        places.append((message.partition, message.offset))
    connector.pause(paused)
    assert connector.paused() == {paused}
    before = len(places)
    produce(topic, spread(200, 2), batch_size=4000)
    read_until(stream, places, lambda: Counter(partition for partition, _ in places)[1] >= 1100)
    assert {partition for partition, _ in places[before:]} == {1}
    assert Counter(partition for partition, _ in places)[1] == 1100
    states = {state.partition: state for state in connector.partition_states()}
    consumed = [offset for partition, offset in places if partition == 0][-1] + 1
    assert (states[0].consumed, states[1].lag) == (consumed, 0)
    assert states[0].fetched < 1000  # nothing more was fetched of it
    connector.commit_offsets()
    connector.resume(paused)
    assert connector.paused() == set()
    read_until(stream, places, lambda: len(places) >= 2200)
    assert sorted(places) == [(partition, offset) for partition in (0, 1) for offset in range(1100)]
    for partition in (0, 1):
        offsets = [offset for each, offset in places if each == partition]
        assert offsets == sorted(offsets)


def test_paused_partitions_leave_the_queue_to_the_others(topic_factory, produce, reader):
    """Their chunks alone would fill it."""
    topic = topic_factory(partitions=4)
    produce(topic, spread(4000, 4, size=1000), batch_size=16_384)
    one = reader(queued_max_bytes=50_000, fetch_message_max_bytes=40_000, consumer_timeout_ms=1000)
    one.start({(topic, number): 0 for number in range(4)})
    queue = one.queues[one.threads[0]]
    eventually(lambda: queue.room.allowance() < 25_000)  # nothing more is fetched from here on
    first_three = [TopicPartition(topic, number) for number in range(3)]
    one.control.pause(first_three)
    places = []
    read_until(one.streams[0], places, lambda: len(places) >= 1000)
    assert places == [(3, offset) for offset in range(1000)]
    assert one.control.positions(handed_out=True)[TopicPartition(topic, 3)] == 1000
    one.control.resume(first_three)
    places = []
    read_until(one.streams[0], places, lambda: len(places) >= 3000)
    assert sorted(places) == [(partition, offset) for partition in range(3) for offset in range(1000)]


def test_only_what_is_owned_can_be_paused(connect, topic_factory):
    topic = topic_factory(partitions=1)
    connector = connect()
    owned, foreign = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with pytest.raises(NotOwner):
        connector.pause(owned)
    connector.create_message_streams({topic: 1})
    with pytest.raises(NotOwner, match=f"{topic}-1"):
        connector.pause(owned, foreign)
    assert connector.paused() == set()
    connector.pause(owned)
    connector.resume(foreign)
    assert connector.paused() == {owned}


def test_a_listener_pauses_what_it_has_gained_before_it_is_fetched(connect, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produce(topic, spread(20, 2))
    connector = connect(consumer_timeout_ms=1000)

    class PausesTheFirst(ConsumerRebalanceListener):
        def before_starting_fetchers(self, consumer_id, assignment):
            connector.pause(TopicPartition(topic, 0))

    connector.set_rebalance_listener(PausesTheFirst())
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    places = []
    read_until(stream, places, lambda: len(places) >= 10)
    assert read_to_timeout(stream) == []
    assert {partition for partition, _ in places} == {1}
    connector.resume(TopicPartition(topic, 0))
    read_until(stream, places, lambda: len(places) >= 20)
    assert places[10:] == [(0, offset) for offset in range(10)]


def test_a_rebalance_keeps_the_pause_of_what_stays_and_forgets_what_leaves(connect, topic_factory, produce):
    topic = topic_factory(partitions=2)
    staying, leaving = (TopicPartition(topic, number) for number in range(2))
    first = connect(consumer_id="a", consumer_timeout_ms=1000)
    (stream,) = first.create_message_streams({topic: 1})[topic]
    first.pause(staying, leaving)
    produce(topic, spread(100, 2))
    second = connect(consumer_id="b")
    (other,) = second.create_message_streams({topic: 1})[topic]
    eventually(lambda: [state.partition for state in first.partition_states()] == [0])
    eventually(lambda: first.paused() == {staying})  # what has left is forgotten at the end of the rebalance
    assert [next(other).offset for _ in range(50)] == list(range(50))
    assert read_to_timeout(stream) == []
    second.commit_offsets()
    second.shutdown()
    eventually(lambda: [state.partition for state in first.partition_states()] == [0, 1])
    assert first.paused() == {staying}
    produce(topic, [{"value": b"later", "partition": 1}])
    places = []
    read_until(stream, places, lambda: places)
    assert places == [(1, 50)]
    first.resume(staying)
    read_until(stream, places, lambda: len(places) >= 51)
    assert places[1:] == [(0, offset) for offset in range(50)]


def test_peeking_finds_the_end_of_a_run_without_taking_the_next_record(connect, topic_factory, produce):
    topic = topic_factory()
    produce(topic, [(b"%d" % (number // 7), b"v") for number in range(70)], batch_size=300)
    connector = connect(fetch_message_max_bytes=300)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    runs = []
    for _ in range(9):
        key = stream.peek().key
        runs.append([next(stream).key])
        runs[-1] += [next(stream).key for _ in takewhile(lambda key: stream.peek().key == key, [key] * 100)]
        assert connector.partition_states()[0].consumed == 7 * len(runs)
    assert runs == [[b"%d" % number] * 7 for number in range(9)]


def test_decoders_for_a_filter(connect, topic_factory, produce):
    topic = topic_factory()
    produce(topic, [(b"k1", b'{"n": 1}'), (None, None), (b"k3", b"no json")])
    (stream,) = connect().create_message_streams_by_filter(Whitelist(topic), 1, bytes.decode, json.loads)
    messages = [next(stream) for _ in range(3)]
    assert [message.key for message in messages] == ["k1", None, "k3"]
    assert [message.value for message in messages[:2]] == [{"n": 1}, None]
    with pytest.raises(json.JSONDecodeError):
        messages[2].value  # noqa: B018 - it is a call


def test_batches_of_limited_size(connect, topic_factory, produce):
    topic = topic_factory()
    produce(topic, spread(500, 1, size=100))
    (stream,) = connect().create_message_streams({topic: 1})[topic]
    offsets = []
    for batch in stream.batches(max_rows=30, max_bytes=1050):
        assert batch.num_rows <= 10
        offsets += batch.column("offset").to_pylist()
        if len(offsets) == 500:
            break
    assert offsets == list(range(500))


def all_answered(one):
    return all(state.high_watermark is not None for state in one.control.states())


@pytest.mark.parametrize("fetchers", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_hot_partition_starves_no_other_of_its_queue(topic_factory, produce, reader, fetchers):
    """The queue is full of the hot one's chunks all the time; the others' records come long before its end."""
    topic = topic_factory(partitions=8)
    produce(topic, [{"value": b"x" * 1000, "partition": 0}] * 30_000, batch_size=16_384)
    produce(topic, [{"value": b"y" * 1000, "partition": number} for number in range(1, 8)] * 20, batch_size=4000)
    one = reader(queued_max_bytes=60_000, fetch_message_max_bytes=50_000, num_consumer_fetchers=fetchers)
    one.start({(topic, number): 0 for number in range(8)})
    messages = []
    # A fetcher whose thread starts late has its first answer only when much of the hot partition is read already.
    eventually(lambda: messages.extend(one.read(1)) or all_answered(one))
    late = len(messages)
    messages += one.read(30_000 + 7 * 20 - late)
    last = {message.partition: number for number, message in enumerate(messages)}
    assert len(last) == 8
    assert max(last[number] for number in range(1, 8)) < late + 7500
    assert len(list(groupby(message.partition for message in messages))) > 8
