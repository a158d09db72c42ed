"""Checker: what a ledger proves against a consumer group. Pure: the same ledger always gives the same findings.

A finding is certain. Where the ledger leaves it open whether an event came before another one, such as for a record
that was handed out somewhere between the request and its arrival, the consumer gets the benefit of the doubt; that is
at most one record, or one batch, of a stream for each event.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from zkconsumer.model import TopicPartition
from zkconsumer.testing.ledger import Committed, Delivered, Done, Gone, Ledger, Produced, Removed, Tenure

SLACK_S: Final = 0.01
"""Times of znodes come from a clock of milliseconds, which is read a little apart from the monotonic one."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A record that was delivered again.

    Attributes:
        first: the delivery before.
        again: the delivery.
        was_committed: True if the stored offset was already after the record when its deliverer began to read. Such a
            duplicate is an error; one of an uncommitted record is what at-least-once delivery permits.
    """

    first: Delivered
    again: Delivered
    was_committed: bool

    def __str__(self) -> str:
        state = "although it was committed" if self.was_committed else "uncommitted"
        return f"{_record(self.again)} was delivered by {self.first.owner}, and again by {self.again.owner}, {state}"


@dataclass(frozen=True, slots=True)
class Overlap:
    """A record that a member delivered while another member owned the partition.

    Attributes:
        late: the delivery.
        other: the owner at that time.
    """

    late: Delivered
    other: str

    def __str__(self) -> str:
        late = f"{_record(self.late)} was delivered by {self.late.owner} at {self.late.at:.3f}"
        return f"{late}, while {self.other} owned it"


@dataclass(frozen=True, slots=True)
class MovedBack:
    """A commit of an offset below the stored one."""

    commit: Committed
    former: Committed

    def __str__(self) -> str:
        return f"{_commit(self.commit)} moved back from {self.former.offset} of {self.former.writer or 'unknown'}"


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit by a client that did not own the partition.

    Attributes:
        commit: which one.
        owner: consumer id of the owner at that time, None if there was none.
    """

    commit: Committed
    owner: str | None

    def __str__(self) -> str:
        return f"{_commit(self.commit)}, while the owner was {self.owner or 'no member'}"


