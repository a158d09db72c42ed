"""UnclaimedCommands: the partitions of commands that the commanded members do not own (adr/0017)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from zkconsumer.group.coordinator.ownernodes import owner_or_unknown
from zkconsumer.group.coordinator.rules.coordinatorplan import Shares
from zkconsumer.group.coordinator.rules.coordinatorznodes import consumer_id_of
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import PartitionOwnerNode
from zkconsumer.zookeeper.session import ZkSession

_FIRST_LOOK_S: Final = 1.0
"""A claim follows a command within milliseconds, so the first look finds almost every owner znode, in one request."""

_LONGEST_PAUSE_S: Final = 8.0


class Unclaimed(NamedTuple):
    """What the members that should have claimed it did not own when it was read.

    Attributes:
        partitions: each with the consumer id of the member.
        due_at: reading of the clock, later than that of this look, at which the next one is due; None if it is not.
    """

    partitions: Mapping[TopicPartition, str]
    due_at: float | None


class UnclaimedCommands:
    """Looks whether commands are obeyed. Used by the coordinator's thread only.

    Owner znodes that do not exist are not watched: of a new group all watches would fire when its members claim. So
    they are read a second after a command was written, and again in growing pauses while some are missing.

    Args:
        session: an open session.
        group: consumer group.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, session: ZkSession, group: str, clock: Callable[[], float]) -> None:
        self._session = session
        self._paths = GroupPaths(group)
        self._clock = clock
        # And the command node of the registration that was seen to own it, or not to.
        self._claimed: Mapping[TopicPartition, str] = {}
        self._missing: Mapping[TopicPartition, str] = {}
        self._pause_s = _FIRST_LOOK_S
        self._look_at: float | None = None

    def unclaimed(self, commanded: Shares, nodes: Mapping[str, str]) -> Unclaimed:
        """Look for owners where that is due.

        A member that registers again has released what it claimed, so its claims count for its present command node.

        Args:
            commanded: share of each member.
            nodes: name of each member's command node.

        Raises:
            ZooKeeperUnavailable, SessionExpired: the owners cannot be read.
        """
        granted = {partition: nodes[name] for name, share in commanded.items() for partition in share}
        self._claimed = {p: name for p, name in self._claimed.items() if granted.get(p) == name}
        self._missing = {p: name for p, name in self._missing.items() if granted.get(p) == name}
        pending = granted.keys() - self._claimed.keys()
        now = self._clock()
        if not pending:
            self._look_at, self._pause_s = None, _FIRST_LOOK_S
        elif self._look_at is None:
            self._look_at = now + self._pause_s
        elif now >= self._look_at or self._missing:
            owners = self._owners(pending if now >= self._look_at else self._missing)
            self._claimed = {
                **self._claimed,
                **{p: granted[p] for p, owner in owners.items() if owner == consumer_id_of(granted[p])},
            }
            self._missing = {
                p: name
                for p, name in {**self._missing, **{p: granted[p] for p in owners}}.items()
                if p not in self._claimed
            }
            if now >= self._look_at:
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
                self._look_at = now + self._pause_s if pending - self._claimed.keys() else None
        return Unclaimed({partition: consumer_id_of(name) for partition, name in self._missing.items()}, self._look_at)

    def _owners(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str | None]:
        paths = {self._paths.owner(partition): partition for partition in partitions}
        nodes = self._session.read_many(sorted(paths)).nodes
        owners = {
            paths[path]: None
            if node is None
            else owner_or_unknown(path, node.data, is_reported=paths[path] in self._missing)
            for path, node in nodes.items()
        }
        return {partition: PartitionOwnerNode.consumer_of(owner) for partition, owner in owners.items()}
