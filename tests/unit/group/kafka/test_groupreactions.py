"""What a member does after each error code of its coordinator."""

import pytest

from zkconsumer.errors import (
    GroupAuthorizationFailed,
    InstanceIdInUse,
    MemberRefused,
    ProtocolError,
    StrategyConflict,
)
from zkconsumer.group.kafka.groupreactions import Reaction, group_error, reaction_to
from zkconsumer.wire.brokersecurity import PLAINTEXT
from zkconsumer.wire.errorcodes import ErrorCode


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.NONE, Reaction.PROCEED),
        (ErrorCode.MEMBER_ID_REQUIRED, Reaction.JOIN_WITH_ID),
        (ErrorCode.REBALANCE_IN_PROGRESS, Reaction.JOIN_AGAIN),
        (ErrorCode.UNKNOWN_MEMBER_ID, Reaction.START_AGAIN),
        (ErrorCode.ILLEGAL_GENERATION, Reaction.LOSE_PARTITIONS),
        (ErrorCode.FENCED_INSTANCE_ID, Reaction.STAY_OUT),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, Reaction.REPORT),
        (-1, Reaction.REPORT),
    ],
)
def test_reactions(code, reaction):
    assert reaction_to(code) is reaction


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
