"""delete_group: DeleteGroups, which only tools send: a group without members leaves its coordinator."""

from __future__ import annotations

from typing import Final

from zkconsumer.errors import ProtocolError
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.findcoordinator import CoordinatorClient, expect_coordinator
from zkconsumer.wire.kafkapython import load_kafka_python
from zkconsumer.wire.refusals import DELETE, expect_permission

_DELETE_GROUPS: Final = 42
_VERSIONS: Final = (0, 2)
_DELETED: Final = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})


def delete_group(coordinator: CoordinatorClient, group: str) -> None:
    """Delete a group without members, with its offsets (KIP-229). Idempotent.

    Args:
        coordinator: client of the group's coordinator.
        group: the same consumer group.

    Raises:
        CoordinatorMoved, BrokerUnavailable: try again.
        GroupAuthorizationFailed: the permission is missing.
        ProtocolError: the group has members, the coordinator is a broker before 1.1, or its answer is malformed.
    """
    code = coordinator.ask(lambda connection: _delete(connection, group))
    expect_permission((code,), group, DELETE, coordinator.security)
    if code not in _DELETED:
        raise ProtocolError(f"group {group} cannot be deleted: {error_name(code)}")


def _delete(connection: BrokerConnection, group: str) -> int:
    load_kafka_python()
    from kafka.protocol.admin import DeleteGroupsRequest

    version = connection.version(_DELETE_GROUPS, "DeleteGroups", *_VERSIONS)
    answer = connection.call(DeleteGroupsRequest(version=version, groups_names=[group]))
    for result in answer.results:
        if result.group_id == group:
            expect_coordinator(result.error_code, f"group {group} cannot be deleted")
            return int(result.error_code)
    raise ProtocolError(f"{connection} sent a DeleteGroups response without group {group}")
