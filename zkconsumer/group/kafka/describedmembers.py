"""A group that brokers coordinate, its members and what they own, as the group's coordinator describes them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from zkconsumer.errors import ProtocolError
from zkconsumer.group.kafka.consumerdescribe import CONSUMER_GROUP_DESCRIBE, describe_consumers
from zkconsumer.group.kafka.subscriptionbytes import PROTOCOL_TYPE, decode_assignment, decode_subscription
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.describegroups import describe
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.findcoordinator import CoordinatorClient, expect_coordinator
from zkconsumer.wire.refusals import DESCRIBE, expect_permission
from zkconsumer.wire.rules.describedgroup import DEAD, DescribedGroup, DescribedMember

OF_CONSUMERS: Final = frozenset({"", PROTOCOL_TYPE})
"""Protocol types: members are consumers, or there were simple commits only."""

_OTHER_PROTOCOL: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
_NO_GROUP: Final = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})


def group_members(coordinator: CoordinatorClient, group: str) -> tuple[DescribedMember, ...]:
    """The members of a group of consumers; none if the coordinator does not have it. Raises as :func:`described_group`.

    Args:
        coordinator: client of the group's coordinator.
        group: the same consumer group.
    """
    return described_group(coordinator, group).members


def described_group(coordinator: CoordinatorClient, group: str) -> DescribedGroup:
    """A group of either protocol; one that the coordinator does not have is :data:`DEAD`.

    Args:
        coordinator: client of the group's coordinator.
        group: the same consumer group.

    Raises:
        CoordinatorMoved, BrokerUnavailable: try again.
        GroupAuthorizationFailed: the permission is missing.
        ProtocolError: no common version, or the answer is malformed.
    """

    def ask(connection: BrokerConnection) -> tuple[int, DescribedGroup]:
        code, described = _describe(connection, group)
        expect_coordinator(code, f"group {group} cannot be described")
        return code, described

    code, described = coordinator.ask(ask)
    expect_permission((code,), group, DESCRIBE, coordinator.security)
    if code not in _NO_GROUP:
        raise ProtocolError(f"group {group} cannot be described: {error_name(code)}")
    return described


def _describe(connection: BrokerConnection, group: str) -> tuple[int, DescribedGroup]:
    """Describe a group of either protocol; each request answers for one of them only."""
    if connection.knows(CONSUMER_GROUP_DESCRIBE):
        code, described = describe_consumers(connection, group)
        if code not in _OTHER_PROTOCOL:
            return code, described
    return describe_classic(connection, group)


def describe_classic(connection: BrokerConnection, group: str) -> tuple[int, DescribedGroup]:
    """Send a DescribeGroups request to the coordinator; the error code of the answer, and the group.

    A group of ``group.protocol=consumer`` seems to have no members.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: no common version, or the answer is malformed.
    """
    described = describe(connection, group)
    is_of_consumers = described.protocol_type in OF_CONSUMERS
    strategy = (described.protocol_data or "") if is_of_consumers else ""
    members = tuple(_member(strategy, member) for member in described.members or ()) if is_of_consumers else ()
    return described.error_code, DescribedGroup("classic", described.group_state or DEAD, strategy, members)


def _member(strategy: str, member: Any) -> DescribedMember:
    topics: tuple[str, ...] = ()
    streams = None
    if member.member_metadata:  # brokers show what members declared only while the group is stable
        with suppress(ProtocolError):
            declared = decode_subscription(strategy, member.member_id, member.group_instance_id, member.member_metadata)
            topics, streams = declared.topics, declared.streams or None
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.group_instance_id,
        decode_assignment(member.member_assignment or b""),
        member.client_host,
        topics,
        streams,
    )
