"""The records of ``QueryState``: one for each partition, one for the newest batch."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from zkconsumer.model import ConsumerThreadId, Stamp, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import NO_OFFSET, StoredOffset, usable_offset
from zkconsumer.spark.rules.positions import Choice


class QueryPartitionState(Enum):
    """What is true of a partition that the query owns, or has owned in this run."""

    GAINED = "gained"
    """Assigned in this generation, gained or kept. Where the query continues is not chosen yet."""
    CHOSEN = "chosen"
    """Checkpoint, group and options have decided where the query continues. No leader has answered: no position."""
    LOCATED = "located"
    """The position is in the log, and a restart would find it again."""
    UNRECORDED = "unrecorded"
    """The position is in the log, and a restart would find another one: the log does not hold the chosen offset, or its
    end or its first record of a time was chosen. So it is committed, although no batch ends there."""
    RELEASING = "releasing"
    """The rebalance thread releases it. Nothing is planned; what Spark has finished of it may still be committed."""
    LOST = "lost"
    """Not assigned any more. Its target counts if it is gained again, its log end if its topic is deleted."""


_REASSIGNED: Final = frozenset({QueryPartitionState.GAINED, QueryPartitionState.RELEASING, QueryPartitionState.LOST})
_LOCATED: Final = frozenset({QueryPartitionState.LOCATED, QueryPartitionState.UNRECORDED})

PARTITION_TRANSITIONS: Final[Mapping[QueryPartitionState, Set[QueryPartitionState]]] = MappingProxyType(
    {
        QueryPartitionState.GAINED: _REASSIGNED | {QueryPartitionState.CHOSEN},
        QueryPartitionState.CHOSEN: _REASSIGNED | _LOCATED,
        QueryPartitionState.LOCATED: _REASSIGNED | _LOCATED,
        QueryPartitionState.UNRECORDED: _REASSIGNED | _LOCATED,
        QueryPartitionState.RELEASING: _REASSIGNED,
        QueryPartitionState.LOST: {QueryPartitionState.GAINED, QueryPartitionState.LOST},
    }
)
"""Which states may follow a state of a partition; any other event leaves the record as it is."""


class QueryPartition(NamedTuple):
    """One partition.

    Each batch changes some fields of thousands of them: ``_replace`` would take several times as long as a call with
    slices of the fields in their order.

    Attributes:
        state: see :class:`QueryPartitionState`; Spark's thread writes CHOSEN, LOCATED and UNRECORDED.
        thread: consumer thread that it is assigned to; None if it is LOST.
        since: generation since which the query has owned it without a release; None if it is LOST.
        stored: what the group's store held when the generation began.
        is_outdated: True if the member has found that ``stored`` was written for an earlier topic of this name.
        choice: where to continue, and why.
        position: next offset to plan.
        committable: the offset that may be committed in this generation; None for no commit.
        confirmed: the offset that Spark's thread has sent to the store in this generation, also if that refused it.
        target: AvailableNow reads up to this offset; None before its log end was seen.
        log_end: last known end of its log.
    """

    state: QueryPartitionState
    thread: ConsumerThreadId | None = None
    since: int | None = None
    stored: StoredOffset = NO_OFFSET
    is_outdated: bool = False
    choice: Choice | None = None
    position: int | None = None
    committable: int | None = None
    confirmed: int | None = None
    target: int | None = None
    log_end: int | None = None

    @property
    def group_offset(self) -> int | None:
        """The group's offset; None if there is none: the store has nothing, or only one of an earlier topic."""
        return None if self.is_outdated else usable_offset(self.stored.offset)

    def gained(
        self, thread: ConsumerThreadId, generation: int, stored: StoredOffset, is_outdated: bool
    ) -> QueryPartition:
        """The newest assignment has it. What Spark reads of it still counts if it was not released in between."""
        kept = self.thread == thread and self.state is not QueryPartitionState.RELEASING
        return QueryPartition(
            QueryPartitionState.GAINED,
            thread,
            self.since if kept else generation,
            stored,
            is_outdated,
            committable=self.committable if kept else None,
            target=self.target,
            log_end=self.log_end,
        )

    def located(self, offset: int, *, moved: bool) -> QueryPartition:
        """A leader has answered; ``moved`` if the log does not hold the wanted offset."""
        varies = self.state is QueryPartitionState.CHOSEN and self.choice is not None and self.choice.varies
        unrecorded = moved or varies or self.state is QueryPartitionState.UNRECORDED
        return self.enter(
            QueryPartitionState.UNRECORDED if unrecorded else QueryPartitionState.LOCATED, position=offset
        )

    def seen(self, log_end: int, *, fix_target: bool) -> QueryPartition:
        """A leader has reported the end of the log, which is below the target if the log was truncated."""
        target = self.bounded(log_end) if fix_target else self.target
        unchanged = (self.log_end, self.target) == (log_end, target)
        return self if unchanged else QueryPartition(*self[:9], target, log_end)

    def planned(self, until: int) -> QueryPartition:
        """A batch is planned that reads it up to an offset."""
        if self.state is QueryPartitionState.LOCATED:
            return QueryPartition(*self[:6], until, *self[7:])
        return self.enter(QueryPartitionState.LOCATED, position=until)

    def may_commit(self, offset: int | None) -> QueryPartition:
        """This offset, and no other, may be committed."""
        return self if self.committable == offset else QueryPartition(*self[:7], offset, *self[8:])

    def committed(self, offset: int | None) -> QueryPartition:
        """The store has answered for this offset."""
        return self if self.confirmed == offset else QueryPartition(*self[:8], offset, *self[9:])

    def bounded(self, log_end: int) -> int:
        """The end of the log, or the target if that is less."""
        return log_end if self.target is None else min(log_end, self.target)

    def is_kept_since(self, generation: int | None) -> bool:
        """True if it was owned all the time since a generation; None for one of an earlier run."""
        return self.since is not None and (generation is None or self.since <= generation)

    def enter(self, state: QueryPartitionState, **changes: Any) -> QueryPartition:
        """The record in this state, or unchanged."""
        return self._replace(state=state, **changes) if state in PARTITION_TRANSITIONS[self.state] else self


