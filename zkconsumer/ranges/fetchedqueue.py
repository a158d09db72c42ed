"""FetchedQueue: takes what range fetchers receive, and is bounded; Fetched: the part of one range in one answer."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Generator
from typing import Any, NamedTuple

from zkconsumer.decode.batchdecoder import BatchDecoder, DecodedChunk, ScannedChunk
from zkconsumer.decode.records import Records
from zkconsumer.errors import CorruptRecord, RecordTooLarge
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.wire.rules.fetchanswers import UNDECODABLE


class Damage(NamedTuple):
    """The rest of a range, whose first bytes could not be decoded.

    Attributes:
        left: the rest, which has to be fetched again.
        error: the reason.
    """

    left: Span
    error: CorruptRecord | RecordTooLarge


class Fetched(NamedTuple):
    """The part of one range in one answer.

    Attributes:
        partition: of the range.
        chunk: the bytes; already decoded if damaged batches are skipped, since the fetcher must continue after them.
        until: the end of the range; later records are not wanted.
    """

    partition: TopicPartition
    chunk: ScannedChunk | DecodedChunk
    until: int

    def records(self, decoder: BatchDecoder) -> Generator[Records, None, Damage | None]:
        """The records, as far as they can be decoded; returns the damage after them, if any."""
        chunk = self.chunk
        while True:
            try:
                decoded = chunk if isinstance(chunk, DecodedChunk) else decoder.finish(chunk)
            except UNDECODABLE as error:
                assert isinstance(chunk, ScannedChunk)
                return Damage(Span(chunk.requested, self.until), error)
            parts, undecoded = decoded.parts()
            for part in parts:
                records = _before(part.records, self.until)
                if records is not None:
                    yield records
            if undecoded is None or parts[-1].next_offset >= self.until:
                return None
            chunk = undecoded


class FetchedQueue:
    """A queue from fetcher threads to the reading thread, bounded by bytes, with chunks and ends of fetchers.

    Args:
        max_bytes: the bound; a larger item is accepted if the queue is empty.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._items: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._closed = False

    def put(self, item: Any, nbytes: int) -> bool:
        """Wait for room and add; False if the reading has ended."""
        with self._lock:
            self._changed.wait_for(lambda: self._closed or self._bytes == 0 or self._bytes + nbytes <= self._max_bytes)
            self._items.append((item, nbytes))
            self._bytes += nbytes
            self._changed.notify_all()
            return not self._closed

    def get(self, timeout_s: float) -> Any | None:
        """The oldest item; None if there is none within ``timeout_s`` seconds."""
        with self._lock:
            if not self._changed.wait_for(lambda: bool(self._items), timeout_s):
                return None
            item, nbytes = self._items.popleft()
            self._bytes -= nbytes
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Refuse further items, so that the fetchers end."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()


def _before(records: Records | None, until: int) -> Records | None:
    """The records with offsets below ``until``; None if there are none."""
    if records is None:
        return None
    count = bisect_left(records.offsets, until)
    return records.slice(0, count) if count else None
