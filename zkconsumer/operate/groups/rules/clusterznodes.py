"""Znodes of the brokers that only tools read: the controller, leaders and in-sync replicas, quotas."""

from __future__ import annotations

from typing import Any, NamedTuple

from zkconsumer.errors import MalformedZnode
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.rules.quotas import CONSUMER_RATE
from zkconsumer.zookeeper.rules.znodes import BROKER_TOPICS, parse_json

CONTROLLER = "/controller"
"""Ephemeral node of the broker that is the controller."""


class LeaderAndIsr(NamedTuple):
    """What the controller wrote of a partition: leader (-1 for none), its epoch, and the replicas in sync."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


def partition_state_path(partition: TopicPartition) -> str:
    """Path of a partition's state."""
    return f"{BROKER_TOPICS}/{partition.topic}/partitions/{partition.partition}/state"


def decode_partition_state(path: str, data: bytes | None) -> LeaderAndIsr:
    """The state of a partition.

    Raises:
        MalformedZnode: unreadable.
    """
    document = _document(path, data)
    try:
        isr = tuple(int(broker) for broker in document["isr"])
        return LeaderAndIsr(int(document["leader"]), int(document["leader_epoch"]), isr)
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedZnode(path, f"unreadable partition state ({error!r})") from None


def decode_consumer_rate(path: str, data: bytes | None) -> float | None:
    """The quota of fetches in the znode of a client id or user, None if it has none.

    Raises:
        MalformedZnode: unreadable.
    """
    config = _document(path, data).get("config")
    value = config.get(CONSUMER_RATE) if isinstance(config, dict) else None
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise MalformedZnode(path, f"unreadable quota ({error})") from None


def _document(path: str, data: bytes | None) -> dict[str, Any]:
    try:
        value = parse_json(data or b"")
    except ValueError as error:
        raise MalformedZnode(path, f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise MalformedZnode(path, "not a JSON object")
    return value
