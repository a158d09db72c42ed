"""Consumers that are broken on purpose: the checker has to catch them. Nothing in the product can do this."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from zkconsumer.group.groupprotocol import NextAssignment
from zkconsumer.group.kafka.sharedmembership import SharedMembership
from zkconsumer.group.rebalanceloop import RebalanceLoop
from zkconsumer.group.rebalancer import Rebalancer
from zkconsumer.group.zookeeper.ownership import PartitionOwnership
from zkconsumer.group.zookeeper.sessionlease import SessionLease
from zkconsumer.group.zookeeper.zookeepergroup import ZooKeeperGroup
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset

_SLOW_S: Final = 3.0


def _without_fence() -> None:
    """Commits, claims and releases are done whatever session they arrive in, and owner znodes are not looked at.

    For the commits to arrive in time, the rebalance that a lost session needs comes late, as on a busy machine.
    """
    ZooKeeperGroup.fence = lambda self: "/"  # type: ignore[method-assign]
    PartitionOwnership.lose_taken = lambda self: []  # type: ignore[method-assign]
    react, lost_at = RebalanceLoop.react, dict[RebalanceLoop, float]()

    def react_late(self: RebalanceLoop) -> None:
        now = time.monotonic()
        left = lost_at.setdefault(self, now) + _SLOW_S - now
        assert isinstance(self._protocol, ZooKeeperGroup)
        if self._protocol._is_removed() and left > 0:
            threading.Timer(left, self._signal.raise_flag).start()
            return
        del lost_at[self]
        react(self)

    RebalanceLoop.react = react_late  # type: ignore[method-assign]


def _without_lease() -> None:
    """Records are handed out however long ZooKeeper, or the coordinator, has not answered."""
    SessionLease.holds = lambda self: True  # type: ignore[method-assign]
    SharedMembership.holds = lambda self: True  # type: ignore[method-assign]


def _without_commit() -> None:
    """Partitions are released although what was read of them is not committed."""
    release = Rebalancer._release_ownership

    def release_without_listener(self: Rebalancer, following: NextAssignment) -> None:
        listener, self.listener = self.listener, None
        try:
            release(self, following)
        finally:
            self.listener = listener

    Rebalancer._release_ownership = release_without_listener  # type: ignore[method-assign]


def _skipping() -> None:
    """A position that is taken back moves one record too far: the record is lost."""
    from zkconsumer.group.rules.ownedpartitions import OwnedPartition, OwnedPartitions

    read = OwnedPartitions.read

    def too_far(self: OwnedPartitions, stored: Mapping[TopicPartition, StoredOffset]) -> list[OwnedPartition]:
        return read(self, {p: one._replace(offset=one.offset and one.offset + 1) for p, one in stored.items()})

    OwnedPartitions.read = too_far  # type: ignore[method-assign]


def _cumulative() -> None:
    """With ``commit.on=done``, a record that is done includes all earlier ones of its partition."""
    from zkconsumer.fetch.unfinisheditems import UnfinishedItems

    finish = UnfinishedItems.finish

    def finish_all(self: UnfinishedItems, item: Any) -> None:
        finish(self, item)
        if (unfinished := self._of.get(item[:2])) is not None:
            for key, one in list(unfinished.items.items()):
                if one.offset < item.offset:
                    unfinished.items.pop(key, None)

    UnfinishedItems.finish = finish_all  # type: ignore[method-assign]


BREAKS: Final[Mapping[str, Callable[[], None]]] = {
    "fence": _without_fence,
    "lease": _without_lease,
    "start": _skipping,
    "commit": _without_commit,
    "done": _cumulative,
}


def break_consumer(names: Collection[str]) -> None:
    """Switch protections off in this process."""
    for name in names:
        BREAKS[name]()
