"""DualOffsetStore: offsets in ZooKeeper and in Kafka, for use during a migration.

See jvm-consumer.md#offsets-in-kafka, architecture.md#fencing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from zkconsumer.errors import TopicUnreadable
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.offsetstore import OffsetStore
from zkconsumer.offsets.rules.storedoffsets import ChosenOffset, StoredOffset, choose_stored, usable_offset
from zkconsumer.offsets.rules.topicorigins import TopicOrigin, judge_offsets, may_be_copy, without_copies


class DualOffsetStore:
    """Writes both stores and reads by a rule; an :class:`~zkconsumer.offsets.offsetstore.OffsetStore`.

    Args:
        zookeeper: written first, since its transaction is fenced; for an exception see :meth:`commit`.
        kafka: written second, with the offsets that ZooKeeper accepted.
        rule: ``dual.read``, see :func:`~zkconsumer.offsets.rules.storedoffsets.choose_stored`.
    """

    def __init__(self, zookeeper: OffsetStore, kafka: OffsetStore, rule: str) -> None:
        self._zookeeper = zookeeper
        self._kafka = kafka
        self._rule = rule
        self._from_kafka: set[TopicPartition] = set()
        self._unchosen: set[TopicPartition] = set()  # committed since it was found out which offset counts
        self._readable: set[TopicPartition] = set()
        self._topics: dict[str, TopicOrigin] = {}
        self._shown_by_znode: set[TopicPartition] = set()

    def fetch(
        self, partitions: Collection[TopicPartition], kept: Collection[TopicPartition] = (), *, again: bool = False
    ) -> dict[TopicPartition, int | None]:
        """See :meth:`.OffsetStore.fetch`."""
        in_zookeeper = self._zookeeper.fetch(partitions, kept, again=again)
        in_kafka = self._kafka.fetch(partitions, kept, again=again)
        if not again:
            self._from_kafka, self._readable, self._shown_by_znode = set(), set(), set()
        readable = {p for p in partitions if p in in_zookeeper and p in in_kafka}
        self._readable |= readable
        return {p: chosen.offset for p, chosen in self._choose(readable).items()}

    def _choose(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ChosenOffset]:
        """One of an earlier topic is chosen only if none counts: a member begins at the start of the log then."""
        in_zookeeper = judge_offsets(self._topics, self._zookeeper.stored(partitions))
        in_kafka = judge_offsets(self._topics, self._kafka.stored(partitions))
        chosen: dict[TopicPartition, ChosenOffset] = {}
        for p in partitions:
            one, other = without_copies(in_zookeeper[p], in_kafka[p])
            chosen[p] = choose_stored(one.counting, other.counting, self._rule)
            if usable_offset(chosen[p].offset) is None:
                chosen[p] = choose_stored(one.offset, other.offset, self._rule)
        self._shown_by_znode.difference_update(partitions)
        self._shown_by_znode.update(p for p in partitions if may_be_copy(in_zookeeper[p], in_kafka[p]))
        self._unchosen.difference_update(partitions)
        self._from_kafka.difference_update(partitions)
        self._from_kafka.update(p for p, one in chosen.items() if one.in_kafka)
        return chosen

    def commit(
        self, offsets: Mapping[TopicPartition, int], *, may_send: Callable[[], bool] = lambda: True, retry: bool = True
    ) -> set[TopicPartition]:
        """See :meth:`.OffsetStore.commit`.

        Where the znode alone shows that Kafka's offset may be of an earlier topic, Kafka's is replaced first. Else: 1.
        the znode is replaced; 2. the member is killed; 3. the next one takes Kafka's for one of the present topic.
        """
        shown = {p: offset for p, offset in offsets.items() if p in self._shown_by_znode}
        if not shown:
            return self._commit_in_order(offsets, may_send=may_send, retry=retry)
        others = {p: offset for p, offset in offsets.items() if p not in shown}
        done = self._commit_in_order(others, may_send=may_send, retry=retry) if others else set()
        accepted = self._kafka.commit(shown, may_send=may_send, retry=retry)
        self._shown_by_znode -= accepted
        return done | self._commit_in_order({p: shown[p] for p in accepted}, may_send=may_send, retry=retry)

    def _commit_in_order(
        self, offsets: Mapping[TopicPartition, int], *, may_send: Callable[[], bool], retry: bool
    ) -> set[TopicPartition]:
        """ZooKeeper first, whose transaction is fenced; Kafka gets what it has accepted."""
        accepted = self._zookeeper.commit(offsets, may_send=may_send, retry=retry)
        left = {partition: offsets[partition] for partition in offsets if partition in accepted}
        self._unchosen.update(left)  # where Kafka keeps another offset, that one may count
        return self._kafka.commit(left, may_send=may_send, retry=retry)

    def sends(self, offsets: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        """See :meth:`.OffsetStore.sends`."""
        return {*self._zookeeper.sends(offsets), *self._kafka.sends(offsets)}

    def consume(self, topics: Mapping[str, TopicOrigin]) -> None:
        """See :meth:`.OffsetStore.consume`."""
        self._topics.update(topics)
        self._choose([p for p in self._readable if p.topic in topics])
        self._zookeeper.consume(topics)
        self._kafka.consume(topics)

    def invalidate(self, partitions: Collection[TopicPartition]) -> None:
        """See :meth:`.OffsetStore.invalidate`."""
        self._zookeeper.invalidate(partitions)
        self._kafka.invalidate(partitions)

    def stored(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """See :meth:`.OffsetStore.stored`: the offset that is used."""
        self._choose(self._unchosen.intersection(partitions))
        stored = self._zookeeper.stored(partitions)
        return {**stored, **self._kafka.stored([p for p in partitions if p in self._from_kafka])}

    def refused(self) -> Mapping[TopicPartition, TopicUnreadable]:
        """See :meth:`.OffsetStore.refused`."""
        return self._kafka.refused()

    def commits(self) -> dict[str, int]:
        """See :meth:`.OffsetStore.commits`."""
        return {**self._zookeeper.commits(), **self._kafka.commits()}

    def location(self, partition: TopicPartition) -> str:
        """See :meth:`.OffsetStore.location`."""
        return f"{self._zookeeper.location(partition)} or {self._kafka.location(partition)}"

    def close(self) -> None:
        """See :meth:`.OffsetStore.close`."""
        self._zookeeper.close()
        self._kafka.close()
