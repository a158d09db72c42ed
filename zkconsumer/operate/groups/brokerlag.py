"""BrokerLagSampler: samples the lag of groups that brokers coordinate, without a ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.brokergroups import BrokerGroup, BrokerGroups
from zkconsumer.operate.groups.groupchanges import GroupMoment
from zkconsumer.operate.groups.lagsamples import SampleSeries
from zkconsumer.operate.groups.rules.lagstatus import LagSample
from zkconsumer.operate.offsets.brokeroffsets import Logs


class BrokerLagSampler:
    """A :class:`~zkconsumer.operate.groups.lagsamples.GroupSampler`.

    Args:
        config: how brokers are reached.
        window: number of samples that are compared.

    Attributes:
        problems: what the last sample could not read, one sentence each.
    """

    def __init__(self, config: ConsumerConfig, *, window: int) -> None:
        self._brokers = BrokerGroups(config)
        self._series = SampleSeries(window, window)
        self._groups: dict[str, BrokerGroup] = {}
        self._unlisted: tuple[str, ...] = ()
        self.problems: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._brokers.close()

    def groups(self) -> list[str]:
        """Names of all groups that the brokers coordinate now."""
        names, self._unlisted = self._brokers.names()
        return names

    def sample(self, groups: Sequence[str], at: float, *, required: bool = False) -> None:
        """See :meth:`~zkconsumer.operate.groups.lagsamples.LagSampler.sample`.

        Raises:
            ZkConsumerError: a required group does not exist, or cannot be read.
        """
        self._brokers.begin_round()
        found, failures = self._brokers.read(groups)
        if required and failures:
            raise next(iter(failures.values()))
        logs, problems = self._brokers.logs(list(found.values()))
        newest = {name: _samples(group, at, logs) for name, group in found.items()}
        self._series.append(newest, self._brokers.times.look_up, time.time() * 1000)
        self._series.keep({*found, *failures})
        self._groups = found
        unread = (f"group {name} cannot be read: {error}" for name, error in failures.items())
        self.problems = (
            *self._unlisted,
            *unread,
            *(problem for group in found.values() for problem in group.problems),
            *problems,
        )

    def moments(self) -> dict[str, GroupMoment]:
        """Each group of the last sample, evaluated."""
        return {name: self._moment(group) for name, group in self._groups.items()}

    def _moment(self, group: BrokerGroup) -> GroupMoment:
        members = frozenset(member.member_id for member in group.described.members)
        owners = {partition: member.member_id for partition, member in group.owners.items()}
        return GroupMoment(members, owners, self._series.evaluate(group.group, len(members)))


def _samples(group: BrokerGroup, at: float, logs: Logs) -> dict[TopicPartition, LagSample]:
    owners, samples = group.owners, {}
    for partition in group.partitions:
        stored, owner = group.offsets.get(partition), owners.get(partition)
        samples[partition] = LagSample(
            at=at,
            committed=None if stored is None else stored.offset,
            mzxid=None,
            log_start=logs.starts.get(partition),
            log_end=logs.ends.get(partition),
            owner=None if owner is None else owner.member_id,
            owner_live=owner is not None,
        )
    return samples
