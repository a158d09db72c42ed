"""BrokerOffsets: log ends, log starts and committed offsets, as the brokers report them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import CoordinatorMoved, ZkConsumerError, name_some
from zkconsumer.kafka.client import EARLIEST, LATEST, BrokerClient
from zkconsumer.kafka.errorcodes import error_name
from zkconsumer.kafka.fields import is_encodable
from zkconsumer.kafka.listoffsetsprotocol import Offsets
from zkconsumer.model import Broker, TopicPartition

if TYPE_CHECKING:
    from zkconsumer.kafka.groupoffsets import StoredOffsets
    from zkconsumer.kafka.offsetcoordinator import OffsetCoordinator

_LOG_TIMEOUT_MS: Final = 6000
_COORDINATOR_TIMEOUT_MS: Final = 2000
_COORDINATOR_ATTEMPTS: Final = 5
# ConsumerGroupCommand's (jvm-consumer.md#tools); the first question may create the offsets topic
_COORDINATOR_PAUSE_S: Final = 0.3

_WHAT: Final = {LATEST: "log ends", EARLIEST: "log starts"}


class LogOffsetReport(NamedTuple):
    """Log ends, or log starts, that the brokers reported, and why they did not report others."""

    offsets: dict[TopicPartition, int]
    problems: tuple[str, ...] = ()


class OffsetsInKafka(NamedTuple):
    """Offsets that the group's coordinator has, and why it could not be asked."""

    offsets: dict[TopicPartition, int]
    problems: tuple[str, ...] = ()


class BrokerOffsets:
    """Asks a cluster for offsets; silence of the brokers is reported, and raises nothing.

    The connections are kept until :meth:`close`. One thread uses it.

    Args:
        config: how brokers are reached.
        brokers: those to begin with, asked for at each question.
    """

    def __init__(self, config: ConsumerConfig, brokers: Callable[[], Sequence[Broker]]) -> None:
        self._brokers = brokers
        self._log_client = BrokerClient.from_config(brokers, config, timeout_ms=_LOG_TIMEOUT_MS)
        self._group_client = BrokerClient.from_config(brokers, config, timeout_ms=_COORDINATOR_TIMEOUT_MS)
        self._coordinators: dict[str, OffsetCoordinator] = {}

    def log_ends(self, partitions: Collection[TopicPartition]) -> LogOffsetReport:
        """Where the logs end."""
        return self._logs(partitions, LATEST)

    def log_starts(self, partitions: Collection[TopicPartition]) -> LogOffsetReport:
        """Where the logs start."""
        return self._logs(partitions, EARLIEST)

    def _logs(self, partitions: Collection[TopicPartition], timestamp: int) -> LogOffsetReport:
        what = _WHAT[timestamp]
        if not partitions:
            return LogOffsetReport({})
        if impossible := [partition for partition in partitions if not is_encodable(partition.topic)]:
            asked = self._logs([partition for partition in partitions if is_encodable(partition.topic)], timestamp)
            reason = f"{what} of {name_some(impossible)} are unknown: Kafka has no topics with such names"
            return LogOffsetReport(asked.offsets, (*asked.problems, reason))
        if not self._brokers():
            return LogOffsetReport(
                {}, (f"{what} are unknown: no broker is registered in ZooKeeper; check that brokers run",)
            )
        try:
            return log_report(self._log_client.list_offsets(dict.fromkeys(partitions, timestamp)), what)
        except ZkConsumerError as error:
            return LogOffsetReport({}, (f"{what} are unknown: {error}",))

    def committed(
        self, group: str, partitions: Collection[TopicPartition], *, with_others: bool = False
    ) -> OffsetsInKafka:
        """What a group has committed to Kafka, as its coordinator reports it.

        A group whose name no request can carry has committed nothing there.

        Args:
            group: name of the group.
            partitions: to ask for.
            with_others: also of all other partitions; brokers since 0.10.2 can list them.
        """
        partitions = [partition for partition in partitions if is_encodable(partition.topic)]
        if not (partitions or with_others) or not is_encodable(group) or not self._brokers():
            return OffsetsInKafka({})
        from zkconsumer.kafka.offsetcoordinator import OffsetCoordinator

        coordinator = self._coordinators.setdefault(group, OffsetCoordinator(self._group_client, group))
        fetch = coordinator.fetch_known if with_others else coordinator.fetch
        try:
            stored = _persistently(lambda: fetch(partitions))
        except ZkConsumerError as error:
            return OffsetsInKafka({}, (f"offsets in Kafka are unknown, those shown are ZooKeeper's: {error}",))
        return OffsetsInKafka(
            {partition: one.offset for partition, one in stored.found.items() if one.offset is not None},
            tuple(
                f"the offset of {p} in Kafka cannot be read: {error_name(code)}" for p, code in stored.errors.items()
            ),
        )

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._log_client.close()
        self._group_client.close()


def log_report(answer: Offsets, what: str) -> LogOffsetReport:
    """The brokers' answer; each reason for a missing offset is given once.

    Args:
        answer: of the brokers.
        what: they were asked for, in the plural.
    """
    return LogOffsetReport(
        {partition: offset for partition, offset in answer.found.items() if offset is not None},
        tuple(f"{what} of {name_some(theirs)} are unknown: {why}" for why, theirs in answer.reasons().items()),
    )


def _persistently(fetch: Callable[[], StoredOffsets]) -> StoredOffsets:
    """Repeat the question while the coordinator is being found or loads; not while a broker is silent."""
    for _ in range(_COORDINATOR_ATTEMPTS - 1):
        try:
            return fetch()
        except CoordinatorMoved:
            time.sleep(_COORDINATOR_PAUSE_S)
    return fetch()
