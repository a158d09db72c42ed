"""StreamFaults: the errors that a stream has to raise, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable
from typing import TYPE_CHECKING

from zkconsumer.process.wakeup import WakeUp
from zkconsumer.wire.rules.denials import Denials

if TYPE_CHECKING:
    from zkconsumer.fetch.chunks import QueuedPartition


class StreamFaults:
    """Any thread reports errors; the queue raises them.

    A *denial* is raised ahead of the chunks that wait, once. A *failure* is raised by every request once the chunks are
    handed out. A *trouble* is raised once, when nothing waits.

    Args:
        lock: of the queue.
        changed: raised when there is an error to raise.
        is_admitted: called under the lock: False for a partition that was released, whose errors are ignored.
    """

    def __init__(self, lock: threading.Lock, changed: WakeUp, is_admitted: Callable[[QueuedPartition], bool]) -> None:
        self._lock = lock
        self._changed = changed
        self._is_admitted = is_admitted
        self._denials = Denials()
        self._failures: dict[QueuedPartition, BaseException] = {}  # in the order of their arrival
        self._troubles: dict[QueuedPartition, Exception] = {}
        self._raised_trouble: Exception | None = None

    # -- for any thread -----------------------------------------------------------------------------------------

    def fail(self, info: QueuedPartition, error: BaseException) -> None:
        """Let each request raise an error once the queued chunks were handed out, until its partition is released.

        The first failure of a partition counts.
        """
        with self._lock:
            if self._is_admitted(info):
                self._failures.setdefault(info, error)
                self._changed.set()

    def complain(self, info: QueuedPartition, trouble: Exception) -> None:
        """Let the stream raise an error once, when it has no chunk to hand out; it can be iterated again afterwards.

        Also once if several partitions have the same error. Forgotten if a chunk of this partition arrives first, or it
        is released.
        """
        with self._lock:
            if self._is_admitted(info) and trouble is not self._raised_trouble:
                self._troubles[info] = trouble
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
            news = (info is None or self._is_admitted(info)) and self._denials.deny(subject, part, error)
            if news:
                self._changed.set()
            return news

    def allow(self, subject: Hashable, part: Hashable, info: QueuedPartition | None = None) -> bool:
        """Report that a part can be read; True if this ends a denial of its subject. For arguments see :meth:`deny`."""
        with self._lock:
            return (info is None or self._is_admitted(info)) and self._denials.allow(subject, part)

    # -- under the lock -----------------------------------------------------------------------------------------

    def arrived(self, info: QueuedPartition) -> None:
        """Forget the trouble of a partition, since a chunk of it arrived."""
        self._troubles.pop(info, None)

    def forget(self, infos: Collection[QueuedPartition]) -> None:
        """Forget the errors of released partitions; denials that were raised stay known."""
        for info in infos:
            self._failures.pop(info, None)
            self._troubles.pop(info, None)
            self._denials.forget_part(info.partition.topic, info.partition)

    def forget_all(self) -> None:
        """Forget all errors; denials that were raised stay known."""
        self._failures.clear()
        self._troubles.clear()
        self._denials.forget_parts()

    def raise_denial(self) -> None:
        """Raise a pending denial if there is one, which counts as raised from now on."""
        denial = self._denials.take()
        if denial is not None:
            raise denial

    def raise_failure(self) -> None:
        """Raise the first failure if there is one."""
        for error in self._failures.values():
            raise error

    def raise_trouble(self) -> None:
        """Raise the newest trouble if there is one, and forget the others."""
        if self._troubles:
            self._raised_trouble = next(reversed(self._troubles.values()))
            self._troubles.clear()
            raise self._raised_trouble
