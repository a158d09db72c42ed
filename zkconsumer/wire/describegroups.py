"""DescribeGroups, ListGroups, DescribeConfigs: what brokers report about a group and about themselves.

For requests of low rate, which tools send.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from zkconsumer.errors import ProtocolError
from zkconsumer.wire.apiversions import API_VERSIONS, OFFSET_COMMIT
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import error_name
from zkconsumer.wire.findcoordinator import expect_coordinator
from zkconsumer.wire.kafkapython import load_kafka_python
from zkconsumer.wire.rules.describedgroup import DEAD, KafkaGroup

_NEWEST_DESCRIBE: Final = 5
FIRST_WITH_OPERATIONS: Final = 3
_LIST_STATES_VERSIONS: Final = (4, 5)  # older ones have no states
_CONFIGS_VERSIONS: Final = (1, 2)  # version 0 is of brokers before 1.1, which kafka-python does not know
DESCRIBE_GROUPS: Final = 15
_LIST_GROUPS: Final = 16
_DESCRIBE_CONFIGS: Final = 32
_FIRST_COMMIT_OF_0_9: Final = 2
_BROKER: Final = 4
_GROUP: Final = 32
"""Types of resources in DescribeConfigs."""
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
"""Setting of a group with ``group.protocol=consumer``."""


def describe(connection: BrokerConnection, group: str, *, with_operations: bool = False) -> Any:
    """A group as its coordinator describes it, with the error code, in kafka-python's type.

    Args:
        connection: to the coordinator.
        group: name of the group.
        with_operations: also what this client may do to it, which brokers report since 2.3.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: no common version, or the answer is malformed.
    """
    load_kafka_python()
    from kafka.protocol.admin import DescribeGroupsRequest

    oldest = FIRST_WITH_OPERATIONS if with_operations else 0
    version = connection.version(DESCRIBE_GROUPS, "DescribeGroups", oldest, _NEWEST_DESCRIBE)
    request = DescribeGroupsRequest(version=version, groups=[group], include_authorized_operations=with_operations)
    for description in connection.call(request).groups:
        if description.group_id == group:
            return description
    raise ProtocolError(f"{connection} sent a DescribeGroups response without group {group}")


def describe_group(connection: BrokerConnection, group: str) -> tuple[KafkaGroup, int]:
    """State of a group, and the error code of the answer; raises as :func:`describe`.

    Groups of the new protocol (KIP-848) are not described by this request, which reports them as dead; their state is
    taken from the list of groups then.
    """
    description = describe(connection, group)
    kafka_group = KafkaGroup(
        description.group_state or DEAD, description.protocol_type or "", len(description.members or ())
    )
    if kafka_group.state == DEAD and not description.error_code:
        return _listed(connection, group) or kafka_group, 0
    return kafka_group, description.error_code


def strategy_in_use(connection: BrokerConnection, group: str) -> str:
    """Name of the strategy that the members of a group use; empty if it has none, or it may not be described.

    Raises as :func:`describe`.
    """
    return str(describe(connection, group).protocol_data or "")


def _listed(connection: BrokerConnection, group: str) -> KafkaGroup | None:
    from kafka.protocol.admin import ListGroupsRequest

    try:
        version = connection.version(_LIST_GROUPS, "ListGroups", *_LIST_STATES_VERSIONS)
    except ProtocolError:
        return None
    answer = connection.call(ListGroupsRequest(version=version, states_filter=[], types_filter=[]))
    for listed in answer.groups or ():
        if listed.group_id == group:
            return KafkaGroup(listed.group_state, listed.protocol_type, None)
    expect_coordinator(answer.error_code, f"{connection} does not list all its groups")
    _expect_listed(connection, answer.error_code)
    return None


def list_groups(connection: BrokerConnection) -> dict[str, str]:
    """The groups that this broker coordinates, with their protocol types; those that may not be described are absent.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        NoCommonVersion: the broker is older than 0.9.
        ProtocolError: it refuses; the message has the reason.
    """
    load_kafka_python()
    from kafka.protocol.admin import ListGroupsRequest

    version = connection.version(_LIST_GROUPS, "ListGroups", 0, _LIST_STATES_VERSIONS[1])
    answer = connection.call(ListGroupsRequest(version=version, states_filter=[], types_filter=[]))
    _expect_listed(connection, answer.error_code)
    return {listed.group_id: listed.protocol_type for listed in answer.groups or ()}


def _expect_listed(connection: BrokerConnection, code: int) -> None:
    """Refuse a list that may lack groups: while a broker loads some of its groups, it lists the others."""
    if code:
        raise ProtocolError(f"{connection} does not list groups: {error_name(code)}")


def broker_settings(connection: BrokerConnection, broker_id: int, names: Collection[str]) -> dict[str, str | None]:
    """The values of settings of the broker that is asked.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: the broker is older than 1.1, or does not allow it; the message has the reason.
    """
    return _settings(connection, _BROKER, str(broker_id), names)


def consumer_session_ms(connection: BrokerConnection, group: str) -> int:
    """The session timeout in ms of a group of ``group.protocol=consumer``: the group's own (KIP-1043), or the broker's.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: the broker does not show it; the message has the reason.
    """
    value = _settings(connection, _GROUP, group, [SESSION_TIMEOUT]).get(SESSION_TIMEOUT) or ""
    if not value.isdecimal():
        raise ProtocolError(f"{connection} does not show {SESSION_TIMEOUT} of group {group}")
    return int(value)


def _settings(connection: BrokerConnection, kind: int, resource: str, names: Collection[str]) -> dict[str, str | None]:
    load_kafka_python()
    from kafka.protocol.admin import DescribeConfigsRequest

    make = DescribeConfigsRequest.DescribeConfigsResource
    asked = make(resource_type=kind, resource_name=resource, configuration_keys=sorted(names))
    version = connection.version(_DESCRIBE_CONFIGS, "DescribeConfigs", *_CONFIGS_VERSIONS)
    answer = connection.call(DescribeConfigsRequest(version=version, resources=[asked], include_synonyms=False))
    settings: dict[str, str | None] = {}
    for result in answer.results:
        if result.error_code:
            raise ProtocolError(f"{connection} does not show its settings: {error_name(result.error_code)}")
        settings |= {setting.name: setting.value for setting in result.configs if setting.name in names}
    return settings


def broker_release(connection: BrokerConnection) -> tuple[int, ...]:
    """The release of the broker, from the API versions that it knows: ``(3, 9)``.

    A broker before 0.10 reports none, and counts as the one that ``broker.version.fallback`` names, else as 0.8.2.
    """
    ranges = connection.ranges
    if API_VERSIONS not in ranges:
        return (0, 9) if ranges.get(OFFSET_COMMIT, (0, 0))[1] >= _FIRST_COMMIT_OF_0_9 else (0, 8, 2)
    load_kafka_python()
    from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions

    release: tuple[int, ...] = infer_broker_version_from_api_versions(dict(ranges))
    return release
