"""ZooKeeperGroups: where groups in ZooKeeper are read, with their offsets in both stores and their logs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from zkconsumer.assembly.clusterchoice import open_group_reader
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
from zkconsumer.operate.groups.groupdescription import (
    OffsetsInKafka,
    all_partitions,
    counting_stored,
    existing_partitions,
    is_unread,
    outdated_problems,
    read_offsets_in_kafka,
)
from zkconsumer.operate.groups.groupznodes import GroupZnodes, read_groups
from zkconsumer.operate.groups.observedgroup import GroupsLook
from zkconsumer.operate.groups.rules.lagstretches import LagSample
from zkconsumer.operate.offsets.brokeroffsets import TIMEOUT_MS, BrokerOffsets, Logs
from zkconsumer.operate.offsets.recordtimes import RecordTimes
from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer, ServerAnswers
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.rules.outage import Outage
from zkconsumer.zookeeper.session import ZkSession

_LEAST_PATIENCE_S: Final = 1.0


def patience_ms(interval: float) -> int:
    """How long a broker may be silent, in ms, where samples are taken every ``interval`` seconds."""
    return round(1000 * min(TIMEOUT_MS / 1000, max(_LEAST_PATIENCE_S, interval)))


class ZooKeeperGroups:
    """A :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`. It keeps its connections to brokers.

    Args:
        open_session: returns an open session; its errors are those of :meth:`names` and :meth:`look`.
        config: how brokers are reached.
        storage: whose committed offset counts.
        interval: seconds between samples, if a sample should not take much longer where a broker is silent.
        asked: asks the brokers of ``config``, for whom else; None for connections of its own.

    Attributes:
        unlisted: nothing, all groups are listed.
        times: when records of the groups' partitions were written.
    """

    def __init__(
        self,
        open_session: Callable[[], ZkSession],
        config: ConsumerConfig,
        *,
        storage: OffsetStorage = "auto",
        interval: float = math.inf,
        asked: BrokerOffsets | None = None,
    ) -> None:
        self._open_session = open_session
        self._config = config
        self._storage: OffsetStorage = storage
        self._bootstrap = bootstrap_brokers(config.bootstrap_servers)
        self._brokers: Sequence[Broker] = self._bootstrap
        self._asked = asked or BrokerOffsets(
            config, lambda: self._brokers, timeout_ms=patience_ms(interval), displays=True
        )
        self._answers = ServerAnswers("zookeeper")
        self._silence = Outage()
        self._in_kafka: dict[str, frozenset[TopicPartition]] = {}  # whose offset may be there, as of the last answer
        self.unlisted: Final = ()
        self.times: Final = RecordTimes(self._asked.client, config)

    def close(self) -> None:
        """Close the connections to brokers. Idempotent."""
        self._asked.close()

    def begin_round(self) -> None:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`."""
        self._asked.begin_round()
        self._answers.begin_round()

    def servers(self) -> tuple[ServerAnswer, ...]:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`."""
        return (*self._answers.newest(_now_ms()), *self._asked.client.answers())

    def names(self) -> list[str]:
        """Names of all groups that ever existed in ZooKeeper, sorted."""
        with self._noted():
            return self._open_registry(self._open_session()).groups()

    def look(self, groups: Sequence[str], at: float) -> GroupsLook:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`."""
        with self._noted():
            session = self._open_session()
            group_reader = self._open_registry(session)
            reads = read_groups(session, group_reader, groups)
            self._brokers = self._bootstrap or group_reader.live_brokers()
        groups_znodes = list(reads.groups.values())
        in_kafka = read_offsets_in_kafka(group_reader, self._asked, groups_znodes, self._storage)
        partitions = existing_partitions(groups_znodes, in_kafka)
        logs = self._asked.logs(partitions)
        problems: list[str] = []
        samples = {}
        for znodes in groups_znodes:
            of_group = in_kafka[znodes.group]
            problems += (*znodes.problems, *of_group.problems, *outdated_problems(znodes, of_group, self._storage))
            samples[znodes.group] = self._samples(znodes, at, in_kafka[znodes.group], logs.found)
        self._in_kafka = {group: self._in_kafka[group] for group in self._in_kafka.keys() & reads.groups}
        return GroupsLook(dict(reads.groups), samples, reads.failures, (*problems, *logs.problems))

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Note whether ZooKeeper answers what is asked within this block."""
        reason = ""
        try:
            yield
        except (ZooKeeperUnavailable, ZooKeeperRefused) as error:
            reason = str(error)
            raise
        finally:
            self._answers.note(self._config.zookeeper_connect or "", _now_ms(), reason)

    def _open_registry(self, session: ZkSession) -> GroupReader:
        """A new one for each sample, since it describes the cluster as of its first question."""
        return open_group_reader(
            session, self._config, without_brokers=True, catalog=self._asked.catalog, silence=self._silence
        )

    def _samples(
        self, znodes: GroupZnodes, at: float, in_kafka: OffsetsInKafka, logs: Logs
    ) -> dict[TopicPartition, LagSample]:
        if in_kafka.error is None:
            self._in_kafka[znodes.group] = in_kafka.unknown.union(in_kafka.found)
        elif znodes.group in self._in_kafka:
            in_kafka = in_kafka._replace(unknown=self._in_kafka[znodes.group], error=None)
        samples = {}
        for partition in all_partitions(znodes, in_kafka):
            stored = znodes.offsets.get(partition)
            counts = counting_stored(znodes, in_kafka, partition, self._storage)
            origin = znodes.origins.get(partition.topic)
            is_stored = counts.offset is not None and not counts.in_kafka
            samples[partition] = LagSample(
                at=at,
                committed=counts.offset,
                mzxid=stored.mzxid if stored is not None and is_stored else None,
                log_start=logs.starts.get(partition),
                log_end=logs.ends.get(partition),
                owner=znodes.owners.get(partition),
                owner_live=znodes.is_live(partition),
                is_unread=is_unread(partition, counts, in_kafka, logs),
                topic=None if origin is None else origin.identity,
            )
        return samples


def _now_ms() -> int:
    return round(1000 * time.time())
