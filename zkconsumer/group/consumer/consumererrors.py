"""The exceptions for the error codes of ConsumerGroupHeartbeat (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zkconsumer.errors import MemberRefused, ProtocolError, ZkConsumerError
from zkconsumer.offsets.membershipanswers import MembershipAnswer, membership_answer
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.refusals import READ, group_refused, instance_in_use


def consumer_group_error(
    code: int, message: str, group: str, assignor: str | None, security: BrokerSecurity
) -> ZkConsumerError:
    """The exception for an error code other than NONE, with what to check.

    Args:
        code: error code of an answer.
        message: the coordinator's text about it; may be empty.
        group: name of the consumer group.
        assignor: ``group.remote.assignor``.
        security: settings of the connection.
    """
    refusal = f"group {group}: {error_name(code)}" + (f" ({message})" if message else "")
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return group_refused(group, READ, security)
    if membership_answer(code) is MembershipAnswer.REPLACED:
        return instance_in_use(refusal)
    if code == ErrorCode.UNSUPPORTED_ASSIGNOR:
        return MemberRefused(
            f"{refusal}: the brokers do not have group.remote.assignor={assignor}; see their group.consumer.assignors"
        )
    hint = _HINTS.get(code)
    if hint is not None:
        return MemberRefused(f"{refusal}: {hint}")
    return ProtocolError(refusal)


_HINTS: Final[Mapping[int, str]] = {
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the brokers' group.consumer.max.size allows",
    ErrorCode.UNRELEASED_INSTANCE_ID: "the last consumer with this group.instance.id has not left the group; the "
    "partitions are released when it leaves, or when its session times out (group.consumer.session.timeout.ms)",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group's members use group.protocol=kafka (JoinGroup), and the brokers do not "
    "convert it: let group.consumer.migration.policy of the brokers be bidirectional or upgrade, or stop all members "
    "first",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the group's members are not consumers, or use group.protocol=kafka "
    "(JoinGroup) with strategies that the brokers cannot convert; stop all members first",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "operation Describe is missing for a subscribed topic; check its ACLs "
    "(kafka-acls --list) for the principal of this consumer",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the coordinator does not accept the subscription",
    ErrorCode.UNSUPPORTED_VERSION: "the brokers do not have the protocol of group.protocol=consumer any more, or it is "
    "disabled (group.version, group.coordinator.rebalance.protocols); use group.protocol=kafka",
}
