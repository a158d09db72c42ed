"""QueryPositions: the position of a query in each partition that it owns.

Used by Spark's thread only. The decisions are in :mod:`zkconsumer.spark.positions`; this module asks the brokers, and
keeps the results as long as the assignment lasts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Set

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.errors import OffsetOutOfRange, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.spark.logends import LogEnds
from zkconsumer.spark.microbatch import Span
from zkconsumer.spark.offsetsjson import EARLIEST, LATEST
from zkconsumer.spark.options import SourceOptions
from zkconsumer.spark.positions import (
    Choice,
    Reason,
    choose_starts,
    describe_losses,
    group_by_reason,
    is_behind,
    locate,
    not_remembered,
    overridden,
)
from zkconsumer.spark.sourceoffset import SourceOffset

_log = logging.getLogger(__name__)

_LEVELS = {
    Reason.MOVED: logging.WARNING,
    Reason.NOT_STORED: logging.WARNING,
    Reason.REWOUND: logging.WARNING,
    Reason.OLDER_THAN_TOPIC: logging.WARNING,
    Reason.APPEARED: logging.INFO,
    Reason.UNCOMMITTED: logging.INFO,
}
"""Reasons that are logged, with their levels."""


class QueryPositions:
    """The positions in the current generation of the assignment.

    Args:
        options: options of the query.
        ends: requests log ends from the brokers.
        others: consumer ids of the members that the group had before this query joined.

    Attributes:
        gone: topics of the checkpoint that were deleted.
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
        self._seen_ends: dict[TopicPartition, int] | None = None
        self.gone: Set[str] = frozenset()

    def of(
        self,
        assignment: FetchAssignment,
        finished: SourceOffset,
        available: Mapping[TopicPartition, Span] | None = None,
    ) -> Mapping[TopicPartition, int]:
        """Next offset to read of each owned partition that has a leader, or had one in this generation.

        Args:
            assignment: the partitions that the query owns.
            finished: the last batch that Spark finished.
            available: last known position and log end of each owned partition; None before the first plan of this run.

        Raises:
            OffsetOutOfRange: ``failOnDataLoss`` is true, and a position is not in the log any more, or a deleted topic
                may have had more records.
            BrokerUnavailable: no broker answers.
        """
        if available is not None:
            self._seen_ends = {**(self._seen_ends or {}), **{p: span.until for p, span in available.items()}}
        if self._generation != assignment.generation:
            self.gone = self._find_gone(assignment, finished)
            self._choices = self._choose(assignment, finished)
            recorded = {
                p: (finished.epochs[p], span.until) for p, span in finished.spans.items() if p in finished.epochs
            }
            self._ends.remember(recorded)
            self._offsets = {}
            self._moved = set()
            self._generation = assignment.generation
        unlocated = {p: choice for p, choice in self._choices.items() if p not in self._offsets}
        if unlocated:
            self._locate(unlocated)
            self._warn_of_overridden(unlocated, assignment)
        return self._offsets

    def advance(self, rows: Mapping[TopicPartition, Span]) -> None:
        """Move to the end of a planned batch, where the next one begins. Spark ends the query if a batch fails."""
        self._offsets.update((partition, span.until) for partition, span in rows.items())
        self._moved -= rows.keys()

    def follow_shorter_logs(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Move positions that are beyond the end of a log; False if there are none.

        Raises:
            OffsetOutOfRange: there is one, and ``failOnDataLoss`` is true.
        """
        beyond = {p: self._choices[p]._replace(place=self._offsets[p]) for p in ends if ends[p] < self._offsets[p]}
        if beyond:
            self._locate(beyond)
        return bool(beyond)

    def committable(self, finished: SourceOffset) -> dict[TopicPartition, int]:
        """The offsets to commit now: the ends of finished batches, and starts that the group's store must keep.

        A start at the group's own offset is not among them: the store has it already.
        """
        if finished.is_initial:
            return {}  # the first plan contains every owned partition
        ends = {p: n for p, n in self._offsets.items() if p in finished.spans and finished.spans[p].until == n}
        remembered = [*not_remembered(self._choices, finished, self._offsets), *self._moved]
        return ends | {partition: self._offsets[partition] for partition in remembered}

    def unlocated(self) -> set[TopicPartition]:
        """Owned partitions for which no leader has answered in this generation."""
        return self._choices.keys() - self._offsets.keys()

    def _find_gone(self, assignment: FetchAssignment, finished: SourceOffset) -> Set[str]:
        """The topics of the checkpoint that were deleted; others are not subscribed to any more.

        Raises:
            OffsetOutOfRange: this run has not seen that the query read one of them to its end, and ``failOnDataLoss``
                is true. Partitions that other members own are theirs.
        """
        missing = finished.known.keys() - assignment.topics.keys()
        gone = self._ends.gone({topic: finished.known[topic] for topic in missing}) if missing else set()
        if not gone:
            return gone
        unread = [
            partition
            for partition, span in finished.spans.items()
            if partition.topic in gone and is_behind(partition, span.until, self._seen_ends)
        ]
        if unread and self._options.fail_on_data_loss:
            raise OffsetOutOfRange(
                f"group {self._config.group_id}: {name_some(sorted({p.topic for p in unread}))} was deleted, and this "
                "query may not have read all of it. To continue without what is lost set failOnDataLoss=false"
            )
        _log.log(
            logging.WARNING if unread else logging.INFO,
            "group %s: %s was deleted%s; the query forgets it with its next batch",
            self._config.group_id,
            name_some(sorted(gone)),
            ", and this query may not have read all of it" if unread else "",
        )
        return gone

    def _choose(self, assignment: FetchAssignment, finished: SourceOffset) -> Mapping[TopicPartition, Choice]:
        """Choose the starts for a new generation.

        Raises:
            OffsetOutOfRange: a topic was deleted and created again, and ``failOnDataLoss`` is true.
        """
        choices = choose_starts(
            {partition: assignment.stored[partition] for partition in assignment.threads},
            assignment.topics,
            finished,
            starting=self._options.starting,
            reset=self._config.auto_offset_reset,
            outdated=assignment.earliest,
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
        """Warn if a new query with a ``starting...`` option overrides offsets of a group with other live members."""
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
            losses = describe_losses(found.lost)
            if self._options.fail_on_data_loss:
                raise OffsetOutOfRange(
                    f"offsets of group {self._config.group_id} are not in the log ({losses}). Check the retention; "
                    "to continue with the records that still exist set failOnDataLoss=false"
                )
            _log.warning("group %s: continuing with the records that exist: %s", self._config.group_id, losses)
        self._offsets.update(found.offsets)
        self._moved |= found.lost.keys()


def _place(choice: Choice) -> str:
    names = {EARLIEST: "the earliest offset", LATEST: "the end of the log"}
    return names.get(choice.place, str(choice.place)) if isinstance(choice.place, int) else f"{choice.place.ms} ms"
