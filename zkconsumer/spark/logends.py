"""LogEnds: where the logs of partitions begin and end, asked of the brokers by Spark's driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from zkconsumer.config import ConsumerConfig
from zkconsumer.kafka.client import EARLIEST, LATEST, BrokerClient
from zkconsumer.kafka.errorcodes import error_name
from zkconsumer.model import Broker, TopicPartition

_log = logging.getLogger(__name__)


class LogEnds:
    """Keeps connections to the brokers from one question to the next; one thread uses it.

    Args:
        config: of the query.
        live_brokers: brokers to ask for leaders; called at each question.
    """

    def __init__(self, config: ConsumerConfig, live_brokers: Callable[[], Sequence[Broker]]) -> None:
        self._client = BrokerClient(live_brokers, client_id=config.client_id, timeout_ms=config.socket_timeout_ms)
        self._unanswered: dict[TopicPartition, int] = {}

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset of the first record that is still there; see :meth:`latest`."""
        return self._ask(partitions, EARLIEST)

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset that the next record will get. Partitions without a leader are left out, and logged once.

        Raises:
            BrokerUnavailable: no broker answers.
            ProtocolError: a broker's answer cannot be understood.
        """
        return self._ask(partitions, LATEST)

    def close(self) -> None:
        """Close the connections; a question under way ends with BrokerUnavailable."""
        self._client.close()

    def _ask(self, partitions: Collection[TopicPartition], which: int) -> dict[TopicPartition, int]:
        answer = self._client.list_offsets(dict.fromkeys(partitions, which))
        news = {partition: code for partition, code in answer.errors.items() if partition not in self._unanswered}
        for partition, code in sorted(news.items()):
            _log.warning("%s is left out until its leader answers: %s", partition, error_name(code))
        for partition in partitions:
            self._unanswered.pop(partition, None)
        self._unanswered.update(answer.errors)
        return {partition: offset for partition, offset in answer.found.items() if offset is not None}
