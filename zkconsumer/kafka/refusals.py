"""Errors for what brokers refuse: they name the operation, the principal as far as it is known, and what to check."""

from __future__ import annotations

from typing import Final

from zkconsumer.errors import GroupAuthorizationFailed, TopicAuthorizationFailed, TopicUnreadable
from zkconsumer.kafka.errorcodes import ErrorCode, error_name
from zkconsumer.kafka.security import BrokerSecurity

READ: Final = "Read"
"""The operation, as ACLs name it, that a fetch and a commit need. It implies :data:`DESCRIBE`."""
DESCRIBE: Final = "Describe"
"""The operation, as ACLs name it, that metadata, ListOffsets, FindCoordinator and OffsetFetch need."""


def topic_refused(topic: str, code: int, operation: str, who: object, security: BrokerSecurity) -> TopicUnreadable:
    """The error for a topic that a broker does not serve.

    Args:
        topic: its name.
        code: error code of the answer.
        operation: that the request needs, :data:`READ` or :data:`DESCRIBE`.
        who: answers so, as messages name it.
        security: of the connection.
    """
    story = f"topic {topic} cannot be read: {who} answers {error_name(code)}"
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        what = f"{story}, operation {operation}; {_check(f'--topic {topic}', security)}"
        return TopicAuthorizationFailed(what, topic, operation)
    return TopicUnreadable(f"{story}; check the log of that broker and the configuration of the topic", topic)


def group_refused(group: str, operation: str, security: BrokerSecurity) -> GroupAuthorizationFailed:
    """The error for a group whose offsets in Kafka this consumer may not read or write; for arguments see above."""
    return GroupAuthorizationFailed(
        f"offsets of group {group} are stored in Kafka: {error_name(ErrorCode.GROUP_AUTHORIZATION_FAILED)}, operation "
        f"{operation}; {_check(f'--group {group}', security)}",
        operation,
    )


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
