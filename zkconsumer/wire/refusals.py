"""Errors for refused requests: they name the operation, the principal if known, and what to check."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from zkconsumer.errors import GroupAuthorizationFailed, InstanceIdInUse, TopicAuthorizationFailed, TopicUnreadable
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.errorcodes import ErrorCode, error_name

READ: Final = "Read"
"""The ACL operation that a fetch and a commit need. It implies :data:`DESCRIBE`."""
DESCRIBE: Final = "Describe"
"""The ACL operation that Metadata, ListOffsets, FindCoordinator and OffsetFetch need."""

DELETE: Final = "Delete"
"""The ACL operation on a group that OffsetDelete and DeleteGroups need."""


def topic_refused(
    topic: str, code: int, operation: str, sender: object, security: BrokerSecurity, what: str = ""
) -> TopicUnreadable:
    """The error for a topic that a broker does not serve.

    Args:
        topic: name of the topic.
        code: error code of the answer.
        operation: operation that the request needs, :data:`READ` or :data:`DESCRIBE`.
        sender: the sender of the answer, as named in messages.
        security: settings of the connection.
        what: the partition and the offset that were asked for, where they are known.
    """
    text = f"topic {topic} cannot be read{f' ({what})' if what else ''}: {sender} answered {error_name(code)}"
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        denied = f"{text}, operation {operation}; {_check(f'--topic {topic}', security)}"
        return TopicAuthorizationFailed(denied, topic, operation)
    return TopicUnreadable(f"{text}; check the log of that broker and the configuration of the topic", topic)


def group_refused(group: str, operation: str, security: BrokerSecurity) -> GroupAuthorizationFailed:
    """The error for a group whose offsets in Kafka this consumer may not read or write; arguments as above."""
    return GroupAuthorizationFailed(
        f"offsets of group {group} in Kafka are refused: {error_name(ErrorCode.GROUP_AUTHORIZATION_FAILED)}, operation "
        f"{operation}; {_check(f'--group {group}', security)}",
        operation,
    )


def expect_permission(codes: Collection[int], group: str, operation: str, security: BrokerSecurity) -> None:
    """Refuse the answer to a request for which this consumer has no permission on the group.

    Args:
        codes: error codes of the answer.
        group: the consumer group.
        operation: operation that the request needs, for example :data:`DESCRIBE`.
        security: settings of the connection.

    Raises:
        GroupAuthorizationFailed: one of them is GROUP_AUTHORIZATION_FAILED.
    """
    if ErrorCode.GROUP_AUTHORIZATION_FAILED in codes:
        raise group_refused(group, operation, security)


def _check(resource: str, security: BrokerSecurity) -> str:
    return (
        f"check its ACLs (kafka-acls --list {resource}) for the principal of this consumer, which is "
        f"{_principal(security)} (security.protocol={security.protocol})"
    )


def _principal(security: BrokerSecurity) -> str:
    if security.username is not None and security.logs_in:
        return f"User:{security.username}"
    if security.logs_in:
        return f"that of its {security.mechanism} login"
    if security.encrypted:
        return "the subject of ssl.certificate.location" if security.certificate_location else "User:ANONYMOUS"
    return "User:ANONYMOUS"


def instance_in_use(what: str) -> InstanceIdInUse:
    """The exception for FENCED_INSTANCE_ID; ``what`` names the group and the error code."""
    return InstanceIdInUse(
        f"{what}: another consumer uses the same group.instance.id, so this one has left the group; give each "
        "consumer a group.instance.id of its own"
    )
