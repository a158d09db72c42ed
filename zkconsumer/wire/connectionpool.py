"""ConnectionPool: the connections to brokers that the clients of one member share (adr/0043).

A broker answers the requests of a connection one after the other, so a connection is used by one thread at a time: it
belongs to the client that took it until that client gives it back. Where the answer to a request is waited for long,
as that to JoinGroup, there is a second connection, for as long as that takes.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from zkconsumer.process.deadline import Deadline
from zkconsumer.wire.knownbrokers import Address

if TYPE_CHECKING:
    from zkconsumer.wire.connection import BrokerConnection

_SOON_S: Final = 0.1
"""How long a client waits for a connection that another one uses, before it opens a second one: longer than most
answers take, and short for a heartbeat."""


class ConnectionPool:
    """Keeps one idle connection to each broker. Any thread calls its methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        # Guarded by the lock:
        self._idle: dict[Address, BrokerConnection] = {}
        self._returning: defaultdict[Address, set[BrokerConnection]] = defaultdict(set)  # in use, and back soon
        self._clients = 0

    def enter(self) -> None:
        """A client begins to use the pool."""
        with self._lock:
            self._clients += 1

    def leave(self) -> None:
        """A client has ended; with the last one, idle connections are closed, and later ones when they are given."""
        with self._lock:
            self._clients -= 1
            idle = [] if self._clients > 0 else list(self._idle.values())
            if self._clients <= 0:
                self._idle.clear()
        for connection in idle:
            connection.close()

    def has(self, address: Address) -> bool:
        """True if there is a connection to this broker that is idle, or will be soon."""
        with self._lock:
            return address in self._idle or bool(self._returning[address])

    def take(self, address: Address, deadline: Deadline, *, returns: bool) -> BrokerConnection | None:
        """A connection to this broker, which the caller owns now; None if there is none, and none comes back in time.

        Args:
            address: of the broker.
            deadline: of the operation; one that is in use is waited for no longer.
            returns: True if the caller gives it back soon.
        """
        with self._lock:
            if address not in self._idle and self._returning[address]:
                self._changed.wait_for(
                    lambda: address in self._idle or not self._returning[address], deadline.limit(_SOON_S)
                )
            connection = self._idle.pop(address, None)
            if connection is not None and returns:
                self._returning[address].add(connection)
            return connection

    def opens(self, address: Address, connection: BrokerConnection, *, returns: bool) -> None:
        """The caller has made a connection, which it may give."""
        if returns:
            with self._lock:
                self._returning[address].add(connection)

    def give(self, address: Address, connection: BrokerConnection) -> None:
        """Give a connection back, on which no answer is awaited; it is closed if there is one already."""
        with self._lock:
            self._returning[address].discard(connection)
            is_kept = self._clients > 0 and address not in self._idle
            if is_kept:
                self._idle[address] = connection
            self._changed.notify_all()
        if not is_kept:
            connection.close()

    def drop(self, address: Address, connection: BrokerConnection) -> None:
        """Close a connection that cannot be used again."""
        connection.close()
        with self._lock:
            self._returning[address].discard(connection)
            self._changed.notify_all()
