"""BrokerContacts: asks one broker, any of them, or several at a time, over connections that it keeps or shares."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final, TypeVar

from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, ProtocolError, ZkConsumerError
from zkconsumer.model import Broker
from zkconsumer.process.deadline import NO_DEADLINE, Deadline
from zkconsumer.process.together import call_together
from zkconsumer.wire.brokersecurity import PLAINTEXT, BrokerSecurity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.connectionpool import ConnectionPool
from zkconsumer.wire.rules.askingorder import asking_order

_SILENCE_S: Final = 30.0
"""For how long others are asked before a broker that did not answer in time, if any of them will do."""

T = TypeVar("T")


class BrokerContacts:
    """Calls questions with connections to brokers, and keeps one connection to each that it has asked, or shares it.

    One thread uses it; any other thread may call :meth:`close`. A question is part of an operation, which may have a
    deadline: no wait of a connection goes beyond it, and after it no broken connection is replaced, and no other broker
    asked.

    Args:
        live_brokers: returns the brokers to ask, called whenever any broker will do; may do I/O and raise.
        client_id: sent with every request.
        timeout_ms: limit for connecting and for each answer, in ms.
        version_fallback: see :class:`BrokerConnection`.
        security: TLS and login.
        connection: creates a connection to a host and port, not connected yet, with the settings of
            :class:`BrokerConnection`.
        pool: connections that clients with the same settings share; its own if None.
        waits_long: True if answers may take long, so that others do not wait for its connections.
    """

    def __init__(
        self,
        live_brokers: Callable[[], Sequence[Broker]],
        *,
        client_id: str,
        timeout_ms: int,
        version_fallback: str | None = None,
        security: BrokerSecurity = PLAINTEXT,
        connection: Callable[..., BrokerConnection] = BrokerConnection,
        pool: ConnectionPool | None = None,
        waits_long: bool = False,
    ) -> None:
        self._live_brokers = live_brokers
        self._connection = partial(
            connection,
            client_id=client_id,
            timeout_ms=timeout_ms,
            version_fallback=version_fallback,
            security=security,
        )
        self.security = security
        self._timeout_ms = timeout_ms
        self._pool = pool or ConnectionPool()
        self._shares = pool is not None
        self._returns = not waits_long
        self._pool.enter()
        self._in_use: dict[BrokerConnection, Broker] = {}  # each thread writes its own connections
        self._answered: Broker | None = None  # the last broker that answered a request for any broker
        self._silent: dict[tuple[str, int], BrokerUnavailable] | None = None  # by address, in this round
        self._silences: dict[tuple[str, int], tuple[float, str]] = {}  # when one last did not answer in time
        self._closed = False

    def was_asked(self, broker: Broker, error: ZkConsumerError | None) -> None:
        """A question to a broker was answered, or failed with an error; for subclasses, on the thread that asked it.

        One over a connection that broke is repeated over a new one, and both are reported.
        """

    def begin_round(self) -> None:
        """From now on a broker that did not answer is not asked again until the next round begins."""
        self._silent = {}

    def ask_any(self, question: Callable[[BrokerConnection], T], deadline: Deadline = NO_DEADLINE) -> T:
        """Call ``question`` with a connection to one broker after the other until one answers.

        Raises:
            BrokerUnavailable: no broker answered, or none in time; the message has the last reason.
            AuthenticationFailed: no broker answered, and one refused the login or certificate; the message has the
                reason.
            ConfigError: a file that the settings name cannot be used.
        """
        brokers = list(self._live_brokers())
        random.shuffle(brokers)
        failure: Exception | None = None
        asked = 0
        since = time.monotonic() - _SILENCE_S
        silent = [broker for broker in brokers if self._silence(broker, since) is not None]
        connected = {broker for broker in brokers if self._pool.has((broker.host, broker.port))}
        for broker in asking_order(brokers, connected, self._answered, silent):
            if failure is not None and deadline.passed:
                break
            asked += 1
            try:
                answer = self.ask(broker, question, deadline)
            except (BrokerUnavailable, ProtocolError) as error:
                if not isinstance(failure, AuthenticationFailed):  # that error needs an operator, so it is kept
                    failure = error
            else:
                self._answered = broker
                return answer
        if isinstance(failure, AuthenticationFailed):
            raise AuthenticationFailed(f"none of {len(brokers)} brokers answers; one refuses: {failure}") from failure
        if not brokers:
            raise BrokerUnavailable(
                "no broker is registered in ZooKeeper; check that brokers run, and zookeeper.connect; for brokers "
                "without ZooKeeper set bootstrap.servers"
            )
        late = "" if asked == len(brokers) else " in time"
        raise BrokerUnavailable(f"none of {len(brokers)} brokers answers{late}; last error: {failure}") from failure

    def ask(self, broker: Broker, question: Callable[[BrokerConnection], T], deadline: Deadline = NO_DEADLINE) -> T:
        """Call ``question`` with a connection to ``broker``, and again with a new one if an old one broke.

        Raises:
            BrokerUnavailable: the broker cannot be reached, or not in time, or this client is closed.
            AuthenticationFailed: the broker refused the login or certificate, or its certificate is not trusted.
            ConfigError: a file that the settings name cannot be used.
            ProtocolError: the broker's answer is malformed.
        """
        if deadline.passed:
            raise BrokerUnavailable(f"broker {broker.host}:{broker.port}: not asked, since no time is left")
        if self._silent and (silence := self._silent.get((broker.host, broker.port))):
            raise silence
        try:
            return self._ask(broker, question, deadline)
        except BrokerUnavailable as error:
            self._note(broker, error)
            if self._silent is not None:
                self._silent[broker.host, broker.port] = error
            raise

    def close(self) -> None:
        """Close all connections that are not shared; a call in progress raises BrokerUnavailable. Idempotent."""
        was_closed, self._closed = self._closed, True
        for connection in list(self._in_use):
            connection.close()
        if not was_closed:
            self._pool.leave()

    def _ask_together(
        self,
        questions: Mapping[Broker, Callable[[BrokerConnection], T]],
        ask: Callable[[Broker, Callable[[BrokerConnection], T], Deadline], T],
        within_s: float = math.inf,
    ) -> dict[Broker, T | Exception]:
        """Ask all of these brokers at the same time, and wait for all answers, at most for the timeout of one.

        At most for ``within_s`` seconds if that is less.

        Each is asked on a thread of its own, which alone uses its connection meanwhile, and its entries in the tables
        of this client.

        Returns:
            What ``ask`` returns, or the exception that it raises.
        """
        ended = False
        deadline = Deadline.after(
            min(self._timeout_ms / 1000, within_s), lambda: math.inf if ended else time.monotonic()
        )

        def end() -> None:
            nonlocal ended
            ended = True  # no connection is opened any more
            for broker in questions:
                self._close_used(broker)

        calls = [partial(ask, broker, question, deadline) for broker, question in questions.items()]
        return dict(zip(questions, call_together(calls, end, name="leader-question"), strict=True))

    def _ask_connected(self, broker: Broker, question: Callable[[BrokerConnection], T], deadline: Deadline) -> T:
        connection = self._take(broker, deadline)
        if connection is None:  # another client uses it, and for longer than was waited
            return self._ask_new(broker, question, deadline)
        return self._put(question, broker, connection, deadline)

    def _note(self, broker: Broker, error: BaseException) -> bool:
        """Note that a broker did not answer in time on a connection; False if a new connection may work."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ConnectionError | ProtocolError):
            cause = cause.__cause__
        if cause is not None or not isinstance(error, BrokerUnavailable):
            return False
        self._silences[broker.host, broker.port] = time.monotonic(), str(error)
        if self._silent is None:
            return False
        self._silent[broker.host, broker.port] = error
        return True

    def _silence(self, broker: Broker, since: float) -> str | None:
        """Why a broker did not answer in time, at that time or later; None if it did, or was not asked."""
        at, error = self._silences.get((broker.host, broker.port), (-math.inf, ""))
        return error if at >= since else None

    def _ask(self, broker: Broker, question: Callable[[BrokerConnection], T], deadline: Deadline) -> T:
        connection = self._take(broker, deadline)
        if connection is not None:
            try:
                return self._put(question, broker, connection, deadline)
            except BrokerUnavailable as error:  # brokers close idle connections; a new one may work
                if self._note(broker, error) or deadline.passed:
                    raise
        return self._ask_new(broker, question, deadline)

    def _ask_new(self, broker: Broker, question: Callable[[BrokerConnection], T], deadline: Deadline) -> T:
        connection = self._connection(broker.host, broker.port)
        self._pool.opens((broker.host, broker.port), connection, returns=self._returns)
        return self._put(question, broker, connection, deadline, is_new=True)

    def _take(self, broker: Broker, deadline: Deadline) -> BrokerConnection | None:
        connection = self._pool.take((broker.host, broker.port), deadline, returns=self._returns)
        if connection is not None and self._shares:
            connection.limit_waits(self._timeout_ms)
        return connection

    def _put(
        self,
        question: Callable[[BrokerConnection], T],
        broker: Broker,
        connection: BrokerConnection,
        deadline: Deadline,
        *,
        is_new: bool = False,
    ) -> T:
        """Connect, if it is new, call ``question``, and keep the connection unless it cannot be used again."""
        address = broker.host, broker.port
        is_connected, is_usable = not is_new, False
        self._in_use[connection] = broker
        try:
            # Checked after the connection is in the set: either this line sees the flag, or close() the connection.
            if self._closed:
                raise BrokerUnavailable("this client is closed")
            with connection.within(deadline) if deadline.exists else nullcontext():
                if is_new:
                    connection.connect()
                    is_connected = True
                answer = question(connection)
            is_usable = True
            self.was_asked(broker, None)
            return answer
        except ZkConsumerError as error:
            # Except a refusal: after a malformed answer, too, since its versions may be those of another release.
            is_usable = is_connected and not isinstance(error, BrokerUnavailable | ProtocolError)
            self.was_asked(broker, error)
            raise
        finally:  # after an interrupt the rest of this answer would be read as the next one
            self._in_use.pop(connection, None)
            if is_usable:
                self._pool.give(address, connection)
            else:
                self._pool.drop(address, connection)

    def _close_used(self, broker: Broker) -> None:
        """End what is being asked of a broker."""
        for connection, of_broker in list(self._in_use.items()):
            if of_broker == broker:
                connection.close()
