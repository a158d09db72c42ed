"""GroupView: one snapshot of a consumer group, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkconsumer.core.javastring import java_order
from zkconsumer.core.subscription import Subscription
from zkconsumer.model import Broker, ConsumerThreadId


@dataclass(frozen=True, slots=True)
class GroupView:
    """What one member saw of its group at one moment.

    Attributes:
        members: consumer id to subscription.
        unreadable: consumer id to the reason why its registration cannot be used; such a member gets nothing.
        topics: all topics of the cluster; only filled when a member subscribes by filter.
        partitions: partition numbers, ascending, of every topic that a member subscribes to; absent: no such topic.
        brokers: live brokers that this consumer can talk to.
        our_clients: consumer ids that have a session node, that is members of our kind.
        registered_ms: consumer id to the time of registration in ms since the epoch, where the member wrote one.
    """

    members: Mapping[str, Subscription]
    partitions: Mapping[str, tuple[int, ...]]
    topics: frozenset[str] = frozenset()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    brokers: tuple[Broker, ...] = ()
    our_clients: frozenset[str] = frozenset()
    registered_ms: Mapping[str, int] = field(default_factory=dict)

    def threads_by_topic(self, *, exclude_internal: bool) -> dict[str, list[ConsumerThreadId]]:
        """Topic to all consumer threads of the group that subscribe to it, in the JVM's order (SPEC 2)."""
        threads: dict[str, list[ConsumerThreadId]] = {}
        for consumer_id, subscription in self.members.items():
            mine = subscription.threads(consumer_id, self.topics, exclude_internal=exclude_internal)
            for topic, of_topic in mine.items():
                threads.setdefault(topic, []).extend(of_topic)
        for of_topic in threads.values():
            of_topic.sort(key=lambda thread: java_order(str(thread)))
        return threads
