"""Transport: bytes to and from one broker, over TCP or TLS.

A fetcher spends most of its time in :meth:`Transport.fill`. To need one system call and no wake-up of the interpreter,
the socket is blocking with time limits in the kernel (``SO_RCVTIMEO``), and bytes are received with ``MSG_WAITALL``
directly into the caller's buffer.

Threads: only the thread that owns a transport calls its methods, except :meth:`Transport.close`, which any thread may
call at any time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable
from zkconsumer.process.deadline import NO_DEADLINE, Deadline
from zkconsumer.process.forks import Owner
from zkconsumer.process.wakeup import WakeUp
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.resolver import Address, resolve
from zkconsumer.wire.tlsstream import TlsStream, send_all

_ALERT: Final = "_ALERT_"
_CERTIFICATE_ALERTS: Final = frozenset(
    {
        "BAD_CERTIFICATE",
        "UNSUPPORTED_CERTIFICATE",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_UNKNOWN",
        "CERTIFICATE_REQUIRED",
        "UNKNOWN_CA",
        "ACCESS_DENIED",
    }
)
"""Alerts for a client's certificate that a broker refuses or misses (RFC 8446, 6.2), in OpenSSL's names."""


class Transport:
    """A socket to one broker.

    Args:
        on_broken: called by the owner when the connection, or the attempt to connect, has failed.

    For the other arguments see ``BrokerConnection``.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_ms: int,
        receive_buffer_bytes: int,
        security: BrokerSecurity,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_broken = on_broken
        self.host = host
        self.port = port
        self.timeout_ms = timeout_ms
        self._receive_ms = timeout_ms
        self._deadline = NO_DEADLINE
        self._sets_limits = False  # before each wait: those of the socket do not last
        self._receive_buffer_bytes = receive_buffer_bytes
        self._security = security
        # Guards the attributes below; no operation under it blocks. It prevents this: the owner is about to call recv
        # on descriptor 7; another thread closes the connection, and with it 7; a third thread opens a file and gets 7;
        # the owner reads from that file. So while the owner is inside an operation, close() only shuts the connection
        # down, which wakes the owner, and the owner closes the descriptor at the end of the operation.
        self._lock = threading.Lock()
        self._owner = Owner()
        self._socket: socket.socket | None = None
        self._tls: TlsStream | None = None  # over the socket; used by the owner only
        self._in_use = False
        self._closed = False
        self._closing = WakeUp()  # raised by close(), and when the host name has been resolved

    def __str__(self) -> str:
        return f"broker {self.host}:{self.port}"

    @property
    def closed(self) -> bool:
        """True once :meth:`close` was called; not if the broker closed the connection."""
        return self._closed

    def connect(self) -> None:
        """Connect, with TLS if the settings specify it; also again, after the broker closed the connection.

        Raises:
            BrokerUnavailable: refused, timed out, unknown host, or closed by another thread.
            AuthenticationFailed: this client does not trust the broker's certificate, or the broker does not trust the
                client's. With TLS 1.3 the next receive raises the latter.
            ConfigError: a file that the settings name cannot be used.
        """
        failure: BrokerUnavailable | None = None
        for family, kind, protocol, _, address in self._addresses():
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

    def _addresses(self) -> list[Address]:
        try:
            return resolve(
                self.host,
                self.port,
                timeout_s=self._deadline.limit(self.timeout_ms / 1000),
                wake=self._closing,
                given_up=lambda: self._closed,
            )
        except OSError as error:
            raise self._unavailable(str(error)) from error

    def _make_socket(self, family: int, kind: int, protocol: int) -> socket.socket:
        try:
            sock = socket.socket(family, kind, protocol)
            self._set_options(sock)
            return sock
        except OSError as error:  # a name may resolve to IPv6 though the kernel does not support it
            raise self._unavailable(f"cannot use its address: {error}") from error

    def _open(self, sock: socket.socket, address: Any) -> None:
        with self._lock:
            if self._closed:
                sock.close()
                raise self._unavailable("the connection is closed")
            # close() finds only a socket that connects or is connected. Otherwise: 1. the owner is about to connect;
            # 2. close() shuts the socket down, which fails, since it is not connected; 3. the owner connects.
            sock.setblocking(False)
            code = sock.connect_ex(address)
            self._socket = sock
        with self._use("connecting"):
            if code == errno.EINPROGRESS:
                code = self._await_connected(sock)
            if code:
                raise OSError(code, os.strerror(code))
            sock.setblocking(True)
        if self._security.encrypted:
            self._encrypt()

    def _await_connected(self, sock: socket.socket) -> int:
        connected = select.poll()
        connected.register(sock, select.POLLOUT)
        if not connected.poll(self._milliseconds(self.timeout_ms)):
            raise TimeoutError
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def _encrypt(self) -> None:
        sessions = self._security.tls_sessions()
        try:
            with self._use("TLS handshake") as sock:
                tls = TlsStream(sock, sessions, (self.host, self.port), before_wait=partial(self._renew_limits, sock))
                tls.do_handshake()
                self._tls = tls
        except AuthenticationFailed:
            raise
        except BrokerUnavailable as error:
            raise BrokerUnavailable(
                f"{error}; check that this is a listener for {self._security.protocol}, and whether it requires a "
                "client certificate (ssl.certificate.location)"
            ) from error

    def _set_options(self, sock: socket.socket) -> None:
        if self._receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _time_limit(self.timeout_ms))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _time_limit(self.timeout_ms))

    def receive_within(self, timeout_ms: int) -> None:
        """Limit any period without progress in a receive, from now on.

        Raises:
            BrokerUnavailable: there is no connection.
        """
        self._receive_ms = timeout_ms
        with self._use("setting the timeout") as sock:
            self._set_limits(sock)

    def limit_waits(self, timeout_ms: int) -> None:
        """Limit any period without progress, from now on."""
        self._sets_limits = self._sets_limits or timeout_ms != self.timeout_ms
        self.timeout_ms = self._receive_ms = timeout_ms

    def pause(self, seconds: float) -> None:
        """Wait, without use of the connection.

        Raises:
            BrokerUnavailable: closed by another thread meanwhile, or the deadline of the operation is earlier.
        """
        end = Deadline.after(seconds)
        while not (self._closed or end.passed):
            if self._deadline.passed or self._deadline.left() < end.left():
                raise self._unavailable(
                    f"a quota mutes the connection for {seconds:.1f} s, and no time is left; check the client's quotas"
                )
            self._closing.wait(end.left())
        if self._closed:
            raise self._unavailable("the connection is closed")

    def until(self, deadline: Deadline) -> None:
        """From now on no wait goes beyond the deadline of an operation; :data:`NO_DEADLINE` at its end."""
        self._deadline = deadline
        self._sets_limits = True

    def _set_limits(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _time_limit(self._milliseconds(self._receive_ms)))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _time_limit(self._milliseconds(self.timeout_ms)))
        self._sets_limits = self._deadline.exists

    def _renew_limits(self, sock: socket.socket) -> None:
        if self._sets_limits:
            self._set_limits(sock)

    def _milliseconds(self, longest: int) -> int:
        """How long to wait; at least 1 ms, since 0 is no limit to the kernel."""
        if self._deadline.passed:
            raise TimeoutError
        return max(1, round(1000 * self._deadline.limit(longest / 1000)))

    def close(self) -> None:
        """Close the connection; a thread blocked in it gets BrokerUnavailable at once. Idempotent.

        No effect in a forked child: a shutdown would end the connection for the parent, and the lock may be held by a
        thread that does not exist in the child. The child's descriptor is closed with the object.
        """
        if not self._owner.is_here():
            return
        with self._lock:
            self._closed = True
            self._closing.set()
            if self._socket is not None:
                with contextlib.suppress(OSError):  # not connected yet, or already reset by the broker
                    self._socket.shutdown(socket.SHUT_RDWR)
            if not self._in_use:
                self._discard()

    def send(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
        """
        with self._use("sending") as sock:
            if self._tls is not None:
                self._tls.sendall(data)
            else:
                send_all(sock, data, partial(self._renew_limits, sock))

    def fill(self, *views: memoryview) -> None:
        """Receive until the views are full, one after the other.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
        """
        if self._tls is not None:  # which decrypts into one view at a time
            for view in views:
                self._receive(view, len(view))
            return
        views = _unfilled(views, 0)
        with self._use("receiving") as sock:
            while views:
                count = sock.recvmsg_into(views, 0, socket.MSG_WAITALL)[0]
                if count == 0:
                    raise ConnectionResetError("the broker closed the connection")
                views = _unfilled(views, count)
                if views:
                    self._renew_limits(sock)

    def receive(self, view: memoryview, *, at_least: int) -> int:
        """Receive the available bytes into the view, and wait until there are enough.

        Args:
            view: receives the bytes.
            at_least: minimum number of bytes, at most the view's length.

        Returns:
            Number of received bytes.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
        """
        return self._receive(view, at_least)

    def _receive(self, view: memoryview, enough: int) -> int:
        filled = 0
        with self._use("receiving") as sock:
            if self._tls is not None:
                return self._tls.fill(view, enough)
            while filled < enough and (count := sock.recv_into(view[filled:])):
                filled += count
                if filled < enough:
                    self._renew_limits(sock)
            if filled < enough:
                raise ConnectionResetError("the broker closed the connection")
        return filled

    @contextlib.contextmanager
    def _use(self, doing: str) -> Iterator[socket.socket]:
        """Give the socket to the owner for one operation; an error of the operation closes the connection.

        Raises:
            UsageError: this is a forked child, whose requests the broker would mistake for its parent's.
        """
        self._owner.require(f"connection to {self}")
        with self._lock:
            if self._socket is None or self._closed:
                raise self._unavailable("the connection is closed")
            sock = self._socket
            self._in_use = True
        broken = True
        try:
            if self._sets_limits:
                self._set_limits(sock)
            yield sock
            broken = False
        except OSError as error:
            raise self._failure(doing, error) from error
        finally:
            with self._lock:
                self._in_use = False
                was_closed = self._closed
                if broken or was_closed:
                    self._discard()
            if broken and not was_closed:
                self._on_broken()

    def _discard(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = self._tls = None

    def _failure(self, doing: str, error: OSError) -> BrokerUnavailable:
        if self._closed:
            return self._unavailable(f"{doing} failed: closed by this process")
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = f"its certificate is not trusted: {error.verify_message}"
            hint = "check ssl.ca.location, and that the certificate is for this host name"
            return AuthenticationFailed(f"{self}: {reason}; {hint}")
        alert = _certificate_alert(error)
        if alert is None:
            return self._unavailable(f"{doing} failed: {_reason(error)}")
        own_certificate = self._security.certificate_location
        if own_certificate is None:
            reason = f"it requires a client certificate ({alert})"
            hint = "set ssl.certificate.location and ssl.key.location"
        else:
            reason = f"it refused the certificate of ssl.certificate.location {own_certificate} ({alert})"
            hint = "check that the broker trusts the CA that signed it, and that it has not expired"
        return AuthenticationFailed(f"{self}: {reason}; {hint}")

    def _unavailable(self, reason: str) -> BrokerUnavailable:
        return BrokerUnavailable(f"{self}: {reason}")


def _time_limit(milliseconds: int) -> bytes:
    return struct.pack("@ll", milliseconds // 1000, milliseconds % 1000 * 1000)


def _unfilled(views: tuple[memoryview, ...], count: int) -> tuple[memoryview, ...]:
    """The rest of the views after ``count`` bytes."""
    for number, view in enumerate(views):
        if count < len(view):
            return (view[count:], *views[number + 1 :])
        count -= len(view)
    return ()


def _reason(error: OSError) -> str:
    # The kernel's time limit results in "would block", Python's, while connecting, in a timeout.
    return "no answer in time" if isinstance(error, BlockingIOError | TimeoutError) else str(error)


def _certificate_alert(error: OSError) -> str | None:
    """The broker's alert about the client's certificate; None if the error is another one."""
    if not isinstance(error, ssl.SSLError):
        return None
    alert = (error.reason or "").partition(_ALERT)[2]
    return alert.replace("_", " ").lower() if alert in _CERTIFICATE_ALERTS else None
