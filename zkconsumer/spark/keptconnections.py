"""KeptConnections: the connections of a Python worker between its tasks."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ThreadLimit
from zkconsumer.process.threads import start_thread
from zkconsumer.ranges.leaderconnections import IDLE_LIMIT_S, MOST_CONNECTIONS, LeaderConnections
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connection import BrokerConnection

_log = logging.getLogger(__name__)

_Open = BrokerConnection | BrokerClient


class KeptConnections:
    """Lends each task the connections of earlier ones with the same options, so that it need not log in again.

    What a task has borrowed is its own until it returns that. What no task has is kept here, and closed when it was
    idle for a minute: by a thread, since the next task may come in hours, or never. The thread ends when nothing is
    kept.

    Args:
        idle_s: for how long connections are kept.
        most: how many connections to leaders are open in all, those of the task and those that are kept; a task that
            opens another one closes what is kept.
    """

    def __init__(self, idle_s: float = IDLE_LIMIT_S, most: int = MOST_CONNECTIONS) -> None:
        self._idle_s: Final = idle_s
        self._most: Final = most
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)  # guards what follows; nothing is closed while it is held
        self._kept: dict[ConsumerConfig, LeaderConnections] = {}
        self._closer: threading.Thread | None = None

    @contextmanager
    def borrowed(self, config: ConsumerConfig) -> Iterator[LeaderConnections]:
        """Connections for these options, for exclusive use."""
        with self._lock:
            connections = self._kept.pop(config, None)
        connections = connections or LeaderConnections(config, self._most, self._close_surplus)
        connections.used_at = time.monotonic()
        try:
            yield connections
        finally:
            connections.used_at = time.monotonic()
            self._take_back(connections)

    def count(self) -> int:
        """How many connections are kept, of all options, with those to ask for leaders."""
        with self._lock:
            return sum(len(connections.idle_since()) for connections in self._kept.values())

    def _take_back(self, connections: LeaderConnections) -> None:
        closing: list[_Open] = []
        with self._lock:
            # Two tasks had borrowed for the same options, which Spark's workers do not: the later one's are kept.
            if (other := self._kept.pop(connections.config, None)) is not None:
                closing += other.take_idle(math.inf)
            self._kept[connections.config] = connections
            closing += self._take_surplus(self._most)
            if self._closer is None:
                self._start_closer()
        _close(closing)

    def _close_surplus(self, most: int) -> None:
        with self._lock:
            closing = self._take_surplus(most)
        _close(closing)

    def _take_surplus(self, most: int) -> list[_Open]:
        """Remove what is kept beyond a number, the least recently used first."""
        closing: list[_Open] = []
        for kept in reversed(self._kept.values()):
            closing += kept.take_surplus(most)
            most -= len(kept.idle_since())
        return closing

    def _start_closer(self) -> None:
        closer = threading.Thread(target=self._close_idle, name="idle-connections", daemon=True)
        self._closer = closer
        try:
            start_thread(closer)
        except ThreadLimit as error:  # the next task tries again
            self._closer = None
            _log.info("idle connections stay open until the next task: %s", error)

    def _close_idle(self) -> None:
        while closing := self._await_idle():
            _close(closing)

    def _await_idle(self) -> list[_Open]:
        """What is idle for too long, when something is; nothing, if nothing is kept."""
        with self._lock:
            while not (closing := self._take_idle()) and self._kept:
                oldest = min(kept.idle_since()[0] for kept in self._kept.values())
                self._changed.wait(max(0.0, oldest + self._idle_s - time.monotonic()))
            if not closing:
                self._closer = None
            return closing

    def _take_idle(self) -> list[_Open]:
        """Remove what is idle for too long, and options without connections, whose leaders are outdated."""
        before = time.monotonic() - self._idle_s
        closing = [one for kept in self._kept.values() for one in kept.take_idle(before)]
        self._kept = {config: kept for config, kept in self._kept.items() if kept.idle_since()}
        return closing


def _close(connections: list[_Open]) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.close()
