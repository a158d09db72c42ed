"""StreamErrors: which errors a stream has to raise, and when, as a pure state."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from zkconsumer.model import TopicPartition
from zkconsumer.wire.rules.denials import Denials


class Acquired(Protocol):
    """One partition from its acquisition to its release: a :class:`~zkconsumer.fetch.chunks.QueuedPartition`."""

    partition: TopicPartition


class StreamErrors:
    """Three kinds of errors, and the cause of the stream's end.

    A *denial* is raised ahead of the chunks that wait, once. A *failure* is raised by every request once the chunks are
    handed out, until its partition is released. A *trouble* is raised once, when nothing waits. A closed stream hands
    out nothing: every request raises the first failure, or else the cause of the end.

    Attributes:
        closed: True once the stream has ended.
        denials: what the stream should read and cannot.
    """

    def __init__(self) -> None:
        self.closed = False
        self.denials = Denials()
        self._cause: BaseException | None = None
        self._failures: dict[Acquired, BaseException] = {}  # in the order of their arrival
        self._troubles: dict[Acquired, Exception] = {}
        self._raised_trouble: Exception | None = None

    def take(self, *, has_records: bool) -> BaseException | None:
        """The error that a request has to raise now; None if there is none.

        A denial or a trouble counts as raised from now on. With a trouble, the other ones are forgotten.

        Args:
            has_records: True if chunks with records wait, also if they may not be handed out now.
        """
        if not self.closed:
            denial = self.denials.take()
            if denial is not None or has_records:
                return denial
        failure = next(iter(self._failures.values()), self._cause)
        if self.closed or failure is not None:
            return failure
        if self._troubles:
            self._raised_trouble = next(reversed(self._troubles.values()))
            self._troubles.clear()
            return self._raised_trouble
        return None

    def fail(self, info: Acquired, error: BaseException) -> None:
        """Note a failure; the first one of a partition counts."""
        self._failures.setdefault(info, error)

    def complain(self, info: Acquired, trouble: Exception) -> bool:
        """Note a trouble; False if it is the one that was raised last, which several partitions may have."""
        if trouble is self._raised_trouble:
            return False
        self._troubles[info] = trouble
        return True

    def close(self, cause: BaseException | None) -> None:
        """Note the end of the stream; the first cause counts."""
        self.closed = True
        self._cause = self._cause or cause

    def arrived(self, info: Acquired) -> None:
        """Forget the trouble of a partition, since a chunk of it arrived."""
        self._troubles.pop(info, None)

    def forget(self, infos: Collection[Acquired]) -> None:
        """Forget the errors of released partitions; denials that were raised stay known."""
        for info in infos:
            self._failures.pop(info, None)
            self._troubles.pop(info, None)
            self.denials.forget_part(info.partition.topic, info.partition)

    def forget_all(self) -> None:
        """Forget all errors but the cause of the end; denials that were raised stay known."""
        self._failures.clear()
        self._troubles.clear()
        self.denials.forget_parts()
