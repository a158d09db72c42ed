"""BrokerConnection: a connection to one broker, with API versions, login, and the framing of messages.

``transport.py`` has the socket, ``response.py`` the memory into which responses are received.

Threads: only the thread that owns a connection calls its methods, except :meth:`BrokerConnection.close`, which any
thread may call at any time. A connection is used once: after ``close`` or an error a new one must be created.
"""

from __future__ import annotations

import math
import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, Self, TypeVar

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, NoCommonVersion, ProtocolError
from zkconsumer.model import Broker
from zkconsumer.process.deadline import NO_DEADLINE, Deadline
from zkconsumer.wire.apiversions import ApiRanges, mutes, read_throttle_ms
from zkconsumer.wire.brokersecurity import PLAINTEXT, BrokerSecurity
from zkconsumer.wire.kafkapython import load_kafka_python
from zkconsumer.wire.knownbrokers import KNOWN_BROKERS, Address, ReportedVersions
from zkconsumer.wire.response import Memory, ResponseStream, new_memory
from zkconsumer.wire.throttletimes import THROTTLE_TIMES
from zkconsumer.wire.transport import Transport
from zkconsumer.wire.versionquestion import learn_versions

MAX_RESPONSE_BYTES: Final = 1 << 30
"""Default limit of a response in bytes. A fetch requests far less; a longer one is not a Kafka response."""

_LONGEST_BEFORE_LOGIN: Final = 1 << 20
"""Limit of a response until :meth:`BrokerConnection.connect` has succeeded: the peer is not known to be a broker."""
_LONGEST_BARE: Final = 1 << 16
_REQUEST_HEADER: Final = struct.Struct(">ihhih")  # frame length, api key, api version, correlation id, client id length
_RESPONSE_HEADER: Final = struct.Struct(">ii")  # frame length, correlation id
_CORRELATION_BYTES: Final = 4  # they count as part of the frame
_LOGIN_AGAIN: Final = (0.85, 0.95)
"""The part of a session's lifetime after which to log in again is random between these, as in Java's client: many
connections that were opened together do not log in at once."""
_TLS_ALERT: Final = b"\x15\x03"
_HTTP: Final = b"HTTP"

T = TypeVar("T")


