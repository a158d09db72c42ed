"""OffsetCommitter: commits a member's offsets by timer, at a release and on request, as far as that is allowed.

Used by the member's rebalance thread only.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import contextmanager

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import FetchControl
from zkconsumer.core.groupprotocol import GroupProtocol
from zkconsumer.core.offsets import StoredOffset
from zkconsumer.core.topicrecords import TopicOrigin
from zkconsumer.errors import (
    CommitRefused,
    ConsumerClosed,
    GenerationEnded,
    NotOwner,
    OffsetsNotStored,
    TopicUnreadable,
    ZooKeeperUnavailable,
    name_some,
)
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.store import OffsetStore

_log = logging.getLogger(__name__)


class OffsetCommitter:
    """Commits positions, and remembers what is stored.

    Since one thread does both, no commit can run between the steps of a rebalance or for a share that was released
    (in the JVM a commit by timer can, jvm-consumer.md#commit-calls).

    Args:
        config: the consumer's properties.
        consumer_id: id of the member.
        protocol: the member's side of its group: what it owns, and whether it may commit.
        fetch: knows what was handed out and what was released.
        store: where offsets are kept.
        signal: raised when a partition turns out to belong to another member.
        before_commit: makes durable what the application did with the records that a commit will cover.

    Attributes:
        lost: number of partitions dropped so far because another member owned them.
        without_group: partitions that are read without joining the group; they may be committed without being owned.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        protocol: GroupProtocol,
        fetch: FetchControl,
        store: OffsetStore,
        signal: RebalanceSignal,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        self._group = config.group_id
        self._commits_deliveries = config.commit_on == "delivery"
        self._consumer_id = consumer_id
        self._protocol = protocol
        self._fetch = fetch
        self._store = store
        self._signal = signal
        self._before_commit = before_commit
        self._releasing = False
        self._learned_after = -1
        self._forgotten: Set[TopicPartition] = frozenset()
        self._times_forgotten: Counter[TopicPartition] = Counter()
        self.lost = 0
        self.without_group: Mapping[TopicPartition, ConsumerThreadId] = {}
        self._stored: dict[TopicPartition, int | None] = {}
        self._written_since_read: dict[TopicPartition, int] = {}
        self._confirmed: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}  # also of partitions that were given up since

    # -- what is stored ---------------------------------------------------------------------------------------------

    def last_known(self, partition: TopicPartition) -> int | None:
        """What this member last read or wrote for the partition, None if nothing; for any thread."""
        return self._stored.get(partition)

    def is_own(self, partition: TopicPartition, stored: int | None) -> bool:
        """True if a stored offset is what this member last read or wrote, also before it gave the partition up."""
        return stored in (self.last_known(partition), self._written.get(partition))

    def consume(self, topics: Mapping[str, TopicOrigin]) -> None:
        """See :meth:`OffsetStore.consume <zkconsumer.offsets.store.OffsetStore.consume>`."""
        self._store.consume(topics)

    def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Offsets stored for newly claimed partitions; unreadable ones are absent."""
        return self._store.fetch(partitions)

    def fetch_marked(
        self, partitions: Collection[TopicPartition], kept: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, StoredOffset]:
        """As :meth:`fetch`, with the marks of the stored offsets; ``kept`` are those that were owned all the time."""
        self._written_since_read.clear()
        return self._store.stored(self._store.fetch(partitions, kept).keys())

    def refused(self) -> Mapping[TopicPartition, TopicUnreadable]:
        """See :meth:`OffsetStore.refused <zkconsumer.offsets.store.OffsetStore.refused>`."""
        return self._store.refused()

    def stored(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """See :meth:`OffsetStore.stored <zkconsumer.offsets.store.OffsetStore.stored>`."""
        return self._store.stored(partitions)

    def commits(self) -> dict[str, int]:
        """Offsets written so far, by storage; for any thread."""
        return self._store.commits()

    def learn(
        self,
        stored: Mapping[TopicPartition, int | None],
        starts: Mapping[TopicPartition, int | None],
        kept: Collection[TopicPartition] = (),
    ) -> None:
        """Replace the known offsets, when fetching starts from them: an attempt that fails must change nothing.

        What was written since the read is newer: 1. the offsets are read; 2. a listener commits a partition; 3. the
        offset that was read in step 1 is not stored any more.

        Args:
            stored: the offsets that :meth:`fetch_marked` has read.
            starts: where fetching starts; positions that the user committed beyond that are forgotten.
            kept: partitions that continue where they are, whatever ``starts`` has.
        """
        self._learned_after = self._protocol.releases
        self._forgotten = frozenset()
        self._stored = {p: self._written_since_read.get(p, offset) for p, offset in stored.items()}
        self._confirmed = {
            p: offset for p, offset in self._confirmed.items() if p in kept or (starts.get(p) or 0) >= offset
        }

    def forget_positions(self, partitions: Collection[TopicPartition]) -> None:
        """Commit no position of these, which are about to be released, until :meth:`learn`.

        Not even if they are owned again before; :attr:`positions_are_current` covers the release of everything.
        """
        self._forgotten |= set(partitions)
        self._times_forgotten.update(partitions)

    def location(self, partition: TopicPartition) -> str:
        """Where the offset of a partition is kept, for messages."""
        return self._store.location(partition)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    # -- commits ----------------------------------------------------------------------------------------------------

    @contextmanager
    def releasing(self) -> Iterator[None]:
        """Around the steps that release partitions: other members wait for them, so no commit makes a second attempt.

        This also applies to commits that other threads request meanwhile.
        """
        self._releasing = True
        try:
            yield
        finally:
            self._releasing = False

    def commit_automatically(self, *, retry: bool = True, partitions: Collection[TopicPartition] | None = None) -> bool:
        """Commit the released positions of partitions that are still owned; False if some are not any more.

        Args:
            retry: False makes one attempt, as the JVM does at a rebalance and at shutdown.
            partitions: commit nothing but these; None for all.

        Raises:
            RetriableError, SessionExpired, CommitRefused, OffsetsNotStored: see :meth:`commit`.
        """
        all_ours = self.verify_ownership()
        if not all_ours:
            self._signal.raise_flag()  # now: the commit may fail, and a lost partition is reported only once
        positions = self._positions(handed_out=self._commits_deliveries)
        if partitions is not None:
            positions = {partition: offset for partition, offset in positions.items() if partition in partitions}
        positions = self._without_recreated(positions)
        durable = self._made_durable(positions)
        _expect_all(durable.keys() - self._write(durable, retry=retry))
        return all_ours

    def _without_recreated(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Positions without those of topics that do not exist any more, also if there is one of the same name again."""
        changed = {partition for partition, offset in positions.items() if offset != self._stored.get(partition)}
        recreated = self._protocol.recreated(changed)
        if recreated and not self._releasing:
            self._signal.raise_flag()
        if recreated:
            _log.warning(
                "group %s: positions of %s are not committed, since the topic was deleted",
                self._group,
                name_some(list(map(str, sorted(recreated)))),
            )
        return {partition: offset for partition, offset in positions.items() if partition not in recreated}

    def verify_ownership(self) -> bool:
        """True if the group still assigns every held partition to this member; the others are logged and given up."""
        lost = self._protocol.verify()
        if lost:
            self.lost += len(lost)
            _log.warning(
                "group %s consumer %s lost ownership of %s to another member, or their owner znodes were deleted; "
                "rebalancing",
                self._group,
                self._consumer_id,
                ", ".join(map(str, lost)),
            )
        return not lost

    def commit(self, offsets: Mapping[TopicPartition, int] | None, *, force: bool) -> None:
        """Commit what the user asks for.

        Args:
            offsets: next offset to consume, by partition; None commits everything that was handed out.
            force: also commit partitions that this member does not own.

        Raises:
            NotOwner: this member does not own one of them, and ``force`` is False; without ``offsets``: records that
                the user holds are of partitions that were taken away. All other offsets are committed.
            ZooKeeperUnavailable: records of partitions that are not owned at the moment were handed out; all other
                offsets are committed.
            RetriableError, SessionExpired: some may not be stored; the next commit tries them again.
            CommitRefused: ``before_commit`` failed; nothing was stored.
            OffsetsNotStored: the store rejected some offsets; the others are stored.
        """
        if offsets is None:
            self._commit_everything()
            return
        foreign = sorted(offsets.keys() - self._owned.keys())
        if foreign and not force:
            raise NotOwner(
                f"not committed: {self._consumer_id} does not own {', '.join(map(str, foreign))}; force=True commits it"
            )
        self._store.invalidate(foreign)
        self._commit_confirmed(offsets)

    def _commit_everything(self) -> None:
        positions = self._positions(handed_out=True)
        missing, taken = self._uncommittable(), self._taken()
        self._commit_confirmed(positions)
        if taken:
            raise NotOwner(
                f"group {self._group}: not committed: records of {name_some(taken)} that were handed out before a "
                f"rebalance took them from {self._consumer_id}; their owner reads these records again, so discard them "
                "if they must not be processed twice. Everything else is committed"
            )
        if missing:
            raise ZooKeeperUnavailable(
                f"group {self._group}: not committed: {', '.join(map(str, missing))}, which {self._consumer_id} does "
                "not own at the moment; try again when the rebalance in progress has ended"
            )

    def _commit_confirmed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit positions without waiting for their release: the user has confirmed them by the request.

        Also if the answer is lost, since the next automatic commit would take back what may be stored. Offsets that the
        store refused are not confirmed: the user, who gets the error, may process those records again.
        """
        durable = self._made_durable(offsets)
        former = self._confirmed
        self._confirmed = {**former, **durable}
        refused = durable.keys() - self._write(durable)
        self._confirmed = {p: n for p, n in self._confirmed.items() if p not in refused} | {
            p: former[p] for p in refused & former.keys()
        }
        _expect_all(refused)

    def _made_durable(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Make durable what offsets cover; returns the offsets that may be stored now.

        Meanwhile other threads may act (``ControlThread.calling_out``). Another commit may be made: what it stored, or
        may have stored without an answer, is newer, and must not be taken back. And, where this commit is made by a
        stand-in, the rebalance may continue: 1. a listener runs, and this commit begins; 2. the listener returns, and
        the partitions are released; 3. their new owner commits; 4. this commit would move its offset back. So ownership
        is checked again.

        Raises:
            GenerationEnded: partitions were released or lost meanwhile.
            CommitRefused: ``before_commit`` failed.
        """
        if not offsets or self._before_commit is None:
            return offsets
        before, confirmed, owned, releases = dict(self._stored), self._confirmed, self._owned, self._protocol.releases
        forgotten = {partition: self._times_forgotten[partition] for partition in offsets}
        try:
            self._before_commit()
        except ConsumerClosed:
            raise
        except Exception as error:
            raise CommitRefused(
                f"group {self._group}: offsets are not committed, since before_commit failed: {error}"
            ) from error
        kept = self._owned if self._protocol.releases == releases else {}
        # Some may be owned again, and another member has committed them in between.
        released = {p for p, times in forgotten.items() if self._times_forgotten[p] != times}
        if gone := sorted(p for p in offsets if p in owned and (p not in kept or p in released)):
            raise GenerationEnded(
                f"not committed: {name_some(gone)} were released while before_commit ran; their next owner reads the "
                "uncommitted records again"
            )
        return {
            p: n
            for p, n in offsets.items()
            if p not in owned or (self._stored.get(p) == before.get(p) and self._confirmed.get(p) == confirmed.get(p))
        }

    def _write(self, offsets: Mapping[TopicPartition, int], *, retry: bool = True) -> set[TopicPartition]:
        """Store offsets; returns the partitions whose offsets were stored."""
        if not offsets:
            return set()
        releases = self._protocol.releases
        done = self._store.commit(
            offsets,
            may_send=lambda: self._protocol.may_deliver() and self._protocol.releases == releases,
            retry=retry and not self._releasing,
        )
        self._written.update((p, offsets[p]) for p in done if offsets[p] != self._stored.get(p))
        stored = {partition: offsets[partition] for partition in done}
        self._stored.update(stored)
        self._written_since_read.update(stored)
        return done

    # -- what may be committed --------------------------------------------------------------------------------------

    @property
    def positions_are_current(self) -> bool:
        """True if positions belong to what is owned now: False from a release until fetching starts again.

        Otherwise: 1. a partition at position 300 is released; 2. its next owner commits 313 and leaves; 3. it is
        claimed again; 4. before fetching starts at 313 a listener lets a worker commit: the position is still 300.
        """
        return bool(self.without_group) or self._learned_after == self._protocol.releases

    def are_current(self, partitions: Collection[TopicPartition]) -> bool:
        """True if positions of these belong to what is owned now, also where only some partitions are released."""
        return self.positions_are_current and self._forgotten.isdisjoint(partitions)

    @property
    def _owned(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """Partitions that are owned, or that are read without a group."""
        return self.without_group or self._protocol.held

    @property
    def _committable(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """Partitions whose positions may be committed."""
        if not self.positions_are_current:
            return {}
        return {partition: thread for partition, thread in self._owned.items() if partition not in self._forgotten}

    def uncommitted(self) -> dict[TopicPartition, tuple[int | None, int]]:
        """The stored offset (None if there is none) and the position of each partition whose position is not stored.

        Partitions that this member does not own any more are included. The position is the offset that
        :meth:`commit_automatically` would store.
        """
        positions = self._positions(handed_out=self._commits_deliveries, of_any=True)
        return {p: (self._stored.get(p), n) for p, n in sorted(positions.items()) if n != self._stored.get(p)}

    def _positions(self, *, handed_out: bool, of_any: bool = False) -> dict[TopicPartition, int]:
        """Positions of the partitions that may be committed, or of any partition that is fetched.

        What the user committed explicitly counts as released, or the next automatic commit would take it back; but not
        beyond what was handed out, since a reset may have moved the position back meanwhile.
        """
        delivered = self._fetch.positions(handed_out=True)
        if not of_any:
            delivered = {p: offset for p, offset in delivered.items() if p in self._committable}
        if handed_out:
            return delivered
        released = self._fetch.positions(handed_out=False)
        return {
            p: max(released[p], min(self._confirmed.get(p, 0), offset))
            for p, offset in delivered.items()
            if p in released
        }

    def _uncommittable(self) -> list[TopicPartition]:
        """Partitions of which records were handed out and which cannot be committed, since they are not owned now."""
        positions = self._fetch.positions(handed_out=True)
        return sorted(p for p, n in positions.items() if p not in self._committable and n != self.last_known(p))

    def _taken(self) -> list[TopicPartition]:
        """Partitions of which the user holds records that this member neither committed nor can commit any more."""
        return sorted({p for p, n in self._fetch.superseded() if self._written.get(p) != n})


def _expect_all(missing: Collection[TopicPartition]) -> None:
    if missing:
        raise OffsetsNotStored(
            f"offsets not stored: {', '.join(map(str, sorted(missing)))}; the others are stored, the log has the reason"
        )


def describe_uncommitted(uncommitted: Mapping[TopicPartition, tuple[int | None, int]]) -> str:
    """Positions that are not stored, as text for a log line or an error."""
    return name_some([_describe_position(p, stored, position) for p, (stored, position) in uncommitted.items()])


def _describe_position(partition: TopicPartition, stored: int | None, position: int) -> str:
    return f"{partition} position {position} (stored: {'none' if stored is None else stored})"
