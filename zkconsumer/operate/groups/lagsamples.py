"""LagSampler: samples the lag of groups again and again, and keeps a bounded history for the evaluation."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from zkconsumer.errors import GroupMissing, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.groupchanges import GroupMoment
from zkconsumer.operate.groups.observedgroup import (
    UNREAD_LAG,
    GroupSource,
    ObservedGroup,
    missing_topics,
    unread_groups,
    why_unread,
)
from zkconsumer.operate.groups.rules.lagstatus import GroupLag, LagStatus, evaluate_group, time_lag
from zkconsumer.operate.groups.rules.lagstretches import LagSample, Stretches, follow, with_lost_sample
from zkconsumer.operate.offsets.recordtimes import Position
from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer


class SampleSeries:
    """The last samples of each partition of groups; one thread uses it.

    Args:
        window: number of samples that are compared.
        kept: number of samples that are kept of each partition.
    """

    def __init__(self, window: int, kept: int) -> None:
        self._window = window
        self._kept = kept
        self._samples: dict[str, dict[TopicPartition, deque[LagSample]]] = {}

    def continue_from(self, samples: Mapping[str, Mapping[TopicPartition, Sequence[LagSample]]]) -> None:
        """Samples of groups that another process took, oldest first, precede those that follow."""
        self._samples = {
            group: {partition: deque(series, self._kept) for partition, series in by_partition.items()}
            for group, by_partition in samples.items()
        }

    def append(
        self,
        newest: Mapping[str, Mapping[TopicPartition, LagSample]],
        written_ms: Callable[[Collection[Position]], Mapping[Position, int]],
        now_ms: float,
    ) -> None:
        """Add a sample of each partition of groups; partitions that a group does not have any more are forgotten.

        So are, in a group in ZooKeeper, the samples of an earlier topic of the name: in a topic that was created again
        offsets begin at 0, and no member has gone back. What is read of a group at brokers names no topic.

        Args:
            newest: by group.
            written_ms: returns when the records at offsets were written, in ms since the epoch, as far as it is known;
                it is asked where the oldest record that is not consumed is older than the samples.
            now_ms: the time of the samples.
        """
        undated = dict.fromkeys(
            (partition, sample.committed)
            for group, samples in newest.items()
            for partition, sample in samples.items()
            if sample.lag and sample.committed is not None and self._is_undated(group, partition, sample)
        )
        written = written_ms(undated) if undated else {}
        for group, samples in newest.items():
            dated = {
                p: sample
                if sample.committed is None or (at_ms := written.get((p, sample.committed))) is None
                else sample._replace(age_s=max(0.0, (now_ms - at_ms) / 1000))
                for p, sample in samples.items()
            }
            self._append(group, dated)

    def _is_undated(self, group: str, partition: TopicPartition, sample: LagSample) -> bool:
        former = self._samples.get(group, {}).get(partition, ())
        return time_lag(sample, (*former, sample)[-self._kept :]) is None  # what is left once it is appended

    def _append(self, group: str, newest: Mapping[TopicPartition, LagSample]) -> None:
        former = self._samples.get(group, {})
        samples = {partition: former.get(partition, deque(maxlen=self._kept)) for partition in newest}
        for partition, series in samples.items():
            sample, topic = newest[partition], series[-1].topic if series else None
            if topic is not None and sample.topic is not None and not sample.topic.is_same_topic(topic):
                series.clear()
            stretches = series[-1].stretches if series else Stretches()
            series.append(follow(stretches, sample._replace(topic=sample.topic or topic)))
        self._samples[group] = samples

    def lose(self, groups: Iterable[str]) -> None:
        """Count a sample of groups that could not be read."""
        for group in groups:
            for series in self._samples.get(group, {}).values():
                series[-1] = series[-1]._replace(stretches=with_lost_sample(series[-1].stretches))

    def keep(self, groups: Collection[str]) -> None:
        """Forget all other groups."""
        self._samples = {group: samples for group, samples in self._samples.items() if group in groups}

    def of(self, group: str) -> Mapping[TopicPartition, Sequence[LagSample]]:
        """The samples that are kept of a group, oldest first."""
        return {partition: tuple(series) for partition, series in self._samples.get(group, {}).items()}

    def evaluate(self, observed: ObservedGroup) -> GroupLag:
        """Evaluate the last window of a group."""
        return evaluate_observed(observed, self.of(observed.group), self._window)


def evaluate_observed(
    group: ObservedGroup, samples: Mapping[TopicPartition, Sequence[LagSample]], window: int
) -> GroupLag:
    """Evaluate the samples of a group's partitions; see :func:`evaluate_group`."""
    return evaluate_group(
        samples,
        window,
        members=len(group.live),
        mark=group.mark,
        in_two_homes=group.in_two_homes,
        lost=group.lost,
        absent=group.subscribed & group.absent,
    )


def _unasked(_: Collection[Position]) -> dict[Position, int]:
    return {}


