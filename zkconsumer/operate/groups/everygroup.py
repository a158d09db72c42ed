"""EveryGroup: the groups in ZooKeeper and those that brokers coordinate, in one list."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zkconsumer.errors import BrokerUnavailable, GroupMissing, ProtocolError, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.observedgroup import (
    BrokerState,
    DescribedGroupMember,
    GroupsLook,
    GroupSource,
    Layout,
    ObservedGroup,
)
from zkconsumer.operate.groups.rules.lagstatus import LagSample
from zkconsumer.zookeeper.rules.znodes import MigrationMark


@dataclass(frozen=True, slots=True)
class GroupInBoth:
    """A group that has znodes, and members or offsets at brokers; an :class:`ObservedGroup`.

    Attributes:
        in_znodes: as ZooKeeper has it.
        at_brokers: as its coordinator describes it.
    """

    in_znodes: ObservedGroup
    at_brokers: ObservedGroup

    @property
    def group(self) -> str:
        """Its name."""
        return self.in_znodes.group

    @property
    def layout(self) -> Layout:
        """What its znodes are."""
        return self.in_znodes.layout

    @property
    def in_brokers(self) -> BrokerState | None:
        """What its coordinator reports."""
        return self.at_brokers.in_brokers

    @property
    def live(self) -> frozenset[str]:
        """Members of both."""
        return self.in_znodes.live | self.at_brokers.live

    @property
    def owners(self) -> Mapping[TopicPartition, str]:
        """Owners of both; see :func:`counts_at_brokers`."""
        at_brokers = self.at_brokers.owners.items()
        return {
            **self.in_znodes.owners,
            **{p: owner for p, owner in at_brokers if counts_at_brokers(self.in_znodes.is_live(p), owner)},
        }

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """Those of both, sorted."""
        return sorted({*self.in_znodes.partitions, *self.at_brokers.partitions})

    @property
    def existing(self) -> Mapping[str, tuple[int, ...]]:
        """See :class:`ObservedGroup`."""
        return {**self.at_brokers.existing, **self.in_znodes.existing}

    @property
    def subscribed(self) -> frozenset[str]:
        """Topics of members of both."""
        return self.in_znodes.subscribed | self.at_brokers.subscribed

    @property
    def topics(self) -> frozenset[str]:
        """Topics of both."""
        return self.in_znodes.topics | self.at_brokers.topics

    @property
    def newest_commit_ms(self) -> int | None:
        """Of the offsets in ZooKeeper."""
        return self.in_znodes.newest_commit_ms

    @property
    def mark(self) -> MigrationMark | None:
        """The mark, unless it shows what is observed: that the group continues at brokers, and not in ZooKeeper."""
        mark = self.in_znodes.mark
        is_done = mark is not None and mark.state == "migrated" and not self.in_znodes.live
        return None if is_done and self.at_brokers.live else mark

    @property
    def problems(self) -> tuple[str, ...]:
        """What cannot be read of it."""
        return tuple(dict.fromkeys((*self.in_znodes.problems, *self.at_brokers.problems)))

    def is_live(self, partition: TopicPartition) -> bool:
        """True if a member has the partition."""
        return self.in_znodes.is_live(partition) or self.at_brokers.is_live(partition)

    def in_zookeeper(self, partition: TopicPartition) -> int | None:
        """The offset stored in ZooKeeper."""
        return self.in_znodes.in_zookeeper(partition)

    def describe_members(self) -> tuple[DescribedGroupMember, ...]:
        """Members of both, those in ZooKeeper first."""
        return (*self.in_znodes.describe_members(), *self.at_brokers.describe_members())


def counts_at_brokers(in_znodes_live: bool | None, at_brokers: str | None) -> bool:
    """True if the owner at brokers, which is live, is shown of a partition: that in ZooKeeper is none, or dead."""
    return at_brokers is not None and not in_znodes_live


class EveryGroup:
    """A :class:`~zkconsumer.operate.groups.observedgroup.GroupSource` of both kinds.

    A group of one name in both is one: its offset that counts is chosen as for a group in ZooKeeper.

    Args:
        in_znodes: groups in ZooKeeper; it closes them.
        at_brokers: those of the brokers of the same cluster; likewise.

    Attributes:
        unlisted: which groups are missing from the last :meth:`names`, one sentence each.
        times: when records of the groups' partitions were written.
    """

    def __init__(self, in_znodes: GroupSource, at_brokers: GroupSource) -> None:
        self._in_znodes = in_znodes
        self._at_brokers = at_brokers
        self._listed: frozenset[str] | None = None  # at brokers; None if they were never listed
        self.unlisted: tuple[str, ...] = ()
        self.times: Final = in_znodes.times

    def close(self) -> None:
        """Close the connections to brokers. Idempotent."""
        self._in_znodes.close()
        self._at_brokers.close()

    def names(self) -> list[str]:
        """Names of all groups of both kinds, sorted; without those of brokers, if these do not list them."""
        names = self._in_znodes.names()
        self._listed, self.unlisted = listed_by(self._at_brokers)
        return sorted({*names, *self._listed})

    def look(self, groups: Sequence[str], at: float) -> GroupsLook:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`."""
        in_znodes = self._in_znodes.look(groups, at)
        asked = [name for name in groups if self._listed is None or name in self._listed]
        at_brokers = self._at_brokers.look(asked, at)
        found: dict[str, ObservedGroup] = {}
        samples = {**at_brokers.samples, **in_znodes.samples}
        for name in groups:
            znodes, of_brokers = in_znodes.groups.get(name), at_brokers.groups.get(name)
            if znodes is not None and of_brokers is not None:
                found[name] = GroupInBoth(znodes, of_brokers)
                samples[name] = _merged(in_znodes.samples[name], at_brokers.samples[name])
            elif (only := znodes or of_brokers) is not None:
                found[name] = only
        failures, unread = failures_in_both(groups, found, in_znodes.failures, at_brokers.failures)
        problems = (*in_znodes.problems, *at_brokers.problems)
        return GroupsLook(found, samples, failures, problems, (*self.unlisted, *unread))


