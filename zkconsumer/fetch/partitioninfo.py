"""PartitionInfo: the fetch state of one partition from its acquisition to its release."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from zkconsumer.errors import NEEDS_AN_OPERATOR, TopicUnreadable
from zkconsumer.fetch.chunkqueue import ChunkQueue
from zkconsumer.fetch.chunks import QueuedPartition
from zkconsumer.model import ConsumerThreadId
from zkconsumer.wire.fetchsession import PartitionFetch
from zkconsumer.wire.rules.denials import PATIENCE, pause_s
from zkconsumer.wire.rules.fetchanswers import Faults
from zkconsumer.wire.rules.leaderepochs import UNKNOWN_EPOCH, PositionEpochs
from zkconsumer.wire.rules.readreplica import AT_LEADER, ReadReplica

_log = logging.getLogger(__name__)
_events = logging.getLogger("zkconsumer.events")


@dataclass(slots=True, eq=False, repr=False)
class PartitionInfo(QueuedPartition):
    """One owned partition. Each acquisition creates a new object, so no state leaks from one to the next.

    Every attribute has one writer; others may read it at any time, since reading or writing one attribute is atomic.

    Args:
        partition: which one.
        thread: the consumer thread that reads it.
        generation: generation of the assignment that contains it.
        queue: receives its chunks.
        start: the offset to begin with; None if ``auto.offset.reset`` must be applied first.
        fetch_bytes: bytes to request at a time.
        previous: this partition before its last release, if the user still holds its last record or batch.
        origin: the store that holds ``start``, as named in messages; None if ``start`` is not a stored offset.
        earliest: True if the first reset goes to the beginning of the log, whatever ``auto.offset.reset`` is. Cleared
            by the fetcher.

    Attributes:
        start: the position until a record is handed out; None while a reset is pending. Written by the fetcher.
        fetched: the offset to fetch next; None while a reset is pending. Written by the fetcher.
        high_watermark: the end of the partition as the broker last reported it, or None. Written by the fetcher.
        density: bytes per offset in the last answer; 0.0 if unknown. Written by the fetcher.
        fetch_bytes: as above; raised for a record that does not fit (brokers before 0.10.1). Written by the fetcher.
        request_bytes: bytes to request next, see :mod:`zkconsumer.fetch.rules.requestsize`. Written by the fetcher.
        faults: the bytes that could not be decoded. Written by the fetcher.
        refusals: how often in a row no broker accepted a connection, for a reason that an operator must fix. Written by
            the leader finder or the fetcher, whichever holds the partition.
        denials: how often in a row brokers refused to serve it; same writer as ``refusals``.
        retry_at: ``time.monotonic`` before which it is not requested again after a denial; same writer as ``refusals``.
        readable: True from the first answer with success until a denial; same writer as ``refusals``.
        epochs: those of ``fetched``, or of an offset after it. Written by the fetcher.
        leader_epoch: the epoch of its leader, named in requests. Written by the leader finder before it hands the
            partition to a fetcher.
        fenced: True if the leader has refused that epoch as older than its own; same writer as ``refusals``.
        read_replica: the broker that it is fetched from; same writer as ``refusals``.
        request: the last request for it, or None. Written by the fetcher.
        released: True once this member has released it. Written by the rebalance thread.
    """

    thread: ConsumerThreadId
    generation: int
    queue: ChunkQueue
    start: int | None
    fetch_bytes: int
    previous: PartitionInfo | None = None
    origin: str | None = None
    earliest: bool = False
    fetched: int | None = field(init=False)
    request_bytes: int = field(init=False)
    high_watermark: int | None = field(default=None, init=False)
    density: float = field(default=0.0, init=False)
    faults: Faults = field(default=Faults(), init=False)
    refusals: int = field(default=0, init=False)
    denials: int = field(default=0, init=False)
    retry_at: float = field(default=0.0, init=False)
    readable: bool = field(default=False, init=False)
    released: bool = field(default=False, init=False)
    request: PartitionFetch | None = field(default=None, init=False)
    epochs: PositionEpochs = field(default=PositionEpochs(), init=False)
    leader_epoch: int = field(default=UNKNOWN_EPOCH, init=False)
    fenced: bool = field(default=False, init=False)
    read_replica: ReadReplica = field(default=AT_LEADER, init=False)

    def __post_init__(self) -> None:
        self.fetched = self.start
        self.request_bytes = self.fetch_bytes

    def __repr__(self) -> str:
        return f"<{self.partition} generation {self.generation} fetched {self.fetched} consumed {self.consumed}>"

    def fetch_from(self, offset: int) -> PartitionFetch:
        """The request for this partition, called by the fetcher; the last object if nothing changed, as is usual."""
        request = self.request
        if (
            request is None
            or request.offset != offset
            or request.max_bytes != self.request_bytes
            or request.leader_epoch != self.leader_epoch
        ):
            request = self.request = PartitionFetch(*self.partition, offset, self.request_bytes, self.leader_epoch)
        return request

    def needs_leader(self) -> bool:
        """True if a follower cannot serve it: its position has to be looked up, or compared with the leader's log."""
        return self.fetched is None or self.epochs.to_check(self.leader_epoch) != UNKNOWN_EPOCH

    def describe_offset(self) -> str:
        """The offset to fetch next for messages, with its store if it is a stored offset."""
        stored = self.origin is not None and self.fetched == self.start
        return f"offset {self.fetched}" + (f", stored in {self.origin}," if stored else "")

    def expected_bytes(self, offset: int) -> int:
        """Expected bytes of a fetch from ``offset``; 0 at the end of the log or if unknown."""
        if not self.density or self.high_watermark is None or self.high_watermark <= offset:
            return 0
        return min(self.request_bytes, 1 + int(self.density * (self.high_watermark - offset)))

    def report_wrong_settings(self, error: Exception) -> None:
        """Let the stream raise an error that a retry does not fix; retries continue, since a login may change.

        That is if brokers refuse the login or certificate, or a file that the settings name cannot be used. Other
        errors are ignored, and so are some refusals in a row: a stopping broker may hang up during a login.
        """
        if isinstance(error, NEEDS_AN_OPERATOR):
            self.refusals += 1
            if self.refusals >= PATIENCE:
                self.queue.faults.complain(self, error)

    def deny(self, error: TopicUnreadable, backoff_s: float) -> None:
        """Note that a broker refused to serve this partition; after some refusals in a row the stream raises the error.

        Args:
            error: the reason.
            backoff_s: pause before the next attempt if this is the first refusal in a row, in seconds.
        """
        self.readable = False
        self.denials += 1
        self.retry_at = time.monotonic() + pause_s(self.denials, backoff_s)
        news = self.denials >= PATIENCE and self.queue.faults.deny(error.topic, self.partition, error, self)
        level = logging.ERROR if news else logging.DEBUG
        _log.log(level, "stream %s, partition %s: %s; trying again", self.thread, self.partition, error)

    def allow(self) -> None:
        """Note that a broker served this partition."""
        self.refusals = 0
        if self.readable:
            return
        self.readable, self.denials = True, 0
        if self.queue.faults.allow(self.partition.topic, self.partition, self):
            _events.info("stream %s: topic %s can be read again", self.thread, self.partition.topic)

    def is_held(self) -> bool:
        """True while the user holds records of this object's generation that are not released."""
        return self.queue.held() is self

    def reset_to(self, offset: int) -> bool:
        """Continue at ``offset``, another one than the next; called by the fetcher.

        Returns:
            True if earlier chunks may still wait in the queue, so that the position must not move yet: the caller then
            queues an empty chunk that moves the position in its turn.
        """
        has_moved = self.fetched is not None and self.fetched != self.start
        self.fetched, self.earliest = offset, False
        if not has_moved:
            self.start = offset
        return has_moved

    def position(self, *, handed_out: bool) -> int | None:
        """Next offset to consume, or None while a reset is pending.

        A rebalance may come while the user processes a record. If this member keeps the partition, fetching continues
        after that record, but only the user's next request releases it: until then the old position may be committed.

        Args:
            handed_out: True for the position after all records that were handed out, False for those that the user
                released: by asking for more, or where ``commit.on=done`` by declaring them done.
        """
        unfinished = self.unfinished
        if unfinished is None and not handed_out and self.previous is not None and self.previous.is_held():
            return self.previous.position(handed_out=False)
        position = self.queue.position(self, handed_out=handed_out)
        if position is None:
            position = self.start
        if handed_out or unfinished is None or position is None:
            return position
        lowest = unfinished.lowest()  # after the position, which covers no item that is recorded after this
        return position if lowest is None else min(position, lowest)


def by_queue(infos: Iterable[PartitionInfo]) -> dict[ChunkQueue, list[PartitionInfo]]:
    """Partitions by their queue, in their order."""
    infos = list(infos)
    if len({info.queue for info in infos}) == 1:  # the usual case; appending a thousand times takes longer
        return {infos[0].queue: infos}
    infos_of_queue: dict[ChunkQueue, list[PartitionInfo]] = defaultdict(list)
    for info in infos:
        infos_of_queue[info.queue].append(info)
    return infos_of_queue
