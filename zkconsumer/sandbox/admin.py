"""Creating topics: for the demo, the sandbox and tests."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

from zkconsumer.errors import BrokerUnavailable, ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.wire.brokerclient import LATEST, BrokerClient, fetch_metadata
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.kafkapython import load_kafka_python

_CREATE_TOPICS_VERSIONS: Final = (0, 7)
_CONTROLLER_TIMEOUT_MS: Final = 10_000
_AS_ASSIGNED: Final = -1
_POLL_S: Final = 0.05
_CREATED: Final = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
"""Error codes after which the topic exists; after the last one, REQUEST_TIMED_OUT, the brokers are just slow."""


def create_topics(
    client: BrokerClient,
    partitions: Mapping[str, int],
    *,
    config: Mapping[str, str] | None = None,
    replication_factor: int = 1,
    only_on: int | None = None,
    timeout_s: float = 30.0,
) -> None:
    """Create topics and wait until the leader of every partition serves it, and all brokers know the leaders.

    An existing topic is not changed.

    Args:
        client: client of the cluster.
        partitions: number of partitions of each topic.
        config: topic configuration, the same for all.
        replication_factor: replicas of each partition.
        only_on: id of the broker for the only replica of each partition; None: the brokers spread them.
        timeout_s: limit of the wait for leaders, in seconds.

    Raises:
        BrokerUnavailable: the controller cannot be reached, or leaders did not appear in time.
        ProtocolError: the broker refused; the message has the reason.
    """
    metadata = client.metadata(partitions)
    if metadata.controller is None or metadata.controller not in metadata.brokers:
        raise BrokerUnavailable("the cluster has no controller yet; check that the brokers have finished starting")

    def question(connection: BrokerConnection) -> Any:
        return connection.call(_request(connection, partitions, config or {}, replication_factor, only_on))

    for topic in client.ask(metadata.brokers[metadata.controller], question).topics:
        if topic.error_code not in _CREATED:
            reason = getattr(topic, "error_message", None) or ""
            raise ProtocolError(f"cannot create topic {topic.name}: {error_name(topic.error_code)} {reason}")
    _wait_for_leaders(client, partitions, time.monotonic() + timeout_s)


def _request(
    connection: BrokerConnection,
    partitions: Mapping[str, int],
    config: Mapping[str, str],
    replication_factor: int,
    only_on: int | None,
) -> Any:
    load_kafka_python()
    from kafka.protocol.admin import CreateTopicsRequest

    version = connection.version(CreateTopicsRequest.API_KEY, CreateTopicsRequest.name, *_CREATE_TOPICS_VERSIONS)
    make = CreateTopicsRequest.CreatableTopic
    configs = [make.CreatableTopicConfig(name=name, value=value) for name, value in config.items()]

    def topic(name: str, count: int) -> Any:
        if only_on is None:
            numbers = {"num_partitions": count, "replication_factor": replication_factor, "assignments": []}
        else:
            place = partial(make.CreatableReplicaAssignment, broker_ids=[only_on])
            numbers = {
                "num_partitions": _AS_ASSIGNED,
                "replication_factor": _AS_ASSIGNED,
                "assignments": [place(partition_index=number) for number in range(count)],
            }
        return make(name=name, configs=configs, **numbers)

    topics = [topic(name, count) for name, count in partitions.items()]
    return CreateTopicsRequest(version=version, topics=topics, timeout_ms=_CONTROLLER_TIMEOUT_MS)


def known_and_served(client: BrokerClient, topics: Collection[str]) -> tuple[set[TopicPartition], set[TopicPartition]]:
    """Partitions that any broker knows; and those whose leader all brokers know, including the leader itself.

    Each broker is asked for its own view of the leaders.

    Raises:
        BrokerUnavailable: a broker cannot be reached.
        ProtocolError: an answer is malformed.
    """
    known: set[TopicPartition] = set()
    led: list[set[TopicPartition]] = []
    for broker in client.metadata(topics).brokers.values():
        metadata = client.ask(broker, partial(fetch_metadata, topics=topics))
        known |= metadata.leaders.keys() | metadata.leaderless.keys()
        led.append(set(metadata.leaders))
    everywhere = known.intersection(*led)
    return known, everywhere - client.list_offsets(dict.fromkeys(everywhere, LATEST)).errors.keys()


def _wait_for_leaders(client: BrokerClient, topics: Collection[str], deadline: float) -> None:
    while True:
        known, served = known_and_served(client, topics)
        waiting = set(topics) - {tp.topic for tp in known} | {tp.topic for tp in known - served}
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise BrokerUnavailable(
                f"topics {sorted(waiting)} were created, but have no leaders yet; check the brokers' logs"
            )
        time.sleep(_POLL_S)  # a broker cannot notify: it must be polled
