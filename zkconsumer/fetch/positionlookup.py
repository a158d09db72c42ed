"""PositionLookup: asks a broker where the partitions continue whose position is not certain.

Those are: without an offset; with one outside of the log; with one of a former leader's log (KIP-320).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.fetch.partitioninfo import PartitionInfo
from zkconsumer.wire.brokerclient import EARLIEST, LATEST, list_offsets
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.epochendmessages import EpochEnd, EpochQuestion, epoch_ends
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.rules.leaderepochs import UNKNOWN_EPOCH, PositionEpochs

_log = logging.getLogger(__name__)


class FoundPosition(NamedTuple):
    """Where a partition continues.

    Attributes:
        info: the partition; :meth:`.PartitionInfo.reset_to` has not been called yet.
        offset: the offset to fetch next; None if the broker answered with an error.
        code: the error code, otherwise 0.
    """

    info: PartitionInfo
    offset: int | None
    code: int = 0


class PositionLookup:
    """The partitions of one fetcher that wait for their position; used by its thread only.

    Args:
        name: of the fetcher, which log lines begin with.
        config: reset policy and isolation level.
    """

    def __init__(self, name: str, config: ConsumerConfig) -> None:
        self._name = name
        self._isolation = config.isolation_level
        self._policy = config.auto_offset_reset
        self._to_check: list[PartitionInfo] = []
        self._to_reset: list[PartitionInfo] = []

    def __bool__(self) -> bool:
        """True if a partition waits."""
        return bool(self._to_check or self._to_reset)

    def add(self, infos: Iterable[PartitionInfo]) -> None:
        """Partitions arrive at the fetcher; those wait whose position is not certain."""
        arrived = list(infos)
        self._to_reset += [info for info in arrived if info.fetched is None]
        self._to_check += [info for info in arrived if info.epochs.to_check(info.leader_epoch) != UNKNOWN_EPOCH]

    def add_lost(self, info: PartitionInfo) -> None:
        """The leader has answered that the partition's offset is outside of its log."""
        self._to_reset.append(info)

    def remove(self, info: PartitionInfo) -> None:
        """The partition goes back to an offset that was valid."""
        self._to_reset = [awaiting for awaiting in self._to_reset if awaiting is not info]

    def clear(self) -> None:
        """The fetcher has lost its broker, and returns all partitions."""
        self._to_check.clear()
        self._to_reset.clear()

    def check_epochs(
        self, connected: Callable[[], BrokerConnection], has: Callable[[PartitionInfo], bool]
    ) -> list[FoundPosition]:
        """Find out if the logs of new leaders contain what was fetched from their predecessors (KIP-320).

        Args:
            connected: the connection to the broker; called if there is something to ask.
            has: False for a partition that the fetcher does not fetch any more.

        Returns:
            Partitions that continue elsewhere, and those that the broker has refused.

        Raises:
            BrokerUnavailable, ProtocolError: the broker cannot be asked.
        """
        infos, self._to_check = [info for info in self._to_check if has(info)], []
        if not infos:
            return []
        questions = {
            info.partition: EpochQuestion(info.leader_epoch, info.epochs.to_check(info.leader_epoch)) for info in infos
        }
        answer = epoch_ends(connected(), questions)
        found = []
        for info in infos:
            end = answer.found.get(info.partition)
            if info.partition in answer.errors:
                found.append(FoundPosition(info, None, answer.errors[info.partition]))
            elif end is None:
                _log.warning(
                    "%s: the broker cannot report if %s, fetched up to offset %s in leader epoch %d, has lost records "
                    "since: %s",
                    self._name,
                    info.partition,
                    info.fetched,
                    info.epochs.leader,
                    answer.unknown[info.partition],
                )
                info.epochs = PositionEpochs()
            elif info.fetched is None or info.fetched <= end.offset:
                info.epochs = info.epochs._replace(leader=info.leader_epoch)
            else:
                self._report_divergence(info, info.fetched, end)
                info.epochs = PositionEpochs(info.leader_epoch, end.epoch)
                found.append(FoundPosition(info, end.offset))
        return found

    def reset(
        self, connected: Callable[[], BrokerConnection], has: Callable[[PartitionInfo], bool]
    ) -> list[FoundPosition]:
        """Apply ``auto.offset.reset`` to partitions without an offset, or with one outside of the log.

        See :meth:`check_epochs`.
        """
        infos, self._to_reset = [info for info in self._to_reset if has(info)], []
        if not infos:
            return []
        first, last = (LATEST, EARLIEST) if self._policy == "largest" else (EARLIEST, LATEST)
        epochs = {info.partition: info.leader_epoch for info in infos}
        ask = partial(list_offsets, connected(), isolation=self._isolation, epochs=epochs)
        answer = ask({info.partition: EARLIEST if info.earliest else first for info in infos})
        lost = [info.partition for info in infos if info.fetched is not None]
        other_ends = ask(dict.fromkeys(lost, last)).found if lost else {}
        found = []
        for info in infos:
            offset = answer.found.get(info.partition)
            if offset is None:
                code = answer.errors.get(info.partition, ErrorCode.OFFSET_NOT_AVAILABLE)
                found.append(FoundPosition(info, None, code))
            else:
                self._report_reset(info, offset, other_ends.get(info.partition))
                # Those of the former position would be compared with this one, and say that the log has lost records.
                info.epochs = PositionEpochs()
                found.append(FoundPosition(info, offset))
        return found

    def _report_divergence(self, info: PartitionInfo, fetched: int, end: EpochEnd) -> None:
        """Log that the log of a new leader differs from what was fetched (adr/0027)."""
        _log.warning(
            "%s: the new leader of %s has lost the records at offsets %d to %d that its predecessor of epoch %d had, "
            "in an unclean leader election. Continuing at offset %d, where their logs differ; check the topic's "
            "unclean.leader.election.enable and min.insync.replicas, and acks of its producers",
            self._name,
            info.partition,
            end.offset,
            fetched - 1,
            info.epochs.leader,
            end.offset,
        )

    def _report_reset(self, info: PartitionInfo, offset: int, other_end: int | None) -> None:
        """Log the chosen offset; as a warning if there was an offset, since records are skipped or read again."""
        if info.fetched is None:
            _log.info(
                "%s: %s has no committed offset; starting at its %s offset %d",
                self._name,
                info.partition,
                "earliest" if info.earliest else self._policy,
                offset,
            )
            return
        ends = sorted(end for end in (offset, other_end) if end is not None)
        _log.warning(
            "%s: %s of %s is out of range: its log holds %s. Continuing at the %s offset %d (auto.offset.reset); "
            "if records are missing, check the retention of the topic, and whether it was deleted and created again",
            self._name,
            info.describe_offset(),
            info.partition,
            " to ".join(map(str, ends)),
            self._policy,
            offset,
        )
