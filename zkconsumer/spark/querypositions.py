"""QueryPositions: asks checkpoint, group and brokers for the position of a query in each partition that it owns.

Used by Spark's thread only. The decisions are in :mod:`zkconsumer.spark.rules.positions`, the positions in
:class:`~zkconsumer.spark.rules.querystate.QueryState`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Set

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, MalformedZnode, OffsetOutOfRange, UsageError, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC
from zkconsumer.ranges.logends import LogEnds, stepped_back
from zkconsumer.ranges.rules.rangepositions import EARLIEST, LATEST, Loss, Wanted, describe_losses, locate
from zkconsumer.spark.rules.options import SourceOptions
from zkconsumer.spark.rules.positions import Choice, Reason, choose_starts, chosen_by_others, group_by_reason
from zkconsumer.spark.rules.querystate import QueryState
from zkconsumer.spark.rules.sourceoffset import SourceOffset
from zkconsumer.spark.sparkfetchcontrol import SparkFetchControl
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths

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
    """Chooses and locates positions.

    Args:
        earlier: consumer ids of the members that the group had before this query joined.
    """

    def __init__(
        self, options: SourceOptions, control: SparkFetchControl, ends: LogEnds, earlier: Collection[str]
    ) -> None:
        self._options = options
        self._group = options.config.group_id
        self._control = control
        self._ends = ends
        self._earlier = sorted(earlier)
        self._last: QueryState | None = None

    def find(self, query: QueryState, finished: SourceOffset, *, is_first: bool) -> QueryState:
        """The state with a position of each owned partition that has a leader, or had one in this generation.

        ``is_first``: this run has planned nothing, so the logs of a deleted topic may have had any ends.

        Raises:
            GenerationEnded: a rebalance has begun.
            OffsetOutOfRange: ``failOnDataLoss`` is true, and a position is not in the log any more, or a deleted topic
                may have had more records.
            UsageError: ``group.share`` is false, and another client has chosen a position since this run's first plan.
            BrokerUnavailable: no broker answers.
        """
        generation = query.generation
        if query.gone is None:
            gone = self._find_gone(query, finished, is_first=is_first)
            choices = self._choose(query, finished)
            self._compare_logs(finished, choices)
            query = self._last = self._control.update(lambda newest: newest.chosen(generation, choices, gone))
        unlocated = {p: choice.place for p, choice in query.unlocated.items()}
        if unlocated:
            query = self._locate(generation, unlocated)
            self._warn_of_overridden(query.overridden(unlocated))
        self._last = query
        return query

    def follow_shorter_logs(self, query: QueryState, ends: Mapping[TopicPartition, int]) -> bool:
        """Move positions that are beyond the end of a log; False if there are none.

        Raises:
            GenerationEnded: a rebalance has begun.
            OffsetOutOfRange: there is one, and ``failOnDataLoss`` is true.
        """
        beyond = {p: query.positions[p] for p in stepped_back(ends, query.positions)}
        if beyond:
            self._locate(query.generation, beyond)
        return bool(beyond)

    def _compare_logs(self, finished: SourceOffset, choices: Mapping[TopicPartition, Choice]) -> None:
        """Compare logs with those that this query has seen, unless others have chosen its positions since.

        1. It reads t-0 to 1000; 2. another member gets t-0; 3. an unclean leader keeps the records to 900; 4. the other
        member reads new ones to 960, where this query continues: it has read none of what is lost.
        """
        ends = {
            p: span.until for p, span in finished.spans.items() if p not in choices or choices[p].place == span.until
        }
        self._ends.forget(choices.keys() - ends.keys())
        self._ends.remember({p: (finished.epochs[p], end) for p, end in ends.items() if p in finished.epochs})

    def _locate(self, generation: int, places: Mapping[TopicPartition, Wanted]) -> QueryState:
        wanted = self._ends.resolve(places)
        latest = self._ends.latest(wanted, wanted)
        located = locate(wanted, self._ends.earliest(wanted), latest, self._ends.readable(latest))
        accept_losses(self._options, located.lost)
        return self._control.update(lambda newest: newest.located(generation, located))

    def _find_gone(self, query: QueryState, finished: SourceOffset, *, is_first: bool) -> Set[str]:
        """The topics of the checkpoint that were deleted; others are not subscribed to any more.

        Raises:
            OffsetOutOfRange: this run has not seen that the query read one of them to its end, and ``failOnDataLoss``
                is true. Partitions that other members own are theirs.
        """
        missing = finished.known.keys() - query.topics.keys()
        gone = self._ends.gone({topic: finished.known[topic].identity for topic in missing}) if missing else set()
        if not gone:
            return gone
        unread = [
            partition
            for partition, span in finished.spans.items()
            if partition.topic in gone and (is_first or query.has_log_beyond(partition, span.until))
        ]
        if unread and self._options.fail_on_data_loss:
            raise OffsetOutOfRange(
                f"group {self._group}: {name_some(sorted({p.topic for p in unread}))} was deleted, and this "
                "query may not have read all of it. To continue without what is lost set failOnDataLoss=false"
            )
        _log.log(
            logging.WARNING if unread else logging.INFO,
            "group %s: %s was deleted%s; the query forgets it with its next batch",
            self._group,
            name_some(sorted(gone)),
            ", and this query may not have read all of it" if unread else "",
        )
        return gone

    def _choose(self, query: QueryState, finished: SourceOffset) -> Mapping[TopicPartition, Choice]:
        """Choose the starts for a new generation.

        Raises:
            OffsetOutOfRange: a topic was deleted and created again, and ``failOnDataLoss`` is true.
            UsageError: see :meth:`_require_own`.
        """
        choices = choose_starts(
            {p: partition.stored for p, partition in query.owned.items()},
            query.topics,
            finished,
            starting=self._options.starting,
            reset=self._options.config.auto_offset_reset,
            outdated={p for p, partition in query.owned.items() if partition.is_outdated},
        )
        self._require_own(query, choices, finished)
        self._report(choices, finished)
        recreated = {p: choice for p, choice in choices.items() if choice.reason is Reason.RECREATED}
        if recreated and self._options.fail_on_data_loss:
            raise OffsetOutOfRange(
                f"group {self._group}: {', '.join(sorted({p.topic for p in recreated}))} was deleted and "
                "created again since this query read it, so the offsets of the checkpoint belong to another topic. To "
                "read the new topic from its earliest offset set failOnDataLoss=false"
            )
        return choices

    def _require_own(self, query: QueryState, choices: Mapping[TopicPartition, Choice], finished: SourceOffset) -> None:
        """With ``group.share=false``, check that no other client has chosen a start since this run first chose them.

        Members that joined and left again between two plans are seen by nothing else.

        Raises:
            UsageError: another client has.
        """
        if self._options.config.group_share or (last := self._last) is None:
            return
        before = {p: partition.stored for p, partition in last.owned.items()}
        stored = {p: partition.stored for p, partition in query.owned.items()}
        others = chosen_by_others(choices, stored, before, last.positions, finished.query)
        if others:
            moved = [
                f"{p} at {choices[p].place}"
                + (f" (this query has read it to {finished.spans[p].until})" if p in finished.spans else "")
                for p in others
            ]
            raise UsageError(
                f"group {self._group}: this query has neither committed these offsets nor seen them when it started: "
                f"{name_some(moved)}; with group.share=false it ends. Another member of the group may have read "
                "records that this query would skip. Stop that member, reset the offsets if this query has to "
                "read these records (`zkconsumer offsets reset`), and start the query again: it continues at the "
                "group's offsets"
            )

    def _report(self, choices: Mapping[TopicPartition, Choice], finished: SourceOffset) -> None:
        for reason, partitions in group_by_reason(choices).items():
            if reason is Reason.MOVED:
                for partition in partitions:
                    _log.warning(
                        "group %s: %s continues at the group's offset %s, although this query's last batch of it was "
                        "[%d, %d): %s",
                        self._group,
                        partition,
                        choices[partition].place,
                        *finished.spans[partition],
                        reason.value,
                    )
            elif reason in _LEVELS:
                starts = name_some([f"{p} at {_place(choices[p])}" for p in partitions], 20)
                _log.log(_LEVELS[reason], "group %s: %s: %s", self._group, starts, reason.value)

    def _warn_of_overridden(self, starts: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Warn if a new query with a ``starting...`` option overrides offsets of a group with other live members."""
        if not starts or not self._earlier:
            return
        overridden = [f"{p} starts at {start}, committed {committed}" for p, (committed, start) in starts.items()]
        _log.warning(
            "group %s has live members (%s) and has committed offsets, but %s of this new query overrides them: %s. "
            "Records before a committed offset are read again, records after it are skipped if the query starts beyond "
            "them, and the group's offsets follow this query. To continue at the committed offsets remove the option "
            "(the default is startingOffsets=group); to read independently of these members set another group.id",
            self._group,
            name_some(self._earlier),
            self._options.starting_option,
            name_some(overridden, 20),
        )


