"""KnownBrokers: what this process has learned of brokers, by address (adr/0043)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from zkconsumer.wire.apiversions import ApiRanges

Address = tuple[str, int]
"""Host and port."""

_CERTAIN_S: Final = 1.0
"""A broker that has answered so lately has not been replaced by one of another release: no broker starts faster."""


class ReportedVersions:
    """What a broker has reported, shared by all connections that use it.

    Attributes:
        ranges: see :data:`~zkconsumer.wire.apiversions.ApiRanges`.
        heard_at: when a connection last received an answer, on a monotonic clock. Every connection's thread writes it,
            and a write that comes late costs at most a question.
    """

    __slots__ = ("heard_at", "ranges")

    def __init__(self, ranges: ApiRanges, heard_at: float) -> None:
        self.ranges, self.heard_at = ranges, heard_at


class KnownBrokers:
    """Any thread uses it: each method is one operation on a set or dict, which needs no lock, and so survives a fork.

    Args:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._may_be_old: set[Address] = set()
        self._reported: dict[Address, ReportedVersions] = {}

    def reported(self, address: Address) -> ReportedVersions | None:
        """What the broker has reported, if it certainly is still the same process.

        A broker that was replaced by a later release, and that got requests in the versions of the earlier one, would
        leave out headers of records. So an answer must have come from it lately, and no connection may have failed
        since.
        """
        reported = self._reported.get(address)
        return reported if reported is not None and self._clock() - reported.heard_at < _CERTAIN_S else None

    def reports(self, address: Address, ranges: ApiRanges) -> ReportedVersions:
        """The broker has reported its versions."""
        self._may_be_old.discard(address)
        self._reported[address] = reported = ReportedVersions(ranges, self._clock())
        return reported

    def forget(self, address: Address) -> None:
        """A connection has failed, or an answer was not understood: the next connection asks for the versions."""
        self._reported.pop(address, None)

    def may_be_old(self, address: Address) -> bool:
        """True if this broker is probably one before 0.10, which cannot report its versions."""
        return address in self._may_be_old

    def seems_old(self, address: Address) -> None:
        """A broker before 0.10 has answered at this address, or has registered it."""
        self._may_be_old.add(address)


KNOWN_BROKERS: Final = KnownBrokers()
"""Of this process."""
