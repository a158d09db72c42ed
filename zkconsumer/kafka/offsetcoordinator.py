"""OffsetCoordinator: commits, fetches and deletes a group's offsets through the group's coordinator.

See jvm-consumer.md#offsets-in-kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from zkconsumer.core.brokermembership import NO_MEMBER, CommitIdentity
from zkconsumer.core.kafkagroup import KafkaGroup
from zkconsumer.core.offsets import StoredOffset
from zkconsumer.errors import CoordinatorMoved, ProtocolError, RebalanceAwaited, SessionExpired, TopicUnreadable
from zkconsumer.kafka.client import BrokerClient
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.errorcodes import ErrorCode, error_name
from zkconsumer.kafka.findcoordinator import COORDINATOR_GONE, CoordinatorClient
from zkconsumer.kafka.groupoffsets import (
    BROKER_RETENTION,
    CommitOutcome,
    StoredOffsets,
    commit_offsets,
    delete_offsets,
    fetch_offsets,
)
from zkconsumer.kafka.groupstates import describe_group
from zkconsumer.kafka.permissions import may_commit
from zkconsumer.kafka.refusals import DELETE, DESCRIBE, READ, group_refused, topic_refused
from zkconsumer.model import TopicPartition

_COMMIT_VERSIONS: Final = (1, 7)  # version 0 is for offsets in ZooKeeper
_RETENTION_VERSIONS: Final = (2, 4)  # others have no retention
_FETCH_VERSIONS: Final = (1, 5)  # as above
_FETCH_ALL_VERSIONS: Final = (2, 5)  # older ones need the names of all partitions
_OFFSET_FETCH: Final = 9
_OFFSET_DELETE: Final = 47
_DELETE_VERSIONS: Final = (0, 0)


_BETWEEN_GENERATIONS: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
_REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


class OffsetCoordinator:
    """A client of a group's coordinator, which it finds again after a move. One thread uses it.

    Args:
        client: client of the cluster.
        group: consumer group.
        identity: returns whom commits name, called right before each is sent.
    """

    def __init__(
        self, client: BrokerClient, group: str, identity: Callable[[], CommitIdentity] = lambda: NO_MEMBER
    ) -> None:
        self._client = client
        self._group = group
        self._coordinator = CoordinatorClient(client, group)
        self._identity = identity

    def commit(
        self,
        offsets: Mapping[TopicPartition, StoredOffset],
        *,
        before_send: Callable[[], None] = lambda: None,
        retention_ms: int | None = None,
    ) -> CommitOutcome:
        """Commit in one request; the marks become the metadata of the commits.

        Args:
            offsets: by partition.
            before_send: called right before the request is sent, and again if it is sent again because the connection
                was broken; its exception stops the commit.
            retention_ms: how long the coordinator keeps the offsets, in ms; None for the brokers' own setting.

        Raises:
            CoordinatorMoved: the coordinator moved to another broker, or is moving; try again.
            BrokerUnavailable: no broker answers; try again.
            GroupAuthorizationFailed: the permission is missing; no offset is stored.
            ProtocolError: no common version.
            RebalanceAwaited: the group is between two generations; nothing is stored. Try again.
            SessionExpired: the group has removed this member; nothing is stored.
        """
        outcome = self._coordinator.ask(
            lambda connection: _commit(connection, self._group, offsets, before_send, retention_ms, self._identity())
        )
        if ErrorCode.GROUP_AUTHORIZATION_FAILED in outcome.refused.values():
            raise group_refused(self._group, READ, self._client.security)
        return outcome

    def fetch(self, partitions: Collection[TopicPartition]) -> StoredOffsets:
        """Committed offsets, marked with the metadata of their commits, and error codes of those that cannot be read.

        Raises:
            CoordinatorMoved, BrokerUnavailable: try again.
            GroupAuthorizationFailed: the permission is missing.
            ProtocolError: the coordinator returned an error for the group; the message has it.
        """
        stored = self._coordinator.ask(lambda connection: _fetch(connection, self._group, partitions))
        if stored.error == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise group_refused(self._group, DESCRIBE, self._client.security)
        return stored

    def can_list(self) -> bool:
        """True if the coordinator can list a group's offsets, as brokers since 0.10.2 can; raises as :meth:`fetch`."""
        return self._coordinator.ask(lambda connection: connection.knows(_OFFSET_FETCH, _FETCH_ALL_VERSIONS[0]))

    def fetch_all(self) -> StoredOffsets:
        """As :meth:`fetch`, of every partition that the group has an offset of; needs brokers since 0.10.2."""
        stored = self._coordinator.ask(lambda connection: _fetch(connection, self._group, None))
        if stored.error == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise group_refused(self._group, DESCRIBE, self._client.security)
        return stored

    def fetch_known(self, partitions: Collection[TopicPartition]) -> StoredOffsets:
        """As :meth:`fetch_all`; from brokers before 0.10.2 the offsets of ``partitions`` alone.

        A list is silent about topics that this client may not describe, so what is not in it is asked for by name.
        """
        listed = self.fetch_all() if self.can_list() else StoredOffsets({}, {}, 0)
        missing = [partition for partition in partitions if partition not in listed.found]
        named = self.fetch(missing) if missing else StoredOffsets({}, {}, 0)
        return StoredOffsets({**listed.found, **named.found}, {**listed.errors, **named.errors}, 0)

    def describe(self) -> KafkaGroup:
        """State and members of the group; raises as :meth:`fetch`, ProtocolError by a broker before 0.9."""

        def ask(connection: BrokerConnection) -> KafkaGroup:
            found, code = describe_group(connection, self._group)
            if code in COORDINATOR_GONE:
                raise CoordinatorMoved(f"group {self._group} cannot be described: {error_name(code)}")
            if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                raise group_refused(self._group, DESCRIBE, self._client.security)
            if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                raise ProtocolError(f"group {self._group} cannot be described: {error_name(code)}")
            return found

        return self._coordinator.ask(ask)

    def may_commit(self) -> bool | None:
        """See :func:`~zkconsumer.kafka.permissions.may_commit`; raises as :meth:`fetch`."""
        return self._coordinator.ask(lambda connection: may_commit(connection, self._group))

    def can_delete(self) -> bool:
        """True if the coordinator can delete offsets, as brokers since 2.4 can (KIP-496); raises as :meth:`fetch`."""
        return self._coordinator.ask(lambda connection: connection.knows(_OFFSET_DELETE))

    def delete(
        self, partitions: Collection[TopicPartition], *, before_send: Callable[[], None] = lambda: None
    ) -> dict[TopicPartition, int]:
        """Delete committed offsets; returns the error code of each partition that keeps its offset.

        Idempotent: a partition, or a group, without an offset is no error. ``before_send`` as in :meth:`commit`.

        Raises:
            CoordinatorMoved, BrokerUnavailable: try again.
            GroupAuthorizationFailed: the permission is missing.
            ProtocolError: the coordinator is a broker before 2.4.
        """
        refused = self._coordinator.ask(lambda connection: _delete(connection, self._group, partitions, before_send))
        if ErrorCode.GROUP_AUTHORIZATION_FAILED in refused.values():
            raise group_refused(self._group, DELETE, self._client.security)
        return refused

    def refusal(self, topic: str, code: int) -> TopicUnreadable:
        """The exception for a topic whose offsets :meth:`fetch` could not read because of an error code."""
        return topic_refused(topic, code, DESCRIBE, f"the coordinator of group {self._group}", self._client.security)


