"""The members of a group that brokers coordinate, and what they own, as the group's coordinator describes them."""

from __future__ import annotations

from typing import Final

from zkconsumer.errors import ProtocolError
from zkconsumer.group.kafka.consumerdescribe import CONSUMER_GROUP_DESCRIBE, describe_consumers
from zkconsumer.group.kafka.subscriptionbytes import PROTOCOL_TYPE, decode_assignment
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.describegroups import describe
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.findcoordinator import CoordinatorClient, expect_coordinator
from zkconsumer.wire.refusals import DESCRIBE, group_refused
from zkconsumer.wire.rules.describedgroup import DescribedMember

_OTHER_PROTOCOL: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
_NO_GROUP: Final = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})


def group_members(coordinator: CoordinatorClient, group: str) -> tuple[DescribedMember, ...]:
    """The members of a group of consumers; none if the coordinator does not have it.

    Args:
        coordinator: client of the group's coordinator.
        group: the same consumer group.

    Raises:
        CoordinatorMoved, BrokerUnavailable: try again.
        GroupAuthorizationFailed: the permission is missing.
        ProtocolError: no common version, or the answer is malformed.
    """

    def ask(connection: BrokerConnection) -> tuple[int, tuple[DescribedMember, ...]]:
        code, members = _describe(connection, group)
        expect_coordinator(code, f"group {group} cannot be described")
        return code, members

    code, members = coordinator.ask(ask)
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        raise group_refused(group, DESCRIBE, coordinator.security)
    if code not in _NO_GROUP:
        raise ProtocolError(f"group {group} cannot be described: {error_name(code)}")
    return members


def _describe(connection: BrokerConnection, group: str) -> tuple[int, tuple[DescribedMember, ...]]:
    """Describe a group of either protocol; each request answers for one of them only."""
    if connection.knows(CONSUMER_GROUP_DESCRIBE):
        code, members = describe_consumers(connection, group)
        if code not in _OTHER_PROTOCOL:
            return code, members
    return describe_members(connection, group)


def describe_members(connection: BrokerConnection, group: str) -> tuple[int, tuple[DescribedMember, ...]]:
    """Send a DescribeGroups request to the coordinator; the error code of the answer, and the members.

    A group of ``group.protocol=consumer`` seems to have none.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: no common version, or the answer is malformed.
    """
    described = describe(connection, group)
    consumers = (described.members or ()) if described.protocol_type in ("", PROTOCOL_TYPE) else ()
    return described.error_code, tuple(
        DescribedMember(
            member.member_id,
            member.client_id,
            member.group_instance_id,
            decode_assignment(member.member_assignment or b""),
        )
        for member in consumers
    )
