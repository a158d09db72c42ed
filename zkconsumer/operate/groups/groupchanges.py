"""What changed in a group between two samples: members, owners, status."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.rules.lagstatus import GroupLag


@dataclass(frozen=True, slots=True)
class GroupMoment:
    """A group at one sample: ids of its members, the owner of each partition that has one, evaluated lag."""

    members: frozenset[str]
    owners: Mapping[TopicPartition, str]
    lag: GroupLag


class Change(NamedTuple):
    """One change.

    Attributes:
        kind: ``joined``, ``left``, ``owner``, ``status``, ``watching`` (a group that was not there before), ``gone``,
            ``unread`` (it cannot be read any more), ``read`` (again), or ``lag``, which is no change.
        subject: a member, a partition, or words about the group.
        before, after: what is different; None where there is nothing.
    """

    kind: str
    subject: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.kind in ("joined", "left"):
            return f"{self.subject} {self.kind}"
        if self.kind == "unread":
            return f"cannot be read: {self.subject}"
        if self.kind in ("read", "lag"):
            return self.subject
        if self.kind in ("watching", "gone"):
            return f"{self.kind}, {self.subject}"
        return f"{self.kind} of {self.subject}: {self.before or 'none'} -> {self.after or 'none'}"


def group_changes(before: GroupMoment, after: GroupMoment) -> Iterator[Change]:
    """What changed from one sample to the next."""
    for member in sorted(after.members - before.members):
        yield Change("joined", member, None, member)
    for member in sorted(before.members - after.members):
        yield Change("left", member, member, None)
    for partition in sorted(before.owners.keys() | after.owners.keys()):
        was, now = before.owners.get(partition), after.owners.get(partition)
        if was != now:
            yield Change("owner", str(partition), was, now)
    for partition, lag in sorted(after.lag.partitions.items()):
        former = before.lag.partitions.get(partition)
        if former is not None and former.status is not lag.status:
            yield Change("status", str(partition), former.status.value, lag.status.value)


def group_began(moment: GroupMoment) -> Change:
    """A group is seen for the first time."""
    lag = "unknown" if moment.lag.lag is None else moment.lag.lag
    return Change("watching", f"{moment.lag.status.value}, lag {lag}", None, None)


def group_lag(moment: GroupMoment) -> Change:
    """No change: status and lag of a group, which are printed from time to time."""
    return group_began(moment)._replace(kind="lag")


def reading_changes(
    before: Mapping[str, str], after: Mapping[str, str], watched: Container[str]
) -> Iterator[tuple[str, Change]]:
    """Which groups cannot be read any more, or can again.

    Args:
        before: why groups could not be read at the sample before, by name.
        after: the same at the newest sample.
        watched: names of groups that both samples have.
    """
    for group in sorted(after.keys() - before.keys()):
        yield group, Change("unread", after[group], None, None)
    for group in sorted(before.keys() - after.keys()):
        if group in watched:
            yield group, Change("read", "is read again", None, None)


GONE: Final = Change("gone", "it does not exist any more", None, None)
