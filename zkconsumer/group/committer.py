"""OffsetCommitter: commits a member's offsets by timer, at a release and on request, as far as that is allowed.

Used by the member's rebalance thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    CommitRefused,
    GenerationEnded,
    NotOwner,
    OffsetsNotStored,
    OwnershipAwaited,
    ZkConsumerError,
    name_some,
)
from zkconsumer.fetch.rules.fetchcontrol import FetchControl, StreamPartitions
from zkconsumer.group.groupprotocol import GroupProtocol
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.rules.ownedpartitions import OwnedPartition, OwnedPartitions
from zkconsumer.group.usercode import UserCodeFailed
from zkconsumer.model import ConsumerThreadId, Stamp, TopicPartition
from zkconsumer.offsets.offsetstore import OffsetStore
from zkconsumer.offsets.rules.topicorigins import TopicOrigin

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
        before_commit: makes durable what the application did with the records that a commit will cover; what it raises
            is a :class:`.UserCodeFailed`.
        stamp: returns the stamp (adr/0029) of the positions that the data plane has now; None if offsets have no
            stamps.

    Attributes:
        lost: number of partitions dropped so far because another member owned them.
        partitions: the records of all partitions; :meth:`owned` brings them up to date.
        store: as above.
        without_group: partitions that are read without joining the group, which count as owned.
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
        stamp: Callable[[], Stamp | None] | None = None,
    ) -> None:
        self._group = config.group_id
        self._commits_deliveries = config.commit_on == "delivery"
        self._requests_cover_deliveries = config.commit_on != "done"
        self._consumer_id = consumer_id
        self._protocol = protocol
        self._fetch = fetch
        self.store = store
        self._signal = signal
        self._before_commit = before_commit
        self._stamp = stamp or (lambda: None)
        self._releasing = False
        self.without_group: Mapping[TopicPartition, ConsumerThreadId] = {}
        self.lost = 0
        self.partitions = OwnedPartitions()

    # -- what is owned and stored -----------------------------------------------------------------------------------

    def owned(self) -> OwnedPartitions:
        """The records, with what the group protocol holds now."""
        if self.without_group:
            self.partitions.follow(self.without_group, 0)
        else:
            self.partitions.follow(*self._protocol.held)
        return self.partitions

    def last_known(self, partition: TopicPartition) -> int | None:
        """What this member last read or wrote for the partition, None if nothing; for any thread."""
        record = self.partitions.look_up(partition)
        return None if record is None else record.stored.offset

    def read(
        self, partitions: Collection[TopicPartition], kept: Collection[TopicPartition] = ()
    ) -> list[OwnedPartition]:
        """Read the offsets of partitions that are about to be started; returns the records of those that are readable.

        Args:
            partitions: which ones.
            kept: those of them that were owned all the time.
        """
        return self.owned().read(self.store.stored(self.store.fetch(partitions, kept).keys()))

    def consume(self, topics: Mapping[str, TopicOrigin], records: Iterable[OwnedPartition]) -> None:
        """Offsets that are committed from now on belong to these topics; the records get the stored offset that counts.

        Args:
            topics: that begin to be consumed.
            records: all that were read.
        """
        self.store.consume(topics)
        self.owned().read(self.store.stored([record.partition for record in records]))

    # -- commits ----------------------------------------------------------------------------------------------------

    @contextmanager
    def releasing(self) -> Iterator[None]:
        """Around the steps that release partitions: other members wait for them, so no commit makes a second attempt.

        The JVM makes one attempt at a rebalance and at shutdown, too. This also applies to commits that other threads
        request meanwhile.
        """
        self._releasing = True
        try:
            yield
        finally:
            self._releasing = False

    def commit_automatically(self, partitions: Collection[TopicPartition] | None = None) -> bool:
        """Commit the released positions of partitions that are still owned; False if some are not any more.

        Args:
            partitions: commit nothing but these; None for all.

        Raises:
            RetriableError, MembershipLost, CommitRefused, OffsetsNotStored: see :meth:`commit`.
        """
        all_ours = self.verify_ownership()
        if not all_ours:
            self._signal.raise_flag()  # now: the commit may fail, and a lost partition is reported only once
        positions, stamp = self._stamped_positions(handed_out=self._commits_deliveries)
        if partitions is not None:
            positions = {partition: offset for partition, offset in positions.items() if partition in partitions}
        durable = self._without_recreated(self._made_durable(positions))
        _expect_all(durable.keys() - self._write(durable, stamp))
        return all_ours

    def _without_recreated(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Offsets without those of topics that do not exist any more, also if there is one of the same name again.

        After ``before_commit``, which may take long. Also an offset that the user names: 1. records up to 1000 are
        handed out; 2. the topic is created again, and the partition started at 0; 3. the user commits 1000. Not where
        the user forces the commit of a partition that this member does not own. No error: a listener that commits would
        fail each attempt to release the partitions.
        """
        owned = {partition: offset for partition, offset in offsets.items() if self.partitions[partition].is_owned}
        recreated = set(self._protocol.recreated(self.store.sends(owned)))
        if recreated and not self._releasing:
            self._signal.raise_flag()
        if former := [partition for partition, offset in owned.items() if offset <= self.partitions[partition].former]:
            positions = self._fetch.positions(handed_out=True)
            recreated.update(partition for partition in former if positions.get(partition, 0) < offsets[partition])
        if recreated:
            _log.warning(
                "group %s: positions of %s are not committed, since they are of a topic that was deleted",
                self._group,
                name_some(list(map(str, sorted(recreated)))),
            )
        return {partition: offset for partition, offset in offsets.items() if partition not in recreated}

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

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | None,
        *,
        force: bool,
        by_listener: bool = False,
        only: StreamPartitions | None = None,
    ) -> None:
        """Commit what the user asks for.

        Args:
            offsets: next offset to consume, by partition; None commits everything that was handed out, or with
                ``commit.on=done`` that is done.
            only: without ``offsets``, what to commit; None for everything.
            force: also commit partitions that this member does not own.
            by_listener: a listener asks, in the middle of a rebalance. What an attempt before has released is no error
                then: 1. the listener raises, so the partitions are released; 2. the next attempt calls it, and it
                commits their positions. An error would end each attempt.

        Raises:
            NotOwner: this member does not own one of them, and ``force`` is False; without ``offsets``: records that
                the user holds are of partitions that were taken away, unless ``commit.on=done``. All other offsets are
                committed.
            OwnershipAwaited: records of partitions that are not owned at the moment were handed out, or done; all other
                offsets are committed.
            RetriableError, MembershipLost: some may not be stored; the next commit tries them again.
            CommitRefused: ``before_commit`` failed; nothing was stored.
            OffsetsNotStored: the store rejected some offsets; the others are stored.
        """
        if offsets is None:
            self._commit_everything(only, by_listener=by_listener)
            return
        partitions, stamp = self.owned(), self._stamp()
        if by_listener and not force:
            released = set(self._uncommittable())
            offsets = {partition: offset for partition, offset in offsets.items() if partition not in released}
        foreign = sorted(partition for partition in offsets if not partitions[partition].is_owned)
        if foreign and not force:
            raise NotOwner(
                f"not committed: {self._consumer_id} does not own {', '.join(map(str, foreign))}; force=True commits it"
            )
        self.store.invalidate(foreign)
        self._commit_confirmed(offsets, stamp)

    def _commit_everything(self, only: StreamPartitions | None, *, by_listener: bool) -> None:
        positions, stamp = self._stamped_positions(handed_out=self._requests_cover_deliveries)
        missing = self._uncommittable()
        taken = self._taken() if self._requests_cover_deliveries else []
        if only is not None:
            positions = {partition: offset for partition, offset in positions.items() if partition in only.fetched}
            missing = [partition for partition in missing if partition in only.fetched]
            taken = [partition for partition in taken if partition == only.held]
        self._commit_confirmed(positions, stamp)
        if taken:
            raise NotOwner(
                f"group {self._group}: not committed: records of {name_some(taken)} that were handed out before a "
                f"rebalance took them from {self._consumer_id}; their owner reads these records again, so discard them "
                "if they must not be processed twice. Everything else is committed"
            )
        if missing and not by_listener:
            raise OwnershipAwaited(
                f"group {self._group}: not committed: {', '.join(map(str, missing))}, which {self._consumer_id} does "
                "not own at the moment; try again when the rebalance in progress has ended"
            )

    def _commit_confirmed(self, offsets: Mapping[TopicPartition, int], stamp: Stamp | None) -> None:
        """Commit positions without waiting for their release: the user has confirmed them by the request.

        Also if the answer is lost, since the next automatic commit would take back what may be stored. Offsets that are
        refused are not confirmed: the user, who gets the error, may process those records again.
        """
        durable = self._without_recreated(self._made_durable(offsets))
        former = self.partitions.confirm(durable)
        refused = durable.keys() - self._write(durable, stamp)
        self.partitions.confirm({partition: former[partition] for partition in refused})
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
            ConsumerClosed: this consumer was closed meanwhile.
        """
        if not offsets or self._before_commit is None:
            return offsets
        records = map(self.owned().__getitem__, offsets)
        before = [(record, record.is_owned, record.losses, record.committed) for record in records]
        try:
            self._before_commit()
        except UserCodeFailed as failed:
            raise CommitRefused(
                f"group {self._group}: offsets are not committed, since before_commit failed: {failed}"
            ) from failed.cause
        self.owned()
        # Also those that are owned again: another member may have committed them in between.
        gone = sorted(now.partition for now, was_owned, losses, _ in before if was_owned and losses != now.losses)
        if gone:
            raise GenerationEnded(
                f"not committed: {name_some(gone)} were released while before_commit ran; their next owner reads the "
                "uncommitted records again"
            )
        kept = [now.partition for now, was_owned, _, committed in before if not was_owned or now.committed == committed]
        return {partition: offsets[partition] for partition in kept}

    def _write(self, offsets: Mapping[TopicPartition, int], stamp: Stamp | None) -> set[TopicPartition]:
        """Store offsets; returns the partitions whose offsets were stored."""
        if not offsets:
            return set()
        is_new = {partition: self.partitions[partition].send(offset) for partition, offset in offsets.items()}
        may_send, retry = self._protocol.lease.holds, not self._releasing
        done = self.store.commit(offsets, stamp=stamp, may_send=may_send, retry=retry)
        for partition, offset in offsets.items():
            if partition in done:
                self.partitions[partition].wrote(offset)
            elif is_new[partition]:
                self.partitions[partition].refuse(offset)
        return done

    # -- what may be committed --------------------------------------------------------------------------------------

    def uncommitted(self) -> dict[TopicPartition, tuple[int | None, int]]:
        """The stored offset (None if there is none) and the position of each partition whose position is not stored.

        Partitions that this member does not own any more are included. The position is the offset that
        :meth:`commit_automatically` would store.
        """
        return self.partitions.unstored(self._positions(handed_out=self._commits_deliveries, of_any=True))

    def _stamped_positions(self, *, handed_out: bool) -> tuple[dict[TopicPartition, int], Stamp | None]:
        """Positions that may be committed, and their stamp.

        The data plane changes both together, on another thread: 1. the positions of plan 3 are read; 2. plan 4 is done;
        3. the stamp of plan 4 is read. With it the query, killed before its next commit, would take the offset for one
        that an operator has set. A stamp that is the same before and after them is theirs, since numbers of plans rise.
        """
        stamp = self._stamp()
        while True:
            positions, before = self._positions(handed_out=handed_out), stamp
            stamp = self._stamp()
            if stamp == before:
                return positions, stamp

    def _positions(self, *, handed_out: bool, of_any: bool = False) -> dict[TopicPartition, int]:
        """Positions of the partitions that may be committed, or of any partition of the newest assignment."""
        delivered = self._fetch.positions(handed_out=True)
        if not of_any:
            delivered = self.owned().fetched(delivered)
        if handed_out:
            return delivered
        released = self._fetch.positions(handed_out=False)
        return {p: self.partitions[p].released(released[p], n) for p, n in delivered.items() if p in released}

    def _uncommittable(self) -> list[TopicPartition]:
        """Partitions of which records were handed out and which cannot be committed, since they are not owned now.

        With ``commit.on=done``, of which records are done.
        """
        positions = self._fetch.positions(handed_out=self._requests_cover_deliveries)
        return sorted(self.partitions.unstored(positions).keys() - self.owned().fetched(positions).keys())

    def _taken(self) -> list[TopicPartition]:
        """Partitions of which the user holds records that this member neither committed nor can commit any more."""
        return sorted({p for p, n in self._fetch.superseded() if self.partitions[p].covered != n})


def _expect_all(missing: Collection[TopicPartition]) -> None:
    if missing:
        raise OffsetsNotStored(
            f"offsets not stored: {', '.join(map(str, sorted(missing)))}; the log has the reason. Any others are stored"
        )


def warn_of_release_without_commit(group: str, error: ZkConsumerError) -> None:
    """The commit before a release failed, which is no reason to keep the partitions."""
    _log.warning(
        "group %s: releasing without a commit; the next owners read uncommitted records again: %s", group, error
    )


def describe_uncommitted(uncommitted: Mapping[TopicPartition, tuple[int | None, int]]) -> str:
    """Positions that are not stored, as text for a log line or an error."""
    return name_some([_describe_position(p, stored, position) for p, (stored, position) in uncommitted.items()])


def _describe_position(partition: TopicPartition, stored: int | None, position: int) -> str:
    return f"{partition} position {position} (stored: {'none' if stored is None else stored})"
