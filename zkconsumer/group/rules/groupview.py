"""GroupView: one snapshot of a consumer group, and its description for the log."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.java.javastring import java_order
from zkconsumer.model import Broker, ConsumerThreadId, Topic, TopicIdentity, TopicPartition, replaced_topics


@dataclass(frozen=True, slots=True)
class GroupView:
    """What one member saw of its group at one moment.

    Attributes:
        members: consumer id to subscription.
        unreadable: consumer id to the reason why its registration cannot be used; such a member gets nothing.
        topics: all topics of the cluster; only filled when a member subscribes by filter.
        partitions: partition numbers, ascending, of every topic that a member subscribes to; or only of the reading
            member's topics, where other topics cannot affect it. A topic that does not exist is absent.
        identities: the identity of each of these topics.
        brokers: live brokers that this consumer can connect to.
        our_clients: zkconsumer members, which have a session node: consumer id to the assignor that they use.
        session_ms: consumer id to the session timeout in ms, of those zkconsumer members that wrote it.
        obeying: zkconsumer members with ``group.protocol=coordinator``, whether they have a command or not.
        unshared: zkconsumer members with ``group.share=false``.
        registered_ms: consumer id to the time of registration in ms since the epoch, where the member wrote one.
        user_data: consumer id to what the application's assignor wrote for it, if it wrote anything.
    """

    members: Mapping[str, Subscription]
    partitions: Mapping[str, tuple[int, ...]]
    topics: frozenset[str] = frozenset()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    brokers: tuple[Broker, ...] = ()
    our_clients: Mapping[str, str] = field(default_factory=dict)
    registered_ms: Mapping[str, int] = field(default_factory=dict)
    identities: Mapping[str, TopicIdentity] = field(default_factory=dict)
    session_ms: Mapping[str, int] = field(default_factory=dict)
    obeying: frozenset[str] = frozenset()
    unshared: frozenset[str] = frozenset()
    user_data: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def jvm_members(self) -> frozenset[str]:
        """Ids of the registered members that are not ours. Those of ours never give up."""
        return frozenset(self.members.keys() - self.our_clients.keys())

    @property
    def nudger(self) -> str | None:
        """The one of our registered members that nudges those of the JVM: each nudge makes every member rebalance.

        If it obeys a coordinator, the leader nudges in its place: followers do not know the assignment.
        """
        return min(self.our_clients.keys() & self.members.keys(), default=None)

    def subscribed_topics(self, consumer_id: str, *, exclude_internal: bool) -> dict[str, Topic]:
        """The topics that one member subscribes to and that exist."""
        subscription = self.members.get(consumer_id)
        wanted = () if subscription is None else subscription.expand(self.topics, exclude_internal=exclude_internal)
        return {
            topic: Topic(self.partitions[topic], self.identities[topic]) for topic in wanted if topic in self.identities
        }

    def recreated_since(self, before: GroupView, topics: Iterable[str]) -> set[str]:
        """Those of ``topics`` that were deleted and created again after ``before`` was read."""
        existing = {topic: self.identities[topic] for topic in topics if topic in self.identities}
        return replaced_topics(before.identities, existing)

    def threads_by_topic(self, *, exclude_internal: bool) -> dict[str, list[ConsumerThreadId]]:
        """Topic to all consumer threads of the group that subscribe to it, in the JVM's order.

        See jvm-consumer.md#identifiers.

        Members with equal subscriptions are taken together: 500 members on 5,000 topics make 2.5 million threads, which
        are the same 500 for each topic. So topics share lists, which must not be changed.
        """
        alike: dict[Hashable, list[str]] = {}
        for consumer_id, subscription in self.members.items():
            alike.setdefault(subscription.key, []).append(consumer_id)
        wanted_by: dict[str, list[tuple[Hashable, int]]] = {}
        for key, members in alike.items():
            expanded = self.members[members[0]].expand(self.topics, exclude_internal=exclude_internal)
            for topic, streams in expanded.items():
                wanted_by.setdefault(topic, []).append((key, streams))
        made: dict[tuple[tuple[Hashable, int], ...], list[ConsumerThreadId]] = {}
        threads: dict[str, list[ConsumerThreadId]] = {}
        for topic, wanting in wanted_by.items():
            signature = tuple(wanting)
            if signature not in made:
                every = [
                    ConsumerThreadId(consumer_id, n)
                    for key, streams in wanting
                    for consumer_id in alike[key]
                    for n in range(streams)
                ]
                made[signature] = sorted(every, key=lambda thread: java_order(str(thread)))
            threads[topic] = made[signature]
        return threads

    def disagreement(self, assignor: str, *, shared_with_jvm: bool) -> str | None:
        """Why a member must not compute an assignment in this group, None if it may.

        Members that use different assignors claim the same partitions and leave others without an owner
        (jvm-consumer.md#assignment).

        Args:
            assignor: name of the asking member's assignor.
            shared_with_jvm: True if JVM members can compute the same assignment.
        """
        different = {member: used for member, used in self.our_clients.items() if used != assignor}
        if different:
            named = ", ".join(f"{member} ({used})" for member, used in sorted(different.items()))
            return (
                f"this member assigns by {assignor}, other members do not: {named}; give all members the same "
                "partition.assignment.strategy and roundrobin.hash.era"
            )
        foreign = sorted((self.members.keys() | self.unreadable.keys()) - self.our_clients.keys())
        if foreign and not shared_with_jvm:
            return (
                f"JVM members cannot assign by {assignor}: {', '.join(foreign)}; use range or roundrobin while they "
                "are in the group"
            )
        return None


def describe_changes(before: GroupView | None, after: GroupView) -> str:
    """What changed in the group since a member last got its share, as text for the log.

    Args:
        before: the view at that time; None if the member has had no share yet.
        after: the view that the next share is computed from.
    """
    if before is None:
        return f"joining a group of {len(after.members)}: {', '.join(sorted(after.members))}"
    changes = "; ".join(_changes(before, after))
    return changes or "the same group: an attempt failed, owner znodes or the session were lost, or topics are others"


def _changes(before: GroupView, after: GroupView) -> Iterator[str]:
    for verb, ids in (
        ("joined", after.members.keys() - before.members.keys()),
        ("left", before.members.keys() - after.members.keys()),
    ):
        if ids:
            yield f"{', '.join(sorted(ids))} {verb}"
    stayed = before.members.keys() & after.members.keys()
    changed = sorted(member for member in stayed if before.members[member] != after.members[member])
    if changed:
        yield f"{', '.join(changed)} changed subscription"
    for topic in sorted(before.partitions.keys() | after.partitions.keys()):
        had, has = len(before.partitions.get(topic, ())), len(after.partitions.get(topic, ()))
        if had != has:
            yield f"topic {topic} has {has} partitions, it had {had}"


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as text for the log: ``clicks 0-3,7; views 1``; ``nothing`` if there are none."""
    by_topic = groupby(sorted(partitions), key=lambda partition: partition.topic)
    return (
        "; ".join(f"{topic} {number_ranges(p.partition for p in of_topic)}" for topic, of_topic in by_topic)
        or "nothing"
    )


def number_ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as text, ``0-3,7``; within a run, number minus index is constant."""
    runs = [list(run) for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0][1]) if len(run) == 1 else f"{run[0][1]}-{run[-1][1]}" for run in runs)
