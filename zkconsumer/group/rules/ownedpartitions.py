"""OwnedPartition: what a member knows of one partition from its first claim on, in which states, and their table.

Written by the member's rebalance thread or its stand-in, one at a time. Any thread may look up a record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import NO_OFFSET, StoredOffset, usable_offset
from zkconsumer.offsets.rules.topicorigins import TopicOrigin, WrittenFor


class OwnershipState(Enum):
    """What is true of a partition. Whether it is owned is decided by the group protocol alone."""

    NOT_OWNED = "not owned"
    """Another member may own it. Records of it that the user still holds cannot be committed."""
    CLAIMED = "claimed"
    """Owned and not fetched: step 5 has not started it yet, or cannot, since its stored offset is unreadable or its
    topic refused. Only offsets that the user names are committed."""
    FETCHED = "fetched"
    """Owned and started by step 5, also after step 1 has stopped it: commits cover its positions."""
    REVOKED = "revoked"
    """Given up, and still owned until its release has succeeded; it may have been claimed again before. Its positions
    belong to what was given up, so only offsets that the user names are committed."""


TRANSITIONS: Final[Mapping[OwnershipState, frozenset[OwnershipState]]] = MappingProxyType(
    {
        OwnershipState.NOT_OWNED: frozenset({OwnershipState.CLAIMED}),
        OwnershipState.CLAIMED: frozenset({OwnershipState.FETCHED, OwnershipState.REVOKED, OwnershipState.NOT_OWNED}),
        OwnershipState.FETCHED: frozenset({OwnershipState.CLAIMED, OwnershipState.REVOKED, OwnershipState.NOT_OWNED}),
        OwnershipState.REVOKED: frozenset({OwnershipState.CLAIMED, OwnershipState.FETCHED, OwnershipState.NOT_OWNED}),
    }
)
"""Which states may follow a state; :meth:`OwnedPartition.enter` refuses any other."""


@dataclass(slots=True)
class OwnedPartition:
    """One partition. Its positions are the data plane's.

    Attributes:
        partition: which one.
        state: what is true of it.
        thread: the consumer thread that it was claimed for last; None if it was never owned.
        stored: what the store held when this member last started it, or wrote it since; no offset if unknown.
        read: what the rebalance in progress has read, or wrote since: 1. the offset is read; 2. a listener commits;
            3. what was read in step 1 is not stored any more. None if it is not being started, or cannot be read.
        confirmed: the offset that the user has committed since it was started, 0 if none: it counts as released.
        written: the last offset that this member has stored, also of a partition that was given up since.
        begun_at: where it was started last, without being kept; None if that was not known.
        covered: up to where what this member handed out is committed by itself; None if none is known. Unlike
            ``written`` it ends where the log or the stored offset does not continue what was handed out, and counts an
            offset that was stored already, unless nothing was handed out before it since the start.
        sent: offsets that were sent to the store since then, and not answered: each of them may be stored.
        refused: the last offset since then that the store did not take; of two stores (dual commit) one may have it.
        losses: how often it was given up or lost.
        reached: up to where records of the topic were handed out before it was started last.
        former: the same of an earlier topic of this name; 0 if there was none.
        renewed: True if the topic was created again since it was started last.
        begun_anew: True if it was started last at the beginning of its log, since what is stored is of an earlier
            topic. If it is started so again, what was handed out in between is of the present one.
    """

    partition: TopicPartition
    state: OwnershipState = OwnershipState.NOT_OWNED
    thread: ConsumerThreadId | None = None
    stored: StoredOffset = NO_OFFSET
    read: StoredOffset | None = None
    confirmed: int = 0
    written: int | None = None
    begun_at: int | None = None
    covered: int | None = None
    sent: set[int] = field(default_factory=set)
    refused: int | None = None
    losses: int = 0
    reached: int = 0
    former: int = 0
    renewed: bool = False
    begun_anew: bool = False

    def enter(self, state: OwnershipState) -> None:
        """Change the state; entering the present one changes nothing."""
        if state is self.state:
            return
        assert state in TRANSITIONS[self.state], f"{self.partition} is {self.state.value}, and cannot be {state.value}"
        self.losses += state in (OwnershipState.NOT_OWNED, OwnershipState.REVOKED)
        self.state = state

    @property
    def is_owned(self) -> bool:
        """True if it is owned, whether or not its positions may be committed."""
        return self.state is not OwnershipState.NOT_OWNED

    def is_outdated(self, topic: TopicOrigin | None, *, recreated: bool) -> bool:
        """True if the offset that was read is one of an earlier topic of the same name.

        Its mark proves it; or, where the topic was created again while this member consumed it, that the offset is the
        member's own: other members write none until they have noticed the same. It may still be of the present topic:
        1. it is created again; 2. the position is beyond its log, so fetching continues at 0; 3. offset 8 is
        committed; 4. the member notices the new topic. Nothing shows that there was no third one between 3 and 4, so
        these records are delivered again.

        Args:
            topic: what is known of the topic that exists now; None if nothing.
            recreated: True if this member consumed an earlier one.
        """
        read = self.read or NO_OFFSET
        if topic is not None and topic.judge(read.mark) is WrittenFor.EARLIER:
            return True
        return recreated and (read.offset == self.written or self._is_unmoved(read.offset))

    def _is_unmoved(self, offset: int | None) -> bool:
        """True if no other client has stored the offset since this member started the partition, or wrote it.

        Brokers delete offsets with their topics, and old ones; no client stores none.
        """
        return offset in (None, self.stored.offset, self.refused, *self.sent)

    def assign(self, position: int | None, location: str, *, outdated: bool = False) -> AssignedPartition:
        """Where it starts, now that it is owned.

        The stored offset decides, with one exception: a partition that stays with the same member continues at its own
        position, if no other client wrote the stored offset since this member read or wrote it. Otherwise every
        rebalance would hand out again what was not committed yet (jvm-consumer.md#attempt: the JVM rewinds with auto
        commit off). An offset whose answer was lost is no other client's: 1. records to 250 are handed out; 2. a commit
        of 200 is stored, and its answer is lost; 3. a rebalance releases and claims the partition; 4. 200 is read.

        Args:
            position: how far this member had handed out before the rebalance, None if it did not own the partition.
            location: of the stored offset, for messages.
            outdated: see :meth:`is_outdated`.
        """
        assert self.thread is not None
        read = self.read or NO_OFFSET
        moved = not self._is_unmoved(read.offset)
        offset = usable_offset(read.offset)
        if position is not None and not moved:
            offset = position
        return AssignedPartition(self.thread, None if outdated else offset, read, location, outdated, moved)

    def start(self, assigned: AssignedPartition | None, *, kept: bool, reached: int = 0) -> None:
        """Fetching has started, with this partition as ``assigned``; None if the assignment does not have it.

        What the user has committed beyond the start is forgotten, unless the partition is ``kept``: it continues where
        it is.

        Args:
            assigned: as above.
            kept: as above.
            reached: its position before that, 0 if it had none.
        """
        self.reached = max(self.reached, reached)
        if assigned is not None and not kept:
            self._begin(assigned)
        self.stored, self.read = self.read or NO_OFFSET, None
        if assigned is not None:  # otherwise a commit without an answer may arrive later
            self._settle()
        if not kept and self.confirmed > (0 if assigned is None else assigned.offset or 0):
            self.confirmed = 0
        if self.is_owned:  # otherwise a commit found it lost after it was claimed
            is_fetched = assigned is not None and assigned.error is None
            self.enter(OwnershipState.FETCHED if is_fetched else OwnershipState.CLAIMED)

    def _begin(self, assigned: AssignedPartition) -> None:
        offset = (self.read or NO_OFFSET).offset
        if offset in self.sent:  # the answer to this member's own commit was lost
            self.covered = offset
        if assigned.moved or assigned.outdated or self.renewed:
            self.covered = None
        if self.renewed or (assigned.outdated and not self.begun_anew):
            self.former, self.reached = max(self.former, self.reached), 0
        self.renewed, self.begun_anew, self.begun_at = False, assigned.outdated, assigned.offset

    def send(self, offset: int) -> bool:
        """The offset is about to be sent; False if an earlier request with it was not answered."""
        is_new = offset not in self.sent
        self.sent.add(offset)
        return is_new

    def refuse(self, offset: int) -> None:
        """The store has not taken the offset, and no earlier request with it was left without an answer."""
        self.sent.discard(offset)
        self.refused = offset

    def _settle(self) -> None:
        """What is stored is known, so what was sent before means nothing."""
        self.sent.clear()
        self.refused = None

    def wrote(self, offset: int) -> None:
        """The offset was stored."""
        self._settle()
        if not offset == self.stored.offset == self.begun_at:
            self.covered = offset
        if offset != self.stored.offset:
            self.written = offset
        self.stored = StoredOffset(offset)
        if self.read is not None:
            self.read = self.stored

    @property
    def committed(self) -> tuple[int | None, int]:
        """What is stored, and what the user has confirmed that may be stored."""
        return self.stored.offset, self.confirmed

    def released(self, released: int, handed_out: int) -> int:
        """The position after what the user has released.

        What it committed by itself counts, or the next automatic commit would take it back; but not beyond what was
        handed out, since a reset may have moved the position back meanwhile.
        """
        return max(released, min(self.confirmed, handed_out))


class OwnedPartitions:
    """The records of one member, by partition. A record stays after its partition is given up.

    Between a release and the next start positions are those of the old assignment, also while the same partitions are
    owned again. Otherwise: 1. a partition at position 300 is released; 2. its next owner commits 313 and leaves; 3. it
    is claimed again; 4. before fetching starts at 313 a listener lets a worker commit: the position is still 300.
    """

    def __init__(self) -> None:
        self._records: dict[TopicPartition, OwnedPartition] = {}
        self._releases = 0
        self._held: Mapping[TopicPartition, ConsumerThreadId] | None = None

    def __getitem__(self, partition: TopicPartition) -> OwnedPartition:
        record = self._records.get(partition)
        if record is None:
            record = self._records[partition] = OwnedPartition(partition)
        return record

    def look_up(self, partition: TopicPartition) -> OwnedPartition | None:
        """The record of a partition, None if there is none; for any thread."""
        return self._records.get(partition)

    def follow(self, held: Mapping[TopicPartition, ConsumerThreadId], releases: int) -> None:
        """Adopt what the group protocol reports: what is held, and how often everything was given up or lost."""
        if held is self._held and releases == self._releases:
            return  # protocols replace it, and never change it
        everything_was_lost, self._releases, self._held = releases != self._releases, releases, held
        for partition, record in self._records.items():
            if record.is_owned and (everything_was_lost or partition not in held):
                record.enter(OwnershipState.NOT_OWNED)
        for partition, thread in held.items():
            record = self[partition]
            record.thread = thread
            if not record.is_owned:
                record.enter(OwnershipState.CLAIMED)

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """These are about to be released: no position of theirs is committed until :meth:`start`."""
        for record in map(self.__getitem__, partitions):
            if record.is_owned:
                record.enter(OwnershipState.REVOKED)

    def renew(self, recreated: Collection[TopicPartition]) -> None:
        """The topics of these were created again: what was handed out is of earlier ones; revoke what is owned.

        That is true of each partition of the topics, also of one that was given up and is not among these: 1. 1000
        records of t-1 are handed out; 2. it is given up, and t is created again; 3. t-1 is claimed, and starts at 5;
        4. a thread that processed the old records commits 1000.
        """
        topics = {partition.topic for partition in recreated}
        for partition, record in self._records.items():
            if partition.topic in topics:
                record.renewed = True
        self.revoke(recreated)

    def read(self, stored: Mapping[TopicPartition, StoredOffset]) -> list[OwnedPartition]:
        """The stored offsets of the share were read; returns the records of those that are readable.

        What was stored before does not change until :meth:`start`, so an attempt that fails changes nothing.
        """
        for record in self._records.values():
            record.read = stored.get(record.partition)
        return [self[partition] for partition in stored]

    def start(
        self,
        assignment: FetchAssignment,
        kept: Collection[TopicPartition],
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """Fetching has started; ``kept`` are the partitions that continue where they are.

        ``positions`` are those of the assignment before.
        """
        for partition, record in self._records.items():
            position = positions.get(partition, 0)
            record.start(assignment.partitions.get(partition), kept=partition in kept, reached=position)

    def confirm(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The user has committed these; returns what was confirmed before."""
        former = {partition: self[partition].confirmed for partition in offsets}
        for partition, offset in offsets.items():
            self[partition].confirmed = offset
        return former

    def fetched(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Those of the positions that may be committed."""
        fetched = OwnershipState.FETCHED
        return {p: n for p, n in offsets.items() if (record := self.look_up(p)) is not None and record.state is fetched}

    def unstored(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int | None, int]]:
        """The stored offset and the position of each partition where they differ."""
        stored = {partition: (self[partition].stored.offset, offset) for partition, offset in sorted(offsets.items())}
        return {partition: (before, offset) for partition, (before, offset) in stored.items() if before != offset}
