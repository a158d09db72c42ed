"""TlsSessions: what another TLS connection to the same broker needs to resume the session of an earlier one.

A resumed handshake sends and verifies no certificate: the broker proves with a key of the session that it is the one
whose certificate was verified. A broker that has forgotten a session, or that was replaced, answers with a full
handshake.
"""

from __future__ import annotations

import ssl
from collections import deque
from typing import Final

ServerAddress = tuple[str, int]
"""Host and port."""

_MOST_SESSIONS: Final = 8
"""How many are kept of each broker: as many as it usually has network threads, at most."""


class TlsSessions:
    """The newest sessions with each broker, for one context.

    A session is valid only for the context that made it, so it ends with the settings and files of that context.

    A Kafka broker has three network threads by default, each with keys of its own, and gives connections to them in
    turn. So a session is resumed by the thread that made it alone: the one that is offered was made so many connections
    ago as the one that was resumed last, and other distances are tried while none is.

    Any thread calls the methods. There is no lock, so they survive a fork: where two threads call them at the same
    time, a handshake may be a full one.

    Attributes:
        context: certificates to trust and to present.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self._newest: dict[ServerAddress, deque[ssl.SSLSession]] = {}
        self._distances: dict[ServerAddress, int] = {}  # to the session to offer, in sessions; 1 is the newest

    def offer(self, address: ServerAddress) -> ssl.SSLSession | None:
        """The session to offer to the broker at this host and port; None if there is none."""
        newest = self._newest.get(address)
        return newest[-min(self._distances[address], len(newest))] if newest else None

    def refused(self, address: ServerAddress) -> None:
        """The broker has not resumed the session that was offered: the next connection offers another one."""
        if newest := self._newest.get(address):
            self._distances[address] = self._distances[address] % len(newest) + 1

    def keep(self, address: ServerAddress, session: ssl.SSLSession) -> None:
        """The broker has sent a session, which later connections may offer."""
        if address not in self._newest:
            self._distances[address] = 1
        self._newest.setdefault(address, deque(maxlen=_MOST_SESSIONS)).append(session)

    def forget(self, address: ServerAddress) -> None:
        """A handshake with this broker has failed: the next one is a full one."""
        self._newest.pop(address, None)
