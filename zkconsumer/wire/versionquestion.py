"""Finds out, on a new connection, which versions of each API its broker supports (adr/0007, adr/0043).

A broker since 0.10 answers ApiVersions (KIP-35). One of 0.8 closes the connection on it. One of 0.9.0 does not answer:
its network thread logs an uncaught exception, and forgets other clients' requests that it has received with that one.

So a broker that does not answer soon, or closes the connection, gets two other requests on a new one. Both ask for
nothing, and every release answers them. A broker before 0.10 does not look at their version, so the length of its
answer shows its release. Nothing else would be proof: a broker that is being restarted behind a proxy closes
connections, too, and a busy one is silent. Taken for an old one, it would get requests in the oldest versions as long
as the connection lasts, and all its records would silently lose their headers.

A broker that may be old gets these requests in place of ApiVersions. One that has reported its versions to another
connection, and has answered since, is not asked again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol, TypeVar

from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable
from zkconsumer.wire.apiversions import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    OLD_RELEASES,
    ApiRanges,
    parse_api_versions,
)
from zkconsumer.wire.knownbrokers import KNOWN_BROKERS, Address, KnownBrokers, ReportedVersions

SOON_MS: Final = 1000
"""For how long the answer to ApiVersions is waited for before a closer look; a broker that is only slow loses nothing
by that."""

_SHOWS_AGE: Final = (LIST_OFFSETS, 2, struct.pack(">ibi", -1, 0, 0))
"""ListOffsets, version 2 (since 0.11), of no partition. An older release takes the next field for the empty array."""
_SHOWS_RELEASE: Final = (FETCH, 1, struct.pack(">iiii", -1, 0, 0, 0))
"""Fetch, version 1 (0.9.0), of no partition and without a wait."""
_OF_AN_EMPTY_ARRAY: Final = 4
"""Bytes of an answer that has no other field: in both versions a throttle time goes before."""

T = TypeVar("T")


class NewConnection(Protocol):
    """The part of :class:`~zkconsumer.wire.connection.BrokerConnection` that is used here."""

    @property
    def address(self) -> Address:
        """The broker."""

    @property
    def closed(self) -> bool:
        """True if this process has closed the connection."""

    def open(self) -> None:
        """Connect, also again."""

    def exchange(self, api_key: int, api_version: int, body: bytes, decode: Callable[[memoryview], T]) -> T:
        """Send a request, and return the body of the response, decoded by ``decode``."""

    def waiting_at_most(self, timeout_ms: int) -> AbstractContextManager[None]:
        """Inside of it, answers are waited for no longer than this."""


def learn_versions(
    connection: NewConnection, *, logs_in: bool, may_be_old: bool, known: KnownBrokers = KNOWN_BROKERS
) -> ReportedVersions:
    """Connect, and return the versions that the broker supports.

    Args:
        connection: not connected yet; afterwards it is.
        logs_in: True for a listener that answers nothing but ApiVersions before the login. There is no login to brokers
            before 0.10, so they are not looked for.
        may_be_old: True if the settings name a release before 0.10.
        known: what is known of brokers.

    Raises:
        BrokerUnavailable: the broker cannot be reached, or has not shown its release.
        ProtocolError: the server is not a Kafka broker.
    """
    connection.open()
    reported = known.reported(connection.address)
    if reported is not None:
        return reported
    if logs_in:
        return known.reports(connection.address, _asked(connection))
    if not (may_be_old or known.may_be_old(connection.address)):
        ranges = _reported_soon(connection)
        if ranges is not None:
            return known.reports(connection.address, ranges)
    release = _shown_release(connection)
    if release is None:
        return known.reports(connection.address, _asked(connection))
    known.seems_old(connection.address)
    return ReportedVersions(OLD_RELEASES[release], 0.0)


def _reported_soon(connection: NewConnection) -> ApiRanges | None:
    """The broker's versions; None if it did not answer soon, with another connection to it."""
    try:
        with connection.waiting_at_most(SOON_MS):
            return _asked(connection)
    except BrokerUnavailable as error:
        if connection.closed or not (_was_closed(error) or _was_late(error)):
            raise
    connection.open()
    return None


def _asked(connection: NewConnection) -> ApiRanges:
    return connection.exchange(API_VERSIONS, 0, b"", parse_api_versions)


def _shown_release(connection: NewConnection) -> str | None:
    """The release of a broker before 0.10; None of a later one, with a connection on which it can be asked."""
    try:
        if connection.exchange(*_SHOWS_AGE, len) != _OF_AN_EMPTY_ARRAY:
            return None
    except AuthenticationFailed:
        raise
    except BrokerUnavailable as error:
        if connection.closed or not _was_closed(error):
            raise
        connection.open()  # a broker of 0.10 refuses a version that it does not know
        return None
    return "0.8.2" if connection.exchange(*_SHOWS_RELEASE, len) == _OF_AN_EMPTY_ARRAY else "0.9.0"


def _was_closed(error: BrokerUnavailable) -> bool:
    return isinstance(error.__cause__, ConnectionError)


def _was_late(error: BrokerUnavailable) -> bool:
    return isinstance(error.__cause__, BlockingIOError | TimeoutError)