class BrokerConnection:
    """A connection to one broker.

    Args:
        host: name or address.
        port: TCP port of a listener for the security protocol.
        client_id: sent with every request; brokers use it in logs, metrics and quotas.
        timeout_ms: limit for connecting, and for any period in which a send or receive makes no progress, in ms.
        receive_buffer_bytes: ``SO_RCVBUF``; 0 or less does not set it. Setting it disables the kernel's own tuning of
            the size (adr/0026).
        version_fallback: a release in :data:`~zkconsumer.wire.apiversions.OLD_RELEASES`: the broker is probably one
            before 0.10, and is looked at before it is asked for its versions.
        security: TLS and login.
        max_response_bytes: limit of a response; until the login has succeeded it is at most 1 MiB.
        clock: seconds of a monotonic clock.
    """

    def __init__(  # noqa: PLR0913 - each has its keyword and its default
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_ms: int,
        receive_buffer_bytes: int = 0,
        version_fallback: str | None = None,
        security: BrokerSecurity = PLAINTEXT,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = Transport(
            host,
            port,
            timeout_ms=timeout_ms,
            receive_buffer_bytes=receive_buffer_bytes,
            security=security,
            on_broken=self._forget_versions,
        )
        self._client_id = client_id.encode()
        self._may_be_old = version_fallback is not None
        self._security = security
        self._max_response_bytes = max_response_bytes
        self._limit = min(_LONGEST_BEFORE_LOGIN, max_response_bytes)  # of the next response
        self._clock = clock
        self._login_due = math.inf  # on the clock
        self._muted_until = -math.inf  # on the clock
        self._correlation_id = self._answered_id = 0
        self._head = memoryview(bytearray(_RESPONSE_HEADER.size))
        self._response = ResponseStream(self._transport)
        self._reported = ReportedVersions({}, 0.0)

    @classmethod
    def from_config(cls, broker: Broker, config: ConsumerConfig) -> Self:
        """Create a connection for fetching from the consumer's properties."""
        return cls(
            broker.host,
            broker.port,
            client_id=config.client_id,
            timeout_ms=config.socket_timeout_ms,
            receive_buffer_bytes=config.socket_receive_buffer_bytes or 0,
            version_fallback=config.broker_version_fallback,
            security=BrokerSecurity.from_config(config),
        )

    def __str__(self) -> str:
        return str(self._transport)

    @property
    def host(self) -> str:
        """Name or address of the broker, as given."""
        return self._transport.host

    @property
    def address(self) -> Address:
        """Host and port, as given."""
        return self._transport.host, self._transport.port

    @property
    def closed(self) -> bool:
        """True once :meth:`close` was called; not if the broker closed the connection."""
        return self._transport.closed

    # -- life cycle ---------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect, log in, and get the versions of each API that the broker knows (KIP-35).

        A broker before 0.10 does not know that request; see :func:`~zkconsumer.wire.versionquestion.learn_versions`.

        Raises:
            BrokerUnavailable: refused, timed out, unknown host, or closed by another thread.
            AuthenticationFailed: certificate, password or token are not accepted.
            ConfigError: a file that the settings name cannot be used.
            ProtocolError: the server is not a Kafka broker.
        """
        self._learn_versions()
        if self._security.logs_in:
            self._log_in()
        self._limit = self._max_response_bytes

    def open(self) -> None:
        """Connect, without a question or a login; a part of :meth:`connect`, which raises as this does."""
        self._transport.connect()
        self._response = ResponseStream(self._transport)  # the connection before it may have broken in a response

    def _log_in(self) -> None:
        """Log in, also again on this connection before the broker closes it (KIP-368)."""
        from zkconsumer.wire.sasl import log_in

        self._login_due = math.inf  # for the requests of the login
        try:
            lifetime_ms = log_in(self, self._security)
        except BaseException:
            self.close()
            raise
        if lifetime_ms > 0:
            self._login_due = self._clock() + lifetime_ms / 1000 * random.uniform(*_LOGIN_AGAIN)

    def _learn_versions(self) -> None:
        try:
            self._reported = learn_versions(self, logs_in=self._security.logs_in, may_be_old=self._may_be_old)
        except AuthenticationFailed:
            raise
        except BrokerUnavailable as error:
            if self._transport.closed or not isinstance(error.__cause__, ConnectionError):
                raise
            listener = "that asks for a certificate or a login" if self._security.encrypted else "with TLS or SASL"
            raise BrokerUnavailable(
                f"{error} (right after connecting: a listener {listener}, or a broker that is starting "
                "or stopping, closes connections like this; check that security.protocol is right for this port)"
            ) from error

    def close(self) -> None:
        """Close the connection; a thread blocked in it gets BrokerUnavailable at once. Idempotent."""
        self._transport.close()

    def waiting(self, timeout_ms: int) -> AbstractContextManager[None]:
        """Inside of it, answers are waited for this long, in ms, if that is more than the connection's own timeout."""
        return self._waiting(max(timeout_ms, self._transport.timeout_ms))

    def waiting_at_most(self, timeout_ms: int) -> AbstractContextManager[None]:
        """Inside of it, answers are waited for this long, in ms, if that is less than the connection's own timeout."""
        return self._waiting(min(timeout_ms, self._transport.timeout_ms))

    @contextmanager
    def _waiting(self, timeout_ms: int) -> Iterator[None]:
        self._transport.receive_within(timeout_ms)
        try:
            yield
        finally:
            if not self._transport.closed:
                with suppress(BrokerUnavailable):  # the connection broke: the caller gets its error
                    self._transport.receive_within(self._transport.timeout_ms)

    def limit_waits(self, timeout_ms: int) -> None:
        """From now on ``timeout_ms`` is this; for another client, which has taken over this connection."""
        self._transport.limit_waits(timeout_ms)

    @contextmanager
    def within(self, deadline: Deadline) -> Iterator[None]:
        """Inside of it, no wait goes beyond the deadline of an operation, also while connecting."""
        self._transport.until(deadline)
        try:
            yield
        finally:
            self._transport.until(NO_DEADLINE)

    # -- versions -----------------------------------------------------------------------------------------------

    def _forget_versions(self) -> None:
        KNOWN_BROKERS.forget(self.address)

    @property
    def ranges(self) -> ApiRanges:
        """Oldest and newest version of each API that the broker knows."""
        return self._reported.ranges

    def knows(self, api_key: int, version: int = 0) -> bool:
        """True if the broker has reported that it knows this API, in this version or a later one."""
        return api_key in self.ranges and self.ranges[api_key][1] >= version

    def version(self, api_key: int, name: str, oldest: int, newest: int) -> int:
        """Newest version of an API that both sides know.

        Args:
            api_key: number of the API.
            name: name of the API, for the error message.
            oldest: oldest version that the caller can encode.
            newest: newest version that the caller can encode.

        Raises:
            NoCommonVersion: there is none.
        """
        supported = self.ranges.get(api_key)
        if supported is None or supported[0] > newest or supported[1] < oldest:
            offer = (
                "does not support it" if supported is None else f"supports versions {supported[0]} to {supported[1]}"
            )
            self._forget_versions()
            raise NoCommonVersion(
                f"no common version of {name} with {self}: this client has {oldest} to {newest}, the broker {offer}"
            )
        return min(newest, supported[1])

    # -- frames -------------------------------------------------------------------------------------------------

    def send(
        self,
        api_key: int,
        api_version: int,
        body: bytes,
        *,
        flexible: bool = False,
        before_send: Callable[[], None] = lambda: None,
    ) -> int:
        """Send one request, after another login if the session with the broker would expire otherwise.

        Before, the time is over for which a quota mutes this connection (:attr:`muted`).
        The broker checks a session when it receives a request, and still accepts a login after the session's end. So
        nothing has to be sent while a connection is not used. While an answer is awaited there is no login, since that
        answer would come first.

        Args:
            api_key: number of the API.
            api_version: version in which ``body`` is encoded.
            body: the encoded request without its header.
            flexible: True if this version has tagged fields (KIP-482), which lengthens the header.
            before_send: called right before the request is sent, after the login; its exception is passed on.

        Returns:
            The correlation id, for :meth:`receive`.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            AuthenticationFailed, ConfigError, ProtocolError: the login failed, see :meth:`connect`.
        """
        self._await_unmuted()
        if self._clock() >= self._login_due and self._answered_id == self._correlation_id:
            self._log_in()
        before_send()
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        tags = b"\x00" if flexible else b""
        length = _REQUEST_HEADER.size - 4 + len(self._client_id) + len(tags) + len(body)
        header = _REQUEST_HEADER.pack(length, api_key, api_version, correlation_id, len(self._client_id))
        self._transport.send(b"".join((header, self._client_id, tags, body)))
        return correlation_id

    def receive(self, correlation_id: int, *, flexible: bool = False) -> memoryview:
        """Wait for the next response and receive all of it.

        Args:
            correlation_id: id of the request that it must answer; responses come in the order of requests.
            flexible: True if the response header has tagged fields.

        Returns:
            A writable view of the response without its header. It is valid until the next call, which reuses the
            memory: data to keep must be copied first.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            ProtocolError: the length exceeds the limit, or another request is answered.
        """
        response = self.open_response(correlation_id, flexible=flexible)
        return response.take(response.left)

    def open_response(
        self, correlation_id: int, *, flexible: bool = False, memory: Memory = new_memory
    ) -> ResponseStream:
        """Wait for the next response, and take its bytes as they arrive; all must be taken before the next response.

        Args:
            correlation_id: see :meth:`receive`, also for the errors.
            flexible: see there.
            memory: provides the memory for bytes that are kept.
        """
        head = self._head
        self._transport.fill(head)
        length, answered = _RESPONSE_HEADER.unpack(head)
        if not 4 <= length <= self._limit:
            self.close()
            raise ProtocolError(f"{self} announced a response of {length} bytes; {self._guess(bytes(head[:4]))}")
        if answered != correlation_id:
            self.close()
            raise ProtocolError(f"{self} answered request {answered} instead of {correlation_id}")
        self._answered_id = answered
        self._reported.heard_at = time.monotonic()
        self._response.begin(length - _CORRELATION_BYTES, memory)
        if flexible:
            _require_no_tags(self, self._response.take(min(1, self._response.left)))
        return self._response

    def throttled(self, api_key: int, api_version: int, throttle_ms: int) -> None:
        """Note the throttle time of an answer: a quota is exceeded (KIP-219).

        The broker does not read from this connection meanwhile, so a request that is sent at once would only use up its
        own timeout. Other connections are not affected.

        Args:
            api_key: number of the API.
            api_version: version of the request.
            throttle_ms: from the answer.
        """
        if throttle_ms > 0 and mutes(api_key, api_version):
            self._muted_until = self._clock() + throttle_ms / 1000
            THROTTLE_TIMES.add(self._client_id.decode(), throttle_ms)

    @property
    def muted(self) -> bool:
        """True while a quota mutes this connection: :meth:`send` waits for the end."""
        return self._clock() < self._muted_until

    def _await_unmuted(self) -> None:
        if (left := self._muted_until - self._clock()) > 0:
            self._transport.pause(left)

    def _read_throttle(self, api_key: int, api_version: int, body: memoryview) -> None:
        self.throttled(api_key, api_version, read_throttle_ms(api_key, api_version, body))

    def exchange(
        self,
        api_key: int,
        api_version: int,
        body: bytes,
        decode: Callable[[memoryview], T],
        *,
        flexible: bool = False,
    ) -> T:
        """Send a request, and return the body of the response, decoded by ``decode``.

        ``flexible`` is that of :meth:`send`.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            ProtocolError: as :meth:`receive`, or raised by ``decode``; its text then follows the name of this broker.
        """
        response = self.receive(self.send(api_key, api_version, body, flexible=flexible), flexible=flexible)
        self._read_throttle(api_key, api_version, response)
        try:
            return decode(response)
        except ProtocolError as error:
            self._forget_versions()
            raise ProtocolError(f"{self} {error}") from error

    def exchange_bare(self, token: bytes, *, answered: bool = True) -> bytes:
        """Send bytes preceded only by their length, and return an answer in the same format.

        The login to brokers before 1.0 works like this, see ``sasl.py``.

        Args:
            token: the bytes to send.
            answered: False if the broker sends no answer; then the result is empty, without a wait.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            ProtocolError: the length of the answer exceeds the limit.
        """
        self._transport.send(struct.pack(">i", len(token)) + token)
        if not answered:
            return b""
        head = self._head[:4]
        self._transport.fill(head)
        (length,) = struct.unpack(">i", head)
        if not 0 <= length <= _LONGEST_BARE:
            self.close()
            raise ProtocolError(f"{self} announced {length} bytes during the login; check that this is a broker's port")
        body = bytearray(length)
        self._transport.fill(memoryview(body))
        return bytes(body)

    def call(self, request: Any, *, before_send: Callable[[], None] = lambda: None) -> Any:
        """Send a request object of kafka-python, which encodes itself, and return the decoded response.

        For requests of low rate; the request carries its version. ``before_send`` is that of :meth:`send`.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            ProtocolError: the response cannot be decoded.
        """
        load_kafka_python()
        from kafka.protocol.api_header import ResponseClassRegistry

        version = request.API_VERSION
        flexible = request.flexible_version_q(version)
        correlation_id = self.send(
            request.API_KEY, version, request.encode(), flexible=flexible, before_send=before_send
        )
        body = self.receive(correlation_id, flexible=flexible)
        self._read_throttle(request.API_KEY, version, body)
        request.with_header(correlation_id)
        response = ResponseClassRegistry.get_response_class(request.header)
        try:
            return response.decode(bytes(body), version=version)
        except Exception as error:  # kafka-python raises exceptions of any type for malformed bytes
            self._forget_versions()
            raise ProtocolError(f"{self} sent a malformed {request.name} response (version {version})") from error

    # -- errors -------------------------------------------------------------------------------------------------

    def _guess(self, start: bytes) -> str:
        if start.startswith(_TLS_ALERT):
            return "this looks like TLS: check that security.protocol is right for this port"
        if start == _HTTP:
            return "this is an HTTP server: check the port"
        return f"the limit is {self._limit}: check that this is the port of a Kafka broker"


def _require_no_tags(broker: object, start: memoryview) -> None:
    """Check that a flexible response header has no tagged fields, which is one byte; brokers send none."""
    if bytes(start) != b"\0":
        raise ProtocolError(f"{broker} sent a response header with tagged fields, which this client does not know")
