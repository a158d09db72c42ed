"""MemberSession: what keeps one consumer in a group of brokers, whichever of their two protocols the group uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from zkconsumer.errors import ZkConsumerError
from zkconsumer.group.kafka.sharedmember import SharedMember
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Topic
from zkconsumer.wire.findcoordinator import CoordinatorLocation


class MemberSession(Protocol):
    """A membership, and the threads that keep it; the rebalance thread of the member uses it."""

    streams: Mapping[str, int]
    """Topic to number of consumer threads, for the subscribed topics; replaced, never changed."""
    topics: Mapping[str, Topic]
    """Descriptions of these topics; replaced, never changed."""
    failure: ZkConsumerError | None
    """Why the last attempt to join failed."""
    views: int
    """Assignments received so far."""

    @property
    def membership(self) -> SharedMember[Any]:
        """What the rebalance thread may use."""

    @property
    def location(self) -> CoordinatorLocation:
        """Where the coordinator is, for every client of this member."""

    @property
    def topic_ids(self) -> Callable[[], Mapping[str, str]] | None:
        """Returns the ids of topics by name, for commits; None in a group without member epochs."""

    @property
    def cooperative(self) -> bool:
        """True if partitions that stay are kept over a rebalance."""

    @property
    def connected(self) -> bool:
        """False while the coordinator does not answer the heartbeats of a member."""

    @property
    def lease_lapses(self) -> int:
        """How often the lease has lapsed."""

    def open(self, lease_changed: Callable[[], None]) -> None:
        """Check that a broker answers, and start the threads; to be called once.

        Raises:
            BrokerUnavailable: no broker answers.
            ConfigError: the brokers do not have the protocol.
            GroupAuthorizationFailed: the permission to find the coordinator is missing.
        """

    def close(self) -> None:
        """Leave the group at once, and end the threads. Idempotent."""

    def begin(self, subscription: Subscription) -> None:
        """Become a member; returns at once, and the assignment comes later.

        Raises:
            InstanceIdInUse: another consumer uses the same ``group.instance.id``.
        """
