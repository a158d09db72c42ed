"""OrphanWatch: makes JVM members that gave up silently try again.

See jvm-consumer.md#exhausted-retries, architecture.md#nudging.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from zkconsumer.errors import ZkConsumerError, name_some
from zkconsumer.model import TopicPartition

_log = logging.getLogger(__name__)


class Shares(Protocol):
    """The methods of :class:`~zkconsumer.group.zookeeper.sharecomputer.ShareComputer` that are used here."""

    def nudges(self) -> bool:
        """True if this member is the one that nudges."""

    def orphans(self) -> tuple[list[TopicPartition], bool]:
        """Partitions without an owner that JVM members should own, and whether others hold some of theirs."""


class Nudge(Protocol):
    """The method of :class:`~zkconsumer.group.zookeeper.registration.MemberRegistration` that is used here."""

    def nudge(self) -> None:
        """Make every member of the group rebalance."""


class OrphanWatch:
    """Finds partitions without an owner that a live JVM member should own, and nudges the group for them.

    Only one of the zkconsumer members does that. It nudges at most once for the same partitions, since a member that
    cannot claim at all must not be nudged forever, and at most once in the time during which JVM members try by
    themselves. Used by the rebalance thread only.

    Args:
        group: consumer group.
        window_s: that time, in seconds.
        shares: computes which member should own which partition.
        membership: nudges the group.
        clock: returns seconds and never goes back.
    """

    def __init__(
        self,
        group: str,
        window_s: float,
        shares: Shares,
        membership: Nudge,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._group = group
        self._window_s = window_s
        self._shares = shares
        self._membership = membership
        self._nudged_for: list[TopicPartition] = []
        self._not_before = 0.0

    def look(self) -> bool:
        """Check once, and nudge if necessary.

        Returns:
            True if it should be called again later: another member still holds a JVM member's partition.
        """
        if not self._shares.nudges():
            return False
        try:
            orphans, unsettled = self._shares.orphans()
            wait = self._clock() < self._not_before
            if orphans and orphans != self._nudged_for and not wait:
                _log.warning(
                    "group %s: no owner for %s although the JVM members that should own them live; nudging the group",
                    self._group,
                    name_some(orphans),
                )
                self._not_before = self._clock() + self._window_s  # also if the answer is lost
                self._membership.nudge()
            if not wait:
                self._nudged_for = orphans
            return unsettled or (wait and bool(orphans))
        except ZkConsumerError as error:
            _log.info("group %s: could not look for orphaned partitions: %s", self._group, error)
            return False
