"""What members of a group did, as rows with times, and what follows from them: owners, gaps, commits. Pure values.

Each contestant records the same rows at the same places of its client's interface, see :class:`Kind`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from statistics import median
from typing import NamedTuple

Owners = Mapping[int, frozenset[str]]
"""Partition to the members that own it."""


class Kind(Enum):
    """What happened."""

    GAINED = "gained"
    """The rebalance listener was called with partitions that the member owns now."""
    LOST = "lost"
    """The rebalance listener was called with partitions that the member gives up, or has lost."""
    READ = "read"
    """The application has received a record of a partition."""
    COMMITTING = "committing"
    """The application asked for a commit of its positions; a member has one commit at a time."""
    ACCEPTED = "accepted"
    """That commit succeeded."""
    REFUSED = "refused"
    """That commit failed."""
    NOTHING = "nothing"
    """The client had nothing to commit, so that this was no commit."""
    LEAVING = "leaving"
    """The application asked the member to leave."""
    FAILED = "failed"
    """The member has ended with an error."""


class Row(NamedTuple):
    """One event.

    Attributes:
        at: ``time.monotonic()``, on the clock that all processes of the machine share.
        member: id of the member.
        kind: what happened.
        partitions: those that it is about.
        text: an error's text.
    """

    at: float
    member: str
    kind: Kind
    partitions: tuple[int, ...] = ()
    text: str = ""


class Span(NamedTuple):
    """A time from ``begin`` to ``end``, in seconds of the rows' clock."""

    begin: float
    end: float


class Commit(NamedTuple):
    """One commit.

    Attributes:
        at: when the application asked for it.
        accepted: True if it succeeded; one that was never answered did not.
        took: seconds until the answer; None if there was none.
    """

    at: float
    accepted: bool
    took: float | None = None


class History:
    """The rows of one group, in the order of their times.

    Args:
        rows: of all members, in any order.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows: Sequence[Row] = sorted(rows, key=lambda row: row.at)

    def failures(self) -> list[str]:
        """Members that have ended with an error, and the error."""
        return [f"member {row.member}: {row.text}" for row in self.rows if row.kind is Kind.FAILED]

    def owners(self, until: float = float("inf")) -> Owners:
        """The owners of each partition, after all that happened until then."""
        owners: dict[int, frozenset[str]] = {}
        for row in self.rows:
            if row.at > until:
                break
            owners.update(_changed(owners, row))
        return {partition: members for partition, members in owners.items() if members}

    def settled_at(self, partitions: Collection[int], members: Collection[str]) -> float | None:
        """When the owners became final: the last change of them.

        Args:
            partitions: all that have to have exactly one owner at the end.
            members: those that are in the group at the end; each partition's owner is one of them.

        Returns:
            The time; None if at the end a partition has no owner, several, or one that is no member.
        """
        owners: dict[int, frozenset[str]] = {}
        last: float | None = None
        for row in self.rows:
            changed = {one: those for one, those in _changed(owners, row).items() if those != owners.get(one)}
            if changed:
                owners.update(changed)
                last = row.at
        final = [owners.get(partition, frozenset()) for partition in partitions]
        return last if all(len(those) == 1 and those <= set(members) for those in final) else None

    def last_change(self) -> float | None:
        """When the last partition was gained or lost; None if none was."""
        return next((row.at for row in reversed(self.rows) if row.partitions and row.kind in _CHANGES), None)

    def read_by_owner_at(self, partitions: Collection[int], since: float) -> float | None:
        """When the last of these partitions was read for the first time since then by its present owner.

        None if one of them was not.
        """
        owners = self.owners()
        first: dict[int, float] = {}
        for row in self.rows:
            if row.kind is Kind.READ and row.at >= since:
                for partition in row.partitions:
                    if row.member in owners.get(partition, ()):
                        first.setdefault(partition, row.at)
        return max(first.values()) if first and first.keys() >= set(partitions) else None

    def staying(self, span: Span) -> frozenset[int]:
        """The partitions whose one owner at the end of a span is that of its beginning."""
        before, after = self.owners(span.begin), self.owners(span.end)
        return frozenset(one for one, those in before.items() if len(those) == 1 and after.get(one) == those)

    def largest_gap(self, partitions: Collection[int], span: Span) -> float | None:
        """The longest time for which one of these partitions was not read, of those that overlap a span.

        A gap ends with the first record after the span, or, where there is none, with the end of the span. None without
        partitions.
        """
        times: dict[int, list[float]] = {partition: [] for partition in partitions}
        for row in self.rows:
            if row.kind is Kind.READ:
                for partition in row.partitions:
                    if partition in times:
                        times[partition].append(row.at)
        return max((_largest_gap(theirs, span) for theirs in times.values()), default=None)

    def commits(self, span: Span) -> list[Commit]:
        """The commits that were asked for in a span by members that owned partitions then, and had not to leave."""
        by_member: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.kind is not Kind.READ:
                by_member.setdefault(row.member, []).append(row)
        return [commit for rows in by_member.values() for commit in _commits(rows, span)]


_CHANGES = (Kind.GAINED, Kind.LOST)


def _changed(owners: Owners, row: Row) -> dict[int, frozenset[str]]:
    """The owners that a row changes. A member that was asked to leave owns nothing from then on."""
    if row.kind is Kind.GAINED:
        return {one: owners.get(one, frozenset()) | {row.member} for one in row.partitions}
    if row.kind is Kind.LOST:
        return {one: owners.get(one, frozenset()) - {row.member} for one in row.partitions}
    if row.kind in (Kind.LEAVING, Kind.FAILED):
        return {one: those - {row.member} for one, those in owners.items()}
    return {}


def _largest_gap(times: Sequence[float], span: Span) -> float:
    before = max((at for at in times if at <= span.begin), default=span.begin)
    after = min((at for at in times if at >= span.end), default=span.end)
    inside = [at for at in times if span.begin < at < span.end]
    return max(later - earlier for earlier, later in pairwise([before, *inside, after]))


def _commits(rows: Sequence[Row], span: Span) -> Iterator[Commit]:
    """The commits of one member, of whose rows these are all."""
    owned: set[int] = set()
    asked: float | None = None
    for row in rows:
        if row.kind is Kind.GAINED:
            owned |= set(row.partitions)
        elif row.kind is Kind.LOST:
            owned -= set(row.partitions)
        elif row.kind is Kind.LEAVING:
            return  # it does not wait for the answer of a commit in progress
        elif row.kind is Kind.COMMITTING:
            asked = row.at if owned and span.begin <= row.at <= span.end else None
        elif row.kind in _ANSWERS and asked is not None:
            if row.kind is not Kind.NOTHING:
                yield Commit(asked, row.kind is Kind.ACCEPTED, row.at - asked)
            asked = None
    if asked is not None:
        yield Commit(asked, accepted=False)


_ANSWERS = (Kind.ACCEPTED, Kind.REFUSED, Kind.NOTHING)


def share_accepted(commits: Sequence[Commit]) -> float | None:
    """Percentage of commits that succeeded; None if there was none."""
    return 100 * sum(one.accepted for one in commits) / len(commits) if commits else None


def median_time(commits: Sequence[Commit]) -> float | None:
    """Median of the seconds that the successful commits took; None if there was none."""
    return median(times) if (times := [one.took for one in commits if one.accepted and one.took is not None]) else None
