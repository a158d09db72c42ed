"""StreamFaults: the errors that a stream has to raise, and when."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING

from zkconsumer.core.denials import Denials

if TYPE_CHECKING:
    from zkconsumer.fetch.queuedpartition import QueuedPartition


class StreamFaults:
    """Used under the lock of its queue, which decides when each kind is raised; no method blocks.

    There are three kinds. A *denial* (a permission is missing, a topic cannot be read) is raised before queued chunks,
    once for each subject until it can be read again. A *failure* (bytes that cannot be read, a failure of the consumer)
    is raised after them, by every request. A *trouble* (a setting that a broker refuses) is raised once, when no chunk
    is queued.
    """

    def __init__(self) -> None:
        self._denials = Denials()
        self._failures: dict[QueuedPartition | None, BaseException] = {}  # in the order of their arrival
        self._troubles: dict[QueuedPartition, Exception] = {}
        self._raised_trouble: Exception | None = None

    def fail(self, info: QueuedPartition | None, error: BaseException) -> None:
        """Record the failure of a partition, or of the consumer (None); the first failure of each counts."""
        self._failures.setdefault(info, error)

    def complain(self, info: QueuedPartition, trouble: Exception) -> bool:
        """Record a trouble; False if the same error was raised already for another partition."""
        if trouble is self._raised_trouble:
            return False
        self._troubles[info] = trouble
        return True

    def arrived(self, info: QueuedPartition) -> None:
        """Forget the trouble of a partition, since a chunk of it arrived."""
        self._troubles.pop(info, None)

    def deny(self, subject: Hashable, part: Hashable, error: Exception) -> bool:
        """See :meth:`Denials.deny <zkconsumer.core.denials.Denials.deny>`."""
        return self._denials.deny(subject, part, error)

    def allow(self, subject: Hashable, part: Hashable) -> bool:
        """See :meth:`Denials.allow <zkconsumer.core.denials.Denials.allow>`."""
        return self._denials.allow(subject, part)

    def forget(self, infos: Collection[QueuedPartition]) -> None:
        """Forget the errors of released partitions only."""
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
