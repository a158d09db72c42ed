"""The exceptions for the error codes of JoinGroup, SyncGroup and Heartbeat."""

import pytest

from zkconsumer.errors import (
    GroupAuthorizationFailed,
    InstanceIdInUse,
    MemberRefused,
    ProtocolError,
    StrategyConflict,
)
from zkconsumer.group.kafka.grouperrors import group_error
from zkconsumer.wire.brokersecurity import PLAINTEXT
from zkconsumer.wire.errorcodes import ErrorCode


@pytest.mark.parametrize(
    ("code", "kind", "names"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, StrategyConflict, "partition.assignment.strategy=range,sticky"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailed, "--group g"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, MemberRefused, "group.max.size"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, MemberRefused, "session.timeout.ms"),
        (ErrorCode.FENCED_INSTANCE_ID, InstanceIdInUse, "group.instance.id"),
        (ErrorCode.INVALID_GROUP_ID, ProtocolError, "INVALID_GROUP_ID"),
    ],
)
def test_errors_name_what_to_check(code, kind, names):
    error = group_error(code, "g", "range,sticky", PLAINTEXT)
    assert type(error) is kind
    assert names in str(error)
