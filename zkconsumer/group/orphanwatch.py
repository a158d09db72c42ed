"""OrphanWatch: gets JVM members that gave up in silence to try again (SPEC 4.5, DESIGN 4.7)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from zkconsumer.errors import ZkConsumerError, name_some
from zkconsumer.group.rebalancer import Rebalancer
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.membership import Membership

_log = logging.getLogger(__name__)


class OrphanWatch:
    """Looks for partitions without an owner whose member, a JVM consumer, is alive, and nudges the group for them.

    Of our members one does that. For the same partitions at most once: a member that cannot claim at all must not be
    nudged for ever; and at most once in the time in which JVM members try by themselves. Used by the rebalance thread
    only.

    Args:
        group: consumer group.
        window_s: that time, in seconds.
        rebalancer: knows who should own what.
        membership: does the nudging.
        look_again: asks for another :meth:`look` in a while.
    """

    def __init__(
        self,
        group: str,
        window_s: float,
        rebalancer: Rebalancer,
        membership: Membership,
        look_again: Callable[[], None],
    ) -> None:
        self._group = group
        self._window_s = window_s
        self._rebalancer = rebalancer
        self._membership = membership
        self._look_again = look_again
        self._nudged_for: list[TopicPartition] = []
        self._not_before = 0.0

    def look(self) -> None:
        """Look once, and nudge if need be; looks again while another member still holds a JVM member's partition."""
        if not self._rebalancer.nudges():
            return
        try:
            orphans, unsettled = self._rebalancer.orphans()
            wait = time.monotonic() < self._not_before
            if orphans and orphans != self._nudged_for and not wait:
                _log.warning(
                    "group %s: %s have no owner although their members live; nudging", self._group, name_some(orphans)
                )
                self._not_before = time.monotonic() + self._window_s  # also if the answer is lost
                self._membership.nudge()
            if not wait:
                self._nudged_for = orphans
            if unsettled or (wait and orphans):
                self._look_again()
        except ZkConsumerError as error:
            _log.info("group %s: could not look for orphaned partitions: %s", self._group, error)
