"""The lag evaluation: what successive samples of a partition show of whether its consumer keeps up.

Members of ZooKeeper groups do not write an offset again that has not changed, so the age of a commit shows nothing by
itself: a topic with one record a day has one commit a day. What counts is lag, and whether the offset moves while there
is lag.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Final

from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.lag import AFTER_LOG, outside_log, sum_known
from zkconsumer.offsets.rules.storedoffsets import usable_offset
from zkconsumer.operate.groups.rules.lagstretches import JUDGED_S, OWNERLESS_S, LagSample, Stretch
from zkconsumer.zookeeper.rules.znodes import MigrationMark, mark_verdict

_FEWEST, _MOST = 10, 100


def samples_for(interval_s: float) -> int:
    """How many samples a window has by default: at least 10, and as many as cover :data:`JUDGED_S`, at most 100."""
    return max(_FEWEST, min(_MOST, math.ceil(JUDGED_S / interval_s) + 1))


class LagStatus(Enum):
    """What the samples of a partition, or of a group, show, from best to worst.

    OK: the consumer keeps up. UNKNOWN: there is no committed offset, or no log end, or there is lag and the samples
    cover too little time to judge it; of a group also that members subscribe to a topic that does not exist. MIGRATED,
    of a group and all its partitions: it was migrated off ZooKeeper, and has no members there. NO MEMBERS, of a group
    only: no member is registered. WARN: the offset advanced, but the lag grew and never fell; of a group also that
    members are registered although it was migrated, that it has members both in ZooKeeper and at brokers, or that its
    members have committed nothing although there are records. STALL: there is a live owner and lag, and the offset has
    not moved, or no offset was committed while records were written. STOP: there is lag and no live owner. REWIND: the
    committed offset went down. RANGE: the committed offset lies outside the log.
    """

    OK = "OK"
    UNKNOWN = "UNKNOWN"
    MIGRATED = "MIGRATED"
    NO_MEMBERS = "NO MEMBERS"
    WARN = "WARN"
    STALL = "STALL"
    STOP = "STOP"
    REWIND = "REWIND"
    RANGE = "RANGE"

    @property
    def severity(self) -> int:
        """0 for the best."""
        return _ORDER.index(self)

    @property
    def is_problem(self) -> bool:
        """True from WARN up."""
        return self.severity >= _ORDER.index(LagStatus.WARN)

    @property
    def is_error(self) -> bool:
        """True for what is worse than WARN."""
        return self.severity > _ORDER.index(LagStatus.WARN)


_ORDER: Final = tuple(LagStatus)


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The evaluation of a partition's samples.

    Attributes:
        status: see :class:`LagStatus`.
        reason: the evidence, in words.
        lag: in records; None if it is unknown.
        lag_s: the age, in seconds, of the oldest record that is not consumed; None if the samples do not show it.
        consumed_per_s: records per second that were committed; None if it is unknown.
        produced_per_s: records per second that were written to the log; None if it is unknown.
        complete: True if the window was full, and the samples cover :data:`JUDGED_S`.
        ownerless_s: for how many seconds there has been lag and no live owner; None if that is not so.
        unmoved_s: for how many seconds there have been lag and a live owner, but for at most :data:`OWNERLESS_S` at a
            time, and no offset was written; None if that is not so.
        newest: the last sample.
    """

    status: LagStatus
    reason: str
    lag: int | None
    lag_s: float | None
    consumed_per_s: float | None
    produced_per_s: float | None
    complete: bool
    ownerless_s: float | None
    unmoved_s: float | None
    newest: LagSample


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The evaluation of a group.

    Attributes:
        status: see :func:`evaluate_group`.
        reason: the evidence, in words.
        complete: which share of the partitions had full windows, 0 to 1; 1 if there are none.
        lag: the sum of what is known; None if there are partitions and it is known of none.
        consumed_per_s: the same of the records per second that were committed.
        produced_per_s: the same of the records per second that were written to the logs.
        partitions: each evaluation.
        is_uncommitted: True if it has this status since members have committed nothing for some partitions.
        absent: topics that members subscribe to and that do not exist, sorted.
        was: the last status that could be judged, where it is UNKNOWN since something cannot be read; None otherwise.
    """

    status: LagStatus
    reason: str
    complete: float
    lag: int | None
    consumed_per_s: float | None
    produced_per_s: float | None
    partitions: Mapping[TopicPartition, PartitionLag]
    is_uncommitted: bool = False
    absent: tuple[str, ...] = ()
    was: LagStatus | None = None

    @property
    def severity(self) -> int:
        """By which groups are sorted: that of the status, or of what it was."""
        return (self.was or self.status).severity

    @property
    def is_problem(self) -> bool:
        """True from WARN up, for a group without members that has lag, and where members' topics do not exist.

        What cannot be read now is a problem if it was one: an outage heals no group.
        """
        status = self.was or self.status
        if status is LagStatus.NO_MEMBERS:
            return lacks_members(self.lag)
        return status.is_problem or bool(self.absent)

    @property
    def owned(self) -> int:
        """Number of partitions that have a live owner."""
        return sum(partition_lag.newest.owner_live for partition_lag in self.partitions.values())

    def outdated(self, reason: str) -> GroupLag:
        """The same of a group that cannot be read now, which is therefore UNKNOWN."""
        if self.status is LagStatus.UNKNOWN:
            return replace(self, reason=reason)
        return replace(self, status=LagStatus.UNKNOWN, reason=_was(reason, self), was=self.status)

    def outdated_throughout(self, reason: str) -> GroupLag:
        """The same with partitions that are UNKNOWN, too."""
        partitions = {
            p: replace(one, status=LagStatus.UNKNOWN, reason=_was(reason, one)) for p, one in self.partitions.items()
        }
        return replace(self.outdated(reason), partitions=partitions)


def _was(reason: str, former: GroupLag | PartitionLag) -> str:
    return f"{reason}; it was {former.status.value}: {former.reason}"


def evaluate_group(
    partitions: Mapping[TopicPartition, Sequence[LagSample]],
    window: int,
    *,
    members: int,
    mark: MigrationMark | None = None,
    in_two_homes: str = "",
    lost: str = "",
    absent: Collection[str] = (),
) -> GroupLag:
    """Evaluate the samples of each partition; those without a sample are ignored.

    The group is what the worst of its partitions is, OK if there are none. Without members it is NO MEMBERS, unless a
    partition shows what is worse than WARN, or could not be read, and may be what is worse: then it is UNKNOWN. A
    group that was migrated and has no members is MIGRATED, and so is each of its partitions: its consumers have other
    offsets. With members, or where the migration or the way back is not complete, it is WARN at least, and so
    is a group with members in ZooKeeper and at brokers, and one whose members have committed nothing, although its
    partitions have records. A group whose members subscribe to a topic that does not exist is UNKNOWN at least.

    Args:
        partitions: samples of each, oldest first.
        window: see :func:`evaluate_partition`.
        members: number of members at the last sample, in ZooKeeper and at brokers.
        mark: of a group that was migrated, or is being; None of others, and where members at brokers are what it shows.
        in_two_homes: that it has members in ZooKeeper and at brokers, in a sentence; empty if it has not.
        lost: that brokers do not have it, to which it was migrated, in a sentence; empty of others. It is NO MEMBERS
            then, and its partitions are UNKNOWN: the offsets that ZooKeeper has are not those of its consumers.
        absent: topics that members subscribe to and that do not exist.
    """
    evaluated = {partition: evaluate_partition(samples, window) for partition, samples in partitions.items() if samples}
    lag = sum_known(partition_lag.lag for partition_lag in evaluated.values())
    status = worst(partition_lag.status for partition_lag in evaluated.values())
    concerned = [partition for partition, partition_lag in evaluated.items() if partition_lag.status is status]
    reason = f"{concerned[0]}: {evaluated[concerned[0]].reason}" if concerned else "there are no partitions"
    if len(concerned) > 1:
        reason = f"{len(concerned)} of {len(evaluated)} partitions, {reason}"
    uncommitted = ""
    if mark is not None:
        if mark_verdict(mark, has_members=members > 0) == "done":
            status, reason = LagStatus.MIGRATED, f"its consumers continue at {mark.where}"
            evaluated = {p: replace(one, status=status, reason=reason) for p, one in evaluated.items()}
        elif not status.is_problem:
            status, reason = LagStatus.WARN, f"{'it has members, though ' if members else ''}it {mark.meaning}"
    elif lost:
        status, reason = LagStatus.NO_MEMBERS, f"{lost}; {describe_sum(lag)}"
        evaluated = {p: replace(one, status=LagStatus.UNKNOWN, reason=lost) for p, one in evaluated.items()}
    elif in_two_homes and not status.is_problem:
        status, reason = LagStatus.WARN, in_two_homes
    elif members and not status.is_problem and (uncommitted := _nothing_committed(evaluated)):
        status, reason = LagStatus.WARN, uncommitted
    elif members and absent and not status.is_problem:
        status, reason = LagStatus.UNKNOWN, f"members subscribe to what does not exist: {name_some(sorted(absent))}"
    elif not members and not status.is_error and not any(one.newest.is_unread for one in evaluated.values()):
        status, reason = LagStatus.NO_MEMBERS, f"no member is registered; {describe_sum(lag)}"
    complete = (
        sum(partition_lag.complete for partition_lag in evaluated.values()) / len(evaluated) if evaluated else 1.0
    )
    consumed_per_s = sum_known(partition_lag.consumed_per_s for partition_lag in evaluated.values())
    produced_per_s = sum_known(partition_lag.produced_per_s for partition_lag in evaluated.values())
    return GroupLag(
        status,
        reason,
        complete,
        lag,
        consumed_per_s,
        produced_per_s,
        evaluated,
        is_uncommitted=bool(uncommitted)
        or (status is LagStatus.STALL and all(evaluated[p].lag is None for p in concerned)),
        absent=tuple(sorted(absent)) if members else (),
    )


def _nothing_committed(partitions: Mapping[TopicPartition, PartitionLag]) -> str:
    """That no partition has a committed offset, though some have records, in words; empty if it is not so.

    A member of librdkafka that begins at the log end commits nothing before it has read a record. So this alone is no
    STALL; the records that are written meanwhile are.
    """
    if any(usable_offset(one.newest.committed) is not None or one.newest.is_unread for one in partitions.values()):
        return ""
    lasting = [one.newest.at - s.began for one in partitions.values() if one.complete and (s := _without_commit(one))]
    if not lasting:
        return ""
    return (
        f"members have committed nothing for {min(lasting):.0f} s, and {len(lasting)} of {len(partitions)} partitions "
        "have records, none of them new"
    )


def _without_commit(lag: PartitionLag) -> Stretch | None:
    return lag.newest.stretches.uncommitted


def describe_sum(lag: int | None) -> str:
    """The lag of a group, as :func:`~zkconsumer.offsets.rules.lag.sum_known` adds it, in words."""
    return "lag unknown" if lag is None else f"known lag {lag}"


def lacks_members(lag: int | None) -> bool:
    """True if it is a problem that a group with this lag has no members: records wait, as far as the lag is known."""
    return bool(lag)


def worst_first(severity: int, lag: int | None) -> tuple[int, int]:
    """Sorts groups in the order of an on-call engineer: the worst status first, then the largest lag."""
    return -severity, -(lag or 0)


def worst(statuses: Iterable[LagStatus]) -> LagStatus:
    """The worst of them, OK if there are none."""
    return max(statuses, key=lambda status: status.severity, default=LagStatus.OK)


def evaluate_partition(samples: Sequence[LagSample], window: int) -> PartitionLag:
    """Evaluate the samples of one partition. The first rule that holds gives the status.

    STALL and WARN need a stretch of samples, ``window`` of them or more, that covers :data:`JUDGED_S`; what has lag is
    UNKNOWN until so much has been seen, unless the lag fell. So is what had no owner or no progress for so long, when
    it has an owner again: that alone is no progress.

    Args:
        samples: at least one, oldest first, each with what :func:`follow` adds.
        window: number of samples in a full window, at least 2.
    """
    recent = samples[-window:]
    known = [sample for sample in recent if sample.lag is not None]
    status, reason = _status(recent[-1], known, window)
    newest = recent[-1]
    return PartitionLag(
        status=status,
        reason=reason,
        lag=newest.lag,
        lag_s=time_lag(newest, samples),
        consumed_per_s=_rate([(sample.at, usable_offset(sample.committed)) for sample in recent]),
        produced_per_s=_rate([(sample.at, sample.log_end) for sample in recent]),
        complete=_can_judge(newest, len(known), window),
        ownerless_s=_seconds(newest, newest.stretches.ownerless),
        unmoved_s=_seconds(newest, newest.stretches.unmoved),
        newest=newest,
    )


def _can_judge(newest: LagSample, known: int, window: int) -> bool:
    seen, uncommitted = newest.stretches.seen, newest.stretches.uncommitted
    has_lags = known >= window and seen is not None and seen.judges(newest.at, window)
    return has_lags or (uncommitted is not None and uncommitted.judges(newest.at, window))


def _seconds(newest: LagSample, stretch: Stretch | None) -> float | None:
    return None if stretch is None else newest.at - stretch.began


def _status(newest: LagSample, known: Sequence[LagSample], window: int) -> tuple[LagStatus, str]:
    if newest.lag is None:
        return _without_lag(newest, window)
    if outside := outside_log(newest.committed, newest.log_start, newest.log_end):
        bound = newest.log_end if outside == AFTER_LOG else newest.log_start or 0
        return LagStatus.RANGE, f"offset {newest.committed} lies {outside} {bound}"
    if newest.lag == 0:
        return LagStatus.OK, "everything is consumed"
    if reason := _rewound(known):
        return LagStatus.REWIND, reason
    ownerless = newest.stretches.ownerless
    if ownerless is not None and newest.at - ownerless.began > OWNERLESS_S:
        lasted = _lasted(newest, ownerless)
        return LagStatus.STOP, f"lag {newest.lag} and no live owner for {lasted}{_owner_changes(newest)}"
    if _is_advancing(known) and any((after.lag or 0) < (before.lag or 0) for before, after in pairwise(known)):
        return LagStatus.OK, f"lag {newest.lag}; it fell within these samples"
    return _judge_stretches(newest, window)


def _without_lag(newest: LagSample, window: int) -> tuple[LagStatus, str]:
    stretch = newest.stretches.uncommitted
    if stretch is not None and not newest.is_unread and stretch.judges(newest.at, window):
        written, seconds = stretch.last_lag - stretch.first_lag, newest.at - stretch.began
        if written > 0:
            records = "1 record" if written == 1 else f"{written} records"
            return LagStatus.STALL, f"no offset was committed for {seconds:.0f} s, in which {records} came"
    if newest.committed is not None and newest.log_end is not None:
        return LagStatus.UNKNOWN, f"the committed offset is {newest.committed}, which is none"
    return LagStatus.UNKNOWN, f"the {'committed offset' if newest.committed is None else 'log end'} is unknown"


def _rewound(known: Sequence[LagSample]) -> str | None:
    for before, after in pairwise(known):
        assert before.committed is not None
        assert after.committed is not None
        if after.committed < before.committed:
            return f"the committed offset went from {before.committed} to {after.committed}"
    return None


def _is_advancing(known: Sequence[LagSample]) -> bool:
    return (known[-1].committed or 0) > (known[0].committed or 0)


def _judge_stretches(newest: LagSample, window: int) -> tuple[LagStatus, str]:
    """What samples show in which the lag did not fall while the offset advanced."""
    seen, unmoved, unfallen = newest.stretches.seen, newest.stretches.unmoved, newest.stretches.unfallen
    assert seen is not None, "a sample with lag has been followed"
    lag, committed, now = newest.lag or 0, newest.committed or 0, newest.at
    if not seen.judges(now, window):
        times = f"{seen.samples} {'sample covers' if seen.samples == 1 else 'samples cover'} {now - seen.began:.0f} s"
        return LagStatus.UNKNOWN, f"lag {lag}; {times}, and a verdict needs {window} that cover {JUDGED_S:.0f} s"
    if unmoved is not None and unmoved.judges(now, window):
        return (
            LagStatus.STALL,
            f"lag {lag}, and offset {committed} is unchanged for {_lasted(newest, unmoved)}{_owner_changes(newest)}",
        )
    unwritten = newest.stretches.unwritten
    assert unwritten is not None, "a sample with lag has been followed"
    if unfallen is not None and unfallen.judges(now, window) and _has_fallen_back(unfallen, unwritten):
        grown = f"lag never fell within {now - unfallen.began:.0f} s: {unfallen.first_lag} to {lag}"
        if now - unwritten.began < JUDGED_S:
            return LagStatus.WARN, f"the offset advances, but {grown}"
        return LagStatus.WARN, f"{grown}; offset {committed} is unchanged for {_lasted(newest, unwritten)}"
    if unwritten.judges(now, window):
        owned = "it has no live owner" if unmoved is None else f"it has had an owner for {now - unmoved.began:.0f} s"
        return (
            LagStatus.UNKNOWN,
            f"lag {lag}, and offset {committed} is unchanged for {_lasted(newest, unwritten)}; {owned}, and a verdict "
            f"needs {window} samples that cover {JUDGED_S:.0f} s{_owner_changes(newest)}",
        )
    return LagStatus.OK, f"lag {lag}"


def _has_fallen_back(unfallen: Stretch, unwritten: Stretch) -> bool:
    """True if lag that never fell has grown by what the offset advances from one sample to the next, or more.

    A member that commits every 5 s has the same lag in samples every 10 s, and keeps up; as its commits and the samples
    drift against each other, that lag grows, but never by so much. The lag at the last sample with a new offset counts:
    growth after it does not show that a member is slow. The member may hang, which is STALL after a full window.
    """
    grown = unwritten.first_lag - unfallen.first_lag
    advanced, steps = unwritten.committed - unfallen.committed, unfallen.samples - unwritten.samples
    return advanced > 0 and grown > 0 and grown * steps >= advanced


def _lasted(newest: LagSample, stretch: Stretch) -> str:
    """How long a stretch has lasted, in words: if it began with the first sample, its beginning is unknown."""
    seen = newest.stretches.seen
    least = "at least " if seen is not None and seen.began == stretch.began else ""
    return f"{least}{newest.at - stretch.began:.0f} s"


def _owner_changes(newest: LagSample) -> str:
    """How often the owner has changed since an offset was written, in words; empty of one rebalance, or none."""
    unwritten = newest.stretches.unwritten
    changes = 0 if unwritten is None else unwritten.owner_changes
    return f"; its owner changed {changes} times since an offset was written" if changes > 1 else ""


def time_lag(newest: LagSample, samples: Sequence[LagSample]) -> float | None:
    """The age in seconds of the oldest record that is not consumed, interpolated between samples of the log end.

    If it was written before the oldest sample of ``samples``, it is what its timestamp says. None if that is unknown.

    Args:
        newest: whose committed offset counts.
        samples: of the same partition, oldest first, ``newest`` among them.
    """
    if newest.lag is None or newest.committed is None:
        return None
    if newest.lag == 0:
        return 0.0
    ends = _since_truncation([(sample.at, sample.log_end) for sample in samples if sample.log_end is not None])
    for (at, end), (later_at, later_end) in zip(reversed(ends[:-1]), reversed(ends[1:]), strict=True):
        if end <= newest.committed < later_end:
            written = at + (newest.committed - end) / (later_end - end) * (later_at - at)
            return newest.at - written
    return newest.age_s


def _since_truncation(ends: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """The last samples of a log end between which it never went back."""
    first = len(ends) - 1
    while first > 0 and ends[first - 1][1] <= ends[first][1]:
        first -= 1
    return ends[first:]


def _rate(values: Sequence[tuple[float, int | None]]) -> float | None:
    """Growth per second between the first and the last known value; None where it shrank or is unknown."""
    known = [(at, value) for at, value in values if value is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0] or known[-1][1] < known[0][1]:
        return None
    return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])
