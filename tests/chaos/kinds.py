"""Kinds of members, and the times that trials are made with. Pure."""

from __future__ import annotations

from typing import Final

SESSION_S: Final = 2.0
"""The session timeout of all members, T."""

OURS: Final = "zkconsumer"
COORDINATED: Final = "coordinator"
"""Ours with ``group.protocol=coordinator``."""
IN_BROKERS: Final = "kafka"
"""Ours with ``group.protocol=kafka``."""
ASSIGNED_BY_BROKERS: Final = "consumer"
"""Ours with ``group.protocol=consumer``."""
JVM: Final = "jvm"

OF_BROKERS: Final = frozenset({IN_BROKERS, ASSIGNED_BY_BROKERS})
"""Members of groups that brokers coordinate."""

HEARTBEAT_S: Final = SESSION_S / 6
"""Their interval of heartbeats."""

ZOOKEEPER: Final = "ZooKeeper"
"""In place of the owner in what is recorded of its server."""
