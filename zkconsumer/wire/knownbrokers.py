"""KnownBrokers: what this process has learned of brokers, by address.

It saves questions and waits only; what a connection uses is what its broker has shown (``wire/versionquestion.py``).
"""

from __future__ import annotations

from typing import Final

Address = tuple[str, int]
"""Host and port."""


class KnownBrokers:
    """Any thread uses it: each method is one operation on a set, which needs no lock, and so survives a fork."""

    def __init__(self) -> None:
        self._may_be_old: set[Address] = set()

    def may_be_old(self, address: Address) -> bool:
        """True if this broker is probably one before 0.10, which cannot report its versions."""
        return address in self._may_be_old

    def seems_old(self, address: Address) -> None:
        """A broker before 0.10 has answered at this address, or has registered it."""
        self._may_be_old.add(address)

    def is_new(self, address: Address) -> None:
        """A broker since 0.10 has answered at this address."""
        self._may_be_old.discard(address)


KNOWN_BROKERS: Final = KnownBrokers()
"""Of this process."""
