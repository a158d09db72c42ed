"""OffsetCoordinator: commits and reads a group's offsets at the broker that coordinates it (SPEC 8.4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from zkconsumer.errors import BrokerUnavailable, CoordinatorMoved, ProtocolError
from zkconsumer.kafka.client import BrokerClient, by_topic
from zkconsumer.kafka.connection import BrokerConnection
from zkconsumer.kafka.errorcodes import ErrorCode, error_name
from zkconsumer.kafka.library import load_kafka_python
from zkconsumer.model import Broker, TopicPartition

_FIND_COORDINATOR_VERSIONS: Final = (0, 2)
_COMMIT_VERSIONS: Final = (1, 7)  # version 0 is for offsets in ZooKeeper
_FETCH_VERSIONS: Final = (1, 5)  # as above

_NO_GENERATION: Final = -1
"""Generation of a commit by somebody who is no member of a broker-coordinated group."""

_COORDINATOR_GONE: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)

T = TypeVar("T")


class CommitOutcome(NamedTuple):
    """Which partitions the coordinator stored, and the error code of each that it refused."""

    accepted: set[TopicPartition]
    refused: dict[TopicPartition, int]


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

    def commit(self, offsets: Mapping[TopicPartition, int]) -> CommitOutcome:
        """Commit in one request.

        Raises:
            CoordinatorMoved: another broker coordinates the group now, or will soon; try again.
            BrokerUnavailable: nobody answers; try again.
            ProtocolError: no common version.
        """
        return self._ask(lambda connection: _commit(connection, self._group, offsets))

    def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Committed offsets; None where there is none.

        Raises:
            CoordinatorMoved, BrokerUnavailable: try again.
            ProtocolError: the coordinator refuses; the message has its reason.
        """
        return self._ask(lambda connection: _fetch(connection, self._group, partitions))

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
        if answer.error_code:
            raise CoordinatorMoved(f"group {self._group} has no coordinator now: {error_name(answer.error_code)}")
        return Broker(answer.node_id, answer.host, answer.port)


def _commit(connection: BrokerConnection, group: str, offsets: Mapping[TopicPartition, int]) -> CommitOutcome:
    load_kafka_python()
    from kafka.protocol.consumer import OffsetCommitRequest

    version = connection.version(OffsetCommitRequest.API_KEY, OffsetCommitRequest.name, *_COMMIT_VERSIONS)
    make_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    make_partition = make_topic.OffsetCommitRequestPartition
    request = OffsetCommitRequest(
        version=version,
        group_id=group,
        generation_id_or_member_epoch=_NO_GENERATION,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[
            make_topic(
                name=topic,
                partitions=[
                    make_partition(partition_index=p.partition, committed_offset=offsets[p], committed_metadata="")
                    for p in partitions
                ],
            )
            for topic, partitions in by_topic(offsets.keys()).items()
        ],
    )
    outcome = CommitOutcome(set(), {})
    for topic in connection.call(request).topics:
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code in _COORDINATOR_GONE:
                raise CoordinatorMoved(f"commit of group {group}: {error_name(partition.error_code)}")
            if partition.error_code:
                outcome.refused[key] = partition.error_code
            else:
                outcome.accepted.add(key)
    return outcome


def _fetch(
    connection: BrokerConnection, group: str, wanted: Collection[TopicPartition]
) -> dict[TopicPartition, int | None]:
    load_kafka_python()
    from kafka.protocol.consumer import OffsetFetchRequest

    version = connection.version(OffsetFetchRequest.API_KEY, OffsetFetchRequest.name, *_FETCH_VERSIONS)
    make_topic = OffsetFetchRequest.OffsetFetchRequestTopic
    topics = [
        make_topic(name=topic, partition_indexes=[p.partition for p in partitions])
        for topic, partitions in by_topic(wanted).items()
    ]
    answer = connection.call(OffsetFetchRequest(version=version, group_id=group, topics=topics))
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    codes.append(getattr(answer, "error_code", 0) or 0)
    for code in filter(None, codes):
        what = f"offsets of group {group}: {error_name(code)}"
        # The JVM takes other errors for "no offset" and then resets the position (SPEC 8.4): records would be skipped.
        raise CoordinatorMoved(what) if code in _COORDINATOR_GONE else ProtocolError(what)
    found = {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }
    return {p: offset if (offset := found.get(p, -1)) >= 0 else None for p in wanted}
