"""LogEnds: the log start and log end offsets of partitions, requested from the brokers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from zkconsumer.cluster.brokercatalog import CatalogAnswer, PatientCatalog
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, OffsetOutOfRange, name_some
from zkconsumer.model import Broker, TopicPartition, recreated_topics
from zkconsumer.offsets.rules.lag import AFTER_LOG, outside_log
from zkconsumer.ranges.rules.batchsizes import bytes_per_offset
from zkconsumer.ranges.rules.rangepositions import EARLIEST, LATEST, AtTime, Wanted
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.epochendmessages import EpochEnds, EpochQuestion
from zkconsumer.wire.isolation import READ_UNCOMMITTED
from zkconsumer.wire.listoffsetsmessages import Offsets
from zkconsumer.wire.refusals import DESCRIBE, topic_refused
from zkconsumer.wire.rules.denials import PATIENCE, pause_s
from zkconsumer.wire.rules.leaderepochs import must_ask

_log = logging.getLogger(__name__)

_SHORTEST_PAUSE_S: Final = 0.1
_SAMPLE_BYTES: Final = 1 << 16
_SAMPLES_BYTES: Final = 1 << 20
_SAMPLES_S: Final = 1.0
_NOTHING_KNOWN: Final[Mapping[TopicPartition, int]] = MappingProxyType({})


class SeenEnd(NamedTuple):
    """The end of a log, and the epoch of the leader that reported it."""

    epoch: int
    end: int

    def may_be_lost(self, epoch: int, offset: int) -> bool:
        """True if the leader of an epoch must be asked if its log contains what is before an offset.

        Of an offset after this end it is not known that it was in this epoch's log.
        """
        return must_ask(self.epoch, epoch) and 0 < offset <= self.end


class LogEnds:
    """Keeps connections to the brokers between requests. One thread uses it; any thread may close it.

    Args:
        live_brokers: returns the brokers to ask for leaders; called at each request.
        reader: who reads the logs, for messages.
    """

    def __init__(self, config: ConsumerConfig, live_brokers: Callable[[], Sequence[Broker]], reader: str) -> None:
        self._client = BrokerClient.from_config(live_brokers, config)
        self._isolation = config.isolation_level
        self._reader = reader
        self._unanswered: set[TopicPartition] = set()
        self._seen: dict[TopicPartition, SeenEnd] = {}
        self._lost: Mapping[TopicPartition, int] = {}
        self._backoffs_s = backoffs_s(config)
        self._backoff_s = config.refresh_leader_backoff_ms / 1000
        self._catalog = PatientCatalog(self._client, wait=self._wait, pause_s=max(self._backoff_s, _SHORTEST_PAUSE_S))
        self._closed = threading.Event()

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset of the first record in the log; see :meth:`latest`."""
        return _known(self._ask(dict.fromkeys(partitions, EARLIEST)).found)

    def latest(
        self, partitions: Collection[TopicPartition], at_least: Mapping[TopicPartition, int] = _NOTHING_KNOWN
    ) -> dict[TopicPartition, int]:
        """The ends of logs, whatever ``isolation.level`` is. Partitions without a leader are skipped, and logged once.

        An offset is beyond the end of a log if it is greater than this one; see :meth:`readable`.

        A newly elected leader may return an end that is too small: only the requests of its followers show which of its
        records are committed. Brokers since 2.2 answer OFFSET_NOT_AVAILABLE then (KIP-207), older ones do not. So if an
        end is below an offset that is known to have existed, it is requested again, from the leader at that time,
        before it is returned: see :func:`backoffs_s`.

        Such offsets, ``at_least``, are positions, committed offsets, and those that a user names: where one has stopped
        before. An end that remains below is data loss, unless the user is wrong.

        Raises:
            BrokerUnavailable: no broker answers, or :meth:`close` was called.
            TopicUnreadable: brokers repeatedly refuse to serve a topic, for example because a permission is missing.
            ProtocolError: a broker's answer is malformed.
        """
        answer = self._ask(dict.fromkeys(partitions, LATEST))
        ends, epochs = _known(answer.found), answer.epochs
        for number, seconds in enumerate(self._backoffs_s, 1):
            short = stepped_back(ends, at_least)
            if not short:
                break
            _log.log(
                logging.WARNING if number == 1 else logging.DEBUG,
                "%s: log end is below an offset that was read, committed or given; asking again, %d of %d: %s",
                self._reader,
                number,
                len(self._backoffs_s),
                ", ".join(f"{p} ends at {ends[p]}, below {at_least[p]}" for p in short),
            )
            self._wait(seconds)
            self._client.forget_leaders(short)
            answer = self._ask(dict.fromkeys(short, LATEST))
            # Without an answer now, the end is unknown: the earlier answer is the doubtful one.
            ends = {p: end for p, end in ends.items() if p not in short} | _known(answer.found)
            epochs = epochs | answer.epochs
        return self._ends_in_common(ends, epochs, at_least)

    def readable(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets up to which the logs with these ends can be read; partitions are skipped as by :meth:`latest`.

        With ``read_committed`` that is the last stable offset: the first record of an open transaction, or the end. It
        is no end of the log: brokers serve an offset after it, without records.
        """
        if self._isolation == READ_UNCOMMITTED:
            return dict(ends)
        stable = _known(self._ask(dict.fromkeys(ends, LATEST), self._isolation).found)
        return {partition: min(ends[partition], offset) for partition, offset in stable.items()}

    def _ends_in_common(
        self,
        ends: dict[TopicPartition, int],
        epochs: Mapping[TopicPartition, int],
        at_least: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Replace the end of each log that has lost known offsets by the offset up to which it is the same.

        Known offsets are compared with the log whenever its leader has another epoch than the one in whose log they
        were seen (KIP-320, adr/0027). The caller moves its position there; then the current end is returned.
        """
        questions = {
            partition: EpochQuestion(epoch, seen.epoch)
            for partition, epoch in epochs.items()
            if (seen := self._seen.get(partition)) is not None and seen.may_be_lost(epoch, at_least.get(partition, 0))
        }
        answer = self._client.epoch_ends(questions) if questions else EpochEnds()
        unanswered = questions.keys() - answer.found.keys() - answer.unknown.keys()
        lost = {p: end.offset for p, end in answer.found.items() if end.offset < at_least[p]}
        for partition, offset in lost.items():
            if self._lost.get(partition) != offset:
                _log.warning(
                    "%s: %s: the leader of epoch %d has lost the records from offset %d on that the one of epoch "
                    "%d had, in an unclean leader election; check the topic's unclean.leader.election.enable and "
                    "min.insync.replicas, and acks of its producers",
                    self._reader,
                    partition,
                    questions[partition].leader_epoch,
                    offset,
                    questions[partition].epoch,
                )
        self._lost = {**self._lost, **lost}
        for partition, epoch in epochs.items():
            if (epoch, ends.get(partition)) == self._seen.get(partition):  # as of most partitions at an idle trigger
                continue
            if partition in ends and partition not in lost and partition not in unanswered:
                checked = at_least[partition] if partition in answer.found else 0
                newest = SeenEnd(epoch, max(ends[partition], checked))
                before = self._seen.get(partition, newest)
                # An older epoch has been accepted: it is that of a topic that was created again.
                self._seen[partition] = newest if newest.epoch < before.epoch else max(newest, before)
        return {partition: lost.get(partition, end) for partition, end in ends.items() if partition not in unanswered}

    def remember(self, seen: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Take note of epochs, and ends that were seen in them, that an earlier run of the query recorded."""
        self._seen = {**{partition: SeenEnd(*end) for partition, end in seen.items()}, **self._seen}

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the epochs of partitions whose positions another client has chosen, in logs that it has seen."""
        self._seen = {partition: end for partition, end in self._seen.items() if partition not in partitions}

    def epochs(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The leader epoch in whose log each of these offsets was seen, as far as known."""
        seen = {p: self._seen[p] for p in ends if p in self._seen}
        return {partition: end.epoch for partition, end in seen.items() if ends[partition] <= end.end}

    def gone(self, known: Mapping[str, str | int]) -> frozenset[str]:
        """Those of the topics that do not exist any more, also if there is another one of the same name by now.

        ``known`` has what was recorded of each (:attr:`~zkconsumer.model.TopicIdentity.recorded`).

        Brokers before 0.11 cannot report that a topic does not exist; then it counts as existing.

        Raises:
            BrokerUnavailable: no broker answers, or :meth:`close` was called.
        """

        def denied(answer: CatalogAnswer) -> frozenset[str]:
            if answer.snapshot.asked_for is None:
                return frozenset()
            identities = {name: topic.identity for name, topic in answer.snapshot.described.items()}
            return answer.denied(known) | recreated_topics(known, identities)

        return denied(self._catalog.ask(frozenset(known), denied))

    def resolve(self, wanted: Mapping[TopicPartition, Wanted]) -> dict[TopicPartition, int]:
        """Turn times into offsets; other values are returned unchanged. Partitions are skipped as by :meth:`latest`.

        Raises:
            OffsetOutOfRange: a partition has no record of that time or later, and starting at its end is not allowed.
        """
        times = {partition: place for partition, place in wanted.items() if isinstance(place, AtTime)}
        resolved = self._ask({partition: place.ms for partition, place in times.items()}).found if times else {}
        late = sorted(p for p, offset in resolved.items() if offset is None and not times[p].or_latest)
        if late:
            raise OffsetOutOfRange(
                f"no record is as new as the start time: {', '.join(f'{p} at {times[p].ms} ms' for p in late)}; "
                "set an earlier time, or startingOffsetsByTimestampStrategy=latest to start at the log end instead"
            )
        offsets = {partition: place for partition, place in wanted.items() if not isinstance(place, AtTime)}
        offsets.update((p, LATEST if offset is None else offset) for p, offset in resolved.items())
        return offsets

    def bytes_per_offset(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """How long records are at these offsets, on the wire, as far as leaders send their batches within a second.

        Leaders are those of earlier questions. Each sends about 1 MiB at most: the first batch of as many partitions as
        fit, or one larger batch.
        """
        found = {}
        for fetched in self._client.records_at(
            offsets, partition_bytes=_SAMPLE_BYTES, all_bytes=_SAMPLES_BYTES, within_s=_SAMPLES_S
        ):
            if (size := bytes_per_offset(fetched.records)) is not None:
                found[TopicPartition(fetched.topic, fetched.partition)] = size
        return found

    def close(self) -> None:
        """Close the connections; a request in progress raises BrokerUnavailable."""
        self._closed.set()
        self._client.close()

    def _ask(self, wanted: Mapping[TopicPartition, int], isolation: str = READ_UNCOMMITTED) -> Offsets:
        answer = self._client.list_offsets(wanted, isolation)
        refused = answer.refused()
        for number in range(1, PATIENCE):  # permissions reach all brokers some time after they were granted
            if not refused:
                break
            self._wait(pause_s(number, self._backoff_s))
            again = self._client.list_offsets({partition: wanted[partition] for partition in refused}, isolation)
            answer = answer.updated(again)
            refused = again.refused()
        for partition, code in refused.items():
            raise topic_refused(partition.topic, code, DESCRIBE, "a broker", self._client.security)
        for reason, partitions in answer.reasons().items():
            unlogged = [partition for partition in partitions if partition not in self._unanswered]
            if unlogged:
                _log.warning(
                    "%s: skipped until their leader answers: %s: %s", self._reader, name_some(unlogged), reason
                )
        self._unanswered = self._unanswered.difference(wanted).union(answer.errors)
        return answer

    def _wait(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise BrokerUnavailable("closed while log ends were being requested")


def _known(offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    return {partition: offset for partition, offset in offsets.items() if offset is not None}


def stepped_back(ends: Mapping[TopicPartition, int], at_least: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Partitions with a log end below an offset that the log is known to have reached."""
    return sorted(p for p, end in ends.items() if outside_log(at_least.get(p), None, end) == AFTER_LOG)


def backoffs_s(config: ConsumerConfig) -> list[float]:
    """Seconds to wait before each further request for a log end that is too small.

    There are ``rebalance.max.retries`` of them, at most 5; the first is ``refresh.leader.backoff.ms``, each later one
    twice as long as the one before. With the defaults that is 3 s in total, as in Spark's Kafka source.
    """
    retries = min(config.rebalance_max_retries, 5)
    return [(config.refresh_leader_backoff_ms << number) / 1000 for number in range(retries)]
