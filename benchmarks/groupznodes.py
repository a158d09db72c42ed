"""Groups made of nothing but znodes, for the measurement of tools: what members of a group would have written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final

from zkconsumer.model import TopicPartition
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.admin import create_topics
from zkconsumer.sandbox.producer import Record, append_batches, encode_batches
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import STATIC, ConsumerIdNode, Registration
from zkconsumer.zookeeper.session import ZkSession

_TIMEOUT_MS: Final = 60_000
_CREATION_S: Final = 300.0


def create_wide_topics(sandbox: Sandbox, partitions: Mapping[str, int]) -> None:
    """Create topics with these numbers of partitions, which may be thousands."""
    brokers = bootstrap_brokers(sandbox.bootstrap_servers)
    with closing(BrokerClient(lambda: brokers, client_id="bench", timeout_ms=_TIMEOUT_MS)) as client:
        create_topics(client, partitions, timeout_s=_CREATION_S)


def create_filled_topics(sandbox: Sandbox, partitions: Sequence[TopicPartition], records: int) -> None:
    """Create topics with these partitions, each of which has this number of records."""
    create_wide_topics(sandbox, Counter(partition.topic for partition in partitions))
    batches, brokers = list(encode_batches([Record(b"v")] * records)), bootstrap_brokers(sandbox.bootstrap_servers)
    append_batches(lambda: brokers, dict.fromkeys(partitions, batches))


def store_offsets(session: ZkSession, group: str, partitions: Sequence[TopicPartition]) -> None:
    """Offset 0 of each of the partitions."""
    paths = GroupPaths(group)
    session.ensure_paths([paths.offset(one) for one in partitions], b"0")


def own_topic(session: ZkSession, group: str, topic: str, partitions: Sequence[TopicPartition]) -> None:
    """One registered member with one thread owns these partitions of a topic."""
    paths, member = GroupPaths(group), f"{group}_member"
    session.ensure_path(paths.consumer_id(member), ConsumerIdNode.encode(Registration({topic: 1}, STATIC, "0")))
    session.ensure_paths([paths.owner(one) for one in partitions], f"{member}-0".encode())
