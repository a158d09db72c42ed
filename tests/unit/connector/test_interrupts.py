"""A reading thread is interrupted wherever the interpreter can do that: no record is skipped or repeated."""

import pytest

from tests.fixtures.interrupts import (
    DECODING,
    READERS,
    READING,
    Injector,
    Log,
    by_bytes,
    by_record,
    by_records,
    by_rows,
    in_turns,
    read,
)
from zkconsumer.decode import batchdecoder
from zkconsumer.model import TopicPartition

pytestmark = pytest.mark.timeout(900)  # hundreds of readings, traced line by line


def read_all(log, reader, point, *, files, then=lambda _: None):
    """Read with an interrupt at a point, audit, and return the points that were passed if there is no interrupt."""
    got, injector = [], Injector(point, files)

    def interrupted():
        log.check_positions(got)
        then(log)
        log.check_positions(got)

    def inside(*args):
        with injector.active():
            reader(*args)

    read(inside, log.stream(), got, interrupted)
    assert injector.raised == (point is not None)
    log.audit(got)
    log.check_positions(got)
    return injector.points


def interrupt_everywhere(make_log, reader, **settings):
    """Interrupt at each point, once."""
    read_all(make_log(), reader, None, **settings)  # imports what is imported when it is needed
    points = read_all(make_log(), reader, None, **settings)
    assert len(points) > 100
    for point in points:
        read_all(make_log(), reader, point, **settings)


TWO_PARTITIONS = Log().add(0, 3, headers=True).add_markers(0, 2).add(1, 2)


def withhold(log):
    log.queue.withhold()


def pause_and_resume(log):
    for act in (log.queue.pause, log.queue.resume):
        act(TopicPartition("t", 0))


def rebalance(log):
    log.rebalance()


SLOWEST = (by_rows, by_bytes, by_records)
"""They hand out by what the others hand out by, with one more bound."""


@pytest.mark.parametrize(
    "reader",
    [pytest.param(reader, marks=[pytest.mark.slow] * (reader in SLOWEST)) for reader in READERS],
    ids=lambda reader: reader.__name__,
)
def test_an_interrupt_anywhere_skips_and_repeats_nothing(reader):
    interrupt_everywhere(TWO_PARTITIONS.copy, reader, files=READING)


@pytest.mark.parametrize("then", [withhold, pause_and_resume, rebalance], ids=lambda act: act.__name__)
def test_what_follows_an_interrupt_skips_and_repeats_nothing(then):
    """Whatever other threads do with the queue before the next request."""
    interrupt_everywhere(TWO_PARTITIONS.copy, in_turns, then=then, files=READING)


@pytest.mark.parametrize(
    ("codec", "check_crcs"),
    [("none", True), ("none", False), ("lz4", True), ("gzip", False)],
)
def test_an_interrupt_anywhere_in_decoding_skips_and_repeats_nothing(codec, check_crcs, monkeypatch):
    monkeypatch.setattr(
        batchdecoder, "CHUNK_LIMITS", batchdecoder.ChunkLimits(records=3)
    )  # so that the chunk comes in two parts

    two_batches = Log().add(0, 2, codec=codec, batches=2, headers=True)
    interrupt_everywhere(lambda: two_batches.copy(check_crcs=check_crcs), by_record, files=DECODING)


def test_an_interrupt_anywhere_in_decoding_of_old_formats_skips_nothing():
    interrupt_everywhere(Log().add_old_format(0, 3).add(0, 1).copy, by_record, files=DECODING)
