"""ZooKeeperOffsetStore: offsets in znodes, as the JVM keeps them, written in fenced transactions.

See jvm-consumer.md#offsets-in-zookeeper.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from zkconsumer.errors import MalformedZnode, TopicUnreadable, ZooKeeperRefused
from zkconsumer.model import Stamp, TopicPartition
from zkconsumer.offsets.querystamps import QueryStamps
from zkconsumer.offsets.rules.storedoffsets import (
    NO_NODE,
    KnownOffset,
    StoredOffset,
    changed_offsets,
    written_by_others,
)
from zkconsumer.offsets.rules.topicorigins import TopicOrigin, WrittenFor, judge_offsets, that_are
from zkconsumer.zookeeper.fencedtransaction import NO_FENCE, Kind, Operation, Outcome
from zkconsumer.zookeeper.partialtransactions import Outcomes
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import OffsetNode
from zkconsumer.zookeeper.session import ZkSession

_log = logging.getLogger(__name__)


_ROUNDS = 4
"""Rounds of one commit: a node may be missing, then its parent, and then another client may have created it."""


class ZooKeeperOffsetStore:
    """Offsets of one group in ZooKeeper; an :class:`~zkconsumer.offsets.offsetstore.OffsetStore`.

    Args:
        session: an open session.
        group: consumer group.
        fence: returns the path of a node whose absence stops every commit: the member's session node. Tools that write
            offsets of a group without being a member use the default, the root, which always exists.
        is_stamping: True if commits have stamps, which are read, too (adr/0029).
    """

    def __init__(
        self,
        session: ZkSession,
        group: str,
        fence: Callable[[], str] = lambda: NO_FENCE,
        *,
        is_stamping: bool = False,
    ) -> None:
        self._session = session
        self._paths = GroupPaths(group)
        self._fence = fence
        self._stamps = QueryStamps(session, self._paths) if is_stamping else None
        self._known: dict[TopicPartition, KnownOffset] = {}
        self._of_earlier_topics: frozenset[TopicPartition] = frozenset()
        self._written = 0

    def fetch(
        self, partitions: Collection[TopicPartition], kept: Collection[TopicPartition] = (), *, again: bool = False
    ) -> dict[TopicPartition, int | None]:
        """See :meth:`.OffsetStore.fetch`.

        What is kept is read only if the answer to a write was lost.
        """
        certain = {p: self._known[p] for p in kept if p in self._known and self._known[p].version is not None}
        known = {**certain, **self._read([partition for partition in partitions if partition not in certain])}
        self._known = {**self._known, **known} if again else known
        return {partition: offset.offset for partition, offset in known.items()}

    def _read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KnownOffset]:
        """Read offset nodes; those that cannot be read are logged, and absent from the result."""
        stamps = self._stamps
        paths = [self._paths.offset(partition) for partition in partitions]
        reads = self._session.read_many([*paths, *(stamps.paths(partitions) if stamps else ())])
        known: dict[TopicPartition, KnownOffset] = {}
        for partition in partitions:
            path = self._paths.offset(partition)
            if path in reads.refused:
                _log.error("group %s will not consume %s: %s", self._paths.group, partition, reads.refused[path])
                continue
            node = reads.nodes[path]
            try:
                known[partition] = (
                    KnownOffset(None, NO_NODE)
                    if node is None
                    else KnownOffset(
                        OffsetNode.decode(path, node.data),
                        node.version,
                        node.mzxid,
                        stamps.read(partition, reads.nodes, node.mzxid) if stamps else None,
                    )
                )
            except MalformedZnode as error:
                _log.error("group %s will not consume %s: %s", self._paths.group, partition, error)
        return known

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        stamp: Stamp | None = None,
        may_send: Callable[[], bool] = lambda: True,  # noqa: ARG002 - every transaction is fenced
        retry: bool = True,  # noqa: ARG002 - there is one attempt
    ) -> set[TopicPartition]:
        """See :meth:`.OffsetStore.commit`.

        Only what differs from what was last read or written is written again (KAFKA-987), and that only of partitions
        that were read: no other member writes those while this member owns them. If another client did, that is
        logged, and our offset stays, as with the JVM consumer; an error would stop commits of 500 partitions for one.
        """
        todo = {p: offsets[p] for p in self.sends(offsets)}
        done = offsets.keys() - todo.keys()
        kinds: dict[TopicPartition, Kind] = {p: "create" if self._is_missing(p) else "set" for p in todo}
        for _ in range(_ROUNDS):
            outcomes = self._write({p: (kinds[p], offset) for p, offset in todo.items()}, stamp)
            written = {p for p, outcome in outcomes.items() if outcome == "done"}
            self._written += len(written)
            self._of_earlier_topics -= written
            done |= written
            todo = {p: offset for p, offset in todo.items() if outcomes[p] not in ("done", "refused")}
            if not todo:
                break
            if orphans := [p for p in todo if kinds[p] == "create" and outcomes[p] == "missing"]:
                self._create_topics({p.topic for p in orphans})
            kinds = {p: "set" if outcomes[p] == "exists" else "create" for p in todo}
        return done

    def sends(self, offsets: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        """See :meth:`.OffsetStore.sends`."""
        # Not compared with what an unanswered write may have replaced, nor with what the next member would ignore.
        certain = {
            p: known.offset
            for p, known in self._known.items()
            if known.version is not None and p not in self._of_earlier_topics
        }
        return changed_offsets(offsets, certain).keys()

    def _create_topics(self, topics: Collection[str]) -> None:
        refused = self._session.ensure_paths([self._paths.offset_topic(topic) for topic in topics], None)
        for reason in refused.values():
            _log.error("group %s: offsets of a topic are not stored: %s", self._paths.group, reason)

    def _is_missing(self, partition: TopicPartition) -> bool:
        known = self._known.get(partition)
        return known is not None and known.version == NO_NODE

    def consume(self, topics: Mapping[str, TopicOrigin]) -> None:
        """See :meth:`.OffsetStore.consume`: a znode's mzxid shows it, so that an equal offset is written again."""
        stored = {p: known.stored for p, known in self._known.items()}
        self._of_earlier_topics |= frozenset(that_are(judge_offsets(topics, stored), WrittenFor.EARLIER))

    def invalidate(self, partitions: Collection[TopicPartition]) -> None:
        """See :meth:`.OffsetStore.invalidate`."""
        for partition in partitions:
            self._known.pop(partition, None)

    def stored(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """See :meth:`.OffsetStore.stored`.

        The answer to a creation lacks the mzxid, and an answer may have been lost: then the znode is read. Its mzxid is
        used only if it still holds what was written.
        """
        known = {p: self._known.get(p, KnownOffset(None, NO_NODE)) for p in partitions}
        unmarked = [p for p, offset in known.items() if offset.offset is not None and offset.mzxid is None]
        nodes = self._session.get_many(self._paths.offset(partition) for partition in unmarked)
        for partition in unmarked:
            node = nodes[self._paths.offset(partition)]
            if node is not None and node.data == OffsetNode.encode(known[partition].offset or 0):
                known[partition] = self._known[partition] = replace(known[partition], mzxid=node.mzxid)
        return {partition: offset.stored for partition, offset in known.items()}

    def refused(self) -> Mapping[TopicPartition, TopicUnreadable]:
        """See :meth:`.OffsetStore.refused`: topics have no ACLs here."""
        return {}

    def commits(self) -> dict[str, int]:
        """See :meth:`.OffsetStore.commits`."""
        return {"zookeeper": self._written}

    def location(self, partition: TopicPartition) -> str:
        """The path of its znode."""
        return self._paths.offset(partition)

    def close(self) -> None:
        """See :meth:`.OffsetStore.close`."""

    def _write(
        self, offsets: Mapping[TopicPartition, tuple[Kind, int]], stamp: Stamp | None
    ) -> dict[TopicPartition, Outcome]:
        paths = {partition: self._paths.offset(partition) for partition in offsets}
        operations = [Operation(kind, paths[p], OffsetNode.encode(offset)) for p, (kind, offset) in offsets.items()]
        stamps = self._stamps.operations(offsets, stamp) if self._stamps else {}
        try:
            outcomes = self._transact(operations, stamps)
        except BaseException:
            # Some may have been written: whether their versions are due to this commit is unknown.
            self._known.update(
                (p, replace(self._known[p], version=None, mzxid=None)) for p in offsets if p in self._known
            )
            raise
        for path in outcomes.refused.keys() & set(paths.values()):
            _log.error("group %s: an offset is not stored: %s", self._paths.group, outcomes.refused[path])
        for partition, (_, offset) in offsets.items():
            if partition in self._known and outcomes[paths[partition]] == "done":
                path = paths[partition]
                is_stamped = partition in stamps and outcomes.get(stamps[partition].path) == "done"
                written = KnownOffset(
                    offset, outcomes.versions[path], outcomes.mzxids.get(path), stamp if is_stamped else None
                )
                self._note(partition, written)
        return {partition: outcomes[path] for partition, path in paths.items()}

    def _transact(self, operations: Sequence[Operation], stamps: Mapping[TopicPartition, Operation]) -> Outcomes:
        """Write offsets, each together with its stamp, or without any where ZooKeeper does not allow stamps."""
        if self._stamps is None or not stamps:
            return self._session.try_transact(self._fence(), operations)
        pairs = [operation for pair in zip(operations, stamps.values(), strict=True) for operation in pair]
        outcomes = None
        try:
            outcomes = self._session.try_transact(self._fence(), pairs, together=2)
        except ZooKeeperRefused as refusal:
            self._stamps.give_up(refusal)
            return self._session.try_transact(self._fence(), operations)
        finally:
            self._stamps.note(stamps, outcomes)
        return outcomes

    def _note(self, partition: TopicPartition, stored: KnownOffset) -> None:
        known, self._known[partition] = self._known[partition], stored
        if stored.version is not None and written_by_others(known, stored.version):
            _log.warning(
                "group %s: another client wrote %s since this consumer left it at %s, version %s; it is overwritten "
                "with offset %d, version %d. Check whether another consumer uses this group; to reset an offset, stop "
                "the group first",
                self._paths.group,
                self._paths.offset(partition),
                "no offset" if known.offset is None else f"offset {known.offset}",
                known.version,
                stored.offset,
                stored.version,
            )
