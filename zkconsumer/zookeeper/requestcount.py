"""RequestCount: what wakes kazoo's connection thread, once for each request."""

from __future__ import annotations

import errno
import os
import threading


class RequestCount:
    """One end of an eventfd, for kazoo a socket: a byte is written for each request, and read when it is sent.

    A pair of sockets, as kazoo makes it, takes some 280 bytes that are not read. 1. The connection is lost; 2. a read
    of many nodes, or one attempt after another, queues requests; 3. the next one blocks its caller without a limit,
    also the one that closes the session. An eventfd counts without blocking.

    Args:
        descriptor: of the eventfd, with EFD_SEMAPHORE; this object closes it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._closing = threading.Lock()  # a closed descriptor may be that of another file by the time it is written

    def fileno(self) -> int:
        """The descriptor; -1 when it is closed."""
        return self._descriptor

    def send(self, data: bytes) -> int:
        """Count the bytes, without blocking; returns their number.

        Raises:
            OSError: it is closed.
        """
        with self._closing:
            if self._descriptor < 0:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            os.eventfd_write(self._descriptor, len(data))
        return len(data)

    def recv(self, _size: int) -> bytes:
        """Take one byte, for which it waits."""
        os.eventfd_read(self._descriptor)
        return b"\0"

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        with self._closing:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


def request_count_pair() -> tuple[RequestCount, RequestCount]:
    """Two ends of one count, the first to read and the second to write."""
    descriptor = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
    return RequestCount(descriptor), RequestCount(os.dup(descriptor))
