"""Heartbeats: the thread that keeps a member in its group, extends its lease, and leaves at the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from zkconsumer.errors import BrokerUnavailable, ZkConsumerError
from zkconsumer.group.kafka.coordinatorcontact import CoordinatorContact
from zkconsumer.group.kafka.groupmessages import heartbeat
from zkconsumer.group.kafka.rules.generationmember import Beat, GenerationMember
from zkconsumer.group.kafka.rules.heartbeattimes import heartbeat_pause
from zkconsumer.group.kafka.sharedmembership import SharedMembership
from zkconsumer.offsets.membershipanswers import MembershipAnswer, membership_answer
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import error_name
from zkconsumer.wire.findcoordinator import expect_coordinator

_log: Final = logging.getLogger(__name__)


class Heartbeats:
    """A thread with a connection of its own; a session starts and joins it.

    Args:
        group: consumer group.
        interval_s: ``heartbeat.interval.ms`` in seconds.
        owner: the consumer, as part of the name of the thread.
        coordinator: the connection.
        membership: the member's state.
        why_stopped: returns why the member must not join again, from the error code by which the coordinator reports
            that it has removed the member; None if it may.
        silent: called when a heartbeat was not answered while the member is joining.
        leave: the last work of the thread.

    Attributes:
        thread: the thread.
    """

    def __init__(
        self,
        group: str,
        interval_s: float,
        owner: str,
        coordinator: CoordinatorContact,
        membership: SharedMembership[GenerationMember],
        *,
        why_stopped: Callable[[int], ZkConsumerError | None],
        silent: Callable[[], None],
        leave: Callable[[], None],
    ) -> None:
        self._group = group
        self._interval_s = interval_s
        self._coordinator = coordinator
        self._membership = membership
        self._why_stopped, self._interrupt_join, self._leave = why_stopped, silent, leave
        self._seen = 0  # assignments; written by the thread
        self.thread: Final = threading.Thread(target=self._run, name=f"{owner}-heartbeat", daemon=True)

    # -- on the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        membership = self._membership
        due = membership.clock()
        while membership.wait(lambda member: member.views != self._seen, due - membership.clock()):
            now = membership.clock()
            if now >= due:
                due = now + self._pause()
                self._send()
            due = min(due, membership.clock() + self._pause())  # an assignment may have arrived
        self._leave()

    def _pause(self) -> float:
        self._seen, assigned_at = self._membership.read(lambda member: (member.views, member.assigned_at))
        return heartbeat_pause(self._interval_s, self._membership.clock() - assigned_at)

    def _send(self) -> None:
        beat = self._membership.read(lambda member: member.beat())
        if beat is None:
            return
        sent = self._membership.clock()
        try:
            code = self._coordinator.ask(lambda connection: _heartbeat(connection, self._group, beat.member))
        except ZkConsumerError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - without this thread the lease would lapse for ever
            _log.exception("group %s: unexpected error of a heartbeat", self._group)
            self._failed(BrokerUnavailable(f"unexpected error: {error!r}"))
        else:
            self._coordinator.heard()
            self._answered(code, beat, sent)

    def _answered(self, code: int, beat: Beat, sent: float) -> None:
        means = membership_answer(code)
        if not code:
            with self._membership.changing() as member:
                member.confirmed(beat, sent)
        elif means is MembershipAnswer.REBALANCING:
            with self._membership.changing() as member:
                member.rebalance_begun(beat, sent)
        elif means.ends:
            with self._membership.changing() as member:
                removed = member.beat_refused(beat, keeps_id=means.keeps_id, stopped=self._why_stopped(code))
            if removed:
                self._coordinator.removed(beat.member, code)
        else:
            _log.warning("group %s: a heartbeat was answered with %s", self._group, error_name(code))

    def _failed(self, error: ZkConsumerError) -> None:
        self._coordinator.failed(error)
        # The broker that the session thread waits for may be gone as well.
        if self._membership.read(lambda member: member.is_joining):
            self._interrupt_join()


def _heartbeat(connection: BrokerConnection, group: str, member: CommitIdentity) -> int:
    code = heartbeat(connection, group, member)
    expect_coordinator(code, f"heartbeat of group {group}")
    return code
