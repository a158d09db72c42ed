"""What a coordinator's description of a group's members becomes."""

from types import SimpleNamespace

import pytest

from tests.unit.kafka.test_groupstates import FOUND, ScriptedBroker
from zkconsumer.errors import CoordinatorMoved, GroupAuthorizationFailed, ProtocolError
from zkconsumer.kafka.consumerprotocol import encode_assignment
from zkconsumer.kafka.errorcodes import ErrorCode
from zkconsumer.kafka.findcoordinator import CoordinatorClient
from zkconsumer.kafka.groupmembers import DescribedMember, group_members
from zkconsumer.model import TopicPartition

PARTITIONS = frozenset({TopicPartition("t", 0), TopicPartition("t", 3), TopicPartition("u", 1)})


def member(number, assignment=b"", instance_id=None):
    return SimpleNamespace(
        member_id=f"m{number}", client_id=f"c{number}", group_instance_id=instance_id, member_assignment=assignment
    )


def asked(*members, protocol="consumer", error=0, group="g"):
    one = SimpleNamespace(group_id=group, protocol_type=protocol, members=members or None, error_code=error)
    broker = ScriptedBroker(FindCoordinator=FOUND, DescribeGroups=SimpleNamespace(groups=[one]))
    return group_members(CoordinatorClient(broker, "g"), "g")


def test_members_have_the_partitions_that_the_leader_assigned():
    assert asked(member(1, encode_assignment(PARTITIONS)), member(2, instance_id="i")) == (
        DescribedMember("m1", "c1", None, PARTITIONS),
        DescribedMember("m2", "c2", "i", frozenset()),
    )


def test_a_group_that_the_coordinator_does_not_have_has_no_members():
    assert asked(protocol="", error=ErrorCode.GROUP_ID_NOT_FOUND) == ()
    assert asked() == ()


def test_members_that_are_no_consumers_are_not_read():
    assert asked(member(1, b"of Connect"), protocol="connect") == ()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, CoordinatorMoved),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailed),
        (ErrorCode.INVALID_GROUP_ID, ProtocolError),
    ],
)
def test_a_coordinator_that_does_not_describe_the_members_is_an_error(code, error):
    with pytest.raises(error):
        asked(error=code)


def test_an_answer_without_the_group_is_malformed():
    with pytest.raises(ProtocolError, match="without group g"):
        asked(group="h")
