"""QueryPositions: where a query reads next in each partition that it owns.

Used by Spark's thread only. The decisions are in :mod:`zkconsumer.spark.positions`; here the brokers are asked, and
what was found is kept for as long as the assignment lasts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.errors import OffsetOutOfRange, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.spark.logends import LogEnds
from zkconsumer.spark.offsets_json import EARLIEST, LATEST
from zkconsumer.spark.options import SourceOptions
from zkconsumer.spark.planning import Span
from zkconsumer.spark.positions import (
    Choice,
    Reason,
    choose_starts,
    describe_losses,
    group_by_reason,
    locate,
    not_remembered,
    overridden,
)
from zkconsumer.spark.sourceoffset import SourceOffset

_log = logging.getLogger(__name__)

_LEVELS = {
    Reason.MOVED: logging.WARNING,
    Reason.NOT_STORED: logging.WARNING,
    Reason.NOT_IN_VERSION_1: logging.WARNING,
    Reason.OLDER_THAN_TOPIC: logging.WARNING,
    Reason.APPEARED: logging.INFO,
    Reason.UNCOMMITTED: logging.INFO,
}
"""Reasons that are worth a line in the log."""


class QueryPositions:
    """Positions under one generation of the assignment after the other.

    Args:
        options: of the query.
        ends: asks the brokers.
        others: consumer ids of the members that the group had before this query joined.
    """

    def __init__(self, options: SourceOptions, ends: LogEnds, others: Collection[str]) -> None:
        self._options = options
        self._config: ConsumerConfig = options.config
        self._ends = ends
        self._others = sorted(others)
        self._generation: int | None = None
        self._choices: Mapping[TopicPartition, Choice] = {}
        self._offsets: dict[TopicPartition, int] = {}
        self._moved: set[TopicPartition] = set()

    def of(self, assignment: FetchAssignment, finished: SourceOffset) -> Mapping[TopicPartition, int]:
        """Next offset to read of each owned partition that has a leader, or had one in this generation.

        Args:
            assignment: what the query owns.
            finished: the last batch that Spark finished.

        Raises:
            OffsetOutOfRange: what should be read next is gone, and ``failOnDataLoss`` is true.
            BrokerUnavailable: no broker answers.
        """
        if self._generation != assignment.generation:
            self._choices = self._choose(assignment, finished)
            self._offsets = {}
            self._moved = set()
            self._generation = assignment.generation
        unlocated = {p: choice for p, choice in self._choices.items() if p not in self._offsets}
        if unlocated:
            self._locate(unlocated)
            self._warn_of_overridden(unlocated, assignment)
        return self._offsets

    def advance(self, rows: Mapping[TopicPartition, Span]) -> None:
        """A batch was planned: the next one begins at its end. Spark ends the query where a batch fails."""
        self._offsets.update((partition, span.until) for partition, span in rows.items())
        self._moved -= rows.keys()

    def follow_shorter_logs(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Move positions that lie beyond the end of a log; False if none does.

        Raises:
            OffsetOutOfRange: one does, and ``failOnDataLoss`` is true.
        """
        beyond = {p: self._choices[p]._replace(place=self._offsets[p]) for p in ends if ends[p] < self._offsets[p]}
        if beyond:
            self._locate(beyond)
        return bool(beyond)

    def committable(self, finished: SourceOffset) -> dict[TopicPartition, int]:
        """What the group's store should hold now: the ends of finished batches, and starts that it has to remember.

        A start that the group's offset determined is not one: the store has it.
        """
        if finished.is_initial:
            return {}  # the first plan names every owned partition
        ends = {p: n for p, n in self._offsets.items() if p in finished.spans and finished.spans[p].until == n}
        remembered = [*not_remembered(self._choices, finished, self._offsets), *self._moved]
        return ends | {partition: self._offsets[partition] for partition in remembered}

    def unlocated(self) -> set[TopicPartition]:
        """Owned partitions of which no leader has answered in this generation."""
        return self._choices.keys() - self._offsets.keys()

    def _choose(self, assignment: FetchAssignment, finished: SourceOffset) -> Mapping[TopicPartition, Choice]:
        """Decide for a new generation.

        Raises:
            OffsetOutOfRange: a topic was deleted and created again, and ``failOnDataLoss`` is true.
        """
        choices = choose_starts(
            {partition: assignment.stored[partition] for partition in assignment.threads},
            assignment.topics,
            finished,
            starting=self._options.starting,
            reset=self._config.auto_offset_reset,
        )
        self._report(choices, assignment, finished)
        recreated = {p: choice for p, choice in choices.items() if choice.reason is Reason.RECREATED}
        if recreated and self._options.fail_on_data_loss:
            raise OffsetOutOfRange(
                f"group {self._config.group_id}: {', '.join(sorted({p.topic for p in recreated}))} was deleted and "
                "created again since this query read it, so the offsets of the checkpoint belong to another topic. To "
                "read the new topic from its earliest offset set failOnDataLoss=false"
            )
        return choices

    def _report(
        self, choices: Mapping[TopicPartition, Choice], assignment: FetchAssignment, finished: SourceOffset
    ) -> None:
        for reason, partitions in group_by_reason(choices).items():
            if reason is Reason.MOVED:
                for p in partitions:
                    _log.warning(
                        "group %s: %s continues at the group's offset %s, although this query's last batch of it was "
                        "[%d, %d): %s",
                        self._config.group_id,
                        p,
                        assignment.stored[p].offset,
                        *finished.spans[p],
                        reason.value,
                    )
            elif reason in _LEVELS:
                starts = [f"{p} at {_place(choices[p])}" for p in partitions]
                _log.log(
                    _LEVELS[reason], "group %s: %s: %s", self._config.group_id, name_some(starts, 20), reason.value
                )

    def _warn_of_overridden(self, choices: Mapping[TopicPartition, Choice], assignment: FetchAssignment) -> None:
        """A new query with a ``starting...`` option goes its own way in a group that others read."""
        starts = overridden(choices, assignment.stored, self._offsets)
        if not starts or not self._others:
            return
        _log.warning(
            "group %s has live members (%s) and has committed offsets, but %s of this new query overrides them: %s. "
            "Records before a committed offset are read again, records after it are skipped if the query starts beyond "
            "them, and the group's offsets follow this query. To continue at the committed offsets remove the option "
            "(the default is startingOffsets=group); to read independently of these members set another group.id",
            self._config.group_id,
            name_some(self._others),
            self._options.starting_option,
            name_some(
                [f"{p} starts at {start}, committed {committed}" for p, (committed, start) in starts.items()], 20
            ),
        )

    def _locate(self, choices: Mapping[TopicPartition, Choice]) -> None:
        wanted = self._ends.resolve({partition: choice.place for partition, choice in choices.items()})
        found = locate(wanted, self._ends.earliest(wanted), self._ends.latest(wanted, wanted))
        if found.lost:
            story = describe_losses(found.lost)
            if self._options.fail_on_data_loss:
                raise OffsetOutOfRange(
                    f"offsets of group {self._config.group_id} are not in the log any more ({story}). Check retention; "
                    "to continue with the records that still exist set failOnDataLoss=false"
                )
            _log.warning("group %s: continuing with the records that exist: %s", self._config.group_id, story)
        self._offsets.update(found.offsets)
        self._moved |= found.lost.keys()


def _place(choice: Choice) -> str:
    names = {EARLIEST: "the earliest offset", LATEST: "the end of the log"}
    return names.get(choice.place, str(choice.place)) if isinstance(choice.place, int) else f"{choice.place.ms} ms"
