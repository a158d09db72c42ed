"""LagSampler: samples the lag of groups again and again, and keeps a bounded history for the evaluation."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from zkconsumer.assembly.clusterchoice import open_group_reader
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
from zkconsumer.operate.groups.groupchanges import GroupMoment
from zkconsumer.operate.groups.groupdescription import (
    OffsetsInKafka,
    all_partitions,
    counting_stored,
    existing_partitions,
    read_offsets_in_kafka,
)
from zkconsumer.operate.groups.groupznodes import GroupZnodes, read_groups
from zkconsumer.operate.groups.rules.lagstatus import GroupLag, LagSample, Stretches, evaluate_group, follow, time_lag
from zkconsumer.operate.offsets.brokeroffsets import TIMEOUT_MS, BrokerOffsets, Logs
from zkconsumer.operate.offsets.recordtimes import Position, RecordTimes
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.zookeeper.rules.znodes import MigrationMark
from zkconsumer.zookeeper.session import ZkSession

_LEAST_PATIENCE_S: Final = 1.0


class GroupSampler(Protocol):
    """Samples groups of one kind again and again; one thread uses it."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What the last sample could not read, one sentence each."""

    def groups(self) -> list[str]:
        """Names of all groups that there are now."""

    def sample(self, groups: Sequence[str], at: float, *, required: bool = False) -> None:
        """Look at groups once; see :meth:`LagSampler.sample`."""

    def moments(self) -> dict[str, GroupMoment]:
        """Each group of the last sample, evaluated."""


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
        return time_lag(sample, (*former, sample)) is None

    def _append(self, group: str, newest: Mapping[TopicPartition, LagSample]) -> None:
        former = self._samples.get(group, {})
        samples = {partition: former.get(partition, deque(maxlen=self._kept)) for partition in newest}
        for partition, series in samples.items():
            series.append(follow(series[-1].stretches if series else Stretches(), newest[partition]))
        self._samples[group] = samples

    def keep(self, groups: Collection[str]) -> None:
        """Forget all other groups."""
        self._samples = {group: samples for group, samples in self._samples.items() if group in groups}

    def of(self, group: str) -> Mapping[TopicPartition, Sequence[LagSample]]:
        """The samples that are kept of a group, oldest first."""
        return {partition: tuple(series) for partition, series in self._samples.get(group, {}).items()}

    def evaluate(self, group: str, members: int, mark: MigrationMark | None = None) -> GroupLag:
        """Evaluate the last window of a group that has so many members; see :func:`evaluate_group`."""
        return evaluate_group(self.of(group), self._window, members=members, mark=mark)


def _unasked(_: Collection[Position]) -> dict[Position, int]:
    return {}


