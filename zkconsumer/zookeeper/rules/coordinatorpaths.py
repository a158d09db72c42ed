"""The paths of the znodes of ``group.protocol=coordinator`` (adr/0017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zkconsumer.zookeeper.rules.grouppaths import GroupPaths

LEADER: Final = "leader"
"""Name of the leader's ephemeral node."""


@dataclass(frozen=True, slots=True)
class CoordinatorPaths:
    """Paths below the coordinator's node of one consumer group."""

    group: str

    @property
    def root(self) -> str:
        """Parent of all of them."""
        return f"{GroupPaths(self.group).ours}/coordinator"

    @property
    def epoch(self) -> str:
        """Persistent, empty; its *version* is the epoch. Each election increments it."""
        return f"{self.root}/epoch"

    @property
    def leader(self) -> str:
        """Ephemeral, of the member that leads."""
        return f"{self.root}/{LEADER}"

    @property
    def status(self) -> str:
        """Persistent: what the leader has planned from, and what it waits for."""
        return f"{self.root}/status"

    @property
    def policy(self) -> str:
        """Persistent, written by an operator: how the leader assigns where all members obey commands."""
        return f"{self.root}/policy"

    def candidate(self, slot: int) -> str:
        """Ephemeral, of a member that watches the leader."""
        return f"{self.root}/{candidate_name(slot)}"

    @property
    def commands(self) -> str:
        """Parent of the commands."""
        return f"{self.root}/commands"

    def command(self, consumer_id: str, session_id: int, registration: int) -> str:
        """Ephemeral, created by the member in its registration, and from then on written by the leader only.

        Each registration has a node of another name: the leader keeps what it knows of a node as long as it is listed.

        Args:
            consumer_id: id of the member.
            session_id: of the session that the member is registered in.
            registration: how often the member has registered before, in this or other sessions.
        """
        return f"{self.commands}/{consumer_id}@{session_id:016x}.{registration}"


def candidate_name(slot: int) -> str:
    """Name of the node of a candidate."""
    return f"candidate-{slot}"
