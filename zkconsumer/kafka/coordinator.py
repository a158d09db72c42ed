"""OffsetCoordinator: commits and reads a group's offsets at the broker that coordinates it (SPEC 8.4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from zkconsumer.core.offsets import StoredOffset
from zkconsumer.errors import BrokerUnavailable, CoordinatorMoved, ProtocolError, TopicUnreadable
from zkconsumer.kafka.client import BrokerClient
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.errorcodes import ErrorCode, error_name
from zkconsumer.kafka.group_offsets import CommitOutcome, StoredOffsets, commit_offsets, fetch_offsets
from zkconsumer.kafka.library import load_kafka_python
from zkconsumer.kafka.refusals import DESCRIBE, READ, group_refused, topic_refused
from zkconsumer.model import Broker, TopicPartition

_FIND_COORDINATOR_VERSIONS: Final = (0, 2)
_COMMIT_VERSIONS: Final = (1, 7)  # version 0 is for offsets in ZooKeeper
_FETCH_VERSIONS: Final = (1, 5)  # as above

_COORDINATOR_GONE: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


T = TypeVar("T")


class OffsetCoordinator:
    """Talks to a group's coordinator, and finds it again when it moved. One thread uses it.

    Args:
        client: for the cluster.
        group: consumer group.
    """

    def __init__(self, client: BrokerClient, group: str) -> None:
        self._client = client
        self._group = group
        self._coordinator: Broker | None = None

    def commit(
        self, offsets: Mapping[TopicPartition, StoredOffset], *, before_send: Callable[[], None] = lambda: None
    ) -> CommitOutcome:
        """Commit in one request; the marks become the metadata of the commits.

        Args:
            offsets: by partition.
            before_send: called right before the request is sent, and again where it is sent a second time because the
                connection had broken; what it raises stops the commit.

        Raises:
            CoordinatorMoved: another broker coordinates the group now, or will soon; try again.
            BrokerUnavailable: no broker answers; try again.
            GroupAuthorizationFailed: the permission is missing; nothing is stored.
            ProtocolError: no common version.
        """
        outcome = self._ask(lambda connection: _commit(connection, self._group, offsets, before_send))
        if ErrorCode.GROUP_AUTHORIZATION_FAILED in outcome.refused.values():
            raise group_refused(self._group, READ, self._client.security)
        return outcome

    def fetch(self, partitions: Collection[TopicPartition]) -> StoredOffsets:
        """Committed offsets, marked with the metadata of their commits, and why others cannot be read.

        Raises:
            CoordinatorMoved, BrokerUnavailable: try again.
            GroupAuthorizationFailed: the permission is missing.
            ProtocolError: the coordinator refuses the group; the message has its reason.
        """
        stored = self._ask(lambda connection: _fetch(connection, self._group, partitions))
        if stored.error == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise group_refused(self._group, DESCRIBE, self._client.security)
        return stored

    def refusal(self, topic: str, code: int) -> TopicUnreadable:
        """What to raise for a topic whose offsets :meth:`fetch` could not read because of an error code."""
        return topic_refused(topic, code, DESCRIBE, f"the coordinator of group {self._group}", self._client.security)

    def _ask(self, question: Callable[[BrokerConnection], T]) -> T:
        if self._coordinator is None:
            self._coordinator = self._find()
        try:
            return self._client.ask(self._coordinator, question)
        except (CoordinatorMoved, BrokerUnavailable):
            self._coordinator = None
            raise

    def _find(self) -> Broker:
        def find(connection: BrokerConnection) -> Any:
            load_kafka_python()
            from kafka.protocol.metadata import FindCoordinatorRequest

            version = connection.version(
                FindCoordinatorRequest.API_KEY, FindCoordinatorRequest.name, *_FIND_COORDINATOR_VERSIONS
            )
            return connection.call(FindCoordinatorRequest(version=version, key=self._group, key_type=0))

        answer = self._client.ask_any(find)
        if answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise group_refused(self._group, DESCRIBE, self._client.security)
        if answer.error_code:
            raise CoordinatorMoved(f"group {self._group} has no coordinator now: {error_name(answer.error_code)}")
        return Broker(answer.node_id, answer.host, answer.port)


def _commit(
    connection: BrokerConnection,
    group: str,
    offsets: Mapping[TopicPartition, StoredOffset],
    before_send: Callable[[], None],
) -> CommitOutcome:
    outcome = commit_offsets(connection, group, offsets, _COMMIT_VERSIONS, before_send=before_send)
    for code in outcome.refused.values():
        if code in _COORDINATOR_GONE:
            raise CoordinatorMoved(f"commit of group {group}: {error_name(code)}")
    return outcome


def _fetch(connection: BrokerConnection, group: str, wanted: Collection[TopicPartition]) -> StoredOffsets:
    stored = fetch_offsets(connection, group, wanted, _FETCH_VERSIONS)
    for code in filter(None, (*stored.errors.values(), stored.error)):
        what = f"offsets of group {group}: {error_name(code)}"
        if code in _COORDINATOR_GONE:
            raise CoordinatorMoved(what)
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return StoredOffsets({}, {}, code)
        # Old versions of the response have no place for an error of the whole request: each partition has it.
        if code in (ErrorCode.INVALID_GROUP_ID, stored.error):
            raise ProtocolError(what)
    # The JVM takes other errors for "no offset" and then resets the position (SPEC 8.4): records would be skipped. They
    # are of one partition, such as a topic that may not be described, and cost that one.
    found = {p: stored.found[p] for p in wanted if p not in stored.errors}
    return StoredOffsets(found, stored.errors, 0)
