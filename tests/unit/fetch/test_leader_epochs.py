"""Leader epochs (KIP-320) in a consumer's fetch path, with brokers that lead in epochs that a test specifies."""

import pytest

from tests.fixtures.chunks import THREAD, make_queue, take
from tests.fixtures.messagesets import message_set
from tests.fixtures.stubbroker import EPOCH_VERSIONS, running_stub_broker
from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import CorruptRecord
from zkconsumer.fetch.chunkreader import ChunkReader
from zkconsumer.fetch.localfetchcontrol import LocalFetchControl
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox.producer import Record
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.knownbrokers import KNOWN_BROKERS

P = TopicPartition("t", 0)
METADATA, OFFSET_FOR_LEADER_EPOCH = 3, 23


@pytest.fixture
def stub():
    with running_stub_broker() as stub:
        stub.versions = dict(EPOCH_VERSIONS)
        yield stub


@pytest.fixture
def log(stub):
    """30 records of epoch 0."""
    log = stub.log(P)
    log.write(10, 0)
    log.write(20, 0)
    return log


class Member:
    """The fetching side of a member that owns one partition."""

    def __init__(self, brokers, **settings):
        self.brokers = brokers
        self.queue = make_queue(max_chunks=100)
        self.reader = ChunkReader(self.queue)
        config = ConsumerConfig(group_id="g", zookeeper_connect="unused:1", refresh_leader_backoff_ms=1, **settings)
        self.control = LocalFetchControl(
            "g_c", config, lambda: [stub.broker for stub in self.brokers], lambda topic, thread: self.queue
        )
        self.generation = 0

    def start(self, offset):
        self.generation += 1
        self.control.start(FetchAssignment(self.generation, {P: AssignedPartition(THREAD, offset)}))

    def read(self, count):
        """(offset, value) of records until there are ``count`` of them."""
        rows = []
        while len(rows) < count:
            chunk = take(self.reader, self.queue, 60)
            assert chunk is not None, f"only {rows}"
            batch = chunk.batch
            rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
        return rows

    @property
    def fetched(self):
        (state,) = self.control.states()
        return state.fetched


@pytest.fixture
def member(stub):
    made = []

    def make(*brokers, **settings):
        made.append(Member(brokers or [stub], **settings))
        return made[-1]

    yield make
    for one in made:
        one.control.stop()


def rows(offsets, value):
    return [(offset, value) for offset in offsets]


def two_chunks_wait(stub, member):
    """A log of 20 records, the member that has fetched them, and the second of the two chunks that wait."""
    log = stub.log(P)
    log.write(10, 0)
    reading = member()
    reading.start(0)
    eventually(lambda: reading.fetched == 10)
    log.write(10, 0)
    eventually(lambda: reading.fetched == 20)
    return log, reading, reading.queue.first_chunks(2)[1]


@pytest.mark.parametrize("policy", ["smallest", "largest"])
@pytest.mark.parametrize("metadata_version", [7, 12])
def test_what_an_unclean_leader_wrote_before_the_position_is_read(stub, member, caplog, policy, metadata_version):
    stub.versions[METADATA] = metadata_version
    log = stub.log(P)
    for _ in range(3):
        log.write(10, 0)
    reading = member(auto_offset_reset=policy)
    reading.start(0)
    assert reading.read(30) == rows(range(30), b"0")
    log.elect_uncleanly(10, 25, 1)
    assert reading.read(25) == rows(range(10, 35), b"1")
    assert stub.epoch_questions == [{P: (0, 1)}]
    assert (
        "the new leader of t-0 has lost the records at offsets 10 to 29 that its predecessor of epoch 0 had"
        in caplog.text
    )
    assert reading.control.positions(handed_out=True) == {P: 35}
    assert "out of range" not in caplog.text