@dataclass(frozen=True, slots=True)
class EarlyCommit:
    """A commit that covers a record which its writer had not declared done, with ``commit.on=done``.

    Attributes:
        commit: which one.
        record: the first such record.
    """

    commit: Committed
    record: Produced

    def __str__(self) -> str:
        return f"{_commit(self.commit)} covers {_record(self.record)}, which was not done"


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found.

    Attributes:
        produced: number of acknowledged records.
        delivered: number of deliveries.
        lost: records that no member delivered.
        duplicates: see :class:`Duplicate`.
        overlaps: see :class:`Overlap`.
        moved_back: see :class:`MovedBack`.
        foreign: see :class:`ForeignCommit`.
        early: see :class:`EarlyCommit`; of a ledger that has :class:`~zkconsumer.testing.ledger.Done` only.
    """

    produced: int
    delivered: int
    lost: tuple[Produced, ...]
    duplicates: tuple[Duplicate, ...]
    overlaps: tuple[Overlap, ...]
    moved_back: tuple[MovedBack, ...]
    foreign: tuple[ForeignCommit, ...]
    early: tuple[EarlyCommit, ...]

    def errors(self) -> list[str]:
        """What no consumer of a group may do, whatever happens to it.

        Duplicates of uncommitted records are no error.
        """
        lost = [f"{_record(record)} was not delivered" for record in self.lost]
        duplicates = [str(duplicate) for duplicate in self.duplicates if duplicate.was_committed]
        return [*lost, *duplicates, *map(str, (*self.overlaps, *self.moved_back, *self.foreign, *self.early))]


def check(ledger: Ledger) -> Findings:
    """Everything that can be found without knowing what was done to the group."""
    return Findings(
        produced=len(ledger.of(Produced)),
        delivered=len(ledger.of(Delivered)),
        lost=lost_records(ledger),
        duplicates=duplicates(ledger),
        overlaps=overlaps(ledger),
        moved_back=moved_back(ledger),
        foreign=foreign_commits(ledger),
        early=early_commits(ledger),
    )


def lost_records(ledger: Ledger) -> tuple[Produced, ...]:
    """Acknowledged records that were never delivered, without those that their brokers do not have any more."""
    delivered = {one.number for one in ledger.of(Delivered)}
    return tuple(record for record in _present(ledger) if record.number not in delivered)


def _present(ledger: Ledger) -> Iterator[Produced]:
    """Acknowledged records, without those that their brokers do not have any more."""
    gone = {one.number for one in ledger.of(Gone)}
    begins: defaultdict[TopicPartition, int] = defaultdict(int)
    for removed in ledger.of(Removed):
        partition = TopicPartition(removed.topic, removed.partition)
        begins[partition] = max(begins[partition], removed.offset)
    for record in ledger.of(Produced):
        if record.number not in gone and record.offset >= begins[TopicPartition(record.topic, record.partition)]:
            yield record


def duplicates(ledger: Ledger) -> tuple[Duplicate, ...]:
    """Every delivery of a record but the first one, by time within each partition.

    A record that a producer appended twice has two offsets, and is not a duplicate.
    """
    repeated = []
    for partition, deliveries in ledger.deliveries.items():
        before: dict[tuple[int, int], Delivered] = {}
        since: dict[tuple[int, int], float] = {}
        for delivery in deliveries:
            place = (delivery.offset, delivery.number)
            known_at = since.setdefault(place, delivery.at)
            if (first := before.get(place)) is not None:
                was_committed = _started_after(ledger, partition, delivery, known_at)
                repeated.append(Duplicate(first, delivery, was_committed))
            before[place] = delivery
    return tuple(repeated)


def _started_after(ledger: Ledger, partition: TopicPartition, delivery: Delivered, since: float) -> bool:
    """True if the stored offset was after a record when its deliverer became the owner, or asked if that is unknown.

    A member that delivers too late began to read before: that is an overlap. What was stored before the record was
    delivered for the first time, at ``since``, is an offset of an earlier topic of the name.
    """
    tenures = [
        candidate
        for candidate in ledger.tenures.get(partition, ())
        if candidate.claim.owner == delivery.owner and candidate.claim.at <= delivery.at + SLACK_S
    ]
    tenure, stored = tenures[-1] if tenures else None, 0
    for commit in ledger.commits.get(partition, ()):
        if commit.at + SLACK_S < since:
            continue
        if tenure is not None and commit.mzxid:
            counts = commit.mzxid < tenure.claim.zxid
        else:
            counts = commit.at + SLACK_S < (delivery.asked if tenure is None else tenure.claim.at)
        if counts:
            stored = commit.offset
    return stored > delivery.offset


def own_tenure(ledger: Ledger, partition: TopicPartition, delivery: Delivered) -> Tenure | None:
    """The newest tenure in which the member can have handed the record out, None if it cannot have owned it."""
    for tenure in reversed(ledger.tenures.get(partition, ())):
        if tenure.claim.owner == delivery.owner and tenure.overlaps(delivery.asked, delivery.at, SLACK_S):
            return tenure
    return None


def overlaps(ledger: Ledger) -> tuple[Overlap, ...]:
    """Records that a member handed out while another member owned the partition.

    Where ownership was not recorded, a member that hands out records of one generation both before and after those of
    another member was not alone.
    """
    overlapping: list[Overlap] = []
    for partition, deliveries in ledger.deliveries.items():
        tenures = ledger.tenures.get(partition)
        overlapping += _interleaved(deliveries) if tenures is None else _while_owned_by_others(ledger, partition)
    return tuple(overlapping)


def _while_owned_by_others(ledger: Ledger, partition: TopicPartition) -> Iterator[Overlap]:
    for delivery in ledger.deliveries[partition]:
        if own_tenure(ledger, partition, delivery) is not None:
            continue
        for tenure in ledger.tenures[partition]:
            if tenure.claim.at + SLACK_S < delivery.asked < tenure.until - SLACK_S:
                yield Overlap(delivery, tenure.claim.owner)


def _interleaved(deliveries: tuple[Delivered, ...]) -> Iterator[Overlap]:
    """``deliveries`` of one partition, by time."""
    last: dict[tuple[str, int, int], int] = {}
    for index, delivery in enumerate(deliveries):
        own = (delivery.owner, delivery.session, delivery.generation)
        if own in last and delivery.generation:
            for between in deliveries[last[own] + 1 : index]:
                if between.owner != delivery.owner and between.at < delivery.asked:
                    yield Overlap(delivery, between.owner)
                    break
        last[own] = index


def moved_back(ledger: Ledger) -> tuple[MovedBack, ...]:
    """Commits below what was stored; an offset znode that was deleted and created again begins again."""
    return tuple(
        MovedBack(commit, former)
        for commits in ledger.commits.values()
        for former, commit in pairwise(commits)
        if (commit.store, commit.czxid) == (former.store, former.czxid) and commit.offset < former.offset
    )


def foreign_commits(ledger: Ledger) -> tuple[ForeignCommit, ...]:
    """Commits in ZooKeeper by a session that did not own the partition when they were done."""
    foreign = []
    for partition, commits in ledger.commits.items():
        if partition not in ledger.tenures:
            continue
        for commit in commits:
            tenure = ledger.tenure_at(partition, commit.mzxid) if commit.mzxid else None
            if commit.session and (tenure is None or tenure.claim.session != commit.session):
                foreign.append(ForeignCommit(commit, None if tenure is None else tenure.claim.owner))
    return tuple(foreign)


def early_commits(ledger: Ledger) -> tuple[EarlyCommit, ...]:
    """Commits that cover what their writer had not declared done, from where it took the partition over.

    Of a commit whose writer is unknown, what any member had done counts. A ledger without :class:`Done` has none.
    """
    if not ledger.of(Done):
        return ()
    done: defaultdict[tuple[str, int], float] = defaultdict(lambda: math.inf)
    for one in ledger.of(Done):
        for owner in (one.owner, ""):
            done[owner, one.number] = min(done[owner, one.number], one.at)
    produced: defaultdict[TopicPartition, list[Produced]] = defaultdict(list)
    for record in sorted(_present(ledger), key=lambda record: record.offset):
        produced[TopicPartition(record.topic, record.partition)].append(record)
    early = []
    for partition, commits in ledger.commits.items():
        writer, begin, stored = "", 0, 0
        for commit in commits:
            if commit.writer != writer:
                writer, begin = commit.writer, stored
            stored = commit.offset
            covered = (record for record in produced[partition] if begin <= record.offset < stored)
            first = next((one for one in covered if done[writer, one.number] > commit.at + SLACK_S), None)
            if first is not None:
                early.append(EarlyCommit(commit, first))
    return tuple(early)


def _record(record: Produced | Delivered) -> str:
    return f"record {record.number} ({record.topic}-{record.partition} offset {record.offset})"


def _commit(commit: Committed) -> str:
    place = f"{commit.topic}-{commit.partition} offset {commit.offset}"
    return f"commit of {place} by {commit.writer or 'unknown'} at {commit.at:.3f}"