def unreadable_offset(config: ConsumerConfig, partition: TopicPartition) -> MalformedZnode | BrokerUnavailable:
    """The error of a partition that cannot be read without its stored offset, which cannot be read; the log has why."""
    unknown = f"the start of {partition} is unknown"
    if config.offsets_only_in_kafka:
        return BrokerUnavailable(f"the group's coordinator returns no offset, so {unknown}; the log has the reason")
    path = GroupPaths(config.group_id).offset(partition)
    if config.offsets_storage == "kafka":  # a healthy znode may have a partner that the coordinator does not return
        reason = f"one of them holds no offset, so {unknown}; the log has which one and why"
        return MalformedZnode(f"{path} or {OFFSETS_TOPIC}", reason)
    reason = f"holds no offset, so {unknown}; write an offset (a batch read may set startingOffsets instead)"
    return MalformedZnode(path, reason)


def accept_losses(options: SourceOptions, lost: Mapping[TopicPartition, Loss]) -> None:
    """Log what is not in the logs any more.

    Raises:
        OffsetOutOfRange: something is, and ``failOnDataLoss`` is true.
    """
    if not lost:
        return
    group, losses = options.config.group_id, describe_losses(lost)
    if options.fail_on_data_loss:
        raise OffsetOutOfRange(
            f"offsets of group {group} are not in the log ({losses}). Check the retention; to continue with the "
            "records that still exist set failOnDataLoss=false"
        )
    _log.warning("group %s: continuing with the records that exist: %s", group, losses)


def _place(choice: Choice) -> str:
    names = {EARLIEST: "the earliest offset", LATEST: "the end of the log"}
    return names.get(choice.place, str(choice.place)) if isinstance(choice.place, int) else f"{choice.place.ms} ms"
