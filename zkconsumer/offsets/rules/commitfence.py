"""CommitIdentity: what fences a commit to a coordinator of brokers (architecture.md#fencing).

A commit to ZooKeeper is fenced by its transaction (:mod:`~zkconsumer.zookeeper.fencedtransaction`); one to Kafka of a
group in ZooKeeper cannot be: the lease is asked right before it is sent.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class CommitIdentity(NamedTuple):
    """Who commits: the coordinator refuses a commit of another generation, or of a member that it does not have."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


NO_MEMBER: Final = CommitIdentity()
"""Identity of a client that is no member; a coordinator accepts its commits while the group has no members."""
