"""The consumer id: identifies this consumer in its group, across sessions (jvm-consumer.md#identifiers)."""

from __future__ import annotations

import socket
import time
import uuid

from zkconsumer.config.consumerconfig import ConsumerConfig


def new_consumer_id(config: ConsumerConfig) -> str:
    """``<group>_<consumer.id>``, or ``<group>_<host name>-<epoch ms>-<8 hex digits>`` if none is configured.

    The digits are the first eight of a random UUID's upper half, as the JVM's.
    """
    own = config.consumer_id
    if own is None:
        own = f"{socket.gethostname()}-{time.time_ns() // 1_000_000}-{uuid.uuid4().int >> 64:x}"
        own = own[: own.rindex("-") + 9]
    return f"{config.group_id}_{own}"
