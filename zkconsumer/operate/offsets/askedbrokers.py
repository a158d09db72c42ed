"""AskedBrokers: a client of brokers that keeps which of them answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from zkconsumer.errors import BrokerUnavailable, ConfigError, ZkConsumerError
from zkconsumer.model import Broker
from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer, ServerAnswers
from zkconsumer.process.deadline import Deadline
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connection import BrokerConnection

T = TypeVar("T")


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

    def _put(
        self,
        question: Callable[[BrokerConnection], T],
        broker: Broker,
        connection: BrokerConnection,
        deadline: Deadline,
        *,
        is_new: bool = False,
    ) -> T:
        """Every question passes here. One over a broken connection is repeated, and the last outcome counts."""
        try:
            answer = super()._put(question, broker, connection, deadline, is_new=is_new)
        except BrokerUnavailable as error:
            self._note_answer(broker, str(error))
            raise
        except ConfigError:  # it was not asked
            raise
        except ZkConsumerError:  # an error code, or bytes that cannot be read, are an answer
            self._note_answer(broker, "")
            raise
        self._note_answer(broker, "")
        return answer

    def _note_answer(self, broker: Broker, silence: str) -> None:
        server_id = None if broker.id < 0 else broker.id  # as of bootstrap_brokers
        self._answers.note(f"{broker.host}:{broker.port}", _now_ms(), silence, server_id)


def _now_ms() -> int:
    return round(1000 * time.time())
