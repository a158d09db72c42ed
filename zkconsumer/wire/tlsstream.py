"""TlsStream: TLS over a connected socket, with large reads.

An ``ssl.SSLSocket`` makes two system calls for each TLS record, for its header of five bytes and for its body, and a
broker sends three records for 32 KiB. Here one system call takes all bytes that have arrived, up to the size of a
buffer, and OpenSSL decrypts them from memory directly into the target.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from zkconsumer.wire.tlssessions import ServerAddress, TlsSessions

_BUFFER_BYTES: Final = 1 << 18
_CLOSED: Final = "the broker closed the connection"


def send_all(sock: socket.socket, data: bytes, before_wait: Callable[[], None]) -> None:
    """Send all bytes. Not ``sendall``: a peer that takes them little by little would begin its time limit again.

    Args:
        sock: a connected, blocking socket.
        data: the bytes.
        before_wait: called before each wait, to set the time limit.

    Raises:
        OSError: the connection broke, or ``before_wait`` raised.
    """
    view = memoryview(data)
    while view:
        before_wait()
        view = view[sock.send(view) :]


class TlsStream:
    """The client side of a TLS connection. One thread uses it; another may shut the socket down.

    Args:
        sock: connected; blocking mode and time limits are the caller's, and its errors are passed on.
        sessions: certificates to trust and to present, and the sessions that can be resumed.
        address: host name for which the server's certificate must be valid, and port.
        before_wait: called before each wait of the socket, to set a time limit; its OSErrors are passed on.
    """

    def __init__(
        self, sock: socket.socket, sessions: TlsSessions, address: ServerAddress, before_wait: Callable[[], None]
    ) -> None:
        self._socket = sock
        self._sessions = sessions
        self._address = address
        self._before_wait = before_wait
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._offered = sessions.offer(address)
        self._tls = sessions.context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=address[0], session=self._offered
        )
        self._is_heard = False  # True once the server has sent data
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    @property
    def is_resumed(self) -> bool:
        """True if the server has resumed the session of an earlier connection."""
        return bool(self._tls.session_reused)

    def do_handshake(self) -> None:
        """Agree on keys, and verify the server's certificate, or resume the session of an earlier connection.

        Raises:
            OSError: it failed; an ``ssl.SSLError`` if TLS is the reason, a ConnectionError if the server hung up. The
                next connection makes a full handshake.
        """
        try:
            self._agree()
        except OSError:
            self._sessions.forget(self._address)
            raise
        if self._offered is not None and not self.is_resumed:
            self._sessions.refused(self._address)

    def _agree(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError) as error:
                raise ConnectionResetError(_CLOSED) from error
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # the alert that reports the reason to the server
                raise
        self._flush()

    def sendall(self, data: bytes) -> None:
        """Send all bytes.

        Raises:
            OSError: the connection broke, or TLS failed.
        """
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    def fill(self, view: memoryview, enough: int) -> int:
        """Receive into the view until there are at least ``enough`` bytes; returns the number of received bytes.

        Raises:
            OSError: the connection broke, or TLS failed; a ConnectionError at the end of the stream. It is the same
                error whether the server ended TLS first (``close_notify``, as brokers do when they close an idle
                connection, or shut down) or only TCP.
        """
        filled = 0
        while filled < enough:
            try:
                # The type stubs lack that any writable buffer is accepted, and that a count is returned then.
                count = cast(int, self._tls.read(len(view) - filled, cast(bytearray, view[filled:])))
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
                continue
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                count = 0
            if count == 0:  # close_notify
                raise ConnectionResetError(_CLOSED)
            filled += count
        if not self._is_heard:
            self._keep_session()
        return filled

    def _keep_session(self) -> None:
        """Keep the session for the next connection: with TLS 1.3 the server sends it before its first data."""
        self._is_heard = True
        session = self._tls.session
        if session is not None and (session.has_ticket or session.id):
            self._sessions.keep(self._address, session)

    def _receive(self) -> None:
        self._before_wait()
        count = self._socket.recv_into(self._buffer)
        if count:
            self._incoming.write(self._buffer[:count])
        else:
            self._incoming.write_eof()

    def _flush(self) -> None:
        if self._outgoing.pending:
            send_all(self._socket, self._outgoing.read(), self._before_wait)
