"""What a member of a group in which the broker assigns does after each error code of its coordinator."""

import pytest

from zkconsumer.errors import (
    GroupAuthorizationFailed,
    InstanceIdInUse,
    MemberRefused,
    ProtocolError,
)
from zkconsumer.group.consumer.consumerreactions import consumer_group_error, consumer_reaction
from zkconsumer.group.kafka.groupreactions import Reaction
from zkconsumer.wire.brokersecurity import PLAINTEXT
from zkconsumer.wire.errorcodes import ErrorCode


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.NONE, Reaction.PROCEED),
        (ErrorCode.UNKNOWN_MEMBER_ID, Reaction.LOSE_PARTITIONS),
        (ErrorCode.FENCED_MEMBER_EPOCH, Reaction.LOSE_PARTITIONS),
        (ErrorCode.FENCED_INSTANCE_ID, Reaction.STAY_OUT),
        (ErrorCode.UNRELEASED_INSTANCE_ID, Reaction.REPORT),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, Reaction.REPORT),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, Reaction.REPORT),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Reaction.REPORT),
        (-1, Reaction.REPORT),
    ],
)
def test_reactions(code, reaction):
    assert consumer_reaction(code, in_group=True) is consumer_reaction(code, in_group=False) is reaction


def test_a_group_that_is_gone_is_lost_for_members_and_refused_to_new_ones():
    assert consumer_reaction(ErrorCode.GROUP_ID_NOT_FOUND, in_group=True) is Reaction.LOSE_PARTITIONS
    assert consumer_reaction(ErrorCode.GROUP_ID_NOT_FOUND, in_group=False) is Reaction.REPORT


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
