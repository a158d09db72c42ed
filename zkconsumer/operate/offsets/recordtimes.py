"""RecordTimes: when the records at given offsets were written, as their timestamps say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.decode.decodersettings import DecoderSettings
from zkconsumer.errors import DecoderUnavailable
from zkconsumer.model import TopicPartition
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.errorcodes import verdict_on
from zkconsumer.wire.fetchmessages import FetchedPartition
from zkconsumer.wire.rules.fetchanswers import UNDECODABLE, Faults, Verdict

if TYPE_CHECKING:
    from zkconsumer.decode.batchdecoder import BatchDecoder

_MOST: Final = 64
"""Offsets that are asked for at a time. A broker sends at least one batch of each, which may have 1 MB."""
_MOST_ROUNDS: Final = 8
"""Requests that each leader gets at a time: one names a partition once, and groups stand at many offsets of one."""
_PARTITION_BYTES: Final = 1 << 16
_BYTES: Final = 1 << 22

Position = tuple[TopicPartition, int]
"""A partition and an offset."""


@dataclass(slots=True)
class _Lookup:
    """What is known of the first record from a position on.

    Attributes:
        ended: nothing more is to be fetched.
        written_ms: its timestamp once this has ended; None without one.
        turn: the number of the look at which it was wanted first, or may be fetched again after a failure.
        faults: of its records, while they cannot be decoded.
    """

    turn: int
    ended: bool = False
    written_ms: int | None = None
    faults: Faults = field(default_factory=Faults)

    def end(self, written_ms: int | None) -> None:
        self.ended, self.written_ms = True, written_ms


class RecordTimes:
    """Fetches the first record at an offset, and remembers its timestamp as long as it is asked for; one thread.

    An offset that does not move, that of a group which does not consume, is fetched once.

    Args:
        client: that has asked the leaders of the partitions for offsets before.
        config: how records are decoded.
    """

    def __init__(self, client: BrokerClient, config: ConsumerConfig) -> None:
        self._client = client
        self._config = config
        self._looks = 0
        self._lookups: dict[Position, _Lookup] = {}

    def look_up(self, wanted: Collection[Position]) -> Mapping[Position, int]:
        """The timestamps of the first records from these offsets on, in ms since the epoch, as far as they are known.

        At most 64 of them are fetched, those first that have been wanted longest: offsets that move are new at each
        call, and would keep others waiting. The others follow at the next calls, and so do partitions whose leader does
        not answer or has moved. Absent are also those of records without a timestamp (message format 0), of what the
        leader refuses, of records that cannot be decoded, also fetched again (a group may wait at a damaged batch), and
        of batches of more than 64 KB at brokers before 0.10.1, which cut them off.
        """
        self._looks += 1
        self._lookups = {position: self._lookups.get(position) or _Lookup(self._looks) for position in wanted}
        opened = (position for position, lookup in self._lookups.items() if not lookup.ended)
        waiting = sorted(opened, key=lambda position: self._lookups[position].turn)
        left = _MOST
        for _ in range(_MOST_ROUNDS):
            chosen = _choose(waiting, left)
            if not chosen:
                break
            left -= len(chosen)
            answered = self._fetch(chosen)
            waiting = [(p, offset) for p, offset in waiting if p in answered and offset != chosen[p]]
        return {at: lookup.written_ms for at, lookup in self._lookups.items() if lookup.written_ms is not None}

    def _fetch(self, chosen: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Fetch records from these offsets on; returns the partitions whose leader has answered."""
        answered = set()
        for position in chosen.items():
            self._lookups[position].turn = self._looks + 1
        for fetched in self._client.records_at(chosen, partition_bytes=_PARTITION_BYTES, all_bytes=_BYTES):
            partition = TopicPartition(fetched.topic, fetched.partition)
            # Without records and without an error, the answer was full.
            if fetched.records or verdict_on(fetched.error) in (Verdict.REFUSED, Verdict.OUT_OF_RANGE):
                self._decode(fetched, (partition, chosen[partition]))
                answered.add(partition)
        return answered

    def _decode(self, fetched: FetchedPartition, position: Position) -> None:
        offset, lookup = position[1], self._lookups[position]
        try:
            lookup.end(self._timestamp(fetched, offset))
        except DecoderUnavailable:  # whoever consumes it reports it, and what is below
            lookup.end(None)
        except UNDECODABLE as error:
            lookup.faults = lookup.faults.after(offset, error)
            if lookup.faults.are_believed:
                lookup.end(None)

    def _timestamp(self, fetched: FetchedPartition, offset: int) -> int | None:
        from zkconsumer.decode.messages import records

        chunk = self._decoder.decode(
            fetched.topic, fetched.partition, offset, fetched.records, fetched.aborted, fetched.high_watermark
        )
        first = None if chunk.records is None else next(records(chunk.records), None)
        return None if first is None else first.timestamp

    @cached_property
    def _decoder(self) -> BatchDecoder:
        from zkconsumer.decode.batchdecoder import BatchDecoder

        return BatchDecoder(DecoderSettings.from_config(self._config))


def _choose(waiting: Iterable[Position], most: int) -> dict[TopicPartition, int]:
    """The first offsets of so many partitions."""
    chosen: dict[TopicPartition, int] = {}
    for partition, offset in waiting:
        if len(chosen) < most:
            chosen.setdefault(partition, offset)
    return chosen
