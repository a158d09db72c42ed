"""EveryGroup: the groups in ZooKeeper and those that brokers coordinate, in one list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        """Owners of both; of a partition that has two, that in ZooKeeper."""
        return {**self.at_brokers.owners, **self.in_znodes.owners}

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
        try:
            self._listed, self.unlisted = frozenset(self._at_brokers.names()), self._at_brokers.unlisted
        except (BrokerUnavailable, ProtocolError) as error:
            self._listed, self.unlisted = frozenset(), (f"groups that brokers coordinate are missing: {error}",)
        return sorted({*names, *self._listed})

    def look(self, groups: Sequence[str], at: float) -> GroupsLook:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`."""
        in_znodes = self._in_znodes.look(groups, at)
        asked = [name for name in groups if self._listed is None or name in self._listed]
        at_brokers = self._at_brokers.look(asked, at)
        found: dict[str, ObservedGroup] = {}
        samples = {**at_brokers.samples, **in_znodes.samples}
        failures: dict[str, ZkConsumerError] = {}
        problems = [] if self.unlisted == self._at_brokers.unlisted else list(self.unlisted)
        for name in groups:
            znodes, of_brokers = in_znodes.groups.get(name), at_brokers.groups.get(name)
            errors = [error for look in (in_znodes, at_brokers) if (error := look.failures.get(name)) is not None]
            unread = [error for error in errors if not isinstance(error, GroupMissing)]
            if znodes is not None and of_brokers is not None:
                found[name] = GroupInBoth(znodes, of_brokers)
                samples[name] = _merged(in_znodes.samples[name], at_brokers.samples[name])
            elif (only := znodes or of_brokers) is not None:
                found[name] = only
                problems += map(str, unread)
            else:
                failures[name] = unread[0] if unread else missing_everywhere(name)
        return GroupsLook(found, samples, failures, (*problems, *in_znodes.problems, *at_brokers.problems))


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
        if other.owner_live and not sample.owner_live:
            merged[partition] = sample._replace(owner=other.owner, owner_live=True)
    return merged
