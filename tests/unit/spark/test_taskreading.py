"""A task with a broker that leads in epochs that a test specifies (KIP-320)."""

import pytest

from tests.fixtures.batches import build
from tests.fixtures.sparkworker import close_connections
from tests.fixtures.stubbroker import EPOCH_VERSIONS, InTransit
from zkconsumer.errors import BrokerUnavailable, CorruptRecord, OffsetOutOfRange, RecordTooLarge
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.rules.spans import OffsetRange
from zkconsumer.sandbox.producer import Record
from zkconsumer.spark.rules.microbatch import with_epochs
from zkconsumer.spark.rules.options import parse_options
from zkconsumer.spark.taskreading import read_ranges
from zkconsumer.wire.errorcodes import ErrorCode

P = TopicPartition("t", 0)


@pytest.fixture
def log(stub_broker):
    stub_broker.versions = dict(EPOCH_VERSIONS)
    log = stub_broker.log(P)
    log.write(10, 0)
    log.write(20, 0)
    yield log
    close_connections()


@pytest.fixture
def read(stub_broker):
    """Offsets that one task reads, planned in a leader epoch."""

    def run(start, until, epoch, **options):
        settings = {
            "zookeeper.connect": "unused:1",
            "group.id": "g",
            "subscribe": "t",
            "refresh.leader.backoff.ms": "1",
        }
        epochs = {} if epoch is None else {P: epoch}
        (task,) = with_epochs([(OffsetRange(*P, start, until),)], (stub_broker.broker,), epochs)
        batches = read_ranges(parse_options({**settings, **options}), task, ("offset",))
        return [offset for batch in batches for offset in batch["offset"].to_pylist()]

    return run


@pytest.mark.parametrize("epoch", [None, 0, 1])
def test_a_leader_of_a_new_epoch_is_found_by_the_next_task(log, read, stub_broker, epoch):
    assert read(0, 30, 0) == list(range(30))
    log.write(10, 1)
    assert read(20, 30 if epoch == 0 else 40, epoch) == list(range(20, 30 if epoch == 0 else 40))
    assert stub_broker.epoch_questions == ([{P: (0, 1)}] if epoch == 0 else [])


def test_a_task_without_a_leader_names_the_reason(log, read, stub_broker):
    stub_broker.leaderless = {P}
    with pytest.raises(BrokerUnavailable, match=r"t-0; last error: brokers name no leader: LEADER_NOT_AVAILABLE \(5\)"):
        read(0, 30, 0, **{"socket.timeout.ms": "100"})


def offsets_asked_for(stub_broker):
    return [fetch[P][0] for fetch in stub_broker.fetches]


def spoiled(data):
    """A byte of a record has changed since its checksum was computed."""
    return data[:-1] + bytes([data[-1] ^ 1])


def test_records_that_were_damaged_in_transit_are_fetched_again(log, read, stub_broker):
    """The fetcher sees headers only; the task's thread finds the damage, and has passed on what is before it."""
    log.batches = InTransit(log.batches, {10: spoiled(log.batches[10])})
    assert read(0, 30, 0) == list(range(30))
    assert offsets_asked_for(stub_broker) == [0, 10]


def test_damage_is_believed_at_the_third_time(log, read, stub_broker):
    log.batches[10] = spoiled(log.batches[10])
    with pytest.raises(CorruptRecord, match=r"t-0 at offset 10 .*checksum"):
        read(0, 30, 0)
    assert offsets_asked_for(stub_broker) == [0, 10, 10]


def test_a_batch_that_decompresses_to_too_much_is_an_error(log, read, stub_broker):
    log.batches[10] = build([Record(bytes(1 << 16))] * 20, offset=10, codec="gzip")
    with pytest.raises(RecordTooLarge, match=r"decompressed\.max\.bytes"):
        read(0, 30, 0, **{"decompressed.max.bytes": "1000"})
    assert offsets_asked_for(stub_broker) == [0, 10, 10]


def test_records_that_were_planned_and_lost_are_reported(log, read):
    log.elect_uncleanly(10, 25, 1)
    with pytest.raises(OffsetOutOfRange, match=r"t-0 has lost offsets 10 to 30: the log of leader epoch 0 ends at 10"):
        read(0, 30, 0)
    assert read(0, 30, 0, failOnDataLoss="false") == list(range(10))


def test_an_outdated_leader_ends_no_range(log, read, stub_broker):
    """It would answer that the range is beyond its log; here it learns the new epoch when it is asked again."""
    stub_broker.described_epochs[P] = 1

    def refuse(_):
        raise AssertionError("the end of its log must not be asked for")

    stub_broker.asked = refuse
    log.end = 10
    del log.batches[10]
    described = stub_broker.described

    class Described(list):
        def append(self, topics):
            super().append(topics)
            if len(self) == 3:
                log.write(20, 1)

    stub_broker.described = Described(described)
    assert read(20, 30, 1, failOnDataLoss="false") == list(range(20, 30))


def test_a_leader_that_cannot_compare_its_log_is_asked_again(log, read, stub_broker):
    log.write(10, 1)
    stub_broker.epoch_errors[P] = ErrorCode.NOT_LEADER_OR_FOLLOWER

    class Questions(list):
        def append(self, question):
            super().append(question)
            if len(self) == 3:
                del stub_broker.epoch_errors[P]

    stub_broker.epoch_questions = Questions()
    assert read(0, 30, 0) == list(range(30))
