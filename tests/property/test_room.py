"""A fetcher that waits for room in a queue is called as soon as it can send, and not before, in all cases."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.fixtures.chunks import make_chunk, make_fetched_chunk, make_info, make_queue, offsets
from tests.fixtures.examples import examples
from zkconsumer.errors import CorruptRecord
from zkconsumer.fetch.chunks import Chunk
from zkconsumer.fetch.handedout import HandOver

SHARES = ((0,), (1, 2), (3, 4, 5))
"""Numbers of the partitions of each fetcher."""
NUMBERS = st.sampled_from([number for share in SHARES for number in share])


class RoomMachine(RuleBasedStateMachine):
    """One queue, three fetchers that wait whenever they cannot fetch, and one reader."""

    @initialize(max_bytes=st.sampled_from([400, 1 << 20]), max_chunks=st.integers(1, 3))
    def begin(self, max_bytes, max_chunks):
        self.queue = make_queue(max_bytes=max_bytes, max_chunks=max_chunks)
        self.infos = [make_info(self.queue, number) for number in range(6)]
        self.waiting = {}
        self.listeners = [self.listener(number) for number in range(len(SHARES))]

    def listener(self, number):
        def called():
            if number in self.waiting:
                assert self.has_something_to_do(number), "woken without need"
                self.waiting[number] = True

        return called

    def share(self, number):
        return [self.infos[one] for one in SHARES[number]]

    def has_something_to_do(self, number):
        share = self.share(number)
        return bool(self.queue.room.to_fetch(share)) or any(info in self.queue.damaged() for info in share)

    @rule(number=st.integers(0, 2))
    def wait(self, number):
        expected = not self.has_something_to_do(number)
        assert self.queue.room.wait(self.listeners[number], self.share(number)) is expected
        if expected:
            self.waiting[number] = False

    @rule(number=st.integers(0, 2))
    def look_again(self, number):
        self.queue.room.end_wait(self.listeners[number])
        self.waiting.pop(number, None)

    @rule(number=NUMBERS, decoded=st.booleans())
    def put(self, number, decoded):
        self.queue.put((make_chunk if decoded else make_fetched_chunk)(self.infos[number], 0, 2))

    @rule(number=NUMBERS)
    def put_without_records(self, number):
        self.queue.put(Chunk(self.infos[number], None, 1, 0))

    @rule(claims=st.integers(0, 2))
    def take(self, claims):
        chunk = self.queue.request(0)
        if chunk is not None and chunk.batch is not None:
            handover = HandOver(chunk, offsets(chunk.batch), offsets(chunk.batch))
            assert self.queue.begin(handover)
            for _ in zip(range(claims), handover.claims, strict=False):
                pass

    @rule(fate=st.sampled_from(["decoded", "empty", "damaged"]))
    def decode(self, fate):
        chunk = self.queue.look(0)
        if chunk is None or chunk.scanned is None:
            return
        if fate == "damaged":
            self.queue.send_back(chunk, CorruptRecord("bad"))
        else:
            parts = [make_chunk(chunk.info, 0, 2)] if fate == "decoded" else [Chunk(chunk.info, None, 1, 0)]
            assert self.queue.replace(chunk, parts)

    @rule(number=NUMBERS)
    def continue_after_damage(self, number):
        self.queue.take_damage(self.infos[number])

    @rule(number=NUMBERS)
    def pause(self, number):
        self.queue.pause(self.infos[number].partition)

    @rule(number=NUMBERS)
    def resume(self, number):
        self.queue.resume(self.infos[number].partition)

    @rule()
    def withhold(self):
        self.queue.withhold()

    @invariant()
    def no_fetcher_waits_that_could_send(self):
        for number, called in self.waiting.items():
            assert called or not self.has_something_to_do(number), "a wake-up was lost"


TestRoom = RoomMachine.TestCase
TestRoom.settings = settings(
    max_examples=examples(200),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),  # as by default; the settings treat the machine as the test
)
