"""ClusterCatalog: what a consumer has to know of the brokers: who they are, and which topics and partitions exist.

ZooKeeper has it for brokers up to 3.9 (``cluster/brokerznodes.py``). Brokers themselves have it in every release
(``cluster/brokercatalog.py``), and are the only ones that have it since Kafka 4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from zkconsumer.errors import BrokerUnavailable
from zkconsumer.model import Broker, Topic, TopicIdentity

DENIED_S: Final = 5.0
"""How long brokers must deny a topic that they described before it counts as deleted.

A broker learns of the brokers before it learns of topics, and of a new topic later than others. The only broker of a
cluster denied every topic for 2.2 s after its start. Members may disagree about a deleted topic for this long.
"""

_MOST_REPLACED: Final = 4
"""Former topics of one name that are remembered. Brokers that have not learned of so many changes are very rare."""
_FOLLOW_UP_S: Final = 1.0
_FIRST_RETRY_S: Final = 0.2
_MOST_DOUBLINGS: Final = 20


class ClusterCatalog(Protocol):
    """The brokers and topics of one cluster.

    Its methods raise a ZkConsumerError if that cannot be read.
    """

    @property
    def undescribed(self) -> frozenset[str]:
        """Topics that were asked for, and may exist, although they are not described.

        A permission is missing, or a znode is damaged.
        """

    def live_brokers(self) -> tuple[Broker, ...]:
        """The brokers that are alive and have an endpoint for this consumer."""

    def topics(self) -> frozenset[str]:
        """Names of all topics, internal ones included."""

    def describe_topics(self, topics: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that exist; one that cannot be read is reported in the log and skipped."""


class ClusterSource(Protocol):
    """Where a group reads the cluster from, if not from ZooKeeper."""

    def open(self, changed: Callable[[], None]) -> None:
        """Begin to notice changes.

        Args:
            changed: called on any thread when topics or partitions have changed; never blocks.
        """

    def read(self, topics: Collection[str] | None, *, for_others: bool = True) -> ClusterSnapshot:
        """The cluster at one moment, which is not earlier than the call if the brokers answer.

        Args:
            topics: names of the topics to describe; None for all topics.
            for_others: True if partitions are shared by what is read, so that members must not disagree about it.

        Raises:
            ZkConsumerError: nothing is known of the cluster, for a reason that waiting does not remove.
        """

    def live_brokers(self) -> tuple[Broker, ...]:
        """Brokers to send requests to, as last known; any thread may call it."""

    def close(self) -> None:
        """End, without waiting for an answer of a broker. Idempotent; from any thread."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A :class:`ClusterCatalog` of one moment.

    Attributes:
        brokers: live brokers, sorted; empty if nothing is known.
        described: the topics that exist, among those that were asked for.
        asked_for: names of the topics that were asked for; None for all topics.
        denied: since when brokers have denied some of these topics, by the caller's clock, in seconds; they also deny a
            topic by describing one that it has replaced.
        undescribed: see :class:`ClusterCatalog`.
        replaced: ids of former topics, of topics that were created again.
    """

    brokers: tuple[Broker, ...] = ()
    described: Mapping[str, Topic] = field(default_factory=dict)
    asked_for: frozenset[str] | None = frozenset()
    denied: Mapping[str, float] = field(default_factory=dict)
    undescribed: frozenset[str] = frozenset()
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def live_brokers(self) -> tuple[Broker, ...]:
        """See :class:`ClusterCatalog`."""
        return self.brokers

    def topics(self) -> frozenset[str]:
        """Names of the topics that exist, among those that were asked for."""
        return frozenset(self.described)

    def describe_topics(self, topics: Iterable[str]) -> dict[str, Topic]:
        """See :class:`ClusterCatalog`."""
        return {name: self.described[name] for name in topics if name in self.described}

    def covers(self, topics: Collection[str] | None) -> bool:
        """True if these topics were asked for."""
        return self.asked_for is None or (topics is not None and self.asked_for.issuperset(topics))

    def may_be_outdated(self, wanted: Collection[str] | None, *, for_others: bool) -> bool:
        """True if another broker may know more, of what matters to who has just read this.

        Brokers learn of changes one after the other. A topic that this one does not know may have been created; and two
        members that share partitions by what different brokers answered may disagree.

        Args:
            wanted: names of the topics that were asked for; None for all topics.
            for_others: see :meth:`ClusterSource.read`.
        """
        lacks_any = wanted is not None and not self.described.keys() >= set(wanted)
        return lacks_any or (for_others and len(self.brokers) > 1)

    def differs(self, earlier: ClusterSnapshot) -> bool:
        """True if a topic that both snapshots cover was created, deleted or changed, or if there were no brokers."""
        if bool(self.brokers) != bool(earlier.brokers):
            return True
        return any(
            self.described.get(name) != earlier.described.get(name)
            for name in self.described.keys() | earlier.described.keys()
            if self.covers([name]) and earlier.covers([name])
        )


