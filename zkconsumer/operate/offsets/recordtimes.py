"""RecordTimes: when the records at given offsets were written, as their timestamps say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
"""Partitions that are asked for at a time. A broker sends at least one batch of each, which may have 1 MB."""
_PARTITION_BYTES: Final = 1 << 16
_BYTES: Final = 1 << 22

Position = tuple[TopicPartition, int]
"""A partition and an offset."""


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
        self._written_ms: dict[Position, int | None] = {}
        self._unanswered: set[Position] = set()
        self._faults: dict[Position, Faults] = {}

    def look_up(self, wanted: Collection[Position]) -> Mapping[Position, int]:
        """The timestamps of the first records from these offsets on, in ms since the epoch, as far as they are known.

        At most 64 of them are fetched; the others follow at the next calls, and so do partitions whose leader does not
        answer or has moved. Absent are also those of records without a timestamp (message format 0), of what the leader
        refuses, of records that cannot be decoded, also fetched again (a group may wait at a damaged batch), and of
        batches of more than 64 KB at brokers before 0.10.1, which cut them off.
        """
        self._written_ms = {position: ms for position, ms in self._written_ms.items() if position in wanted}
        self._faults = {position: faults for position, faults in self._faults.items() if position in wanted}
        if chosen := self._choose(wanted):
            for fetched in self._client.records_at(chosen, partition_bytes=_PARTITION_BYTES, all_bytes=_BYTES):
                partition = TopicPartition(fetched.topic, fetched.partition)
                # Without records and without an error, the answer was full.
                if fetched.records or verdict_on(fetched.error) in (Verdict.REFUSED, Verdict.OUT_OF_RANGE):
                    self._decode(fetched, (partition, chosen[partition]))
            self._unanswered.update(chosen.items() - self._written_ms.keys())
        return {position: ms for position, ms in self._written_ms.items() if ms is not None}

    def _choose(self, wanted: Collection[Position]) -> dict[TopicPartition, int]:
        """What to fetch now; a partition is named once. What was not answered comes after all others."""
        unknown = [position for position in wanted if position not in self._written_ms]
        self._unanswered.intersection_update(unknown)
        chosen: dict[TopicPartition, int] = {}
        for partition, offset in sorted(unknown, key=self._unanswered.__contains__):
            if len(chosen) < _MOST:
                chosen.setdefault(partition, offset)
        if len(self._unanswered) == len(unknown):
            self._unanswered.clear()
        return chosen

    def _decode(self, fetched: FetchedPartition, position: Position) -> None:
        offset = position[1]
        try:
            self._written_ms[position] = self._timestamp(fetched, offset)
        except DecoderUnavailable:  # whoever consumes it reports it, and what is below
            self._written_ms[position] = None
        except UNDECODABLE as error:
            faults = self._faults.get(position, Faults()).after(offset, error)
            if faults.are_believed:
                self._written_ms[position] = None
            self._faults[position] = faults

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
