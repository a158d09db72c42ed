"""AskedBrokers: a client of brokers that keeps which of them answer."""

from __future__ import annotations

import time
from typing import Any

from zkconsumer.errors import BrokerUnavailable, ConfigError, ZkConsumerError
from zkconsumer.model import Broker
from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer, ServerAnswers
from zkconsumer.wire.brokerclient import BrokerClient


class AskedBrokers(BrokerClient):
    """A :class:`~zkconsumer.wire.brokerclient.BrokerClient`; it puts no questions of its own."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._answers = ServerAnswers("broker")

    def begin_round(self) -> None:
        """See :class:`~zkconsumer.wire.brokercontacts.BrokerContacts`."""
        super().begin_round()
        self._answers.begin_round()

    def answers(self) -> tuple[ServerAnswer, ...]:
        """The brokers that were asked in this round, and those that have not answered since."""
        return self._answers.newest(_now_ms())

    def was_asked(self, broker: Broker, error: ZkConsumerError | None) -> None:
        """See :class:`~zkconsumer.wire.brokercontacts.BrokerContacts`; the last outcome counts."""
        if isinstance(error, ConfigError):  # it was not asked
            return
        # Other errors, as an error code or bytes that cannot be read, are an answer.
        silence = str(error) if isinstance(error, BrokerUnavailable) else ""
        server_id = None if broker.id < 0 else broker.id  # as of bootstrap_brokers
        self._answers.note(f"{broker.host}:{broker.port}", _now_ms(), silence, server_id)


def _now_ms() -> int:
    return round(1000 * time.time())
