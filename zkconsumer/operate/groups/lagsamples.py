"""LagSampler: samples the lag of groups again and again, and keeps a bounded history for the evaluation."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
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
from zkconsumer.operate.groups.rules.lagstatus import GroupLag, LagSample, Stretches, evaluate_group, follow
from zkconsumer.operate.offsets.brokeroffsets import TIMEOUT_MS, BrokerOffsets, Logs
from zkconsumer.wire.bootstrap import bootstrap_brokers
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

    def append(self, group: str, newest: Mapping[TopicPartition, LagSample]) -> None:
        """Add a sample of each partition of a group; partitions that it does not have any more are forgotten."""
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

    def evaluate(self, group: str, members: int) -> GroupLag:
        """Evaluate the last window of a group that has so many members."""
        return evaluate_group(self.of(group), self._window, members=members)


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
    ) -> None:
        self._session = session
        self._config = config
        self._storage: OffsetStorage = storage
        self._bootstrap = tuple(bootstrap) or bootstrap_brokers(config.bootstrap_servers)
        self._brokers: Sequence[Broker] = self._bootstrap
        patience_ms = round(1000 * min(TIMEOUT_MS / 1000, max(_LEAST_PATIENCE_S, interval)))
        self._asked = BrokerOffsets(config, lambda: self._brokers, timeout_ms=patience_ms)
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
        for znodes in groups_znodes:
            problems += (*znodes.problems, *in_kafka[znodes.group].problems)
            self._append(znodes, at, in_kafka[znodes.group], logs.found)
        self.znodes = {znodes.group: znodes for znodes in groups_znodes}
        self._series.keep({*self.znodes, *reads.failures})
        self._in_kafka = {group: self._in_kafka[group] for group in self.znodes if group in self._in_kafka}
        self.problems = tuple(dict.fromkeys((*problems, *logs.problems)))

    def _open_registry(self) -> GroupReader:
        """A new one for each sample, since it describes the cluster as of its first question."""
        return open_group_reader(self._session, self._config, without_brokers=True)

    def _append(self, znodes: GroupZnodes, at: float, in_kafka: OffsetsInKafka, logs: Logs) -> None:
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
        self._series.append(znodes.group, newest)

    def samples(self, group: str) -> Mapping[TopicPartition, Sequence[LagSample]]:
        """The samples that are kept of a group, oldest first."""
        return self._series.of(group)

    def evaluate(self, group: str) -> GroupLag:
        """Evaluate the last window of a group."""
        return self._series.evaluate(group, len(self.znodes[group].live))

    def moments(self) -> dict[str, GroupMoment]:
        """Each group of the last sample, evaluated."""
        return {
            group: GroupMoment(znodes.live, znodes.owners, self.evaluate(group))
            for group, znodes in self.znodes.items()
        }
