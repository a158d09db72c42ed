"""The exceptions for the error codes of ConsumerGroupHeartbeat."""

import pytest

from zkconsumer.errors import (
    GroupAuthorizationFailed,
    InstanceIdInUse,
    MemberRefused,
    ProtocolError,
)
from zkconsumer.group.consumer.consumererrors import consumer_group_error
from zkconsumer.wire.brokersecurity import PLAINTEXT
from zkconsumer.wire.errorcodes import ErrorCode


@pytest.mark.parametrize(
    ("code", "kind", "names"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailed, "--group g"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, MemberRefused, "operation Describe"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, MemberRefused, "group.consumer.max.size"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, MemberRefused, "group.remote.assignor=mine"),
        (ErrorCode.UNRELEASED_INSTANCE_ID, MemberRefused, "group.consumer.session.timeout.ms"),
        (ErrorCode.FENCED_INSTANCE_ID, InstanceIdInUse, "group.instance.id"),
        (ErrorCode.GROUP_ID_NOT_FOUND, MemberRefused, "group.consumer.migration.policy"),
        (ErrorCode.UNSUPPORTED_VERSION, MemberRefused, "use group.protocol=kafka"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, MemberRefused, "INVALID_REGULAR_EXPRESSION"),
        (ErrorCode.INVALID_GROUP_ID, ProtocolError, "INVALID_GROUP_ID"),
    ],
)
def test_errors_name_what_to_check(code, kind, names):
    error = consumer_group_error(code, "the broker's text", "g", "mine", PLAINTEXT)
    assert type(error) is kind
    assert names in str(error)


def test_the_text_of_the_coordinator_is_passed_on():
    assert "(42 members)" in str(consumer_group_error(ErrorCode.INVALID_GROUP_ID, "42 members", "g", None, PLAINTEXT))
