"""Error codes of Kafka's protocol: the ones that the code handles, and the names of all for messages."""

from __future__ import annotations

from enum import IntEnum

from zkconsumer.wire.kafkapython import load_kafka_python
from zkconsumer.wire.rules.fetchanswers import Verdict


class ErrorCode(IntEnum):
    """The error codes that the code handles; see Kafka's protocol guide for the whole list."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    KAFKA_STORAGE_ERROR = 56
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNKNOWN_TOPIC_ID = 100
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128


NO_SUCH_TOPIC = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)

LEADER_MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Codes of normal operation: another broker leads the partition now, or no broker does for a moment."""


def verdict_on(code: int, *, of_follower: bool = False) -> Verdict:
    """What the error code of a partition means in the answer to a request for records or offsets.

    Args:
        code: the error code.
        of_follower: True if the broker is not the leader, but a follower that the leader has named (KIP-392).
    """
    if code == ErrorCode.NONE:
        return Verdict.SERVED
    if of_follower:
        return Verdict.LEADER_DECIDES
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Verdict.OUT_OF_RANGE
    if code in LEADER_MOVED:
        return Verdict.LEADER_MOVED
    load_kafka_python()
    from kafka.errors import for_code

    return Verdict.FAILED if for_code(code).retriable else Verdict.REFUSED  # kafka-python's classification


def is_refusal(code: int) -> bool:
    """True for an error that a broker repeats until an operator removes its cause, such as a missing permission."""
    return verdict_on(code) is Verdict.REFUSED


def error_name(code: int) -> str:
    """Text such as ``NOT_LEADER_OR_FOLLOWER (6)`` for error messages and log lines."""
    try:
        return f"{ErrorCode(code).name} ({code})"
    except ValueError:
        load_kafka_python()
        from kafka.errors import for_code

        return f"{for_code(code).__name__} ({code})"
