"""TlsStream: TLS over a connected socket, from which it reads as much as there is.

An ``ssl.SSLSocket`` asks the kernel twice for each TLS record, for its five bytes of header and for its body, and a
broker makes three records of 32 KiB. Here one system call takes what has arrived, up to the size of a buffer, and
OpenSSL decrypts it from memory to where it is wanted.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final, cast

_BUFFER_BYTES: Final = 1 << 18


class TlsStream:
    """The client's end of a TLS connection. One thread uses it; another may shut the socket down.

    Args:
        sock: connected; with a blocking mode and time limits of the caller's choice, whose errors pass through.
        context: what to verify, and what to show.
        host: whose certificate the server has to show.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    def do_handshake(self) -> None:
        """Agree on keys, and verify the server's certificate.

        Raises:
            OSError: it failed; an ``ssl.SSLError`` where TLS is the reason.
        """
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # the alert that gives the server the reason
                raise
        self._flush()

    def sendall(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            OSError: the connection broke, or TLS failed.
        """
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    def fill(self, view: memoryview, enough: int) -> int:
        """Receive into the view until that is enough.

        Returns:
            How many bytes came: fewer than enough at the end of the stream.

        Raises:
            OSError: the connection broke, or TLS failed.
        """
        filled = 0
        while filled < enough:
            try:
                # The stubs know neither that any writable buffer will do, nor that a count is returned for one.
                filled += cast(int, self._tls.read(len(view) - filled, cast(bytearray, view[filled:])))
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                break
        return filled

    def _receive(self) -> None:
        count = self._socket.recv_into(self._buffer)
        if count:
            self._incoming.write(self._buffer[:count])
        else:
            self._incoming.write_eof()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.sendall(self._outgoing.read())
