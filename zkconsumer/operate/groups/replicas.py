"""Controller, replicas and leaders of partitions, as brokers describe them; for tools."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.rules.clusterznodes import LeaderAndIsr
from zkconsumer.wire.apiversions import METADATA
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.kafkapython import load_kafka_python

_VERSIONS: Final = (0, 7)  # the last one has leaders' epochs
_FIRST_WITH_CONTROLLER: Final = 1
_FIRST_WITHOUT_CREATION: Final = 4
_UNKNOWN_EPOCH: Final = -1


class ReplicaReport(NamedTuple):
    """What a broker knows of partitions.

    Attributes:
        controller: True if there is a controller, or the broker does not report it: those before 0.10 do not.
        replicas: brokers of each partition.
        states: leader (-1 for none) and in-sync replicas of each partition.
    """

    controller: bool
    replicas: dict[TopicPartition, tuple[int, ...]]
    states: dict[TopicPartition, LeaderAndIsr]


def describe_replicas(connection: BrokerConnection, topics: Collection[str]) -> ReplicaReport:
    """Ask one broker about topics that exist.

    Raises:
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: malformed answer or no common version.
    """
    load_kafka_python()
    from kafka.protocol.metadata import MetadataRequest

    version = connection.version(METADATA, "Metadata", *_VERSIONS)
    named = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in sorted(topics)]
    may_create = {"allow_auto_topic_creation": False} if version >= _FIRST_WITHOUT_CREATION else {}
    answer: Any = connection.call(MetadataRequest(version=version, topics=named, **may_create))
    report = ReplicaReport(version < _FIRST_WITH_CONTROLLER or answer.controller_id >= 0, {}, {})
    for topic in (topic for topic in answer.topics if topic.name in topics):  # version 0 has no question about none
        for described in topic.partitions:
            partition = TopicPartition(topic.name, described.partition_index)
            epoch = getattr(described, "leader_epoch", None)
            report.replicas[partition] = tuple(described.replica_nodes)
            report.states[partition] = LeaderAndIsr(
                described.leader_id, _UNKNOWN_EPOCH if epoch is None else epoch, tuple(described.isr_nodes)
            )
    return report
