"""The range that ``zkconsumer consume`` reads without a group: ``--partition``, ``--offset`` and ``--until``."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from zkconsumer.cli.connection import ToolConnection
from zkconsumer.cli.ending import LAST_WRITE_S, EndedEarly, Ending
from zkconsumer.errors import ZkConsumerError
from zkconsumer.process.threads import start_thread
from zkconsumer.ranges.rules.rangepositions import Where

if TYPE_CHECKING:
    from zkconsumer.cli.sinks import RecordSink
    from zkconsumer.decode.records import Records

_LOOK_S: Final = 0.5
"""How often a thread that writes is looked at, in seconds; when it has written, it is seen at once."""


class WantedRange(NamedTuple):
    """What the options specify.

    Attributes:
        topic: its name.
        partition: the only one to read; None for all.
        start, end: where to start and to end.
        most: end after so many records; None for no limit.
    """

    topic: str
    partition: int | None
    start: Where
    end: Where
    most: int | None


def wanted_range(
    topics: tuple[str, ...],
    partition: int | None,
    offset: str | None,
    until: str | None,
    most: int | None,
    of_groups: Mapping[str, object],
) -> WantedRange:
    """What the options specify.

    Args:
        topics: values of ``--topic``.
        partition: value of ``--partition``.
        offset: value of ``--offset``.
        until: value of ``--until``.
        most: value of ``--max-messages``.
        of_groups: options that only members of a group have; true if they are given.

    Raises:
        click.UsageError: the options contradict each other, or a position is none.
    """
    if given := [option for option, value in of_groups.items() if value]:
        raise click.UsageError(
            f"--partition, --offset and --until read a range without a group: omit {' and '.join(given)}"
        )
    if len(topics) != 1:
        raise click.UsageError("--partition, --offset and --until need one --topic")
    start = "earliest" if offset is None else _position("--offset", offset, partition)
    end = "latest" if until is None else _position("--until", until, partition)
    return WantedRange(topics[0], partition, start, end, most)


def _position(option: str, text: str, partition: int | None) -> Where:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isdecimal() and text.isascii():
        if partition is None:
            raise click.UsageError(f"{option} {text} is an offset of one partition: give --partition, too")
        return {partition: int(text)}
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{option} {text}: write an offset, earliest, latest, or a time such as 2026-11-28T09:00:00+01:00"
        ) from None


class WholeBatches:
    """Writes batches to a sink on a thread of its own: a signal, which may end a wait of the main thread, cuts no line.

    Args:
        sink: closed by :meth:`close`.
    """

    def __init__(self, sink: RecordSink) -> None:
        self._sink = sink
        self._given: queue.SimpleQueue[Records | None] = queue.SimpleQueue()
        self._written: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._failure: Exception | None = None
        # A daemon: if the reader of a pipe does not read, the thread must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="writing", daemon=True)
        start_thread(self._thread)

    def write(self, batch: Records) -> None:
        """Write a batch, and wait until it is written; it is, even if a signal ends the wait. Raises as the sink."""
        self._given.put(batch)
        while not self._is_written():
            pass
        self._raise_failure()

    def _is_written(self) -> bool:
        """Wait for the thread, but not for long: a signal that the kernel gives to another thread wakes no lock."""
        try:
            self._written.get(timeout=_LOOK_S)
        except queue.Empty:
            return False
        return True

    def close(self) -> None:
        """Close the sink, once the last batch is written or cannot be for 10 s; raises as the sink."""
        self._given.put(None)
        self._thread.join(LAST_WRITE_S)
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            with closing(self._sink):
                while (batch := self._given.get()) is not None:
                    self._sink.write(batch)
                    self._written.put(None)
        except Exception as error:  # noqa: BLE001 - raised in the main thread
            self._failure = error
            self._written.put(None)


def consume_range(connection: ToolConnection, wanted: WantedRange, kind: str, output: Path | None) -> None:
    """Write the records of a range, and end; what is written when it fails, or a signal comes, stays.

    Raises:
        ZkConsumerError: the range cannot be read or written.
    """
    from zkconsumer.cli.sinks import open_sink
    from zkconsumer.ranges.topicread import plan_read

    config = connection.broker_config() or connection.config()
    ending, left = Ending(), wanted.most
    try:
        with ending.by_signals():
            with ending.raising():
                plan = plan_read(wanted.topic, config, wanted.start, wanted.end, wanted.partition)
            sink = WholeBatches(open_sink(kind, output))
            with closing(sink), ending.raising(), closing(plan.records()) as read:
                for records in read:
                    sink.write(records if left is None else records.slice(0, left))
                    left = None if left is None else left - records.num_rows
                    if left is not None and left <= 0:
                        break
    except EndedEarly:
        raise ZkConsumerError("a signal has ended the command before the end of the range") from None
    except BrokenPipeError:
        pass  # the reader has closed the pipe, and has what it wanted
    except OSError as error:
        destination = "standard output" if output is None else output
        raise ZkConsumerError(f"records could not be written to {destination}: {error}") from error
