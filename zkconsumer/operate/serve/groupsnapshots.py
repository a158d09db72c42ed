"""GroupsSnapshot: all groups at one sample, immutable, with a bounded history of their lag.

The recorder of one thread makes a snapshot after each sample; any thread reads it. So snapshots share what has not
changed, and nothing in them is written again.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.grouplist import group_listing
from zkconsumer.operate.groups.lagsamples import LagSampler, evaluate_observed
from zkconsumer.operate.groups.observedgroup import DescribedGroupMember, ObservedGroup
from zkconsumer.operate.groups.rules.lagstatus import GroupLag, LagStatus
from zkconsumer.operate.groups.rules.lagstretches import LagSample

STALE_INTERVALS: Final = 3
"""A snapshot whose sample ended longer ago than so many intervals is stale: it does not show the present any more."""

_UNKNOWN: Final = -1


def packed(numbers: Iterable[int | None]) -> array[int]:
    """Numbers of 8 bytes each, -1 where one is unknown."""
    return array("q", (_UNKNOWN if number is None else number for number in numbers))


def unpacked(number: int) -> int | None:
    """A number of such an array; None if it is unknown."""
    return None if number == _UNKNOWN else number


class LagRow(NamedTuple):
    """The lag of a group's partitions at one sample.

    Numbers in an array take 8 bytes for each partition; objects would take 100, for thousands of partitions and
    hundreds of samples.

    Attributes:
        at_ms: the time of the sample, in ms since the epoch.
        partitions: of the group then; rows share it as long as it stays the same.
        lags: records of each of them, -1 where the lag was unknown.
    """

    at_ms: int
    partitions: tuple[TopicPartition, ...]
    lags: array[int]

    def lag(self, index: int | None) -> int | None:
        """The lag of the partition with this index; None if it was unknown, or without an index."""
        return None if index is None else unpacked(self.lags[index])

    def sum(self) -> int | None:
        """As :func:`~zkconsumer.offsets.rules.lag.sum_known`, without an object for each partition."""
        unknown = self.lags.count(_UNKNOWN)
        return None if unknown == len(self.lags) and unknown else sum(self.lags) - unknown * _UNKNOWN


class Rebalance(NamedTuple):
    """A change of owners between two samples.

    Attributes:
        at_ms: the time of the later sample, in ms since the epoch.
        partitions: number of partitions with another owner than before.
        joined: members that were not registered before.
        left: members that are not registered any more.
    """

    at_ms: int
    partitions: int
    joined: tuple[str, ...]
    left: tuple[str, ...]


@dataclass(frozen=True)
class GroupSnapshot:
    """One group.

    Attributes:
        observed: what was read of it.
        samples: the last window of each partition, oldest first.
        window: number of samples in a full window.
        history: a row for each sample, oldest first.
        rebalances: those within the history, oldest first.
        unread: why the newest sample could not read it, so that all this is older; None if it could.
        former: the last snapshot of it of which no offset or log end is missing, if the newest sample could not read
            one; None otherwise.
    """

    observed: ObservedGroup
    samples: Mapping[TopicPartition, Sequence[LagSample]]
    window: int
    history: tuple[LagRow, ...]
    rebalances: tuple[Rebalance, ...]
    unread: str | None = None
    former: GroupSnapshot | None = None

    # These are computed when they are first asked for: it costs more than the sample itself.

    @cached_property
    def lag(self) -> GroupLag:
        """The evaluation of the window. One that cannot be judged now has the status that it had."""
        lag = evaluate_observed(self.observed, self.samples, self.window)
        if self.unread is not None:
            lag = lag.outdated_throughout(self.unread)
        if self.former is not None and lag.status is LagStatus.UNKNOWN and lag.was is None:
            former = self.former.lag.outdated(lag.reason)
            lag = dataclasses.replace(lag, reason=former.reason, was=former.was)
        return lag

    @property
    def _is_blind(self) -> bool:
        """True if no lag could be read, though the group could."""
        return (
            self.unread is None
            and self.lag.lag is None
            and any(series[-1].is_unread for series in self.samples.values())
        )

    @property
    def why_unknown(self) -> str | None:
        """Why the newest sample shows no lag that may exist, in words; None if it shows what there is."""
        return self.lag.reason if self._is_blind else self.unread

    @property
    def values_ms(self) -> int | None:
        """When the sample began that has read what is shown, in ms since the epoch; None if it is the newest one."""
        if self.unread is not None:
            return self.history[-1].at_ms
        return self.former.history[-1].at_ms if self._is_blind and self.former is not None else None

    @property
    def shown(self) -> GroupLag:
        """The evaluation, with the lags of the last sample that could read them; for people, not for monitors."""
        if not self._is_blind or self.former is None:
            return self.lag
        former = self.former.lag.outdated_throughout(self.lag.reason)
        return dataclasses.replace(former, status=self.lag.status, reason=self.lag.reason, was=self.lag.was)

    @cached_property
    def line(self) -> Mapping[str, Any]:
        """The group in the list of the API.

        ``severity`` orders states, 0 for the best, by what it ``was`` if it is UNKNOWN since something cannot be read;
        ``lag_s`` is the largest of the partitions whose lag is known, None
        if it is known of none, or the age of one is unknown; ``stale`` is true if the newest sample could not read the
        group, for the ``reason``.
        """
        lag = self.shown
        ages = [evaluated.lag_s for evaluated in lag.partitions.values() if evaluated.lag]
        listing = group_listing(self.observed, lag)
        return {
            **dataclasses.asdict(listing),
            "status": listing.status.value,
            "was": None if lag.was is None else lag.was.value,
            "severity": lag.severity,
            "problem": lag.is_problem,
            "is_problem": lag.is_problem,  # its former name, which scripts may read
            "stale": self.values_ms is not None,
            "lag_s": None if lag.lag is None or None in ages else max(filter(None, ages), default=0.0),
            "complete": lag.complete,
            "partitions": len(lag.partitions),
            "owned": lag.owned,
            "consumed_per_s": lag.consumed_per_s,
            "produced_per_s": lag.produced_per_s,
            "rebalances": len(self.rebalances),
        }

    @cached_property
    def members(self) -> tuple[DescribedGroupMember, ...]:
        """The members, in the order of their ids."""
        return self.observed.describe_members()


@dataclass(frozen=True, slots=True)
class GroupsSnapshot:
    """All groups at one sample.

    Attributes:
        at: when the sample began, in seconds of a clock that does not step.
        at_ms: the same in ms since the epoch.
        seconds: how long the sample took.
        interval: seconds between samples.
        groups: by name.
        problems: what could not be read, one sentence each.
    """

    at: float
    at_ms: int
    seconds: float
    interval: float
    groups: Mapping[str, GroupSnapshot]
    problems: tuple[str, ...]

    def is_stale(self, now: float) -> bool:
        """True if the sample ended more than three intervals before ``now``, a time of the same clock as ``at``.

        Samples that wait for a silent broker take longer than three short intervals, and follow each other at once.
        """
        return now - self.at - self.seconds > STALE_INTERVALS * self.interval


class RecordedGroup(NamedTuple):
    """What a recorder keeps of a group until the next sample.

    Attributes:
        rows: a row for each sample, oldest first; at least one.
        rebalances: those within the rows, oldest first.
        observed: in the last sample; None if another process took it.
        read: the last snapshot of which no offset or log end is missing; None if there is none.
    """

    rows: tuple[LagRow, ...]
    rebalances: tuple[Rebalance, ...]
    observed: ObservedGroup | None = None
    read: GroupSnapshot | None = None


class LagRecorder:
    """Makes snapshots of what a sampler found, and keeps the history; one thread uses it.

    A group that a sample cannot read has no new row. One that a sample does not find keeps its history as long as that
    would keep its last row.

    Args:
        window: number of samples in a full window.
        history: number of samples in the history. It takes about 8 bytes for each sample and partition.
        interval: seconds between samples.
        recorded: what a former process has recorded, by group.
    """

    def __init__(
        self, window: int, history: int, interval: float, recorded: Mapping[str, RecordedGroup] | None = None
    ) -> None:
        self._window = window
        self._kept = history
        self._interval = interval
        self._recorded = dict(recorded or {})

    def record(self, sampler: LagSampler, *, at: float, at_ms: int, seconds: float) -> GroupsSnapshot:
        """The snapshot of the last sample; for the arguments see :class:`GroupsSnapshot`."""
        groups = {}
        for name, observed in sampler.observed.items():
            samples = sampler.samples(name)
            recorded = self._recorded.get(name)
            rows = () if recorded is None else recorded.rows
            unread = sampler.unread.get(name)
            if unread is None or not rows:
                rows = (*rows[-(self._kept - 1) :], _row(at_ms, samples, rows[-1].partitions if rows else ()))
            rebalances = () if recorded is None else _rebalances(recorded, observed, at_ms, rows[0].at_ms)
            is_read = unread is None and not any(series[-1].is_unread for series in samples.values())
            former = None if is_read or recorded is None else recorded.read
            group = GroupSnapshot(observed, samples, self._window, rows, rebalances, unread, former)
            groups[name] = group
            self._recorded[name] = RecordedGroup(rows, rebalances, observed, group if is_read else former)
        oldest_ms = at_ms - round(1000 * self._kept * self._interval)
        self._recorded = {
            name: group for name, group in self._recorded.items() if name in groups or group.rows[-1].at_ms > oldest_ms
        }
        return GroupsSnapshot(at, at_ms, seconds, self._interval, groups, sampler.problems)


def _row(
    at_ms: int, samples: Mapping[TopicPartition, Sequence[LagSample]], former: tuple[TopicPartition, ...]
) -> LagRow:
    partitions = tuple(samples)
    lags = (series[-1].lag for series in samples.values())
    return LagRow(at_ms, former if former == partitions else partitions, packed(lags))


def _rebalances(recorded: RecordedGroup, observed: ObservedGroup, at_ms: int, since_ms: int) -> tuple[Rebalance, ...]:
    newest = None if recorded.observed is None else rebalance_between(recorded.observed, observed, at_ms)
    known = recorded.rebalances
    if newest is None and (not known or known[0].at_ms >= since_ms):
        return known
    return (*(rebalance for rebalance in known if rebalance.at_ms >= since_ms), *(() if newest is None else (newest,)))


def rebalance_between(before: ObservedGroup, after: ObservedGroup, at_ms: int) -> Rebalance | None:
    """The rebalance between two samples of a group; None if every partition kept its owner.

    Args:
        before: the group at the earlier sample.
        after: the same at the later one.
        at_ms: the time of the later one.
    """
    if before.owners == after.owners:
        return None
    partitions = before.owners.keys() | after.owners.keys()
    return Rebalance(
        at_ms,
        sum(before.owners.get(partition) != after.owners.get(partition) for partition in partitions),
        tuple(sorted(after.live - before.live)),
        tuple(sorted(before.live - after.live)),
    )
