"""DualOffsetStore: offsets in ZooKeeper and in Kafka, for use during a migration.

See jvm-consumer.md#offsets-in-kafka, architecture.md#fencing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from zkconsumer.errors import TopicUnreadable
from zkconsumer.model import Stamp, TopicPartition
from zkconsumer.offsets.offsetstore import OffsetStore
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, choose_stored, usable_offset
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
        self._topics: dict[str, TopicOrigin] = {}

    def fetch(
        self, partitions: Collection[TopicPartition], kept: Collection[TopicPartition] = (), *, again: bool = False
    ) -> dict[TopicPartition, int | None]:
        """See :meth:`.OffsetStore.fetch`."""
        in_zookeeper = self._zookeeper.fetch(partitions, kept, again=again)
        in_kafka = self._kafka.fetch(partitions, kept, again=again)
        readable = [p for p in partitions if p in in_zookeeper and p in in_kafka]
        return {p: chosen.offset for p, chosen in self.stored(readable).items()}

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        stamp: Stamp | None = None,
        may_send: Callable[[], bool] = lambda: True,
        retry: bool = True,
    ) -> set[TopicPartition]:
        """See :meth:`.OffsetStore.commit`.

        Where the znode alone shows that Kafka's offset may be of an earlier topic, Kafka's is replaced first. Else: 1.
        the znode is replaced; 2. the member is killed; 3. the next one takes Kafka's for one of the present topic.
        """
        shown = {p: offsets[p] for p in self._shown_by_znode(offsets)}
        if not shown:
            return self._commit_in_order(offsets, stamp, may_send=may_send, retry=retry)
        others = {p: offset for p, offset in offsets.items() if p not in shown}
        done = self._commit_in_order(others, stamp, may_send=may_send, retry=retry) if others else set()
        accepted = self._kafka.commit(shown, stamp=stamp, may_send=may_send, retry=retry)
        return done | self._commit_in_order({p: shown[p] for p in accepted}, stamp, may_send=may_send, retry=retry)

    def _shown_by_znode(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """The partitions whose znode alone shows that Kafka's offset may be of an earlier topic.

        That of a topic that was not created again shows nothing, and is not read for that: a commit needs no request
        that could fail besides its own.
        """
        suspect = [p for p in partitions if (origin := self._topics.get(p.topic)) is not None and origin.after]
        if not suspect:
            return []
        in_zookeeper = judge_offsets(self._topics, self._zookeeper.stored(suspect))
        in_kafka = judge_offsets(self._topics, self._kafka.stored(suspect))
        return [p for p in suspect if may_be_copy(in_zookeeper[p], in_kafka[p])]

    def _commit_in_order(
        self, offsets: Mapping[TopicPartition, int], stamp: Stamp | None, *, may_send: Callable[[], bool], retry: bool
    ) -> set[TopicPartition]:
        """ZooKeeper first, whose transaction is fenced; Kafka gets what it has accepted."""
        accepted = self._zookeeper.commit(offsets, stamp=stamp, may_send=may_send, retry=retry)
        left = {partition: offsets[partition] for partition in offsets if partition in accepted}
        return self._kafka.commit(left, stamp=stamp, may_send=may_send, retry=retry)

    def sends(self, offsets: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        """See :meth:`.OffsetStore.sends`."""
        return {*self._zookeeper.sends(offsets), *self._kafka.sends(offsets)}

    def consume(self, topics: Mapping[str, TopicOrigin]) -> None:
        """See :meth:`.OffsetStore.consume`."""
        self._topics.update(topics)
        self._zookeeper.consume(topics)
        self._kafka.consume(topics)

    def invalidate(self, partitions: Collection[TopicPartition]) -> None:
        """See :meth:`.OffsetStore.invalidate`."""
        self._zookeeper.invalidate(partitions)
        self._kafka.invalidate(partitions)

    def stored(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """See :meth:`.OffsetStore.stored`: the offset that is used.

        One of an earlier topic is chosen only if none counts: a member begins at the start of the log then.
        """
        in_zookeeper, in_kafka = self._zookeeper.stored(partitions), self._kafka.stored(partitions)
        judged_in_zookeeper = judge_offsets(self._topics, in_zookeeper)
        judged_in_kafka = judge_offsets(self._topics, in_kafka)
        stored: dict[TopicPartition, StoredOffset] = {}
        for p in partitions:
            one, other = without_copies(judged_in_zookeeper[p], judged_in_kafka[p])
            chosen = choose_stored(one.counting, other.counting, self._rule)
            if usable_offset(chosen.offset) is None:
                chosen = choose_stored(one.offset, other.offset, self._rule)
            stored[p] = in_kafka[p] if chosen.in_kafka else in_zookeeper[p]
        return stored

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