def test_records_that_wait_are_handed_out_before_those_of_the_new_leader(stub, member):
    log = stub.log(P)
    log.write(10, 0)
    log.write(10, 0)
    reading = member()
    reading.start(0)
    eventually(lambda: reading.fetched == 20)
    log.elect_uncleanly(10, 10, 1)
    eventually(lambda: reading.fetched == 20 and stub.epoch_questions)
    assert reading.read(30) == rows(range(20), b"0") + rows(range(10, 20), b"1")


def test_a_damage_that_is_found_during_the_check_is_one_of_the_former_log(stub, member):
    log, reading, damaged = two_chunks_wait(stub, member)

    class Questions(list):
        def append(self, question):
            reading.queue.send_back(damaged, CorruptRecord("damaged"))
            super().append(question)

    stub.epoch_questions = Questions()
    log.elect_uncleanly(5, 10, 1)
    eventually(lambda: stub.epoch_questions)
    assert reading.read(20) == rows(range(10), b"0") + rows(range(5, 15), b"1")


def test_a_clean_election_changes_nothing(stub, member, caplog):
    log = stub.log(P)
    log.write(10, 3)
    log.epochs[5] = 10
    reading = member()
    reading.start(0)
    reading.read(10)
    log.write(10, 6)
    assert reading.read(10) == rows(range(10, 20), b"6")
    assert stub.epoch_questions == [{P: (3, 6)}], "the epoch of the last record"
    assert "lost" not in caplog.text


@pytest.mark.parametrize("magic", [0, 1])
def test_records_without_an_epoch_are_compared_by_that_of_their_leader(stub, member, magic):
    log = stub.log(P)
    log.write(10, 3)
    log.batches[10] = message_set([Record(b"old")] * 5, magic, range(10, 15))
    log.end = 15
    log.epochs[5] = 10
    reading = member()
    reading.start(10)
    assert reading.read(5) == rows(range(10, 15), b"old")
    log.elect_uncleanly(10, 10, 6)
    assert reading.read(10) == rows(range(10, 20), b"6")
    assert stub.epoch_questions == [{P: (5, 6)}]


def test_an_idle_position_at_the_end_of_the_log_is_checked(stub, log, member):
    reading = member()
    reading.start(30)
    eventually(lambda: len(stub.fetches) > 1)
    log.elect_uncleanly(10, 25, 1)
    assert reading.read(25) == rows(range(10, 35), b"1")


def test_a_position_that_stays_over_a_rebalance_is_checked(log, member):
    reading = member()
    reading.start(0)
    reading.read(30)
    reading.control.stop()
    log.elect_uncleanly(10, 25, 1)
    reading.start(30)
    assert reading.read(25) == rows(range(10, 35), b"1")


def test_a_position_that_another_member_has_moved_is_not_compared(stub, member, caplog):
    log = stub.log(P)
    log.write(10, 0)
    reading = member()
    reading.start(0)
    reading.read(10)
    reading.control.stop()
    log.write(10, 1)
    log.write(10, 2)
    reading.start(20)
    assert reading.read(10) == rows(range(20, 30), b"2")
    assert (stub.epoch_questions, caplog.text) == ([], "")


@pytest.fixture
def other():
    """Another broker, which led in an earlier epoch and does not know that it lost the leadership."""
    with running_stub_broker() as other:
        other.versions = dict(EPOCH_VERSIONS)
        other.log(P).write(10, 4)
        yield other


@pytest.mark.parametrize("start", [0, None])
@pytest.mark.parametrize("knows_the_epoch", [True, False])
@pytest.mark.parametrize("rebalance", [True, False])
def test_an_outdated_leader_does_not_move_the_position(stub, member, other, caplog, start, knows_the_epoch, rebalance):
    """Its log ends at 10; it would answer that 30 is out of range, and the end of its log would be committed."""
    log = stub.log(P)
    log.epochs = {4: 0}
    log.write(10, 4)
    log.write(20, 5)
    reading = member(stub, auto_offset_reset="smallest" if start is None else "largest")
    reading.start(start)
    reading.read(30)
    if knows_the_epoch:  # its metadata are newer than its state as a leader
        other.described_epochs[P] = 5
    reading.brokers = [other]
    stub.fetch_errors[P] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if rebalance:
        reading.control.stop()
        reading.start(30)
    before = len(other.described)
    eventually(lambda: len(other.described) > before + 5)
    assert bool(other.fetches) is knows_the_epoch
    assert reading.fetched == 30
    del stub.fetch_errors[P]
    reading.brokers = [stub]
    log.write(5, 5)
    assert reading.read(5) == rows(range(30, 35), b"5")
    assert "out of range" not in caplog.text


