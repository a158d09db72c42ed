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
        our_clients: members of our kind, that is with a session node: consumer id to the assignor that they use.
        registered_ms: consumer id to the time of registration in ms since the epoch, where the member wrote one.
    """

    members: Mapping[str, Subscription]
    partitions: Mapping[str, tuple[int, ...]]
    topics: frozenset[str] = frozenset()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    brokers: tuple[Broker, ...] = ()
    our_clients: Mapping[str, str] = field(default_factory=dict)
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

    def disagreement(self, assignor: str, *, shared_with_jvm: bool) -> str | None:
        """Why a member must not compute an assignment in this group, None if nothing speaks against it.

        Members that use different assignors claim the same partitions and leave others to nobody (SPEC 5).

        Args:
            assignor: name of the asking member's assignor.
            shared_with_jvm: True if JVM members can compute the same.
        """
        others = {member: theirs for member, theirs in self.our_clients.items() if theirs != assignor}
        if others:
            named = ", ".join(f"{member} ({theirs})" for member, theirs in sorted(others.items()))
            return (
                f"this member assigns by {assignor}, others do not: {named}; give all members the same "
                "partition.assignment.strategy and roundrobin.hash.era"
            )
        foreign = sorted((self.members.keys() | self.unreadable.keys()) - self.our_clients.keys())
        if foreign and not shared_with_jvm:
            return (
                f"JVM members cannot assign by {assignor}: {', '.join(foreign)}; use range or roundrobin while they "
                "are in the group"
            )
        return None
