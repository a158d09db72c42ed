"""Heartbeats: the thread that keeps a member in its group, extends its lease, and leaves at the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from zkconsumer.cluster.rules.clustercatalog import ClusterSource
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, CoordinatorMoved, ZkConsumerError
from zkconsumer.group.kafka.coordinatorcontact import CoordinatorContact
from zkconsumer.group.kafka.groupmessages import heartbeat, leave_group
from zkconsumer.group.kafka.groupreactions import REMOVED, Reaction, reaction_to
from zkconsumer.group.kafka.leasewatch import LeaseWatch
from zkconsumer.group.kafka.rules.heartbeattimes import heartbeat_pause
from zkconsumer.group.kafka.rules.membership import JoinStep
from zkconsumer.group.kafka.sharedmembership import SharedMembership
from zkconsumer.offsets.rules.commitidentity import CommitIdentity
from zkconsumer.process.threads import start_thread
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import error_name
from zkconsumer.wire.findcoordinator import COORDINATOR_GONE, CoordinatorLocation

_log: Final = logging.getLogger(__name__)
_events: Final = logging.getLogger("zkconsumer.events")


class Heartbeats:
    """A thread with a connection of its own.

    Args:
        config: the consumer's properties.
        owner: the consumer, as part of the name of the thread.
        cluster: where brokers are read from.
        location: where the coordinator is, shared with the member's other clients.
        membership: the member's state.
        removed: called with the error code by which the coordinator reports that it has removed the member.
        silent: called when a heartbeat was not answered while the member is joining.
        changed: called when the coordinator answers again.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        owner: str,
        cluster: ClusterSource,
        location: CoordinatorLocation,
        membership: SharedMembership,
        *,
        removed: Callable[[int], None],
        silent: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._group = config.group_id
        self._membership = membership
        self._removed, self._interrupt_join = removed, silent
        self._coordinator = CoordinatorContact(config, cluster, location, membership, changed)
        self._interval_s = config.heartbeat_interval_ms / 1000
        self._thread = threading.Thread(target=self._run, name=f"{owner}-heartbeat", daemon=True)
        self._lease = LeaseWatch(self._group, owner, membership, "session.timeout.ms")

    def open(self, lease_changed: Callable[[], None]) -> None:
        """Check that a broker answers, and start the thread; to be called once.

        Args:
            lease_changed: see :meth:`LeaseWatch.open`.

        Raises:
            BrokerUnavailable: no broker answers.
            GroupAuthorizationFailed: the permission to find the coordinator is missing.
        """
        self._coordinator.open()
        self._lease.open(lease_changed)
        start_thread(self._thread)

    def close(self) -> None:
        """Wait for the thread, which leaves the group if the membership was closed before, and end. Idempotent."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(self._coordinator.end_s)
        self._coordinator.close()
        self._lease.close()

    @property
    def answered(self) -> bool:
        """False while the coordinator does not answer."""
        return self._coordinator.answers

    @property
    def lapses(self) -> int:
        """How often the lease has lapsed."""
        return self._lease.lapses

    # -- on the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        membership = self._membership
        due = membership.clock()
        while membership.await_beat(due - membership.clock()):
            now = membership.clock()
            if now >= due:
                due = now + self._pause()
                self._send()
            due = min(due, membership.clock() + self._pause())  # an assignment may have arrived
        if membership.leaving is not None:
            leaving = membership.leaving
            self._coordinator.leave(lambda connection: leave_group(connection, self._group, leaving))

    def _pause(self) -> float:
        return heartbeat_pause(self._interval_s, self._membership.since_assignment())

    def _send(self) -> None:
        beat = self._membership.beat()
        if beat is None:
            return
        asked, step = beat
        sent = self._membership.clock()
        try:
            code = self._coordinator.ask(lambda connection: _heartbeat(connection, self._group, asked))
        except ZkConsumerError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - without this thread the lease would lapse for ever
            _log.exception("group %s: unexpected error of a heartbeat", self._group)
            self._failed(BrokerUnavailable(f"unexpected error: {error!r}"))
        else:
            self._coordinator.heard()
            self._answered(code, asked, sent, step)

    def _answered(self, code: int, asked: CommitIdentity, sent: float, step: JoinStep) -> None:
        reaction, membership = reaction_to(code), self._membership
        if reaction is Reaction.PROCEED:
            membership.confirmed(asked, sent)
        elif reaction is Reaction.JOIN_AGAIN:
            membership.in_rebalance(asked, sent, step)
        elif reaction in REMOVED:
            # While it is joining, the group may have begun a generation whose number the member does not know yet.
            is_joining = step is not JoinStep.NONE or membership.is_joining()
            outdated = reaction is Reaction.LOSE_PARTITIONS and is_joining
            if asked == membership.identity() and not outdated:
                what = "group %s: the coordinator has removed member %s: %s: %s"
                _events.warning(what, self._group, asked.member_id, error_name(code), reaction.value)
                self._removed(code)
        else:
            _log.warning("group %s: a heartbeat was answered with %s", self._group, error_name(code))

    def _failed(self, error: ZkConsumerError) -> None:
        self._coordinator.failed(error)
        if self._membership.is_joining():  # the broker that the session thread waits for may be gone as well
            self._interrupt_join()


def _heartbeat(connection: BrokerConnection, group: str, member: CommitIdentity) -> int:
    code = heartbeat(connection, group, member)
    if code in COORDINATOR_GONE:
        raise CoordinatorMoved(f"heartbeat of group {group}: {error_name(code)}")
    return code