def read_known(source: ClusterSource, topics: Collection[str] | None, *, for_others: bool = True) -> ClusterSnapshot:
    """The cluster, for a reader that must not take an unknown topic for one that does not exist.

    Args:
        source: the cluster.
        topics: names of the topics to describe; None for all topics.
        for_others: see :meth:`ClusterSource.read`.

    Raises:
        BrokerUnavailable: no broker has described these topics yet.
        ZkConsumerError: see :meth:`ClusterSource.read`.
    """
    snapshot = read_if_any(source, topics, for_others=for_others)
    if not snapshot.brokers:
        raise BrokerUnavailable(_UNDESCRIBED)
    return snapshot


def read_identities(source: ClusterSource, topics: Iterable[str], *, required: bool) -> dict[str, TopicIdentity | None]:
    """The present identity of each topic, None if it does not exist; without those of which nothing is known.

    Raises:
        BrokerUnavailable: nothing is known although it is ``required``.
        ZkConsumerError: see :meth:`ClusterSource.read`.
    """
    names = sorted(set(topics))
    try:
        described = read_known(source, names).describe_topics(names) if names else {}
    except BrokerUnavailable:
        if required:
            raise
        return {}
    return {name: described[name].identity if name in described else None for name in names}


def read_if_any(source: ClusterSource, topics: Collection[str] | None, *, for_others: bool = True) -> ClusterSnapshot:
    """The same for a reader to which a cluster of which nothing is known is one without brokers.

    Raises:
        BrokerUnavailable: brokers are known, and none of them has described these topics yet.
        ZkConsumerError: see :meth:`ClusterSource.read`.
    """
    snapshot = source.read(topics, for_others=for_others)
    if snapshot.brokers and not snapshot.covers(topics):
        raise BrokerUnavailable(_UNDESCRIBED)
    return snapshot


_UNDESCRIBED: Final = "no broker of bootstrap.servers has described the subscribed topics yet; check that brokers run"


def next_snapshot(before: ClusterSnapshot, answer: ClusterSnapshot, *, now: float) -> ClusterSnapshot:
    """What to believe after a broker's answer.

    Brokers learn of changes one after the other, so an answer can be older than the one before it. A topic never loses
    partitions: if it has fewer now and is the same topic, the former number is right. A topic that is not described any
    more stays until it was denied for :data:`DENIED_S`.

    So does one that has replaced another, if the answer describes that one. Otherwise a member would read the new topic
    from its beginning again and again: 1. topic t is created again, and broker A describes the new one; 2. the next
    reading asks broker B, which has not learned of it, so t is another topic again; 3. the change causes a rebalance,
    whose reading asks A. If the first answers were those of B after A, the former topic is believed until B has learned
    of the new one, and for DENIED_S after that.

    Args:
        before: what was believed before.
        answer: what the broker reported now; of topics that it did not describe the former description stays.
        now: the time of the answer.
    """
    missing = before.described.keys() - answer.described.keys()
    outdated = {
        name
        for name, former_ids in before.replaced.items()
        if name in answer.described and answer.described[name].identity.topic_id in former_ids
    }
    denied = {name: before.denied.get(name, now) for name in (missing - answer.undescribed) | outdated}
    denied = {name: since for name, since in denied.items() if now - since < DENIED_S}
    described = dict(answer.described)
    for name in (missing & answer.undescribed) | denied.keys():
        described[name] = before.described[name]
    replaced = {name: ids for name, ids in before.replaced.items() if name in described}
    for name, topic in before.described.items():
        later = described.get(name)
        if later is None or later.identity.topic_id is None:
            continue
        if later.identity == topic.identity:
            described[name] = max(topic, later, key=lambda candidate: len(candidate.partitions))
        elif topic.identity.topic_id is not None:
            former = [former_id for former_id in replaced.get(name, ()) if former_id != later.identity.topic_id]
            replaced[name] = (*former, topic.identity.topic_id)[-_MOST_REPLACED:]
    return ClusterSnapshot(answer.brokers, described, answer.asked_for, denied, answer.undescribed, replaced)


def poll_seconds(interval_s: float, *, failures: int, soon: bool) -> float:
    """Seconds until the brokers are asked again.

    Args:
        interval_s: ``metadata.max.age.ms``, in seconds.
        failures: requests in a row that no broker answered.
        soon: True while a broker denies a topic, and see :meth:`ClusterSnapshot.may_be_outdated`.

    >>> [poll_seconds(30, failures=n, soon=False) for n in (0, 1, 2, 9)]
    [30, 0.2, 0.4, 30]
    """
    if failures:
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        return min(interval_s, _FIRST_RETRY_S * (1 << doublings))
    return min(interval_s, _FOLLOW_UP_S) if soon else interval_s
