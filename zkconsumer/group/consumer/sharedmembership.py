"""SharedConsumerMembership: the membership of one consumer in a group in which the broker assigns, shared by threads.

The session thread sends heartbeats and reports their answers; the member's rebalance thread acquires and releases
partitions; a thread that commits waits for a newer member epoch. What each event does is in
:class:`~zkconsumer.group.consumer.rules.membership.ConsumerMembership`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from zkconsumer.errors import ZkConsumerError
from zkconsumer.group.consumer.rules.membership import Beat, ConsumerMembership, IdPartition
from zkconsumer.group.kafka.rules.membership import MembershipState
from zkconsumer.group.kafka.sharedmember import SharedMember


class SharedConsumerMembership(SharedMember[ConsumerMembership]):
    """One member's state; every method may be called on any thread. For the arguments see :class:`SharedMember`."""

    # -- for the session thread -------------------------------------------------------------------------------------

    def await_turn(self, seconds: float) -> bool:
        """Wait until there is something to do other than a heartbeat by timer; False when this is closed.

        Args:
            seconds: until the next heartbeat.
        """
        with self._condition:
            self._wait_for(
                lambda: (
                    self._closed
                    or self._membership.must_report()
                    or self._is_to_join()
                    or (self._topics_changed and self._membership.state is MembershipState.STABLE)
                ),
                seconds,
            )
            return not self._closed

    def takes_part(self) -> bool:
        """True if the member is in the group, or wants to join."""
        with self._condition:
            return self._membership.state in (MembershipState.REBALANCING, MembershipState.STABLE)

    def _is_to_join(self) -> bool:
        return self._membership.state is MembershipState.REBALANCING

    def is_urgent(self) -> bool:
        """True if the next heartbeat must not wait for its time: the member has to join, or others wait for it."""
        with self._condition:
            return self._is_to_join() or self._membership.must_report()

    def take_topics_change(self) -> bool:
        """True if the topics have to be read: they have changed, or a topic of the target has no name yet."""
        changed = super().take_topics_change()
        with self._condition:
            return changed or self._is_to_join() or self._membership.has_unnamed()

    def name_topics(self, ids: Mapping[str, str]) -> None:
        """See :meth:`ConsumerMembership.name_topics`."""
        with self._condition:
            changed = self._membership.name_topics(ids)
        if changed:
            self._changed()

    def beat(self, topics: tuple[str, ...]) -> Beat | None:
        """See :meth:`ConsumerMembership.beat`."""
        with self._condition:
            return self._membership.beat(topics)

    def answered(self, beat: Beat, epoch: int, target: frozenset[IdPartition] | None, sent: float) -> bool:
        """See :meth:`ConsumerMembership.answered`.

        Args:
            beat: the heartbeat.
            epoch: member epoch of the answer.
            target: the assignment of the answer.
            sent: reading of the clock when the heartbeat was sent.

        Returns:
            True if the rebalance thread may have something to do, which is signalled.
        """
        with self._condition:
            membership = self._membership
            was_limited = beat.owned is not None
            if not membership.answered(beat, epoch, target):
                return False
            # A member that does not release what it has to within the rebalance timeout is removed. That time begins
            # when the coordinator processes the heartbeat whose answer revokes, which may be lost at first.
            self._lease = self._lease.in_rebalance(sent) if membership.revokes else self._lease.confirmed(sent)
            self._topics_changed = self._topics_changed or membership.has_unnamed()
            self._condition.notify_all()
        news = target is not None or was_limited
        if news:
            self._changed()
        return news

    def unanswered(self) -> None:
        """See :meth:`ConsumerMembership.unanswered`."""
        with self._condition:
            self._membership.unanswered()

    def set_timeouts(self, session_s: float, rebalance_s: float) -> None:
        """The coordinator's session timeout was read.

        Args:
            session_s: in seconds.
            rebalance_s: rebalance timeout in seconds.
        """
        with self._condition:
            self._lease = replace(self._lease, session_s=session_s, rebalance_s=rebalance_s)

    # -- for any thread ---------------------------------------------------------------------------------------------

    def fence(self, *, keeps_id: bool = False, stopped: ZkConsumerError | None = None) -> None:
        """The group has removed this member: nothing may be delivered any more.

        Args:
            keeps_id: see :meth:`ConsumerMembership.fence`.
            stopped: why the member must not join again; None if it may.
        """
        self._end(partial(self._membership.fence, keeps_id=keeps_id), stopped)

    def topic_ids(self) -> dict[str, str]:
        """See :meth:`ConsumerMembership.topic_ids`."""
        with self._condition:
            return self._membership.topic_ids()
