"""PartitionInfo: what is known about one partition from its acquisition to its release."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from zkconsumer.core.denials import PATIENCE, pause_s
from zkconsumer.errors import AuthenticationFailed, ConfigError, TopicUnreadable
from zkconsumer.fetch.queuedpartition import QueuedPartition
from zkconsumer.fetch.queues import ChunkQueue
from zkconsumer.model import ConsumerThreadId, TopicPartition

_log = logging.getLogger(__name__)
_events = logging.getLogger("zkconsumer.events")

_PATIENCE: Final = 3
"""At which refusal in a row the user is told: a broker that is stopping may hang up in the middle of a login."""


class PartitionInfo(QueuedPartition):
    """One owned partition. A new object is made each time that it is acquired, so nothing leaks from one to the next.

    Every attribute has one writer; others may read it at any time, since reading or writing one attribute is atomic.

    Args:
        partition: which one.
        thread: the consumer thread that it belongs to.
        generation: of the assignment that brought it.
        queue: where its chunks go.
        start: the offset to begin with; None where ``auto.offset.reset`` must be applied first.
        fetch_bytes: how much to ask for at a time.
        previous: this partition before its last release, if the user still holds its last record or batch.
        origin: where ``start`` is stored, as messages name it; None if it comes from elsewhere.

    Attributes:
        start: the position as long as nothing was handed out; None while a reset is pending. Written by the fetcher.
        fetched: the offset to fetch next; None while a reset is pending. Written by the fetcher.
        high_watermark: the broker's last word on the end of the partition, or None. Written by the fetcher.
        density: bytes that the broker last sent for each offset; 0.0 if unknown. Written by the fetcher.
        fetch_bytes: as above; grown for a record that does not fit, only brokers before 0.10.1. Written by the fetcher.
        faulty: the offset from which its bytes could not be decoded the last time, or None. Written by the fetcher.
        faults: how often in a row they could not be decoded from that offset. Written by the fetcher.
        refusals: how often in a row nobody could be asked for it, for a reason that somebody must mend. Written by the
            leader finder or the fetcher, whichever has it.
        denials: how often in a row brokers refused to serve it; written as ``refusals``.
        retry_at: clock reading before which it is not requested again after that; written as ``refusals``.
        readable: True once a broker has served it, until it is refused; written as ``refusals``.
        released: True once this member has given it up. Written by the rebalance thread.
    """

    __slots__ = (
        "denials",
        "density",
        "faults",
        "faulty",
        "fetch_bytes",
        "fetched",
        "generation",
        "high_watermark",
        "origin",
        "previous",
        "queue",
        "readable",
        "refusals",
        "released",
        "retry_at",
        "start",
        "thread",
    )

    def __init__(
        self,
        partition: TopicPartition,
        thread: ConsumerThreadId,
        generation: int,
        queue: ChunkQueue,
        start: int | None,
        fetch_bytes: int,
        previous: PartitionInfo | None = None,
        origin: str | None = None,
    ) -> None:
        super().__init__(partition)
        self.thread = thread
        self.generation = generation
        self.queue = queue
        self.start = start
        self.fetched = start
        self.high_watermark: int | None = None
        self.density = 0.0
        self.fetch_bytes = fetch_bytes
        self.faulty: int | None = None
        self.faults = 0
        self.refusals = 0
        self.denials = 0
        self.retry_at = 0.0
        self.readable = False
        self.released = False
        self.previous = previous
        self.origin = origin

    def __repr__(self) -> str:
        return f"<{self.partition} generation {self.generation} fetched {self.fetched} consumed {self.consumed}>"

    def describe_offset(self) -> str:
        """The offset to fetch next, and where it comes from if it is the stored one."""
        stored = self.origin is not None and self.fetched == self.start
        return f"offset {self.fetched}" + (f", which {self.origin} holds," if stored else "")

    def expected_bytes(self, offset: int) -> int:
        """How many bytes a fetch from ``offset`` brings, as far as that is known; 0 at the end of the log."""
        if not self.density or self.high_watermark is None or self.high_watermark <= offset:
            return 0
        return min(self.fetch_bytes, 1 + int(self.density * (self.high_watermark - offset)))

    def report_wrong_settings(self, error: Exception) -> None:
        """Tell the user of an error that no waiting mends, while this partition is tried again, for a login may change.

        That is where brokers refuse us, or a file that the settings name cannot be used. Other errors are passed over.
        """
        if isinstance(error, AuthenticationFailed | ConfigError):
            self.refusals += 1
            if self.refusals >= _PATIENCE:
                self.queue.complain(self, error)

    def deny(self, error: TopicUnreadable, backoff_s: float) -> None:
        """A broker refused to serve this partition: let the stream raise it if that goes on, and try again later.

        Args:
            error: says why.
            backoff_s: pause before the next attempt if this is the first refusal in a row, in seconds.
        """
        self.readable = False
        self.denials += 1
        self.retry_at = time.monotonic() + pause_s(self.denials, backoff_s)
        news = self.denials >= PATIENCE and self.queue.deny(error.topic, self.partition, error, self)
        level = logging.ERROR if news else logging.DEBUG
        _log.log(level, "stream %s, %s: %s; trying again", self.thread, self.partition, error)

    def allow(self) -> None:
        """A broker served this partition."""
        self.refusals = 0
        if self.readable:
            return
        self.readable, self.denials = True, 0
        if self.queue.allow(self.partition.topic, self.partition, self):
            _events.info("stream %s: topic %s can be read again", self.thread, self.partition.topic)

    def is_held(self) -> bool:
        """True while the user holds something of this object's generation that is not released."""
        return self.queue.is_held(self)

    def reset_to(self, offset: int) -> bool:
        """Go on at ``offset``, which ``auto.offset.reset`` chose; by the fetcher.

        Returns:
            True where chunks from before may still wait in the queue, so that the position must not move yet: the
            caller then enqueues an empty chunk that moves it when its turn comes.
        """
        behind = self.fetched is not None and self.fetched != self.start
        self.fetched = offset
        if not behind:
            self.start = offset
        return behind

    def position(self, *, handed_out: bool) -> int | None:
        """Next offset to consume, or None while a reset is pending.

        A rebalance may come while the user works on a record. If the partition stays, it goes on after that record, but
        only the user's next request releases it: until then the position that may be committed is the old one.

        Args:
            handed_out: count all that was given to the user, and not only what the user is done with.
        """
        if not handed_out and self.previous is not None and self.previous.is_held():
            return self.previous.position(handed_out=False)
        position = self.queue.position(self, handed_out=handed_out)
        return self.start if position is None else position


def by_queue(infos: Iterable[PartitionInfo]) -> dict[ChunkQueue, list[PartitionInfo]]:
    """Partitions by the queue that they fill, in their order."""
    infos = list(infos)
    if len({info.queue for info in infos}) == 1:  # as mostly; a thousand times appending takes longer
        return {infos[0].queue: infos}
    theirs: dict[ChunkQueue, list[PartitionInfo]] = defaultdict(list)
    for info in infos:
        theirs[info.queue].append(info)
    return theirs