class BatchState(Enum):
    """What is true of a batch."""

    PLANNED = "planned"
    """Spark was given the plan, and may have logged it. Releasing what it reads waits for its end."""
    IN_FLIGHT = "in flight"
    """Spark has its tasks: executors may read. Releasing what it reads waits for its end."""
    GIVEN_UP = "given up"
    """A release has waited for it for too long; no other one waits. Its end still counts for what was kept."""
    FINISHED = "finished"
    """Spark has finished it: its end may be committed where the partition was kept since it was planned."""
    DISCARDED = "discarded"
    """Spark will not report its end: it plans again from an earlier one, or the query ends."""


_ENDS: Final = frozenset({BatchState.FINISHED, BatchState.DISCARDED})

BATCH_TRANSITIONS: Final[Mapping[BatchState, Set[BatchState]]] = MappingProxyType(
    {
        BatchState.PLANNED: _ENDS | {BatchState.IN_FLIGHT, BatchState.GIVEN_UP},
        BatchState.IN_FLIGHT: _ENDS | {BatchState.GIVEN_UP},
        BatchState.GIVEN_UP: _ENDS,
        BatchState.FINISHED: frozenset(),
        BatchState.DISCARDED: frozenset(),
    }
)
"""Which states may follow a state of a batch; any other event leaves it as it is."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch; Spark's thread writes it.

    Attributes:
        state: see :class:`BatchState`; the rebalance thread writes GIVEN_UP, and an acknowledgement may write FINISHED.
        number: number of its plan.
        ends: end of the batch in each partition that it reads.
        generation: in which it was planned; None if an earlier run of the query planned it. Then its end is not
            committed as such: the first plan of this run finds it in the checkpoint.
        stamp: of its plan.
    """

    state: BatchState
    number: int
    ends: Mapping[TopicPartition, int]
    generation: int | None
    stamp: Stamp | None = None

    @property
    def is_over(self) -> bool:
        """True if its end counts already, or never will."""
        return self.state in _ENDS

    def enter(self, state: BatchState) -> Batch:
        """The record in this state, or unchanged."""
        return replace(self, state=state) if state in BATCH_TRANSITIONS[self.state] else self
