"""QueryState: what a query owns, and what Spark reads of it.

Pure: an event takes the state and returns the next one. :class:`~zkconsumer.spark.sparkfetchcontrol.SparkFetchControl`
keeps the newest state, and replaces it under its lock. Each event belongs to one thread (architecture.md#threads).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from zkconsumer.errors import GenerationEnded, TopicUnreadable
from zkconsumer.fetch.rules.fetchcontrol import FetchAssignment
from zkconsumer.model import Stamp, Topic, TopicPartition
from zkconsumer.ranges.rules.rangepositions import Located
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.rules.positions import Choice, Reason
from zkconsumer.spark.rules.queryrecords import Batch, BatchState, QueryPartition, QueryPartitionState
from zkconsumer.spark.rules.sourceoffset import SourceOffset


@dataclass(frozen=True)
class QueryState:
    """What a query owns, and what Spark reads of it.

    Events that depend on what is owned name the generation of the state that they were computed from, and raise
    GenerationEnded if a rebalance has begun since. Without that: 1. a batch is planned; 2. the rebalance stops
    fetching, sees no batch in flight, and releases; 3. another member claims and reads; 4. Spark reads the same.

    Attributes:
        generation: of the newest assignment; 0 before the first.
        topics: the subscribed topics when it was computed.
        unreadable: why an owned partition is not fetched; None if there is none.
        is_stopped: True from the beginning of a rebalance to its end: nothing may be planned.
        partitions: each partition that the query owns, or has owned in this run.
        batch: the newest one; None before the first.
        stamp: of the offsets that may be committed.
        gone: topics of the checkpoint that were deleted; None until the starts of this generation are chosen.
        rebalances: how many have ended.
    """

    generation: int = 0
    topics: Mapping[str, Topic] = field(default_factory=dict)
    unreadable: TopicUnreadable | None = None
    is_stopped: bool = True
    partitions: Mapping[TopicPartition, QueryPartition] = field(default_factory=dict)
    batch: Batch | None = None
    stamp: Stamp | None = None
    gone: Set[str] | None = None
    rebalances: int = 0

    @property
    def owned(self) -> dict[TopicPartition, QueryPartition]:
        """The partitions of the newest assignment."""
        return {
            p: partition for p, partition in self.partitions.items() if partition.state is not QueryPartitionState.LOST
        }

    @property
    def subscribed(self) -> list[TopicPartition]:
        """All partitions of the subscribed topics."""
        return [TopicPartition(name, number) for name, topic in self.topics.items() for number in topic.partitions]

    @cached_property
    def positions(self) -> Mapping[TopicPartition, int]:
        """Next offset to plan of each owned partition that has, or had in this generation, a leader."""
        return {p: partition.position for p, partition in self.partitions.items() if partition.position is not None}

    @property
    def unlocated(self) -> dict[TopicPartition, Choice]:
        """Where partitions continue for which no leader has answered in this generation."""
        return {
            p: partition.choice
            for p, partition in self.partitions.items()
            if partition.state is QueryPartitionState.CHOSEN and partition.choice is not None
        }

    @property
    def reached(self) -> dict[TopicPartition, int]:
        """The offsets that the logs of partitions with a position are known to have reached."""
        return {p: max(offset, self.partitions[p].target or 0) for p, offset in self.positions.items()}

    @property
    def unread(self) -> set[TopicPartition]:
        """Owned partitions that are not read to their target."""
        return {
            p
            for p, partition in self.owned.items()
            if partition.position is None or partition.target is None or partition.position < partition.target
        }

    @property
    def committable(self) -> dict[TopicPartition, int]:
        """The offsets that may be committed: ends of finished batches, and starts that a restart would not find."""
        return {
            p: partition.committable for p, partition in self.partitions.items() if partition.committable is not None
        }

    def unconfirmed(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Those of the offsets that were not sent to the store in this generation; it may have refused others."""
        return {p: offset for p, offset in offsets.items() if self.partitions[p].confirmed != offset}

    def to_commit(self, finished: SourceOffset) -> dict[TopicPartition, int]:
        """The offsets that Spark's thread may commit after the last finished batch.

        A start at the group's own offset is not among them: the store has it already. Before the first plan there are
        none: that plan records every owned partition.
        """
        if finished.is_initial:
            return {}
        spans = finished.spans
        return {
            p: offset
            for p, offset in self.positions.items()
            if self.partitions[p].state is QueryPartitionState.UNRECORDED or (p in spans and spans[p].until == offset)
        }

    def readable(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Span]:
        """The offsets from each position to the end of the log, or to the target, without empty spans."""
        return {
            p: Span(start, end)
            for p, start in self.positions.items()
            if p in ends and (end := self.partitions[p].bounded(ends[p])) > start
        }

    def has_log_beyond(self, partition: TopicPartition, offset: int) -> bool:
        """True if this run has seen that the log of a partition continues after an offset."""
        known = self.partitions.get(partition)
        return known is not None and known.log_end is not None and known.log_end > offset

    def overridden(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The partitions among these for which a ``starting...`` option overrides the offset that the group committed.

        Returns:
            For each partition the offset that the group committed, and the one at which the query starts.
        """
        return {
            p: (committed, partition.position)
            for p, partition in sorted(self.partitions.items())
            if p in partitions and partition.choice is not None and partition.choice.reason is Reason.OPTION
            if partition.position is not None
            if (committed := partition.group_offset) is not None and committed != partition.position
        }

    def awaited(self, partitions: Collection[TopicPartition]) -> Set[TopicPartition]:
        """What the batch in flight reads, if the release of these partitions has to wait for its end; else nothing."""
        if self.batch is None or self.batch.state not in (BatchState.PLANNED, BatchState.IN_FLIGHT):
            return frozenset()
        read = self._read_by(self.batch)
        return frozenset() if read.isdisjoint(partitions) else read

    def has_planned(self, number: int) -> bool:
        """True if the newest batch has this number, and this run has planned it."""
        return self.batch is not None and self.batch.number == number and self.batch.generation is not None

    def current(self, generation: int) -> QueryState:
        """This state; GenerationEnded if a rebalance has begun since the generation was read."""
        self._require(generation)
        return self

    # -- events of the rebalance thread -----------------------------------------------------------------------------

    def releasing(self, partitions: Collection[TopicPartition]) -> QueryState:
        """A rebalance has begun, and releases these partitions."""
        released = {
            p: self.partitions[p].enter(QueryPartitionState.RELEASING) for p in partitions if p in self.partitions
        }
        return replace(self._with(released), is_stopped=True)

    def given_up(self) -> QueryState:
        """A release has waited for the batch in flight for too long."""
        return self if self.batch is None else replace(self, batch=self.batch.enter(BatchState.GIVEN_UP))

    def assigned(self, assignment: FetchAssignment) -> QueryState:
        """A rebalance has ended.

        A batch, finished or in flight, counts for the partitions that were kept. Otherwise: 1. a batch is in flight;
        2. the member gains a partition; 3. the batch finishes, but its end belongs to a former assignment; 4. before
        the next plan another rebalance releases what the batch read, at the offset before it, and the next owner reads
        all of it again.
        """
        unknown = QueryPartition(QueryPartitionState.LOST)
        gained = {
            p: self.partitions.get(p, unknown).gained(owned.thread, assignment.generation, owned.stored, owned.earliest)
            for p, owned in assignment.partitions.items()
            if owned.error is None
        }
        lost = {
            p: QueryPartition(QueryPartitionState.LOST, target=former.target, log_end=former.log_end)
            for p, former in self.partitions.items()
            if p not in gained
        }
        return replace(
            self,
            generation=assignment.generation,
            topics=assignment.topics,
            unreadable=next(iter(assignment.refused.values()), None),
            is_stopped=False,
            partitions={**lost, **gained},
            gone=None,
            rebalances=self.rebalances + 1,
        )

    # -- events of Spark's thread -----------------------------------------------------------------------------------

    def chosen(self, generation: int, choices: Mapping[TopicPartition, Choice], gone: Set[str]) -> QueryState:
        """Where the partitions of this generation continue is decided, and which topics were deleted."""
        self._require(generation)
        chosen = {
            p: self.partitions[p].enter(QueryPartitionState.CHOSEN, choice=choice) for p, choice in choices.items()
        }
        return replace(self._with(chosen), gone=gone)

    def located(self, generation: int, located: Located) -> QueryState:
        """Leaders have answered."""
        self._require(generation)
        offsets = located.offsets.items()
        return self._with({p: self.partitions[p].located(offset, moved=p in located.lost) for p, offset in offsets})

    def seen(self, generation: int, ends: Mapping[TopicPartition, int], *, fix_targets: bool) -> QueryState:
        """Leaders have reported the ends of logs.

        With ``fix_targets`` an AvailableNow query reads up to them, unless it has owned the partition before.
        """
        self._require(generation)
        known = self.partitions
        news = ends if fix_targets else {p: end for p, end in ends.items() if known[p].log_end != end}
        return self._with({p: known[p].seen(end, fix_target=fix_targets) for p, end in news.items()})

    def may_commit(self, generation: int, offsets: Mapping[TopicPartition, int], stamp: Stamp | None) -> QueryState:
        """These offsets may be committed, with this stamp, and of partitions whose position is known no others.

        1. A batch reads t-0 to 300; 2. a rebalance keeps t-0, and its leader stops; 3. the batch finishes; 4. a plan
        without a position of t-0 follows: 300 may still be committed, when t-0 is released for example.
        """
        self._require(generation)
        changed = {
            p: partition.may_commit(offsets.get(p))
            for p, partition in self.partitions.items()
            if partition.committable != offsets.get(p) and (p in offsets or partition.position is not None)
        }
        return replace(self._with(changed), stamp=stamp)

    def committed(self, generation: int, offsets: Mapping[TopicPartition, int]) -> QueryState:
        """The store has answered for these offsets; those it refused wait for the member's timer, or the next batch."""
        self._require(generation)
        return self._with({p: self.partitions[p].committed(at) for p, at in self.unconfirmed(offsets).items()})

    def planned(
        self, generation: int, number: int, rows: Mapping[TopicPartition, Span], stamp: Stamp | None
    ) -> QueryState:
        """A batch is planned; its end is where the next one begins. Spark ends the query if a batch fails."""
        self._require(generation)
        ends = {p: span.until for p, span in rows.items()}
        batch = Batch(BatchState.PLANNED, number, ends, generation, stamp)
        planned = {p: self.partitions[p].planned(until) for p, until in ends.items()}
        return replace(self._with(planned), batch=batch)

    def begun(self, number: int, ends: Mapping[TopicPartition, int]) -> QueryState:
        """Spark requests the tasks of a batch, perhaps of one that an earlier run planned.

        Before the first assignment that has no effect: there are no partitions whose release could wait for the batch.
        It is over when the query joins, but only the first plan would report that: the join would wait for it.
        """
        if self.batch is not None and self.batch.number == number:
            return replace(self, batch=self.batch.enter(BatchState.IN_FLIGHT))
        if self.generation == 0 or (self.batch is not None and not self.batch.is_over):
            return self
        return replace(self, batch=Batch(BatchState.IN_FLIGHT, number, ends, None))

    def finished(self, number: int) -> QueryState:
        """Spark requests the batch after the one with this number, which is the last that it has finished."""
        is_newest = self.batch is not None and self.batch.number == number
        return self._ended(BatchState.FINISHED if is_newest else BatchState.DISCARDED)

    def abandoned(self) -> QueryState:
        """The query ends: the end of its batch will not be reported."""
        return self._ended(BatchState.DISCARDED)

    # -- an event of a thread of an acknowledgement -----------------------------------------------------------------

    def acknowledged(self, number: int) -> QueryState:
        """Spark has finished the batch with this number, and has not requested the next one."""
        return self._ended(BatchState.FINISHED) if self.batch is not None and self.batch.number == number else self

    # ---------------------------------------------------------------------------------------------------------------

    def _ended(self, state: BatchState) -> QueryState:
        batch = self.batch
        if batch is None or batch.is_over:
            return self
        over = replace(self, batch=batch.enter(state))
        read = self._read_by(batch)
        if state is BatchState.DISCARDED or batch.generation is None or (batch.ends and not read):
            return over
        ends = {p: self.partitions[p].may_commit(batch.ends[p]) for p in read}
        return replace(over._with(ends), stamp=batch.stamp)

    def _read_by(self, batch: Batch) -> Set[TopicPartition]:
        """The partitions that a batch reads and that were owned all the time since."""
        return {p for p in batch.ends if p in self.partitions and self.partitions[p].is_kept_since(batch.generation)}

    def _with(self, partitions: Mapping[TopicPartition, QueryPartition]) -> QueryState:
        if not partitions:  # an idle trigger changes nothing of thousands of partitions
            return self
        return replace(self, partitions={**self.partitions, **partitions})

    def _require(self, generation: int) -> None:
        if self.is_stopped or self.generation != generation:
            raise GenerationEnded(f"a rebalance has begun since generation {generation} was read")