class LagSampler:
    """Samples groups; one thread uses it. It closes its source.

    Args:
        source: where the groups are read.
        window: number of samples that are compared.
        history: number of samples that are kept, at least ``window``.
        with_ages: also ask when records were written that are older than the samples.

    Attributes:
        observed: the groups of the last sample, by name; one that it could not read, as a former one has read it.
        unread: groups that exist, or may exist, and that the last sample could not read, or not enough to judge them;
            the reasons by name.
        problems: what the last sample could not read, one sentence each.
        missing_topics: which log ends are unknown since there is no such topic, one sentence each.
    """

    def __init__(self, source: GroupSource, *, window: int, history: int | None = None, with_ages: bool = True) -> None:
        self._source = source
        self._written_ms = source.times.look_up if with_ages else _unasked
        self._series = SampleSeries(window, max(window, history or window))
        self._has_begun = True  # a round, for names and the look that follows
        self._read: dict[str, ObservedGroup] = {}  # the last whole look at each group
        self._failures: Mapping[str, ZkConsumerError] = {}
        self._partly_read: Mapping[str, ZkConsumerError] = {}
        self._taken = 0
        self._lost: Mapping[str, int] = {}  # samples that could not read a group, or all of its lag
        self.observed: dict[str, ObservedGroup] = {}
        self.unread: Mapping[str, str] = {}
        self.problems: tuple[str, ...] = ()
        self.missing_topics: tuple[str, ...] = ()

    def close(self) -> None:
        """Close the connections to brokers. Idempotent."""
        self._source.close()

    def continue_from(self, samples: Mapping[str, Mapping[TopicPartition, Sequence[LagSample]]]) -> None:
        """See :meth:`SampleSeries.continue_from`."""
        self._series.continue_from(samples)

    def servers(self) -> tuple[ServerAnswer, ...]:
        """The servers that the last sample has asked, also one that failed, and those that have not answered since."""
        return self._source.servers()

    def groups(self) -> list[str]:
        """Names of all groups that there are now."""
        self._source.begin_round()
        self._has_begun = True
        return self._source.names()

    def sample(self, groups: Sequence[str], at: float) -> None:
        """Look at groups once. Groups that are not named are forgotten; one that cannot be read keeps its samples.

        Args:
            groups: names of groups.
            at: the time, in seconds of a clock that does not step.

        Raises:
            ZooKeeperUnavailable: no server answers.
        """
        if not self._has_begun:
            self._source.begin_round()
        self._has_begun = False
        look = self._source.look(groups, at)
        self._failures, self._partly_read = look.failures, look.partly_read
        failures = {n: str(error) for n, error in look.failures.items() if not isinstance(error, GroupMissing)}
        # One that has members where it was read is judged by them.
        parts = {
            n: f"a part of it cannot be read: {error}"
            for n, error in look.partly_read.items()
            if not look.groups[n].live
        }
        self.unread = {**failures, **parts}
        kept = {name: self._read[name] for name in self.unread if name in self._read}
        new = {name: samples for name, samples in look.samples.items() if name not in kept}
        self._series.append(new, self._written_ms, time.time() * 1000)
        self._series.lose(kept)
        self._series.keep({*look.groups, *look.failures})
        partly = {n for n, samples in new.items() if any(sample.is_unread for sample in samples.values())}
        lost = partly | self.unread.keys()
        self._taken += 1
        self._lost = {n: self._lost.get(n, 0) + (n in lost) for n in (*look.groups, *look.failures)}
        self._read = {**{name: group for name, group in look.groups.items() if name not in self.unread}, **kept}
        self.observed = {**look.groups, **self._read}
        failed = why_unread({name: error for name, error in look.failures.items() if name not in failures})
        unread = unread_groups(self.observed, self._failures, (), self._partly_read)
        found = dict.fromkeys((*failed, *unread, *self._source.unlisted, *look.problems))
        # A topic that does not exist is nothing that could not be read.
        missing = {problem for group in look.groups.values() for problem in missing_topics(group)}
        self.missing_topics = tuple(problem for problem in found if problem in missing)
        self.problems = tuple(problem for problem in found if problem not in missing)

    def missing(self, named: Collection[str] = ()) -> tuple[str, ...]:
        """Which groups, parts or homes of groups the last sample could not read; raises as :func:`unread_groups`."""
        unjudged = [n for n in self.observed if any(series[-1].is_unread for series in self.samples(n).values())]
        partly_read = {**dict.fromkeys(unjudged, UNREAD_LAG), **self._partly_read}
        return (*unread_groups(self.observed, self._failures, named, partly_read), *self._source.unlisted)

    def unjudged(self) -> tuple[str, ...]:
        """Which groups have lag that cannot be judged because samples before the last one were lost, a sentence each.

        :meth:`missing` has those that the last sample could not read.
        """
        return tuple(
            f"the lag of group {name} cannot be judged: {lost} of {self._taken} samples could not read all of it"
            for name, lost in self._lost.items()
            if lost and name in self.observed and name not in self.unread and self._waits(name)
        )

    def _waits(self, group: str) -> bool:
        """True if there is lag of which the samples show too little."""
        return any(one.lag and one.status is LagStatus.UNKNOWN for one in self.evaluate(group).partitions.values())

    def samples(self, group: str) -> Mapping[TopicPartition, Sequence[LagSample]]:
        """The samples that are kept of a group, oldest first."""
        return self._series.of(group)

    def evaluate(self, group: str) -> GroupLag:
        """Evaluate the last window of a group."""
        evaluated = self._series.evaluate(self.observed[group])
        return evaluated if (reason := self.unread.get(group)) is None else evaluated.outdated(reason)

    def moments(self) -> dict[str, GroupMoment]:
        """Each group of the last sample, evaluated."""
        return {
            name: GroupMoment(group.live, group.owners, self.evaluate(name)) for name, group in self.observed.items()
        }
