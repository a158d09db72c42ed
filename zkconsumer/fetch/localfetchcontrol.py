"""LocalFetchControl: the fetching side of a consumer process, started and stopped by the rebalance thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import NotOwner, ThreadLimit
from zkconsumer.fetch.chunkqueue import ChunkQueue
from zkconsumer.fetch.leaderfinder import LeaderFinder
from zkconsumer.fetch.partitioninfo import PartitionInfo, by_queue
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment, StreamPartitions
from zkconsumer.model import Broker, ConsumerThreadId, TopicPartition
from zkconsumer.process.threads import start_thread
from zkconsumer.wire.connectionpool import ConnectionPool
from zkconsumer.wire.rules.leaderepochs import KnownEpochs

_log = logging.getLogger(__name__)

_STOP_TIMEOUT_S: Final = 5.0
"""How long a stop waits for all its threads together. A thread that hangs longer (in a name look-up, which cannot be
interrupted) is left running: its partitions are released, so queues refuse its later chunks."""

QueueFor = Callable[[str, ConsumerThreadId], ChunkQueue]


class FetchPosition(NamedTuple):
    """The state of a partition that is fetched; unknown offsets are None.

    ``fetched`` is the offset to fetch next, ``consumed`` the position after the records that the user is done with,
    ``high_watermark`` the one that the broker last reported. ``released`` is True if fetching has stopped.
    """

    partition: TopicPartition
    thread: ConsumerThreadId
    fetched: int | None
    consumed: int | None
    high_watermark: int | None
    released: bool


class LocalFetchControl:
    """Implements :class:`~zkconsumer.fetch.rules.fetchcontrol.FetchControl` with fetcher threads in this process.

    One thread calls ``start``, ``release`` and ``stop``; any thread may call the other methods. ``pause`` and
    ``resume`` see either the assignment before a ``start`` or the one after it, so that no pause is lost between the
    two. What the user has paused is recorded here; a queue pauses those partitions that are fetched, and forgets
    that when they are released. Both change under one lock: otherwise a pause could reach a queue after the
    release, and would stay there.

    Args:
        consumer_id: id of the member, part of the threads' names.
        config: of the consumer.
        live_brokers: returns the brokers to ask for leaders; called on the leader finder's thread, may raise.
        queue_for: returns the queue of a consumer thread for a topic (static subscriptions have one stream per topic).
        pool: connections that the member's clients share, for the questions for leaders.
        owned: returns what this consumer owns: also partitions that are claimed and not started yet, which a listener
            may pause, and those whose offsets cannot be read; any thread calls it, and it takes no lock.
    """

    needs_topics = False

    def __init__(
        self,
        consumer_id: str,
        config: ConsumerConfig,
        live_brokers: Callable[[], Sequence[Broker]],
        queue_for: QueueFor,
        pool: ConnectionPool | None = None,
        owned: Callable[[], Collection[TopicPartition]] = tuple,
    ) -> None:
        self._consumer_id = consumer_id
        self._config = config
        self._live_brokers = live_brokers
        self._queue_for = queue_for
        self._pool = pool
        self._owned = owned
        self._known_epochs = KnownEpochs()  # used by the thread of the newest finder
        self._finder: LeaderFinder | None = None
        self._infos: dict[TopicPartition, PartitionInfo] = {}  # replaced, never changed
        self._queues: set[ChunkQueue] = set()  # of all assignments so far; used by the rebalance thread
        self._denied: dict[TopicPartition, tuple[ChunkQueue, str]] = {}  # used by the rebalance thread
        self._pausing = threading.Lock()
        self._paused: frozenset[TopicPartition] = frozenset()

    def start(self, assignment: FetchAssignment) -> None:
        """See :class:`~zkconsumer.fetch.rules.fetchcontrol.FetchControl`; leaders are found in the background.

        Raises:
            ThreadLimit: no thread can look for leaders; then none of the partitions that would begin is fetched.
        """
        kept = {p: info for p, info in self._fetched().items() if assignment.threads.get(p) == info.thread}
        self.release(self._fetched().keys() - kept.keys())
        gained = {
            partition: self._new_info(partition, assigned, assignment.generation)
            for partition, assigned in assignment.partitions.items()
            if assigned.error is None and partition not in kept
        }
        if gained and self._finder is None:
            finder = LeaderFinder(self._consumer_id, self._config, self._live_brokers, self._known_epochs, self._pool)
            try:
                start_thread(finder)
            except ThreadLimit:
                finder.close()  # otherwise it would count as a client of the pool, whose connections then stay open
                raise
            self._finder = finder
        self._discard({**kept, **gained})
        for queue, infos in by_queue(gained.values()).items():
            self._queues.add(queue)
            queue.admit(infos)
        with self._pausing:
            self._paused = self._paused.intersection({*assignment.threads, *self._owned()})
            for partition in self._paused.intersection(gained):
                gained[partition].queue.pause(partition)
            self._infos = {**kept, **gained}
        self._deny(assignment)
        if self._finder is not None:
            self._finder.add(gained.values())

    def _deny(self, assignment: FetchAssignment) -> None:
        """Report what is not fetched, since its offset may not be read; forget what was, and is lost or fetched now."""
        before, self._denied = self._denied, {}
        for partition, error in assignment.refused.items():
            thread = assignment.partitions[partition].thread
            queue = self._queue_for(partition.topic, thread)
            self._denied[partition] = queue, error.topic
            if queue.faults.deny(error.topic, partition, error):
                _log.error("stream %s: %s; trying again", thread, error)
        for partition, (queue, topic) in before.items():
            if self._denied.get(partition) != (queue, topic):
                queue.faults.forget_denial(topic, partition)

    def _fetched(self) -> dict[TopicPartition, PartitionInfo]:
        """Partitions that were started and are not released."""
        return {partition: info for partition, info in self._infos.items() if not info.released}

    def _new_info(self, partition: TopicPartition, assigned: AssignedPartition, generation: int) -> PartitionInfo:
        info = PartitionInfo(
            partition,
            assigned.thread,
            generation,
            self._queue_for(partition.topic, assigned.thread),
            assigned.offset,
            self._config.fetch_message_max_bytes,
            self._still_held(partition, assigned),
            assigned.origin,
            assigned.earliest,
        )
        old, start = self._infos.get(partition), assigned.offset
        if old is None or assigned.moved:
            return info
        if self._continues(old, assigned):
            info.unfinished = old.unfinished
        if start is not None and old.fetched is not None and start <= old.fetched:
            info.epochs = old.epochs  # otherwise another member read what is before the start
        return info

    def _still_held(self, partition: TopicPartition, assigned: AssignedPartition) -> PartitionInfo | None:
        """The released partition, if the new one continues right after a record or batch that the user still holds."""
        old = self._infos.get(partition)
        if old is None or not self._continues(old, assigned):
            return None
        holder = old if old.is_held() else old.previous
        return holder if holder is not None and holder.is_held() else None

    def _continues(self, old: PartitionInfo, assigned: AssignedPartition) -> bool:
        """True if the released partition continues after what was handed out of it, and no other member wrote it."""
        return not assigned.moved and old.position(handed_out=True) == assigned.offset

    def _discard(self, following: Mapping[TopicPartition, PartitionInfo]) -> None:
        """Forget what is unfinished of partitions that end; ``following`` are those that are fetched from now on."""
        ended = [
            info
            for partition, info in self._infos.items()
            if partition not in following or following[partition].unfinished is not info.unfinished
        ]
        for queue, infos in by_queue(ended).items():
            queue.discard(infos)

    def release(self, partitions: Collection[TopicPartition], *, drain: bool = True) -> None:  # noqa: ARG002 - see stop
        """See ``FetchControl``; the connections stay, for the other partitions."""
        released = [info for partition, info in self._fetched().items() if partition in partitions]
        with self._pausing:
            for info in released:
                info.released = True
            for queue, infos in by_queue(released).items():
                queue.release(infos)
        if self._finder is not None:
            self._finder.remove(released)

    def stop(self, *, drain: bool = True) -> None:  # noqa: ARG002 - there is nothing to wait for
        """See :class:`~zkconsumer.fetch.rules.fetchcontrol.FetchControl`; takes milliseconds unless a thread hangs."""
        finder, self._finder = self._finder, None
        if finder is not None:
            finder.close()  # all sockets before any join: they end at the same time
        # Before waiting for the threads: from here on nothing is handed out, and puts are refused.
        with self._pausing:
            for info in self._infos.values():
                info.released = True
            for queue in {info.queue for info in self._infos.values()}:
                queue.release_all()
        if finder is not None:
            for name in finder.join_all(_STOP_TIMEOUT_S):
                _log.warning(
                    "thread %s did not end within %.0f s and keeps running; its partitions are released",
                    name,
                    _STOP_TIMEOUT_S,
                )

    def withhold(self) -> None:
        """Take back what streams are handing out now; it is handed out again after :meth:`deliver`."""
        for queue in {info.queue for info in self._infos.values()}:
            queue.withhold()

    def deliver(self) -> None:
        """See :class:`~zkconsumer.fetch.rules.fetchcontrol.FetchControl`."""
        for queue in {info.queue for info in self._infos.values()}:
            queue.deliver()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Neither fetch these partitions nor hand out their records, until resumed or owned by another member.

        Raises:
            NotOwner: this consumer does not own some of them; then none is paused.
        """
        with self._pausing:
            # Inside of the lock: what was lost before it is refused, what is lost later is dropped by the next start.
            owned = {*self._infos, *self._owned()}
            if missing := sorted(partition for partition in partitions if partition not in owned):
                raise NotOwner(
                    f"cannot pause what this consumer does not own: {', '.join(map(str, missing))}; "
                    "partition_states() lists what it owns"
                )
            self._paused |= frozenset(partitions)
            for partition in partitions:
                info = self._infos.get(partition)
                if info is not None and not info.released:  # otherwise the next start applies it
                    info.queue.pause(partition)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Resume these partitions; those that are not paused (any more) are ignored."""
        with self._pausing:
            for partition in self._paused.intersection(partitions, self._infos):
                self._infos[partition].queue.resume(partition)
            self._paused = self._paused.difference(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self._paused

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        """See :class:`~zkconsumer.fetch.rules.fetchcontrol.FetchControl`."""
        positions = {partition: info.position(handed_out=handed_out) for partition, info in self._infos.items()}
        return {partition: position for partition, position in positions.items() if position is not None}

    def superseded(self) -> list[tuple[TopicPartition, int]]:
        """See :class:`~zkconsumer.fetch.rules.fetchcontrol.FetchControl`."""
        taken = [info for queue in self._queues if (info := self._taken_from(queue)) is not None]
        positions = [(info.partition, info.position(handed_out=True)) for info in taken]
        return [(partition, position) for partition, position in positions if position is not None]

    def _taken_from(self, queue: ChunkQueue) -> PartitionInfo | None:
        """The partition of which the user of a queue holds records, if the newest assignment does not continue it."""
        held = queue.held()
        if not isinstance(held, PartitionInfo):
            return None
        current = self._infos.get(held.partition)
        return None if current is not None and held in (current, current.previous) else held

    def unfinished(self) -> dict[TopicPartition, int]:
        """How many records of each partition were handed out and are not done, where there are any."""
        counts = {partition: info.queue.count_unfinished(info) for partition, info in self._infos.items()}
        return {partition: count for partition, count in counts.items() if count}

    def partitions_of(self, queue: ChunkQueue) -> StreamPartitions:
        """What a commit of the stream of a queue covers."""
        taken = self._taken_from(queue)
        fetched = frozenset(partition for partition, info in self._infos.items() if info.queue is queue)
        return StreamPartitions(fetched, None if taken is None else taken.partition)

    def fetch_requests(self) -> dict[str, tuple[float, int]]:
        """See :meth:`LeaderFinder.fetch_requests <zkconsumer.fetch.leaderfinder.LeaderFinder.fetch_requests>`."""
        finder = self._finder
        return {} if finder is None else finder.fetch_requests()

    def states(self) -> list[FetchPosition]:
        """The state of each partition of the newest assignment, in their order."""
        return [
            FetchPosition(
                info.partition,
                info.thread,
                info.fetched,
                info.position(handed_out=False),
                info.high_watermark,
                info.released,
            )
            for _, info in sorted(self._infos.items())
        ]
