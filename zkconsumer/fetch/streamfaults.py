"""StreamFaults: how any thread reports the errors that a stream has to raise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from zkconsumer.fetch.rules.streamerrors import StreamErrors
from zkconsumer.process.wakeup import WakeUp

if TYPE_CHECKING:
    from zkconsumer.fetch.chunks import QueuedPartition


class StreamFaults:
    """Any thread reports errors; the queue raises them.

    Args:
        errors: decides which error is raised, and when.
        lock: of the queue.
        changed: raised when there is an error to raise.
        is_admitted: called under the lock: False for a partition that was released, whose errors are ignored.
    """

    def __init__(
        self,
        errors: StreamErrors,
        lock: threading.Lock,
        changed: WakeUp,
        is_admitted: Callable[[QueuedPartition], bool],
    ) -> None:
        self._errors = errors
        self._lock = lock
        self._changed = changed
        self._is_admitted = is_admitted

    def fail(self, info: QueuedPartition, error: BaseException) -> None:
        """Let each request raise an error once the queued chunks were handed out, until its partition is released.

        The first failure of a partition counts.
        """
        with self._lock:
            if self._is_admitted(info):
                self._errors.fail(info, error)
                self._changed.set()

    def complain(self, info: QueuedPartition, trouble: Exception) -> None:
        """Let the stream raise an error once, when it has no chunk to hand out; it can be iterated again afterwards.

        Also once if several partitions have the same error. Forgotten if a chunk of this partition arrives first, or it
        is released.
        """
        with self._lock:
            if self._is_admitted(info) and self._errors.complain(info, trouble):
                self._changed.set()

    def deny(self, subject: Hashable, part: Hashable, error: Exception, info: QueuedPartition | None = None) -> bool:
        """Let the stream raise an error at its next request, before queued chunks; then it can be iterated again.

        Each subject is raised once until it can be read again, see :class:`~zkconsumer.wire.rules.denials.Denials`.

        Args:
            subject: what cannot be read, such as a topic.
            part: the part of the subject that was refused, such as a partition.
            error: to raise.
            info: the partition, if the part is one; no effect if it was released.

        Returns:
            True if the subject was not denied before.
        """
        with self._lock:
            news = (info is None or self._is_admitted(info)) and self._errors.denials.deny(subject, part, error)
            if news:
                self._changed.set()
            return news

    def allow(self, subject: Hashable, part: Hashable, info: QueuedPartition | None = None) -> bool:
        """Report that a part can be read; True if this ends a denial of its subject. For arguments see :meth:`deny`."""
        with self._lock:
            return (info is None or self._is_admitted(info)) and self._errors.denials.allow(subject, part)

    def forget_denial(self, subject: Hashable, part: Hashable) -> None:
        """The stream loses a part that was denied without an ``info``; see :meth:`.Denials.forget_part`."""
        with self._lock:
            self._errors.denials.forget_part(subject, part)
