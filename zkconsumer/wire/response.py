"""ResponseStream: the bytes of one response, taken from front to back.

A fetch response is long and its parts can be used one by one, so they are taken while the rest is still arriving: the
bytes received last are still in the processor's cache when they are decoded, and the broker continues to send.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from mmap import mmap
from typing import Any, Final, cast

from zkconsumer.errors import ProtocolError
from zkconsumer.wire.transport import Transport

WINDOW_BYTES: Final = 1 << 15
"""Bytes received ahead, so that many short parts need few system calls. Longer parts go directly to their target."""

_HEADER_BYTES: Final = 256
"""Enough for the fields between the records of two partitions."""

Memory = Callable[[int], memoryview]
"""Returns writable memory of a size. Unwritten memory must cost nothing, since an announced length may be wrong."""

_SMALL: Final = 1 << 16


def new_memory(count: int) -> memoryview:
    """Allocate memory for a single use."""
    # An anonymous mapping costs only address space until it is written; a bytearray would be zeroed now.
    return memoryview(bytearray(count) if count <= _SMALL else mmap(-1, count))


class ResponseStream:
    """Responses of one connection while they arrive, one after the other. One thread uses it.

    Args:
        transport: their source; connected before the first response begins. None if a response was received already.
        received: that response.

    Attributes:
        left: number of bytes that were not taken yet.
    """

    def __init__(self, transport: Transport | None, received: memoryview | None = None) -> None:
        self._transport = cast(Transport, transport)  # not used where everything is in the window
        self._memory: Memory = new_memory
        self._window = memoryview(bytearray(WINDOW_BYTES)) if received is None else received
        # Bounds of the bytes received ahead, in the window.
        self._start, self._end = 0, 0 if received is None else len(received)
        self._long = new_memory(0)
        self.left = self._end

    def begin(self, length: int, memory: Memory = new_memory) -> None:
        """Begin the next response of the transport.

        Args:
            length: length of the response in bytes.
            memory: provides the memory for bytes that are kept.

        Raises:
            ProtocolError: the previous response was not taken to its end.
        """
        if self.left:
            raise ProtocolError(f"{self.left} bytes of the previous response were not taken")
        self.left = length
        self._memory = memory

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next numbers of the response, which take at most :data:`WINDOW_BYTES`; for errors see :meth:`take`."""
        size = layout.size
        if size > self.left:
            raise _missing(size, self.left)
        start = self._start
        if size > self._end - start:
            self._receive_ahead(size, self._end - start)
            start = 0
        self._start = start + size
        self.left -= size
        return layout.unpack_from(self._window, start)

    def take(self, count: int) -> memoryview:
        """The next bytes of the response, in a writable view that is valid until the next call.

        Raises:
            BrokerUnavailable: the connection broke, timed out or was closed.
            ProtocolError: the response has too few bytes.
        """
        if count > self.left:
            raise _missing(count, self.left)
        if count > len(self._window):
            if len(self._long) < count:
                self._long = new_memory(count)
            return self._receive(self._long[:count])
        taken = self.peek(count)
        self._start += count
        self.left -= count
        return taken

    def take_to_keep(self, count: int) -> memoryview:
        """The next bytes of the response, in memory of their own; for errors see :meth:`take`."""
        if count > self.left:
            raise _missing(count, self.left)
        return self._receive(self._memory(count))

    def peek(self, count: int) -> memoryview:
        """The next bytes without taking them, at most :data:`WINDOW_BYTES`; for errors see :meth:`take`."""
        if count > self.left:
            raise _missing(count, self.left)
        ahead = self._end - self._start
        if count > ahead:
            self._receive_ahead(count, ahead)
        return self._window[self._start : self._start + count]

    def skip(self, count: int) -> None:
        """Discard the next bytes, without memory for them; for errors see :meth:`take`."""
        if count > self.left:
            raise _missing(count, self.left)
        while count:
            count -= len(self.take(min(count, WINDOW_BYTES)))

    def _receive(self, target: memoryview) -> memoryview:
        ahead = min(len(target), self._end - self._start)
        target[:ahead] = self._window[self._start : self._start + ahead]
        self._start += ahead
        self.left -= len(target)
        if ahead < len(target):  # together with the beginning of the following bytes, which saves a system call
            self._start, self._end = 0, min(_HEADER_BYTES, self.left)
            self._transport.fill(target[ahead:], self._window[: self._end])
        return target

    def _receive_ahead(self, count: int, ahead: int) -> None:
        self._window[:ahead] = self._window[self._start : self._end]
        self._start = 0
        room = self._window[ahead : min(WINDOW_BYTES, self.left)]
        self._end = ahead + self._transport.receive(room, at_least=count - ahead)


def _missing(count: int, left: int) -> ProtocolError:
    return ProtocolError(f"{count - left} bytes are missing at its end")
