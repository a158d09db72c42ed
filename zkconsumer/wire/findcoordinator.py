"""CoordinatorClient: sends requests to the coordinator of one group, and finds it again after a move."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from zkconsumer.errors import BrokerUnavailable, CoordinatorMoved, RetriableError
from zkconsumer.model import Broker
from zkconsumer.process.deadline import NO_DEADLINE, Deadline
from zkconsumer.wire.attempts import Attempts
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.kafkapython import load_kafka_python
from zkconsumer.wire.refusals import DESCRIBE, expect_permission
from zkconsumer.wire.rules.retrypolicy import Next

_FIND_COORDINATOR_VERSIONS: Final = (0, 2)

_COORDINATOR_GONE: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Codes after which the coordinator has to be found again, whatever was asked."""

T = TypeVar("T")


def expect_coordinator(code: int, failure: str, *others: int) -> None:
    """Refuse an answer of a broker that is not the group's coordinator, or not yet.

    Args:
        code: error code of the answer.
        failure: what has failed, for the message.
        others: further codes after which the coordinator has to be found again.

    Raises:
        CoordinatorMoved: find the coordinator, and send the request again.
    """
    if code in _COORDINATOR_GONE or code in others:
        raise CoordinatorMoved(f"{failure}: {error_name(code)}")


class CoordinatorLocation:
    """Which broker coordinates a group, as far as known: shared by the clients of one member, on several threads.

    What one of them finds, the others need not ask for; where one of them gets no answer, none asks again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker | None:
        """The coordinator; None if it has to be found."""
        return self._broker

    def found(self, broker: Broker) -> None:
        """Record an answer to FindCoordinator."""
        with self._lock:
            self._broker = broker

    def lost(self, broker: Broker) -> None:
        """This broker does not answer, or is not the coordinator any more; no change if another one was found since."""
        with self._lock:
            if self._broker == broker:
                self._broker = None


class CoordinatorClient:
    """A client of a group's coordinator. One thread uses it; any other thread may call :meth:`close`.

    Args:
        client: client of the cluster.
        group: consumer group.
        location: shared with other clients of the same cluster and group; its own if None.
    """

    def __init__(self, client: BrokerClient, group: str, location: CoordinatorLocation | None = None) -> None:
        self._client = client
        self._group = group
        self._location = location or CoordinatorLocation()

    @property
    def broker(self) -> Broker | None:
        """The coordinator, as far as known."""
        return self._location.broker

    @property
    def security(self) -> BrokerSecurity:
        """Settings of the connections, for messages."""
        return self._client.security

    def ask(self, question: Callable[[BrokerConnection], T], deadline: Deadline = NO_DEADLINE) -> T:
        """Call ``question`` with a connection to the coordinator; one attempt.

        Raises:
            CoordinatorMoved: raised by ``question``, or no broker is the coordinator at the moment; try again.
            BrokerUnavailable: no broker answers; try again.
            GroupAuthorizationFailed: the permission to find the coordinator is missing.
        """
        coordinator = self._location.broker or self.locate(deadline)
        if deadline.passed:  # the coordinator was not asked, so nothing shows that it is another broker
            raise BrokerUnavailable(f"group {self._group}: its coordinator is not asked, since no time is left")
        try:
            return self._client.ask(coordinator, question, deadline)
        except (CoordinatorMoved, BrokerUnavailable):
            self._location.lost(coordinator)
            raise

    def ask_repeatedly(
        self,
        question: Callable[[BrokerConnection], T],
        attempts: Attempts,
        await_renewed: Callable[[float], bool] = lambda _: False,
    ) -> T:
        """As :meth:`ask`, and again as ``attempts`` decides. The only loop of an operation at a coordinator (adr/0034).

        Args:
            question: sends a request; called again for each repetition.
            attempts: of the operation that this request belongs to, which may have more of them.
            await_renewed: see :meth:`.Attempts.next_step`.

        Raises:
            RetriableError: the last failure; see :meth:`ask` for these and others.
        """
        moved: tuple[Broker, RetriableError] | None = None  # who was the coordinator, and the answer that says so
        while True:
            known = self._location.broker
            try:
                if moved is not None:
                    self._require_other(*moved, attempts.deadline)
                return self.ask(question, attempts.deadline)
            except RetriableError as error:
                step = attempts.next_step(error, was_known=known is not None, await_renewed=await_renewed)
                if step is Next.GIVE_UP:
                    raise
                moved = (known, error) if known is not None and step is Next.IF_MOVED else None

    def _require_other(self, former: Broker, answer: RetriableError, deadline: Deadline) -> None:
        """Find the coordinator; raises the former one's answer if it still is the coordinator."""
        if self.locate(deadline) == former:
            raise answer

    def locate(self, deadline: Deadline = NO_DEADLINE) -> Broker:
        """As :meth:`find`, and from now on ask that broker."""
        coordinator = self.find(deadline)
        self._location.found(coordinator)
        return coordinator

    def find(self, deadline: Deadline = NO_DEADLINE) -> Broker:
        """Ask any broker for the coordinator; raises as :meth:`ask`."""

        def find(connection: BrokerConnection) -> Any:
            load_kafka_python()
            from kafka.protocol.metadata import FindCoordinatorRequest

            version = connection.version(
                FindCoordinatorRequest.API_KEY, FindCoordinatorRequest.name, *_FIND_COORDINATOR_VERSIONS
            )
            return connection.call(FindCoordinatorRequest(version=version, key=self._group, key_type=0))

        answer = self._client.ask_any(find, deadline)
        expect_permission((answer.error_code,), self._group, DESCRIBE, self._client.security)
        if answer.error_code:
            raise CoordinatorMoved(
                f"group {self._group} has no coordinator at the moment: {error_name(answer.error_code)}"
            )
        return Broker(answer.node_id, answer.host, answer.port)

    def close(self) -> None:
        """Close all connections; a call in progress raises BrokerUnavailable. Idempotent."""
        self._client.close()