NO_GROUP: Final = (GroupMissing, ProtocolError)
"""What shows that brokers do not have a group; those before 0.9 have none."""


def listed_by(brokers: GroupSource) -> tuple[frozenset[str], tuple[str, ...]]:
    """Groups that brokers list beside those in ZooKeeper; and which are missing, one sentence each."""
    try:
        return frozenset(brokers.names()), brokers.unlisted
    except NO_GROUP:
        return frozenset(), ()
    except BrokerUnavailable as error:
        return frozenset(), (f"groups that brokers coordinate are missing: {error}",)


def failures_in_both(
    names: Iterable[str],
    found: Container[str],
    in_znodes: Mapping[str, ZkConsumerError],
    at_brokers: Mapping[str, ZkConsumerError],
) -> tuple[dict[str, ZkConsumerError], tuple[str, ...]]:
    """Why groups are found nowhere, by name; and what is unknown of those found, one sentence each.

    ``in_znodes`` and ``at_brokers`` have the errors of each home, by name.
    """
    failures: dict[str, ZkConsumerError] = {}
    unread: list[str] = []
    for name in names:
        errors = [error for place in (in_znodes, at_brokers) if (error := place.get(name)) is not None]
        errors = [error for error in errors if not isinstance(error, NO_GROUP)]
        if name in found:
            unread += (f"a part of group {name} cannot be read: {error}" for error in errors)
        else:
            failures[name] = errors[0] if errors else missing_everywhere(name)
    return failures, tuple(unread)


def missing_everywhere(name: str) -> GroupMissing:
    """The error where a group was looked for in ZooKeeper and at brokers."""
    return GroupMissing(
        f"group {name} exists neither in ZooKeeper nor at the brokers; check its name (`zkconsumer groups list`) and "
        "the chroot"
    )


def _merged(
    in_znodes: Mapping[TopicPartition, LagSample], at_brokers: Mapping[TopicPartition, LagSample]
) -> dict[TopicPartition, LagSample]:
    """The samples of a group's znodes, with owners that brokers have; and of partitions that brokers alone have."""
    merged = {**at_brokers, **in_znodes}
    for partition in in_znodes.keys() & at_brokers.keys():
        sample, other = in_znodes[partition], at_brokers[partition]
        if counts_at_brokers(sample.owner_live, other.owner):
            merged[partition] = sample._replace(owner=other.owner, owner_live=True)
    return merged
