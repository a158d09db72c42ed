"""BrokerOffsets: log ends, log starts and committed offsets, as the brokers report them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import CoordinatorMoved, ZkConsumerError, name_some
from zkconsumer.kafka.client import EARLIEST, LATEST, BrokerClient
from zkconsumer.kafka.errorcodes import error_name
from zkconsumer.kafka.fields import is_encodable
from zkconsumer.kafka.listoffsetsprotocol import Offsets
from zkconsumer.model import Broker, TopicPartition

if TYPE_CHECKING:
    from zkconsumer.kafka.offsetcoordinator import OffsetCoordinator

TIMEOUT_MS: Final = 6000
"""How long a broker may be silent."""
_COORDINATOR_ATTEMPTS: Final = 5
# ConsumerGroupCommand's (jvm-consumer.md#tools); the first question may create the offsets topic
_COORDINATOR_PAUSE_S: Final = 0.3

_WHAT: Final = {LATEST: "log ends", EARLIEST: "log starts"}


class LogOffsetReport(NamedTuple):
    """Log ends, or log starts, that the brokers reported, and why they did not report others."""

    offsets: dict[TopicPartition, int]
    problems: tuple[str, ...] = ()


class OffsetsInKafka(NamedTuple):
    """Offsets that the group's coordinator has, and what could not be read; ``answered`` is False if it was all."""

    offsets: dict[TopicPartition, int]
    problems: tuple[str, ...] = ()
    answered: bool = True


class BrokerOffsets:
    """Asks a cluster for offsets; silence of the brokers is reported, and raises nothing.

    A broker that does not answer is asked once in a round, so it costs one timeout and not one for each group. The
    connections are kept until :meth:`close`. One thread uses it.

    Args:
        config: how brokers are reached.
        brokers: those to begin with, asked for at each question.
        timeout_ms: how long a broker may be silent, in ms.
    """

    def __init__(
        self, config: ConsumerConfig, brokers: Callable[[], Sequence[Broker]], *, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self._brokers = brokers
        self._client = BrokerClient.from_config(brokers, config, timeout_ms=timeout_ms)
        self.begin_round()
        self._coordinators: dict[str, OffsetCoordinator] = {}

    def begin_round(self) -> None:
        """Ask brokers again that did not answer."""
        self._client.begin_round()

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
            return log_report(self._client.list_offsets(dict.fromkeys(partitions, timestamp)), what)
        except ZkConsumerError as error:
            return LogOffsetReport({}, (f"{what} are unknown: {error}",))

    def committed(
        self, groups: Mapping[str, Collection[TopicPartition]], *, with_others: bool = False
    ) -> dict[str, OffsetsInKafka]:
        """What groups have committed to Kafka, as their coordinators report it, by group.

        While a coordinator is being found or loads, its group is asked for again with all others of that kind.

        Args:
            groups: partitions to ask for, by name of the group.
            with_others: also of all other partitions; brokers since 0.10.2 can list them.
        """
        found = dict.fromkeys(groups, OffsetsInKafka({}))
        unknown: dict[str, ZkConsumerError] = {}
        left = list(groups) if self._brokers() else []
        for attempt in range(_COORDINATOR_ATTEMPTS):
            if attempt and left:
                time.sleep(_COORDINATOR_PAUSE_S)
            for group in left:
                unknown.pop(group, None)
                try:
                    found[group] = self._committed(group, groups[group], with_others=with_others)
                except ZkConsumerError as error:
                    unknown[group] = error
            left = [group for group in left if isinstance(unknown.get(group), CoordinatorMoved)]
        for reason, names in _by_reason(unknown).items():
            why = f"offsets in Kafka are unknown, those shown of {name_some(names)} are ZooKeeper's: {reason}"
            found |= dict.fromkeys(names, OffsetsInKafka({}, (why,), answered=False))
        return found

    def _committed(self, group: str, partitions: Collection[TopicPartition], *, with_others: bool) -> OffsetsInKafka:
        """The offsets of a group; one whose name no request can carry has none.

        Raises:
            ZkConsumerError: they cannot be read.
        """
        partitions = [partition for partition in partitions if is_encodable(partition.topic)]
        if not (partitions or with_others) or not is_encodable(group):
            return OffsetsInKafka({})
        from zkconsumer.kafka.offsetcoordinator import OffsetCoordinator

        coordinator = self._coordinators.setdefault(group, OffsetCoordinator(self._client, group))
        stored = (coordinator.fetch_known if with_others else coordinator.fetch)(partitions)
        return OffsetsInKafka(
            {partition: one.offset for partition, one in stored.found.items() if one.offset is not None},
            tuple(
                f"the offset of {p} in Kafka cannot be read: {error_name(code)}" for p, code in stored.errors.items()
            ),
        )

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._client.close()


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


def _by_reason(errors: Mapping[str, ZkConsumerError]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for group, error in errors.items():
        reasons.setdefault(str(error).replace(f"group {group}", "the group"), []).append(group)
    return reasons