def test_a_clean_election_after_a_reset_to_the_end_is_no_loss(stub, member, caplog):
    """The epoch of the last record before the reset ends long before the position."""
    log = stub.log(P)
    log.epochs = {3: 0}
    log.write(10, 3)
    reading = member(auto_offset_reset="largest")
    reading.start(0)
    reading.read(10)
    reading.control.stop()
    log.write(15, 3)
    log.write(15, 5)
    log.begin = 20
    reading.start(10)
    eventually(lambda: reading.fetched == 40)
    before = len(stub.fetches)
    eventually(lambda: len(stub.fetches) > before + 2)  # an empty answer in epoch 5
    log.write(5, 6)
    assert reading.read(5) == rows(range(40, 45), b"6")
    assert "has lost the records" not in caplog.text


def test_an_outdated_leader_does_not_choose_the_first_offset(stub, member, other):
    """A partition without a committed offset would begin at the wrong end."""
    other.described_epochs[P] = 5
    reading = member(other)
    reading.start(None)
    eventually(lambda: len(other.described) > 5)
    assert reading.fetched is None
    other.log(P).write(20, 5)
    eventually(lambda: reading.fetched == 30)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_leader_that_cannot_be_asked_for_the_end_is_asked_again(stub, log, member, code):
    reading = member()
    reading.start(0)
    reading.read(30)
    stub.epoch_errors[P] = code
    log.elect_uncleanly(10, 25, 1)
    eventually(lambda: len(stub.epoch_questions) > 3)
    assert reading.fetched == 30
    del stub.epoch_errors[P]
    assert reading.read(25) == rows(range(10, 35), b"1")


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ({P: ErrorCode.TOPIC_AUTHORIZATION_FAILED}, "TOPIC_AUTHORIZATION_FAILED (29)"),
        (None, "it does not support OffsetForLeaderEpoch"),
    ],
)
def test_a_position_that_cannot_be_checked_is_kept_and_logged(stub, member, caplog, refusal, reason):
    log = stub.log(P)
    log.write(10, 0)
    reading = member()
    reading.start(0)
    reading.read(10)
    if refusal is None:
        del stub.versions[OFFSET_FOR_LEADER_EPOCH]
        KNOWN_BROKERS.forget((stub.broker.host, stub.broker.port))
        stub.fetch_errors[P] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        reading.control.stop()
        reading.start(10)
        del stub.fetch_errors[P]
    else:
        stub.epoch_errors = refusal
    log.write(10, 1)
    assert reading.read(10) == rows(range(10, 20), b"1")
    assert f"if t-0, fetched up to offset 10 in leader epoch 0, has lost records since: {reason}" in caplog.text


def test_brokers_that_report_no_epochs_are_read_without(member):
    with running_stub_broker() as old:
        log = old.log(P)
        log.write(10, 0)
        reading = member(old)
        reading.start(0)
        reading.read(10)
        log.write(10, 1)
        assert reading.read(10) == rows(range(10, 20), b"1")
        assert old.epoch_questions == []


def test_a_damage_before_the_place_where_logs_differ_does_not_skip_records_of_the_new_log(stub, member):
    log, reading, damaged = two_chunks_wait(stub, member)
    log.elect_uncleanly(5, 30, 1)
    eventually(lambda: reading.fetched == 35)
    reading.queue.send_back(damaged, CorruptRecord("damaged"))
    assert reading.read(40) == rows(range(10), b"0") + rows(range(5, 35), b"1")