def _commit(
    connection: BrokerConnection,
    group: str,
    offsets: Mapping[TopicPartition, StoredOffset],
    before_send: Callable[[], None],
    retention_ms: int | None,
    member: CommitIdentity,
) -> CommitOutcome:
    versions = _COMMIT_VERSIONS if retention_ms is None else _RETENTION_VERSIONS
    kept = BROKER_RETENTION if retention_ms is None else retention_ms
    outcome = commit_offsets(
        connection, group, offsets, versions, before_send=before_send, retention_ms=kept, member=member
    )
    for code in outcome.refused.values():
        if code in COORDINATOR_GONE:
            raise CoordinatorMoved(f"commit of group {group}: {error_name(code)}")
        if member != NO_MEMBER and code in _BETWEEN_GENERATIONS:
            raise RebalanceAwaited(f"group {group} is rebalancing, so nothing is committed: {error_name(code)}")
        if member != NO_MEMBER and code in _REMOVED:
            raise SessionExpired(f"group {group} has removed this member, so nothing is committed: {error_name(code)}")
    return outcome


def _fetch(connection: BrokerConnection, group: str, wanted: Collection[TopicPartition] | None) -> StoredOffsets:
    stored = fetch_offsets(connection, group, wanted, _FETCH_ALL_VERSIONS if wanted is None else _FETCH_VERSIONS)
    for code in filter(None, (*stored.errors.values(), stored.error)):
        what = f"offsets of group {group} cannot be read from Kafka: {error_name(code)}"
        if code in COORDINATOR_GONE:
            raise CoordinatorMoved(what)
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return StoredOffsets({}, {}, code)
        # Old versions of the response have no field for an error of the whole request: each partition has it.
        if code in (ErrorCode.INVALID_GROUP_ID, stored.error):
            raise ProtocolError(what)
    # The JVM treats other errors as "no offset" and then resets the position (jvm-consumer.md#offsets-in-kafka):
    # records would be skipped. Such an error concerns one partition, such as one of a topic without DESCRIBE
    # permission, and only that one is not read.
    found = {p: stored.found[p] for p in (stored.found if wanted is None else wanted) if p not in stored.errors}
    return StoredOffsets(found, stored.errors, 0)


def _delete(
    connection: BrokerConnection,
    group: str,
    partitions: Collection[TopicPartition],
    before_send: Callable[[], None],
) -> dict[TopicPartition, int]:
    before_send()
    outcome, error = delete_offsets(connection, group, partitions, _DELETE_VERSIONS)
    if error in COORDINATOR_GONE:
        raise CoordinatorMoved(f"offsets of group {group} cannot be deleted: {error_name(error)}")
    if error == ErrorCode.GROUP_ID_NOT_FOUND:  # the coordinator forgets a group with its last offset
        return {}
    return dict.fromkeys(partitions, error) if error else outcome.refused
