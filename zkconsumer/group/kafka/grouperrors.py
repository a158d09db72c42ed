"""The exceptions for the error codes of JoinGroup, SyncGroup and Heartbeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zkconsumer.errors import (
    MemberRefused,
    ProtocolError,
    StrategyConflict,
    ZkConsumerError,
)
from zkconsumer.offsets.membershipanswers import MembershipAnswer, membership_answer
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.refusals import READ, group_refused, instance_in_use


def group_error(code: int, group: str, strategies: str, security: BrokerSecurity, in_use: str = "") -> ZkConsumerError:
    """The exception for an error code other than NONE, with what to check.

    Args:
        code: error code of an answer.
        group: name of the consumer group.
        strategies: the member's ``partition.assignment.strategy``.
        security: settings of the connection.
        in_use: the strategy that the other members use; empty if unknown.
    """
    refusal = f"group {group}: {error_name(code)}"
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return group_refused(group, READ, security)
    if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        used_by_others = f", but {in_use}" if in_use else ""
        return StrategyConflict(
            f"{refusal}: the group's members use no strategy of partition.assignment.strategy={strategies}"
            f"{used_by_others}, or the group is not one of consumers; see the members' strategies with "
            "`zkconsumer groups describe --state`. To change the strategy of a running group, first give all "
            "members both strategies, then only the new one. One that was killed, or has a group.instance.id and was "
            "stopped, is a member until its session times out"
        )
    if membership_answer(code) is MembershipAnswer.REPLACED:
        return instance_in_use(refusal)
    hint = _HINTS.get(code)
    if hint is not None:
        return MemberRefused(f"{refusal}: {hint}")
    return ProtocolError(refusal)


_HINTS: Final[Mapping[int, str]] = {
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the brokers' group.max.size allows",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session.timeout.ms is outside of what the brokers' "
    "group.min.session.timeout.ms and group.max.session.timeout.ms allow",
}
