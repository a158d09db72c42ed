"""For all actions of users and rebalances with ``commit.on=done``: no position passes a record that is not done.

The model knows of each partition which records were handed out and are not done, in this ownership or one that it
continues. Interrupts come anywhere in what the reader and the finishing threads do.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.fixtures.chunks import make_fetched_chunk, make_info, make_queue
from tests.fixtures.interrupts import READING, Injector, Interrupt
from zkconsumer.connector.stream import MessageStream
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.partitioninfo import PartitionInfo
from zkconsumer.fetch.unfinished import Unfinished
from zkconsumer.fetch.unfinisheditems import UnfinishedItems
from zkconsumer.model import Message, TopicPartition

PARTITIONS = st.integers(0, 1)
POINTS = st.none() | st.tuples(st.integers(1, 60), st.integers(0, 6))
"""Where a call is interrupted; many points are never reached."""


class UnfinishedMachine(RuleBasedStateMachine):
    """A queue of two partitions, whose fetchers are played by ``fetch``, and one reader."""

    @initialize(limit=st.integers(1, 6))
    def begin(self, limit):
        self.limit = limit
        self.queue = make_queue(max_chunks=100, max_unfinished=limit)
        self.stream = MessageStream(self.queue, name="g_c-0", kind=Message, timeout_ms=0)
        self.infos = [make_info(self.queue, number) for number in range(2)]
        self.next_offsets = [0, 0]  # to fetch
        self.waiting = [[], []]  # offsets that wait for the reader
        self.held = [[], []]  # items that are handed out and not done, as (object, offsets)
        self.late = []  # items of ended generations, and those that are done
        self.paused = set()

    @rule(number=PARTITIONS, count=st.integers(1, 4), gap=st.integers(0, 2))
    def fetch(self, number, count, gap):
        start = self.next_offsets[number]
        self.queue.put(make_fetched_chunk(self.infos[number], start, count, gap))
        self.waiting[number] += range(start, start + count)
        self.next_offsets[number] = start + count + gap

    @rule(number=PARTITIONS)
    def pass_control_records(self, number):
        self.next_offsets[number] += 2
        self.queue.put(Chunk(self.infos[number], None, self.next_offsets[number], 0))

    @rule(count=st.integers(1, 3), point=POINTS)
    def read_records(self, count, point):
        got = []

        def read():
            for message in self.stream:
                got.append(message)
                if len(got) == count:
                    return

        self._interrupted(read, point)
        for message in got:
            self._arrived(message, message.partition, [message.offset])

    @rule(point=POINTS)
    def read_batch(self, point):
        got = []

        def read():
            for batch in self.stream.batches():
                got.append(batch)
                return

        self._interrupted(read, point)
        for batch in got:
            self._arrived(batch, batch.column("partition")[0].as_py(), batch.column("offset").to_pylist())

    def _interrupted(self, act, point):
        injector = Injector(point, READING)
        try:
            if point is None:
                act()
            else:
                with injector.active():
                    act()
        except (ConsumerTimeout, Interrupt):
            pass

    @rule(number=PARTITIONS, which=st.integers(0, 5), point=POINTS)
    def finish(self, number, which, point):
        if not self.held[number]:
            return
        item, _ = entry = self.held[number][which % len(self.held[number])]
        self._interrupted(lambda: self.stream.done(item), point)
        self.stream.done(item)  # a second time, or after the interrupt
        self.held[number].remove(entry)
        self.late.append(item)

    @rule(which=st.integers(0, 30))
    def finish_late(self, which):
        if self.late:
            self.stream.done(self.late[which % len(self.late)])

    @rule(number=PARTITIONS)
    def pause(self, number):
        self.queue.pause(TopicPartition("t", number))
        self.paused.add(number)

    @rule(number=PARTITIONS)
    def resume(self, number):
        self.queue.resume(TopicPartition("t", number))
        self.paused.discard(number)

    @rule()
    def lapse(self):
        self.queue.withhold()

    @rule(number=PARTITIONS)
    def keep(self, number):
        """A rebalance in which the partition stays."""
        old = self.infos[number]
        start = old.position(handed_out=True)
        newer = PartitionInfo(old.partition, old.thread, old.generation + 1, self.queue, start, 1 << 20)
        newer.unfinished = old.unfinished
        self.queue.release([old])
        self.queue.admit([newer])
        self._restarted(number, newer, start)

    @rule(number=PARTITIONS, others=st.integers(0, 3))
    def lose_and_regain(self, number, others):
        """Another member owned it, and committed something of what was committed before or of what followed."""
        old = self.infos[number]
        committed = old.position(handed_out=False)
        start = min(committed + others, self.next_offsets[number])
        self.queue.release([old])
        self.queue.discard([old])
        assert old.position(handed_out=False) == committed
        self.late += [item for item, _ in self.held[number]]
        self.held[number] = []
        self._restarted(number, make_info(self.queue, number, old.generation + 1, start), start)

    def _restarted(self, number, info, start):
        self.infos[number] = info
        self.paused.discard(number)
        end, self.waiting[number] = self.next_offsets[number], []
        for offset in range(start, end):
            self.next_offsets[number] = offset
            self.fetch(number, 1, 0)

    @invariant()
    def positions_are_below_what_is_not_done(self):
        for number, info in enumerate(getattr(self, "infos", [])):
            position, handed_out = (info.position(handed_out=which) for which in (False, True))
            unfinished = [offset for _, offsets in self.held[number] for offset in offsets]
            assert position <= handed_out
            assert position == min([handed_out, *unfinished]), "it is below what is not done, and no lower"
            assert self.queue.count_unfinished(info) == len(unfinished)
            assert not self.waiting[number] or handed_out <= self.waiting[number][0]

    def _arrived(self, item, number, offsets):
        unfinished = sum(len(held) for _, held in self.held[number])
        assert number not in self.paused
        assert unfinished < self.limit
        assert offsets == self.waiting[number][: len(offsets)]
        del self.waiting[number][: len(offsets)]
        self.held[number].append((item, offsets))

    def teardown(self):
        """Whatever happened before: what is done lets everything else come."""
        for number in range(len(getattr(self, "infos", []))):
            self.resume(number)
        for _ in range(1000):
            for number in range(len(getattr(self, "infos", []))):
                for item, _ in list(self.held[number]):
                    self.stream.done(item)
                self.held[number] = []
            if not any(getattr(self, "waiting", [])):
                return
            self.read_records(100, None)
        raise AssertionError(f"records never came: {self.waiting}")


SETTINGS = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))
TestUnfinished = UnfinishedMachine.TestCase
TestUnfinished.settings = SETTINGS
TestUnfinished.pytestmark = pytest.mark.timeout(600)  # shrinking takes time


def play():
    """A course in which a partition is lost, comes back, and late items are done."""
    machine = UnfinishedMachine()
    machine.begin(limit=4)
    machine.fetch(0, 4, 0)
    machine.read_records(2, None)
    machine.lapse()
    machine.read_records(1, None)
    machine.finish(0, 1, None)
    machine.positions_are_below_what_is_not_done()
    machine.lose_and_regain(0, 0)
    machine.read_records(2, None)
    for number in range(len(machine.late)):
        machine.finish_late(number)
    machine.positions_are_below_what_is_not_done()
    machine.teardown()


def finds_items_by_their_offset(monkeypatch):
    def finish(self, item):
        unfinished = self._of[item[:2]]
        for key, held in list(unfinished.items.items()):
            if held.offset == item.offset:
                del unfinished.items[key]

    monkeypatch.setattr(UnfinishedItems, "finish", finish)


def keeps_what_was_taken_back(monkeypatch):
    monkeypatch.setattr(Unfinished, "withdraw", lambda *_: None)


def finishes_what_was_handed_out_before(monkeypatch):
    monkeypatch.setattr(Unfinished, "lowest", lambda self: max((i.offset for i in self.items.values()), default=None))


@pytest.mark.parametrize(
    "bug", [finds_items_by_their_offset, keeps_what_was_taken_back, finishes_what_was_handed_out_before]
)
def test_the_model_notices_a_bug(bug, monkeypatch):
    play()
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        play()
