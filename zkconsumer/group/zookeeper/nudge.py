"""nudge_members: make every member of a group rebalance; for members and tools (architecture.md#nudging)."""

from __future__ import annotations

from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import STATIC, ConsumerIdNode, Registration
from zkconsumer.zookeeper.session import ZkSession


def nudge_members(session: ZkSession, paths: GroupPaths, fence: str, name: str, now_ms: int) -> None:
    """Let a member without topics come and go, in one transaction.

    With two transactions it could stay: 1. it is created; 2. the connection breaks; 3. nothing deletes it, and for as
    long as this session lives the members assign partitions as if it existed.

    Args:
        session: an open session.
        paths: of the group.
        fence: path of a node without which nothing is done.
        name: of the member or tool that nudges.
        now_ms: current time in ms since the epoch.

    Raises:
        ZooKeeperUnavailable, SessionExpired, ZooKeeperRefused: not done, or unknown whether it was done.
    """
    without_topics = Registration({}, STATIC, str(now_ms))
    session.flash(fence, paths.consumer_id(f"{name}-nudge"), ConsumerIdNode.encode(without_topics))
