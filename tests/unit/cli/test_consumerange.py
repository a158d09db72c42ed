"""Which range the options of ``zkconsumer consume`` name, and that a signal does not cut what it writes."""

import os
import signal
import threading
from contextlib import closing
from datetime import UTC, datetime

import click
import pytest

from zkconsumer.cli.consumerange import WantedRange, WholeBatches, wanted_range
from zkconsumer.cli.ending import EndedEarly, Ending
from zkconsumer.cli.sinks import LineSink


def wanted(partition=None, offset=None, until=None, *, topics=("t",), **of_groups):
    return wanted_range(topics, partition, offset, until, None, of_groups)


def test_the_options_are_positions():
    assert wanted(3, "100", "200") == WantedRange("t", 3, {3: 100}, {3: 200}, None)
    assert wanted(0, until="0") == WantedRange("t", 0, "earliest", {0: 0}, None)
    nine = datetime(2026, 11, 28, 9, tzinfo=UTC)
    assert wanted(None, "2026-11-28T10:00:00+01:00", "latest") == WantedRange("t", None, nine, "latest", None)
    assert wanted(None, "earliest").start == "earliest"
    assert wanted(None, None, "2026-11-28").end == datetime(2026, 11, 28)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"offset": "5"}, "--offset 5 is an offset of one partition: give --partition"),
        ({"until": "yesterday"}, "--until yesterday: write an offset, earliest, latest, or a time such as 2026-"),
        ({"partition": 1, "offset": "-5"}, "--offset -5: write an offset"),
        ({"partition": 1, "topics": ()}, "need one --topic"),
        ({"partition": 1, "topics": ("t", "u")}, "need one --topic"),
        ({"partition": 1, "--group": "g", "--threads": 3}, "without a group: omit --group and --threads"),
    ],
)
def test_contradictions_are_refused(options, why):
    with pytest.raises(click.UsageError, match=why):
        wanted(**options)


LINE = b"x" * 999 + b"\n"


@pytest.fixture
def pipe():
    """A pipe that the test reads: its reading end, and a sink that writes each batch, a number, as so many lines."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb") as stream:
        yield reader, LineSink(stream, lambda count: LINE * count), stream


@pytest.fixture
def ending():
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    kept = {number: signal.getsignal(number) for number in numbers}
    yield Ending()
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_signal_ends_the_wait_for_a_slow_reader_and_cuts_no_line(pipe, ending):
    """1,000 lines are more than a pipe holds: the batch is written on while the main thread closes the sink."""
    reader, sink, stream = pipe
    received = []

    def read():
        received.append(reader.read(1))  # now the pipe is full, or will be
        os.kill(os.getpid(), signal.SIGTERM)
        is_raised.wait(60)
        received.append(reader.read())

    is_raised, reading = threading.Event(), threading.Thread(target=read)
    reading.start()
    with ending.by_signals(), closing(WholeBatches(sink)) as writer:
        with pytest.raises(EndedEarly), ending.raising():
            writer.write(1000)
        is_raised.set()
    stream.close()
    reading.join()
    assert b"".join(received) == LINE * 1000


def test_a_failed_write_is_raised_once(pipe):
    reader, sink, _ = pipe
    reader.close()
    with closing(WholeBatches(sink)) as writer, pytest.raises(BrokenPipeError):
        writer.write(1)
