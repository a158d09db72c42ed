"""For all actions of users and rebalances, each partition's records come once, in order, and none is missing."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.fixtures.chunks import make_fetched_chunk, make_info, make_queue
from tests.fixtures.examples import examples
from zkconsumer.connector.stream import MessageStream
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.model import Message, TopicPartition

PARTITIONS = st.integers(0, 2)
LIMITS = st.none() | st.integers(1, 40)


class StreamMachine(RuleBasedStateMachine):
    """A queue of three partitions, whose fetchers are played by ``fetch``, and one reader."""

    @initialize()
    def begin(self):
        self.queue = make_queue(max_chunks=100)
        self.stream = MessageStream(self.queue, name="g_c-0", kind=Message, timeout_ms=0)
        self.generation = 1
        self.infos = [make_info(self.queue, number) for number in range(3)]
        self.next_offsets = [0, 0, 0]
        self.expected = [[], [], []]  # offsets that wait for the reader
        self.paused = set()

    @rule(number=PARTITIONS, count=st.integers(1, 4), gap=st.integers(0, 2))
    def fetch(self, number, count, gap):
        start = self.next_offsets[number]
        self.queue.put(make_fetched_chunk(self.infos[number], start, count, gap))
        self.expected[number] += range(start, start + count)
        self.next_offsets[number] = start + count + gap

    @rule(number=PARTITIONS)
    def pass_control_records(self, number):
        self.next_offsets[number] += 2
        self.queue.put(Chunk(self.infos[number], None, self.next_offsets[number], 0))

    @rule(peek_first=st.booleans())
    def read_record(self, peek_first):
        try:
            peeked = self.stream.peek() if peek_first else None
            message = next(self.stream)
        except ConsumerTimeout:
            assert not self.deliverable()
            return
        assert peeked in (None, message)
        self.arrived(message.partition, [message.offset])

    @rule(max_rows=LIMITS, max_bytes=LIMITS)
    def read_batch(self, max_rows, max_bytes):
        batch = self.stream.next_batch(max_rows=max_rows, max_bytes=max_bytes)
        if batch is None:
            assert not self.deliverable()
            return
        assert max_rows is None or batch.num_rows <= max_rows
        self.arrived(batch.column("partition")[0].as_py(), batch.column("offset").to_pylist())

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

    @rule()
    def rebalance(self):
        """Keep all partitions; records that were not handed out are fetched again."""
        self.queue.release_all()
        self.generation += 1
        starts = [info.position(handed_out=True) for info in self.infos]
        self.infos = [make_info(self.queue, number, self.generation, start) for number, start in enumerate(starts)]
        self.paused.clear()
        for number, start in enumerate(starts):
            refetched, self.expected[number] = self.expected[number], []
            for offset in refetched:
                assert offset >= start
                self.next_offsets[number] = offset
                self.fetch(number, 1, 0)

    @invariant()
    def positions_are_between_what_was_read_and_what_comes(self):
        for info, expected in zip(self.infos, self.expected, strict=True):
            released, position = info.position(handed_out=False), info.position(handed_out=True)
            assert released <= position
            assert not expected or position <= expected[0]

    def deliverable(self):
        return any(expected for number, expected in enumerate(self.expected) if number not in self.paused)

    def arrived(self, number, offsets):
        assert number not in self.paused
        assert offsets == self.expected[number][: len(offsets)]
        del self.expected[number][: len(offsets)]


TestStream = StreamMachine.TestCase
TestStream.settings = settings(
    max_examples=examples(150),
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),  # as by default; the settings treat the machine as the test
)
