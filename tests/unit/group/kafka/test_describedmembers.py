"""What a coordinator's description of a group's members becomes."""

from types import SimpleNamespace

import pytest

from tests.unit.wire.test_describegroups import FOUND, ScriptedBroker
from zkconsumer.errors import CoordinatorMoved, GroupAuthorizationFailed, ProtocolError
from zkconsumer.group.kafka.consumerdescribe import CONSUMER_GROUP_DESCRIBE, decode_consumers
from zkconsumer.group.kafka.describedmembers import described_group, group_members
from zkconsumer.group.kafka.rules.generationmember import JoinIntent
from zkconsumer.group.kafka.subscriptionbytes import encode_assignment, encode_subscription
from zkconsumer.model import TopicPartition
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.findcoordinator import CoordinatorClient
from zkconsumer.wire.rules.describedgroup import DescribedMember

PARTITIONS = frozenset({TopicPartition("t", 0), TopicPartition("t", 3), TopicPartition("u", 1)})


def member(number, assignment=b"", instance_id=None, metadata=b""):
    return SimpleNamespace(
        member_id=f"m{number}",
        client_id=f"c{number}",
        group_instance_id=instance_id,
        member_assignment=assignment,
        member_metadata=metadata,
        client_host="/h",
    )


def group_of(*members, **fields):
    described = {"group_id": "g", "protocol_type": "consumer", "protocol_data": "range", "group_state": "Stable"}
    return SimpleNamespace(**{**described, "error_code": 0, "members": list(members) or None, **fields})


def asked(*members, protocol="consumer", error=0, group="g"):
    one = group_of(*members, protocol_type=protocol, error_code=error, group_id=group)
    broker = ScriptedBroker(FindCoordinator=FOUND, DescribeGroups=SimpleNamespace(groups=[one]))
    return group_members(CoordinatorClient(broker, "g"), "g")


def test_members_have_the_partitions_that_the_leader_assigned():
    assert asked(member(1, encode_assignment(PARTITIONS)), member(2, instance_id="i")) == (
        DescribedMember("m1", "c1", None, PARTITIONS, "/h"),
        DescribedMember("m2", "c2", "i", frozenset(), "/h"),
    )


def test_a_member_of_ours_tells_its_streams():
    intent = JoinIntent("m1", -1, frozenset(), frozenset())
    metadata = encode_subscription("zkconsumer", {"t": 2, "u": 1}, intent)
    broker = ScriptedBroker(
        FindCoordinator=FOUND,
        DescribeGroups=SimpleNamespace(
            groups=[group_of(member(1, metadata=metadata), member(2, metadata=b"?"), protocol_data="zkconsumer")]
        ),
    )
    group = described_group(CoordinatorClient(broker, "g"), "g")
    assert (group.kind, group.state, group.strategy) == ("classic", "Stable", "zkconsumer")
    assert [(one.topics, one.streams) for one in group.members] == [(("t", "u"), {"t": 2, "u": 1}), ((), None)]


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


# Written by the message classes of Kafka 4.2.0.
CONSUMERS = (
    "00000000 02 0000 00 0267 07537461626c65 00000007 00000007 08756e69666f726d 03"
    "026d 0269 00 00000007 0263 0268 02 0274 01"
    "02 0102030405060708090a0b0c0d0e0f10 0274 03 00000000 00000002 00 00"
    "02 0102030405060708090a0b0c0d0e0f10 0274 03 00000000 00000002 00 00 01 00"
    "026e 00 00 00000007 0264 0268 01 00 01 00 01 00 ff 00 80000000 00 00"
)
CLASSIC = "00000000 02 0045 036e6f 0267 01 00000000 00000000 01 01 80000000 00 00"


def test_members_of_a_group_in_which_the_broker_assigns_are_described():
    broker = ScriptedBroker(encoded={CONSUMER_GROUP_DESCRIBE: bytes.fromhex(CONSUMERS)}, FindCoordinator=FOUND)
    assert group_members(CoordinatorClient(broker, "g"), "g") == (
        DescribedMember("m", "c", "i", frozenset({TopicPartition("t", 0), TopicPartition("t", 2)}), "h", ("t",)),
        DescribedMember("n", "d", None, frozenset(), "h"),
    )
    assert bytes.fromhex("02 0267 00 00") in broker.sent, "as Kafka's own message classes write it"


def test_a_group_whose_members_assign_is_described_by_the_former_request():
    one = group_of(member(1))
    broker = ScriptedBroker(
        encoded={CONSUMER_GROUP_DESCRIBE: bytes.fromhex(CLASSIC)},
        FindCoordinator=FOUND,
        DescribeGroups=SimpleNamespace(groups=[one]),
    )
    assert [found.member_id for found in group_members(CoordinatorClient(broker, "g"), "g")] == ["m1"]


def test_a_description_in_version_0_has_no_types_of_members():
    encoded = bytes.fromhex(CONSUMERS.replace("00 00 01 00", "00 00 00").replace("ff 00 80", "00 80"))
    code, group = decode_consumers(0, memoryview(encoded))["g"]
    assert (code, [found.member_id for found in group.members]) == (0, ["m", "n"])
    assert (group.kind, group.state, group.strategy) == ("consumer", "Stable", "uniform")


def test_a_malformed_description_is_reported():
    with pytest.raises(ProtocolError, match="malformed ConsumerGroupDescribe response"):
        decode_consumers(1, memoryview(bytes.fromhex(CONSUMERS))[:-1])
