"""A reading thread is interrupted at every point where the interpreter can do that: no record is skipped or repeated."""

import pytest

from tests.fix_interrupts import CODECS, DECODING, READERS, Injector, Log, by_batch, by_record, in_turns, read
from zkconsumer.fetch import decode
from zkconsumer.model import TopicPartition


def read_all(log, reader, strikes, *, then=lambda _: None, without=()):
    """Read with interrupts, audit, and return how many points there were."""
    got, injector = [], Injector(strikes, without)

    def interrupted():
        log.check_positions(got)
        then(log)
        log.check_positions(got)

    def inside(*args):
        with injector.active():
            reader(*args)

    read(inside, log.stream(), got, interrupted)
    log.audit(got)
    log.check_positions(got)
    return injector.points


def interrupt_everywhere(make_log, reader, **settings):
    """Once for each point there is, interrupt there."""
    points = read_all(make_log(), reader, lambda _: False, **settings)
    assert points > 50
    for point in range(points):
        read_all(make_log(), reader, lambda number, point=point: number == point, **settings)


def two_partitions():
    return Log().add(0, 2, headers=True).add(1, 3).add_markers(0, 2).add(0, 1).fill()


def forget(log):
    """Nothing happens between the interrupt and the next request."""


def withhold(log):
    log.queue.withhold()


def pause_and_resume(log):
    for act in (log.queue.pause, log.queue.resume):
        act(TopicPartition("t", 0))


def rebalance(log):
    log.rebalance()


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_an_interrupt_anywhere_skips_and_repeats_nothing(reader):
    interrupt_everywhere(two_partitions, reader, without=DECODING)


@pytest.mark.parametrize("reader", [by_record, by_batch, in_turns], ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("then", [withhold, pause_and_resume, rebalance], ids=lambda act: act.__name__)
def test_what_follows_an_interrupt_skips_and_repeats_nothing(reader, then):
    """Whatever other threads do with the queue before the next request."""
    interrupt_everywhere(two_partitions, reader, then=then, without=DECODING)


@pytest.mark.parametrize("check_crcs", [True, False])
@pytest.mark.parametrize("codec", CODECS)
def test_an_interrupt_anywhere_in_decoding_skips_and_repeats_nothing(codec, check_crcs, monkeypatch):
    monkeypatch.setattr(decode, "_MAX_RECORDS", 3)  # so that the chunk comes in two parts
    interrupt_everywhere(
        lambda: Log(check_crcs=check_crcs).add(0, 2, codec=codec, batches=2, headers=True).fill(), by_record
    )


def test_an_interrupt_anywhere_in_decoding_of_old_formats_skips_nothing():
    interrupt_everywhere(lambda: Log().add_old_format(0, 3).fill(), by_record)
