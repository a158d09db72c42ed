"""ResponseBytes: the bytes of one response, handed out from front to back.

A fetch response is long and its parts are of use one by one, so they are taken while the rest is still on its way: what
was received last is still in the processor's cache when it is decoded, and the broker goes on sending meanwhile.
"""

from __future__ import annotations

from typing import Final, Protocol

from zkconsumer.errors import ProtocolError
from zkconsumer.kafka.transport import Transport

WINDOW_BYTES: Final = 1 << 15
"""What is received ahead, so that many short parts cost few system calls. Longer parts are received where they stay."""

_TRUSTED_BYTES: Final = 1 << 26
"""Memory that a mere announcement is worth; for more, bytes have to come. Above ``fetch.max.bytes`` of default."""
_EMPTY: Final = memoryview(b"")


class ResponseBytes(Protocol):
    """Where a parser takes a response from.

    Attributes:
        left: bytes that were not taken yet.
    """

    left: int

    def take(self, count: int) -> memoryview:
        """The next ``count`` bytes.

        Raises:
            ProtocolError: the response ends before.
        """
        ...


class WholeResponse:
    """A response that is there already; what is taken are views of it."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self.left = len(body)

    def take(self, count: int) -> memoryview:
        """See :class:`ResponseBytes`."""
        _check(count, self.left)
        start = len(self._body) - self.left
        self.left -= count
        return self._body[start : start + count]


class ResponseStream:
    """Responses of one connection while they arrive, one after the other. One thread uses it; the memory is reused.

    Args:
        transport: where they come from; connected before the first response begins.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._window = memoryview(bytearray(WINDOW_BYTES))
        self._start = self._end = 0  # of what was received ahead, in the window
        self._long = bytearray()
        self.left = 0

    def begin(self, length: int) -> None:
        """A response of ``length`` bytes comes next on the transport.

        Raises:
            ProtocolError: the one before was not taken to its end.
        """
        if self.left:
            raise ProtocolError(f"the response before has {self.left} bytes more than it announces")
        self.left = length

    def take(self, count: int) -> memoryview:
        """The next bytes of the response, in a writable view that is valid until the next call.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            ProtocolError: the response ends before.
        """
        _check(count, self.left)
        ahead = self._end - self._start
        if count > WINDOW_BYTES:
            taken = self._receive_long(count, ahead)
        else:
            if count > ahead:
                self._receive_ahead(count, ahead)
            taken = self._window[self._start : self._start + count]
            self._start += count
        self.left -= count
        return taken

    def _receive_ahead(self, count: int, ahead: int) -> None:
        self._window[:ahead] = self._window[self._start : self._end]
        self._start = 0
        room = self._window[ahead : min(WINDOW_BYTES, self.left)]
        self._end = ahead + self._transport.receive(room, at_least=count - ahead)

    def _receive_long(self, count: int, ahead: int) -> memoryview:
        filled, received = 0, self._window[self._start : self._end]
        self._start = self._end = 0
        while True:
            if len(self._long) < count:
                # A new one, never resized in place: views of the old one may still be alive. And no larger than what
                # has come lets expect: a length that lies must not cost its memory.
                size = min(_power_of_two(count), max(_TRUSTED_BYTES, 2 * len(self._long)))
                larger = bytearray(size)
                larger[:filled] = memoryview(self._long)[:filled]
                self._long = larger
            view = memoryview(self._long)[: min(count, len(self._long))]
            if received:
                view[:ahead] = received
                filled, received = ahead, _EMPTY
            self._transport.fill(view[filled:])
            if len(view) == count:
                return view
            filled = len(view)


def _check(count: int, left: int) -> None:
    if count > left:
        raise ProtocolError(f"{count - left} bytes are missing at its end")


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
