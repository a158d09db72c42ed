"""LogEnds: where the logs of partitions begin and end, asked of the brokers by Spark's driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import OffsetOutOfRange, name_some
from zkconsumer.kafka.client import EARLIEST, LATEST, BrokerClient
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.spark.positions import AtTime, Wanted

_log = logging.getLogger(__name__)


class LogEnds:
    """Keeps connections to the brokers from one question to the next; one thread uses it.

    Args:
        config: of the query.
        live_brokers: brokers to ask for leaders; called at each question.
    """

    def __init__(self, config: ConsumerConfig, live_brokers: Callable[[], Sequence[Broker]]) -> None:
        self._client = BrokerClient.from_config(live_brokers, config)
        self._unanswered: set[TopicPartition] = set()

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset of the first record that is still there; see :meth:`latest`."""
        return _known(self._ask(dict.fromkeys(partitions, EARLIEST)))

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset that the next record will get. Partitions without a leader are left out, and logged once.

        Raises:
            BrokerUnavailable: no broker answers.
            ProtocolError: a broker's answer cannot be understood.
        """
        return _known(self._ask(dict.fromkeys(partitions, LATEST)))

    def resolve(self, wanted: Mapping[TopicPartition, Wanted]) -> dict[TopicPartition, int]:
        """Turn times into offsets; what is not a time is returned as it is. See :meth:`latest` for what is left out.

        Raises:
            OffsetOutOfRange: a partition has no record of that time or later, and its end is not to be taken instead.
        """
        times = {partition: place for partition, place in wanted.items() if isinstance(place, AtTime)}
        found = self._ask({partition: place.ms for partition, place in times.items()}) if times else {}
        late = sorted(p for p, offset in found.items() if offset is None and not times[p].or_latest)
        if late:
            raise OffsetOutOfRange(
                f"no record is as new as the time to start at: {', '.join(f'{p} at {times[p].ms} ms' for p in late)}; "
                "give an earlier time, or startingOffsetsByTimestampStrategy=latest to start these at their ends"
            )
        offsets = {partition: place for partition, place in wanted.items() if not isinstance(place, AtTime)}
        offsets.update((p, LATEST if offset is None else offset) for p, offset in found.items())
        return offsets

    def close(self) -> None:
        """Close the connections; a question under way ends with BrokerUnavailable."""
        self._client.close()

    def _ask(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        answer = self._client.list_offsets(wanted)
        for reason, theirs in answer.reasons().items():
            news = [partition for partition in theirs if partition not in self._unanswered]
            if news:
                _log.warning("left out until their leader answers: %s: %s", name_some(news), reason)
        self._unanswered = self._unanswered.difference(wanted).union(answer.errors)
        return answer.found


def _known(found: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    return {partition: offset for partition, offset in found.items() if offset is not None}
