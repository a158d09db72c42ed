"""OrphanWatch: gets JVM members that gave up in silence to try again (SPEC 4.5, DESIGN 4.7)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from zkconsumer.connector.rebalancer import Rebalancer
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.membership import Membership

_log = logging.getLogger(__name__)


class OrphanWatch:
    """Looks for partitions without an owner whose member, a JVM consumer, is alive, and nudges the group for them.

    For the same partitions at most once: a member that cannot claim at all must not be nudged for ever. Used by the
    rebalance thread only.

    Args:
        group: consumer group.
        rebalancer: knows who should own what.
        membership: does the nudging.
        look_again: asks for another :meth:`look` in a while.
    """

    def __init__(
        self, group: str, rebalancer: Rebalancer, membership: Membership, look_again: Callable[[], None]
    ) -> None:
        self._group = group
        self._rebalancer = rebalancer
        self._membership = membership
        self._look_again = look_again
        self._nudged_for: list[TopicPartition] = []

    def look(self) -> None:
        """Look once, and nudge if need be; looks again while somebody else still holds a JVM member's partition."""
        try:
            orphans, unsettled = self._rebalancer.orphans()
            if orphans and orphans != self._nudged_for:
                named = ", ".join(map(str, orphans))
                _log.warning("group %s: %s have no owner although their members live; nudging", self._group, named)
                self._membership.nudge()
            self._nudged_for = orphans
            if unsettled:
                self._look_again()
        except ZkConsumerError as error:
            _log.info("group %s: could not look for orphaned partitions: %s", self._group, error)
