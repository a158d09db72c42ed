"""BrokerConnection: one blocking TCP connection to one broker, and the framing of requests and responses on it.

A fetcher spends its life in :meth:`BrokerConnection.receive`. So that it costs one system call and no wake-up of the
interpreter per response, the socket is a blocking one whose time limits live in the kernel (``SO_RCVTIMEO``), and a
response is received with ``MSG_WAITALL`` straight into a buffer that is kept from one response to the next.

Threads: one thread owns a connection and alone calls its methods, except :meth:`BrokerConnection.close`, which any
thread may call at any time. A connection is used once: after ``close`` or an error a new one must be made.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from typing import Any, Final, Self

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, ProtocolError
from zkconsumer.kafka.library import load_kafka_python
from zkconsumer.kafka.sasl import log_in
from zkconsumer.kafka.security import PLAINTEXT, BrokerSecurity
from zkconsumer.kafka.versions import (
    API_VERSIONS,
    LIST_OFFSETS,
    NO_OFFSETS_WANTED,
    OLD_RELEASES,
    OLDEST_RELEASE,
    ApiRanges,
    parse_api_versions,
)
from zkconsumer.model import Broker

MAX_RESPONSE_BYTES: Final = 1 << 30
"""Longest response accepted unless told otherwise. A fetch asks for far less; a longer one is no Kafka response."""

_INITIAL_BUFFER: Final = 1 << 16
_TRUSTED_BYTES: Final = 1 << 26
"""Memory that a mere announcement is worth; for more, bytes have to come. Above ``fetch.max.bytes`` of default."""
_REQUEST_HEADER: Final = struct.Struct(">ihhih")  # frame length, api key, api version, correlation id, client id length
_RESPONSE_HEADER: Final = struct.Struct(">ii")  # frame length, correlation id
_TLS_ALERT: Final = b"\x15\x03"
_HTTP: Final = b"HTTP"


class BrokerConnection:
    """A connection to one broker.

    Args:
        host: name or address.
        port: TCP port of a listener for the security protocol.
        client_id: sent with every request; brokers put it into logs, metrics and quotas.
        timeout_ms: limit for connecting, and for any period in which a send or receive makes no progress.
        receive_buffer_bytes: ``SO_RCVBUF`` where it asks for more than the kernel's own start value; otherwise the
            kernel keeps tuning the size, which setting the option would switch off.
        version_fallback: a release in :data:`OLD_RELEASES`, to be assumed without proof of a broker that hangs up when
            it is asked for its versions.
        security: TLS and login.
        max_response_bytes: refuse longer responses.
    """

    def __init__(
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
    ) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id.encode()
        self._timeout_ms = timeout_ms
        self._receive_buffer_bytes = receive_buffer_bytes
        self._version_fallback = version_fallback
        self._security = security
        # TLS decrypts piece by piece, so "wait for all" is nothing that its sockets know.
        self._receive_flags = 0 if security.encrypted else socket.MSG_WAITALL
        self._max_response_bytes = max_response_bytes
        self._correlation_id = 0
        self._buffer = bytearray(_INITIAL_BUFFER)
        self._ranges: ApiRanges = {}
        # Guards the three attributes below; nothing that waits is done under it. What it prevents: the owner is about
        # to call recv on descriptor 7; another thread closes the connection, and with it 7; a third opens a file and
        # gets 7; the owner reads from that file. So while the owner is inside an operation close() only shuts the
        # connection down, which wakes the owner, and the owner gives the descriptor back on its way out.
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._in_use = False
        self._closed = False

    @classmethod
    def from_config(cls, broker: Broker, config: ConsumerConfig) -> Self:
        """A connection for fetching, as the properties ask for."""
        return cls(
            broker.host,
            broker.port,
            client_id=config.client_id,
            timeout_ms=config.socket_timeout_ms,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            version_fallback=config.broker_version_fallback,
            security=BrokerSecurity.from_config(config),
        )

    def __str__(self) -> str:
        return f"broker {self.host}:{self.port}"

    # -- life cycle ---------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect and learn which versions of each API the broker knows (KIP-35).

        A broker before 0.10 cannot tell and hangs up when it is asked. It is recognised, see :meth:`_recognise_old`.

        Raises:
            BrokerUnavailable: refused, timed out, unknown host, or closed by another thread.
            AuthenticationFailed: certificate, password or token are not accepted.
            ConfigError: a file that the settings name cannot be used.
            ProtocolError: what answers is not a Kafka broker.
        """
        self._learn_versions()
        if self._security.logs_in:
            try:
                log_in(self, self._security)
            except BaseException:
                self.close()
                raise

    def _learn_versions(self) -> None:
        self._dial()
        try:
            self._ranges = self._ask_versions()
        except BrokerUnavailable as error:
            if self._closed or not isinstance(error.__cause__, ConnectionError):
                raise
            try:
                self._ranges = self._recognise_old()
            except BrokerUnavailable as again:
                raise BrokerUnavailable(
                    f"{again} (right after connecting: a listener with TLS or SASL, or a broker that is just starting "
                    "or stopping, hangs up like this; is security.protocol right for this port?)"
                ) from again

    def _dial(self) -> None:
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise self._unavailable(f"cannot resolve the host name: {error}") from error
        failure: BrokerUnavailable | None = None
        for family, kind, protocol, _, address in addresses:
            try:
                self._open(self._make_socket(family, kind, protocol), address)
                return
            except AuthenticationFailed:
                raise
            except BrokerUnavailable as error:
                failure = error
        raise BrokerUnavailable(
            f"{failure}; check that the broker runs and that its advertised listener can be reached from here"
        ) from failure

    def _make_socket(self, family: int, kind: int, protocol: int) -> socket.socket:
        try:
            return socket.socket(family, kind, protocol)
        except OSError as error:  # a name may resolve to IPv6 where the kernel has none
            raise self._unavailable(f"cannot use its address: {error}") from error

    def _open(self, sock: socket.socket, address: Any) -> None:
        with self._lock:
            if self._closed:
                sock.close()
                raise self._unavailable("the connection is closed")
            self._socket = sock  # before connecting, so that close() ends a connection attempt too
        with self._use("connecting"):
            self._set_options(sock)
            sock.settimeout(self._timeout_ms / 1000)
            sock.connect(address)
            if not self._security.encrypted:
                sock.settimeout(None)
        if self._security.encrypted:
            self._encrypt()

    def _encrypt(self) -> None:
        """Put TLS around the socket. Its time limit is Python's: the kernel's would be taken for a reason to retry."""
        context = self._security.tls_context()
        try:
            with self._use("TLS handshake") as plain:
                sock = context.wrap_socket(plain, server_hostname=self.host, do_handshake_on_connect=False)
                with self._lock:
                    self._socket = sock  # nothing is left in the plain one
                sock.do_handshake()
        except BrokerUnavailable as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                reason = f"its certificate is not trusted: {error.__cause__.verify_message}"
                hint = "check ssl.ca.location, and that the certificate is for this host name"
                raise AuthenticationFailed(f"{self}: {reason}; {hint}") from error
            raise BrokerUnavailable(
                f"{error}; check that this is a listener for {self._security.protocol}, and whether it asks for a "
                "client's certificate (ssl.certificate.location)"
            ) from error

    def _set_options(self, sock: socket.socket) -> None:
        if self._receive_buffer_bytes > sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        limit = struct.pack("@ll", self._timeout_ms // 1000, self._timeout_ms % 1000 * 1000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def close(self) -> None:
        """Close the connection; a thread blocked in it gets BrokerUnavailable at once. Harmless when repeated."""
        with self._lock:
            self._closed = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # not connected yet, or already reset by the broker
                    # Not SSLSocket's own, which would go on in plain text.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            if not self._in_use:
                self._discard()

    @contextlib.contextmanager
    def _use(self, doing: str) -> Iterator[socket.socket]:
        """Give the socket to the owner for one operation; an error of the operation ends the connection."""
        with self._lock:
            if self._socket is None or self._closed:
                raise self._unavailable("the connection is closed")
            sock = self._socket
            self._in_use = True
        broken = True
        try:
            yield sock
            broken = False
        except OSError as error:
            reason = "closed by this process" if self._closed else _reason(error)
            raise self._unavailable(f"{doing} failed: {reason}") from error
        finally:
            with self._lock:
                self._in_use = False
                if broken or self._closed:
                    self._discard()

    def _discard(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- versions -----------------------------------------------------------------------------------------------

    def _ask_versions(self) -> ApiRanges:
        body = self.receive(self.send(API_VERSIONS, 0, b""))
        try:
            return parse_api_versions(body)
        except ProtocolError as error:
            raise ProtocolError(f"{self} {error}") from error

    def _recognise_old(self) -> ApiRanges:
        """Connect again and return what the release speaks that hangs up on ApiVersions.

        Unless a release was named in the settings this needs proof. A modern broker that is just being restarted
        behind a proxy hangs up, too; half a second later it would be spoken to in the oldest versions for as long as
        the connection lasts, and all its records would lose their headers, silently. So, on one new connection: it
        answers what every release answers, which shows that it works, and then hangs up on ApiVersions all the same.
        """
        self._dial()
        if self._version_fallback is not None:
            return OLD_RELEASES[self._version_fallback]
        self.receive(self.send(LIST_OFFSETS, 0, NO_OFFSETS_WANTED))
        try:
            return self._ask_versions()
        except BrokerUnavailable as error:
            if self._closed or not isinstance(error.__cause__, ConnectionError):
                raise
        self._dial()
        return OLD_RELEASES[OLDEST_RELEASE]

    def knows(self, api_key: int) -> bool:
        """True if the broker has said that it knows this API."""
        return api_key in self._ranges

    def version(self, api_key: int, name: str, oldest: int, newest: int) -> int:
        """Newest version of an API that both sides know.

        Args:
            api_key: number of the API.
            name: its name, for the message.
            oldest: oldest version that the caller can encode.
            newest: newest version that the caller can encode.

        Raises:
            ProtocolError: there is no common version.
        """
        theirs = self._ranges.get(api_key)
        if theirs is None or theirs[0] > newest or theirs[1] < oldest:
            offer = "does not know it" if theirs is None else f"speaks versions {theirs[0]} to {theirs[1]}"
            raise ProtocolError(
                f"no common version of {name} with {self}: we speak {oldest} to {newest}, the broker {offer}"
            )
        return min(newest, theirs[1])

    # -- frames -------------------------------------------------------------------------------------------------

    def send(self, api_key: int, api_version: int, body: bytes, *, flexible: bool = False) -> int:
        """Send one request.

        Args:
            api_key: number of the API.
            api_version: version in which ``body`` is encoded.
            body: the request without its header.
            flexible: True where this version has tagged fields (KIP-482), which lengthens the header.

        Returns:
            The correlation id, to be given to :meth:`receive`.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
        """
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        tags = b"\x00" if flexible else b""
        length = _REQUEST_HEADER.size - 4 + len(self._client_id) + len(tags) + len(body)
        header = _REQUEST_HEADER.pack(length, api_key, api_version, correlation_id, len(self._client_id))
        with self._use("sending") as sock:
            sock.sendall(b"".join((header, self._client_id, tags, body)))
        return correlation_id

    def receive(self, correlation_id: int, *, flexible: bool = False) -> memoryview:
        """Wait for the next response.

        Args:
            correlation_id: of the request that it must answer; responses come in the order of requests.
            flexible: True where the response header has tagged fields.

        Returns:
            A writable view of the response without its header. It is valid until the next call, which reuses the
            memory: whoever keeps data must copy it first.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            ProtocolError: the length is absurd, or another request is answered.
        """
        head = memoryview(self._buffer)[: _RESPONSE_HEADER.size]
        self._fill(head)
        length, answered = _RESPONSE_HEADER.unpack(head)
        if not 4 <= length <= self._max_response_bytes:
            self.close()
            raise ProtocolError(f"{self} announces a response of {length} bytes; {self._guess(bytes(head[:4]))}")
        if answered != correlation_id:
            self.close()
            raise ProtocolError(f"{self} answers request {answered} instead of {correlation_id}")
        body = self._receive_body(length - 4)
        return body[_skip_tags(body) :] if flexible else body

    def _receive_body(self, length: int) -> memoryview:
        filled = 0
        while True:
            end = min(length, len(self._buffer))
            self._fill(memoryview(self._buffer)[filled:end])
            if end == length:
                return memoryview(self._buffer)[:length]
            # A new one, never resized in place: views of the old one may still be alive. And no larger than what has
            # come lets expect: a length that lies must not cost its memory.
            larger = bytearray(max(min(length, _TRUSTED_BYTES), min(length, 2 * len(self._buffer))))
            larger[:end] = self._buffer[:end]
            self._buffer, filled = larger, end

    def _fill(self, view: memoryview) -> None:
        filled = 0
        with self._use("receiving") as sock:
            while filled < len(view):
                count = sock.recv_into(view[filled:], 0, self._receive_flags)
                if count == 0:
                    raise ConnectionResetError("the broker closed the connection")
                filled += count

    def exchange_bare(self, token: bytes) -> bytes:
        """Send bytes behind nothing but their length, and return what comes back in the same way.

        Brokers before 1.0 are logged in to like this, see ``sasl.py``.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            ProtocolError: the length of the answer is absurd.
        """
        with self._use("sending") as sock:
            sock.sendall(struct.pack(">i", len(token)) + token)
        head = memoryview(self._buffer)[:4]
        self._fill(head)
        (length,) = struct.unpack(">i", head)
        if not 0 <= length <= len(self._buffer):
            self.close()
            raise ProtocolError(f"{self} announces {length} bytes during the login; is this the port of a broker?")
        body = memoryview(self._buffer)[:length]
        self._fill(body)
        return bytes(body)

    def call(self, request: Any) -> Any:
        """Send a request object of kafka-python, which encodes itself, and return the decoded response object.

        For requests of low rate; the request carries its version.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            ProtocolError: the response cannot be decoded.
        """
        load_kafka_python()
        from kafka.protocol.api_header import ResponseClassRegistry

        version = request.API_VERSION
        flexible = request.flexible_version_q(version)
        correlation_id = self.send(request.API_KEY, version, request.encode(), flexible=flexible)
        body = self.receive(correlation_id, flexible=flexible)
        request.with_header(correlation_id)
        response = ResponseClassRegistry.get_response_class(request.header)
        try:
            return response.decode(bytes(body), version=version)
        except Exception as error:  # kafka-python raises whatever the malformed bytes lead it to
            raise ProtocolError(f"{self} sent a malformed {request.name} response (version {version})") from error

    # -- errors -------------------------------------------------------------------------------------------------

    def _unavailable(self, reason: str) -> BrokerUnavailable:
        return BrokerUnavailable(f"{self}: {reason}")

    def _guess(self, start: bytes) -> str:
        if start.startswith(_TLS_ALERT):
            return "this looks like TLS: is security.protocol right for this port?"
        if start == _HTTP:
            return "this is an HTTP server: check the port"
        return f"the limit is {self._max_response_bytes}: is this the port of a Kafka broker?"


def _skip_tags(body: memoryview) -> int:
    """Length of the tagged fields at the start of a flexible response header; brokers send none, so one byte."""
    if len(body) and body[0] == 0:
        return 1
    raise ProtocolError("a response header carries tagged fields that this client does not know")


def _reason(error: OSError) -> str:
    # The kernel's time limit ends as "would block", Python's, for TLS, as a timeout.
    return "no answer in time" if isinstance(error, BlockingIOError | TimeoutError) else str(error)
