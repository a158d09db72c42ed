"""WaitingChunks: order and sums after any additions, pauses, replacements and drops."""

import threading
from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from tests.fixtures.chunks import make_info, make_queue
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.queueroom import QueueRoom
from zkconsumer.fetch.waitingchunks import WaitingChunks
from zkconsumer.model import TopicPartition

QUEUE = make_queue()
INFOS = [make_info(QUEUE, number) for number in range(3)]
PARTITIONS = st.sampled_from([info.partition for info in INFOS])


def chunk_of(info, at, *, records=True, nbytes=10):
    return Chunk(info, f"batch {at}" if records else None, at + 1, nbytes if records else 0)


def ends(chunks):
    return [chunk.next_offset for chunk in chunks]


@pytest.fixture
def waiting():
    return WaitingChunks()


def test_dropping_keeps_earlier_chunks_and_other_partitions(waiting):
    mine, other = INFOS[:2]
    chunks = [chunk_of(info, at) for at, info in enumerate([mine, other, mine, other, mine])]
    for chunk in chunks:
        waiting.add(chunk)
    assert waiting.drop_from(chunks[2])
    assert ends(waiting) == [1, 2, 4]
    assert (waiting.nbytes, waiting.count(mine.partition), waiting.count(other.partition)) == (30, 1, 2)
    assert not waiting.drop_from(chunks[2])


def test_dropping_among_paused_chunks(waiting):
    info = INFOS[0]
    chunks = [chunk_of(info, at) for at in range(3)]
    for chunk in chunks:
        waiting.add(chunk)
    waiting.pause(info.partition)
    assert waiting.drop_from(chunks[1])
    assert waiting.nbytes == 0
    waiting.resume(info.partition)
    assert ends(waiting) == [1]


def test_replacements_keep_the_place_of_the_chunk(waiting):
    chunks = [chunk_of(INFOS[0], at) for at in (0, 10, 20)]
    for chunk in chunks:
        waiting.add(chunk)
    assert waiting.replace(chunks[1], [chunk_of(INFOS[0], at, nbytes=1) for at in (10, 11)])
    assert ends(waiting) == [1, 11, 12, 21]
    assert (waiting.nbytes, waiting.count(INFOS[0].partition)) == (22, 4)
    assert not waiting.replace(chunks[1], [])


class Machine(RuleBasedStateMachine):
    """Compares with a model that keeps paused and unpaused chunks as lists."""

    chunks = Bundle("chunks")

    @initialize()
    def begin(self):
        self.waiting = WaitingChunks()
        self.here, self.paused = [], {}

    def place(self, chunk):
        return self.paused.get(chunk.info.partition, self.here)

    def holds(self, chunk):
        return any(one is chunk for one in self.place(chunk))

    @rule(
        target=chunks,
        info=st.sampled_from(INFOS),
        at=st.integers(0, 99),
        records=st.booleans(),
        in_front=st.booleans(),
    )
    def add(self, info, at, records, in_front):
        chunk = chunk_of(info, at, records=records)
        self.waiting.add(chunk, in_front=in_front)
        self.place(chunk).insert(0 if in_front else len(self.place(chunk)), chunk)
        return chunk

    @rule(partition=PARTITIONS)
    def pause(self, partition):
        assert self.waiting.pause(partition) is (partition not in self.paused)
        if partition not in self.paused:
            self.paused[partition] = [chunk for chunk in self.here if chunk.info.partition == partition]
            self.here = [chunk for chunk in self.here if chunk.info.partition != partition]

    @rule(partition=PARTITIONS)
    def resume(self, partition):
        self.waiting.resume(partition)
        self.here += self.paused.pop(partition, [])

    @rule()
    def drop_front(self):
        assert self.waiting.front() is (self.here[0] if self.here else None)
        if self.here:
            self.waiting.drop_front()
            del self.here[0]

    @rule(chunk=consumes(chunks), count=st.integers(0, 2))
    def replace(self, chunk, count):
        parts = [chunk_of(chunk.info, 100 + at) for at in range(count)]
        held = self.holds(chunk)
        assert self.waiting.holds(chunk) is held
        assert self.waiting.replace(chunk, parts) is held
        if held:
            place = self.place(chunk)
            at = next(at for at, one in enumerate(place) if one is chunk)
            place[at : at + 1] = parts

    @rule(chunk=consumes(chunks))
    def drop(self, chunk):
        held = self.holds(chunk)
        assert self.waiting.drop_from(chunk) is held
        if held:
            place = self.place(chunk)
            at = next(at for at, one in enumerate(place) if one is chunk)
            place[at:] = [one for one in place[at:] if one.info is not chunk.info]

    @invariant()
    def agrees(self):
        assert [id(chunk) for chunk in self.waiting] == [id(chunk) for chunk in self.here]
        assert self.waiting.nbytes == sum(chunk.nbytes for chunk in self.here)
        counts = Counter(chunk.info.partition for chunk in self.here)
        for info in INFOS:
            assert self.waiting.count(info.partition) == counts[info.partition]
        assert self.waiting.first() is next((chunk for chunk in self.here if chunk.has_records), None)
        active = [info for info in INFOS if info.partition not in self.paused]
        assert self.waiting.counts(INFOS) == (active, [counts[info.partition] for info in active])
        room = QueueRoom(threading.Lock(), self.waiting, set(), max_bytes=1 << 30, max_chunks=2)
        lacking = room.to_fetch(INFOS)
        if counts.total() > len(active):
            assert lacking == []
        else:
            assert lacking == [info for info in active if counts[info.partition] < 2]
        assert lacking or counts.total() or not active, "no partition would ever be fetched again"


TestMachine = Machine.TestCase


def test_partitions_are_distinguished_by_topic_too(waiting):
    one, two = (make_info(QUEUE, topic=topic) for topic in ("a", "b"))
    waiting.add(chunk_of(one, 0))
    waiting.add(chunk_of(two, 0))
    waiting.pause(TopicPartition("a", 0))
    assert [chunk.info for chunk in waiting] == [two]