class LagSampler:
    """Samples groups; one thread uses it. It keeps its connections to brokers until it is closed.

    Args:
        session: an open session.
        config: how brokers are reached.
        window: number of samples that are compared.
        storage: whose committed offset counts.
        bootstrap: brokers to ask for offsets instead of those of ``config``, or those that are registered in ZooKeeper.
        history: number of samples that are kept, at least ``window``.
        interval: seconds between samples, if a sample should not take much longer where a broker is silent.
        with_ages: also ask when records were written that are older than the samples.

    Attributes:
        znodes: what the last sample found in ZooKeeper, by group.
        problems: what the last sample could not read, one sentence each.
    """

    def __init__(
        self,
        session: ZkSession,
        config: ConsumerConfig,
        *,
        window: int,
        storage: OffsetStorage = "auto",
        bootstrap: Sequence[Broker] = (),
        history: int | None = None,
        interval: float = math.inf,
        with_ages: bool = True,
    ) -> None:
        self._session = session
        self._config = config
        self._storage: OffsetStorage = storage
        self._bootstrap = tuple(bootstrap) or bootstrap_brokers(config.bootstrap_servers)
        self._brokers: Sequence[Broker] = self._bootstrap
        patience_ms = round(1000 * min(TIMEOUT_MS / 1000, max(_LEAST_PATIENCE_S, interval)))
        self._asked = BrokerOffsets(config, lambda: self._brokers, timeout_ms=patience_ms)
        self._written_ms = RecordTimes(self._asked.client, config).look_up if with_ages else _unasked
        self._in_kafka: dict[str, frozenset[TopicPartition]] = {}  # whose offset may be there, as of the last answer
        self._series = SampleSeries(window, max(window, history or window))
        self.znodes: dict[str, GroupZnodes] = {}
        self.problems: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to brokers. Idempotent."""
        self._asked.close()

    def continue_from(self, samples: Mapping[str, Mapping[TopicPartition, Sequence[LagSample]]]) -> None:
        """See :meth:`SampleSeries.continue_from`."""
        self._series.continue_from(samples)

    def groups(self) -> list[str]:
        """Names of all groups that there are now."""
        return self._open_registry().groups()

    def sample(self, groups: Sequence[str], at: float, *, required: bool = False) -> None:
        """Look at groups once. Groups that are not named are forgotten; one that cannot be read keeps its samples.

        Args:
            groups: names of groups.
            at: the time, in seconds of a clock that does not step.
            required: whether a group that cannot be read is an error; otherwise it is reported as a problem.

        Raises:
            ZooKeeperUnavailable: no server answers.
            ZkConsumerError: a required group cannot be read.
        """
        group_reader = self._open_registry()
        reads = read_groups(self._session, group_reader, groups)
        if required:
            reads.required()
        problems = [f"group {group} cannot be read: {failure}" for group, failure in reads.failures.items()]
        groups_znodes = list(reads.groups.values())
        self._brokers = self._bootstrap or group_reader.live_brokers()
        self._asked.begin_round()
        elsewhere = bool(self._bootstrap)
        in_kafka = read_offsets_in_kafka(
            group_reader, self._asked, groups_znodes, self._storage, is_elsewhere=elsewhere
        )
        partitions = existing_partitions(groups_znodes, in_kafka, is_elsewhere=elsewhere)
        logs = self._asked.logs(partitions)
        newest = {}
        for znodes in groups_znodes:
            problems += (*znodes.problems, *in_kafka[znodes.group].problems)
            newest[znodes.group] = self._newest(znodes, at, in_kafka[znodes.group], logs.found)
        self._series.append(newest, self._written_ms, time.time() * 1000)
        self.znodes = {znodes.group: znodes for znodes in groups_znodes}
        self._series.keep({*self.znodes, *reads.failures})
        self._in_kafka = {group: self._in_kafka[group] for group in self.znodes if group in self._in_kafka}
        self.problems = tuple(dict.fromkeys((*problems, *logs.problems)))

    def _open_registry(self) -> GroupReader:
        """A new one for each sample, since it describes the cluster as of its first question."""
        return open_group_reader(self._session, self._config, without_brokers=True)

    def _newest(
        self, znodes: GroupZnodes, at: float, in_kafka: OffsetsInKafka, logs: Logs
    ) -> dict[TopicPartition, LagSample]:
        if in_kafka.error is not None:
            in_kafka = in_kafka._replace(unknown=self._in_kafka.get(znodes.group, frozenset()))
        self._in_kafka[znodes.group] = in_kafka.unknown.union(in_kafka.found)
        newest = {}
        for partition in all_partitions(znodes, in_kafka):
            stored = znodes.offsets.get(partition)
            counts = counting_stored(znodes, in_kafka, partition, self._storage)
            is_stored = counts.offset is not None and not counts.in_kafka
            newest[partition] = LagSample(
                at=at,
                committed=counts.offset,
                mzxid=stored.mzxid if stored is not None and is_stored else None,
                log_start=logs.starts.get(partition),
                log_end=logs.ends.get(partition),
                owner=znodes.owners.get(partition),
                owner_live=znodes.is_live(partition),
            )
        return newest

    def samples(self, group: str) -> Mapping[TopicPartition, Sequence[LagSample]]:
        """The samples that are kept of a group, oldest first."""
        return self._series.of(group)

    def evaluate(self, group: str) -> GroupLag:
        """Evaluate the last window of a group."""
        znodes = self.znodes[group]
        return self._series.evaluate(group, len(znodes.live), znodes.mark)

    def moments(self) -> dict[str, GroupMoment]:
        """Each group of the last sample, evaluated."""
        return {
            group: GroupMoment(znodes.live, znodes.owners, self.evaluate(group))
            for group, znodes in self.znodes.items()
        }
