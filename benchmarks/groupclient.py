"""What members of every Python client have in common in ``python -m benchmarks brokergroup``: settings, log, threads.

Once :attr:`Client.commits` is set, every member asks for a commit of its positions again and again, one at a time,
without waiting for the answer where it reads.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, NamedTuple

from benchmarks.groupevents import Kind, Row


class Settings(NamedTuple):
    """What all members of a group have in common.

    Attributes:
        bootstrap: brokers.
        group: name of the group.
        topic: topic to subscribe to.
        session_ms: session timeout.
        heartbeat_ms: time between heartbeats.
        commit_s: time from the answer of a member's commit to its next one.
        protocol: ``group.protocol``: ``consumer``, where the broker assigns and sets the two times, or ``kafka``, which
            other clients call ``classic``.
    """

    bootstrap: str
    group: str
    topic: str
    session_ms: int
    heartbeat_ms: int
    commit_s: float
    protocol: Literal["kafka", "consumer"] = "kafka"


class Log:
    """Collects rows; any thread may add some, one takes them."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()

    def add(self, member: str, kind: Kind, partitions: Iterable[int] = (), text: str = "") -> None:
        """Add a row with the present time."""
        self._rows.append(Row(time.monotonic(), member, kind, tuple(partitions), text))

    def take(self) -> list[Row]:
        """The rows since the last call."""
        return [self._rows.popleft() for _ in range(len(self._rows))]


class Client(ABC):
    """One member: constructed idle, it joins and leaves once.

    Args:
        member: its id.
        settings: of the group.
        log: takes its rows.

    Attributes:
        commits: True if it has to commit; written by the thread that serves the parent process.
    """

    def __init__(self, member: str, settings: Settings, log: Log) -> None:
        self._member, self._settings, self._log = member, settings, log
        self._closed = threading.Event()
        self.commits = False
        self._commit_due = 0.0
        self._committing = False

    @abstractmethod
    def join(self) -> None:
        """Begin to join; returns at once."""

    @abstractmethod
    def leave(self) -> None:
        """Leave the group, and wait for the end."""

    def _note(self, kind: Kind, partitions: Collection[Any] = ()) -> None:
        self._log.add(self._member, kind, (one.partition for one in partitions))

    def _must_commit(self) -> bool:
        """True if a commit is due and none is in progress; then one has begun."""
        if not self.commits or self._committing or time.monotonic() < self._commit_due:
            return False
        self._committing = True
        self._note(Kind.COMMITTING)
        return True

    def _committed(self, kind: Kind, error: object = "") -> None:
        self._log.add(self._member, kind, text=str(error))
        self._commit_due = time.monotonic() + self._settings.commit_s
        self._committing = False


class ThreadedClient(Client):
    """A member with a thread of its own."""

    def __init__(self, member: str, settings: Settings, log: Log) -> None:
        super().__init__(member, settings, log)
        self._threads = [threading.Thread(target=self._guarded, args=(one,), daemon=True) for one in self._loops()]

    def join(self) -> None:
        """See :class:`Client`."""
        for thread in self._threads:
            thread.start()

    def leave(self) -> None:
        """See :class:`Client`."""
        self._closed.set()
        self._end()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _loops(self) -> list[Callable[[], None]]:
        """What the threads do, until this is closed."""
        return [self._run]

    @abstractmethod
    def _run(self) -> None:
        """Join, read until this is closed, and leave."""

    def _end(self) -> None:
        """End waits of the threads."""

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except Exception as error:  # noqa: BLE001 - the benchmark reports it
            self._log.add(self._member, Kind.FAILED, text=repr(error))
