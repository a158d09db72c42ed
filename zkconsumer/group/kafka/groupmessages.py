"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the requests of a member to its group's coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from zkconsumer.errors import ConfigError
from zkconsumer.group.kafka.subscriptionbytes import PROTOCOL_TYPE
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.kafkapython import load_kafka_python

_JOIN_VERSIONS: Final = (0, 9)
_SYNC_VERSIONS: Final = (0, 5)
_HEARTBEAT_VERSIONS: Final = (0, 4)
_LEAVE_VERSIONS: Final = (0, 5)
_STATIC_SINCE: Final = {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3, "LeaveGroup": 3}
_LEAVES_IN_A_LIST: Final = 3
_REBALANCE_TIMEOUT_SINCE: Final = 1


class JoinSettings(NamedTuple):
    """What every JoinGroup request of a member has in common.

    Attributes:
        group: consumer group.
        session_ms: ``session.timeout.ms``.
        rebalance_ms: ``max.poll.interval.ms``; brokers before 0.10.1 use the session timeout instead.
        instance_id: ``group.instance.id``.
    """

    group: str
    session_ms: int
    rebalance_ms: int
    instance_id: str | None


class JoinedMember(NamedTuple):
    """A member in the answer to the leader: its id, its ``group.instance.id``, and the metadata that it sent."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """The answer to JoinGroup.

    Attributes:
        code: error code.
        member_id: the member's id.
        generation: of the group.
        strategy: name of the strategy that the members have in common.
        leads: True if this member has to assign.
        skips: True if this member leads, and has to leave the assignment as it is.
        rebalance_ms: how long the coordinator waits for this member in a rebalance.
        members: all members, if this one leads.
    """

    code: int
    member_id: str
    generation: int
    strategy: str
    leads: bool
    skips: bool
    rebalance_ms: int
    members: tuple[JoinedMember, ...]


def join_group(
    connection: BrokerConnection, settings: JoinSettings, member_id: str, protocols: Mapping[str, bytes], reason: str
) -> JoinAnswer:
    """Send JoinGroup; returns when all members have joined, or the rebalance timeout is over.

    Args:
        connection: connection to the coordinator; while it waits, its timeout is the rebalance timeout.
        settings: see :class:`JoinSettings`.
        member_id: empty for a new member.
        protocols: metadata by name of the strategy, preferred ones first.
        reason: why the member joins, for the broker's log.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ConfigError: the broker is too old for ``group.instance.id``.
        ProtocolError: no common version, or the answer is malformed.
    """
    load_kafka_python()
    from kafka.protocol.consumer.group import JoinGroupRequest

    make = JoinGroupRequest.JoinGroupRequestProtocol
    version = _version(connection, JoinGroupRequest, "JoinGroup", _JOIN_VERSIONS, settings.instance_id)
    request = JoinGroupRequest(
        version=version,
        group_id=settings.group,
        session_timeout_ms=settings.session_ms,
        rebalance_timeout_ms=settings.rebalance_ms,
        member_id=member_id,
        group_instance_id=settings.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[make(name=name, metadata=metadata) for name, metadata in protocols.items()],
        reason=reason,
    )
    with connection.waiting(_JOIN_SLACK_MS + max(settings.rebalance_ms, settings.session_ms)):
        answer = connection.call(request)
    members = tuple(
        JoinedMember(joined.member_id, getattr(joined, "group_instance_id", None), bytes(joined.metadata))
        for joined in answer.members or ()
    )
    return JoinAnswer(
        answer.error_code,
        answer.member_id,
        answer.generation_id,
        answer.protocol_name or "",
        bool(answer.member_id) and answer.leader == answer.member_id,
        bool(getattr(answer, "skip_assignment", False)),
        settings.rebalance_ms if version >= _REBALANCE_TIMEOUT_SINCE else settings.session_ms,
        members,
    )


_JOIN_SLACK_MS: Final = 5000
"""How much longer than the rebalance timeout the answer to JoinGroup is waited for."""


def sync_group(
    connection: BrokerConnection,
    settings: JoinSettings,
    member: CommitIdentity,
    strategy: str,
    assignments: Mapping[str, bytes],
) -> tuple[int, bytes]:
    """Send SyncGroup; returns the error code and this member's assignment when the leader has sent all assignments.

    Args:
        connection: see :func:`join_group`, also for the errors.
        settings: see there.
        member: member id and generation.
        strategy: name of the strategy of the generation.
        assignments: by member id, if this member leads; else empty.
    """
    load_kafka_python()
    from kafka.protocol.consumer.group import SyncGroupRequest

    make = SyncGroupRequest.SyncGroupRequestAssignment
    request = SyncGroupRequest(
        version=_version(connection, SyncGroupRequest, "SyncGroup", _SYNC_VERSIONS, member.instance_id),
        group_id=settings.group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=strategy,
        assignments=[make(member_id=member_id, assignment=encoded) for member_id, encoded in assignments.items()],
    )
    with connection.waiting(_JOIN_SLACK_MS + max(settings.rebalance_ms, settings.session_ms)):
        answer = connection.call(request)
    return answer.error_code, bytes(answer.assignment or b"")


def heartbeat(connection: BrokerConnection, group: str, member: CommitIdentity) -> int:
    """Send a heartbeat; returns the error code. For the errors see :func:`join_group`."""
    load_kafka_python()
    from kafka.protocol.consumer.group import HeartbeatRequest

    request = HeartbeatRequest(
        version=_version(connection, HeartbeatRequest, "Heartbeat", _HEARTBEAT_VERSIONS, member.instance_id),
        group_id=group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
    )
    return int(connection.call(request).error_code)


def leave_group(connection: BrokerConnection, group: str, member: CommitIdentity) -> int:
    """Send LeaveGroup; returns the error code. For the errors see :func:`join_group`."""
    load_kafka_python()
    from kafka.protocol.consumer.group import LeaveGroupRequest

    version = _version(connection, LeaveGroupRequest, "LeaveGroup", _LEAVE_VERSIONS, member.instance_id)
    if version < _LEAVES_IN_A_LIST:
        who: dict[str, Any] = {"member_id": member.member_id}
    else:
        identity = LeaveGroupRequest.MemberIdentity(member_id=member.member_id, group_instance_id=member.instance_id)
        who = {"members": [identity]}
    return int(connection.call(LeaveGroupRequest(version=version, group_id=group, **who)).error_code)


def _version(
    connection: BrokerConnection, request: Any, name: str, versions: tuple[int, int], instance_id: str | None
) -> int:
    version = connection.version(request.API_KEY, name, *versions)
    if instance_id is not None and version < _STATIC_SINCE[name]:
        raise ConfigError(f"group.instance.id needs brokers since 2.3; {connection} is older")
    return version
