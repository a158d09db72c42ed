"""EveryGroup: the groups in ZooKeeper and those that brokers coordinate, in one list."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from zkconsumer.errors import (
    TRANSIENT,
    BrokerUnavailable,
    GroupMissing,
    NoCommonVersion,
    ProtocolError,
    ZkConsumerError,
    ZooKeeperRefused,
    name_some,
)
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import OffsetStorage, counts_in_kafka
from zkconsumer.operate.groups.brokergroups import no_broker_group
from zkconsumer.operate.groups.observedgroup import (
    BrokerState,
    DescribedGroupMember,
    GroupsLook,
    GroupSource,
    Layout,
    ObservedGroup,
    is_migrated,
)
from zkconsumer.operate.groups.rules.lagstretches import LagSample
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.offsets.rules.serveranswers import ServerAnswer
from zkconsumer.zookeeper.rules.znodes import MigrationMark

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupInBoth:
    """A group that has znodes, and members or offsets at brokers; an :class:`ObservedGroup`.

    Attributes:
        in_znodes: as ZooKeeper has it.
        at_brokers: as its coordinator describes it.
        storage: whose committed offset counts.
        lost: see :func:`describe_lost`; empty if brokers have it.
    """

    in_znodes: ObservedGroup
    at_brokers: ObservedGroup
    storage: OffsetStorage = "auto"
    lost: str = ""

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
        """What its coordinator reports; None if brokers do not have it."""
        return None if self.lost else self.at_brokers.in_brokers

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
        """Those of both that count, sorted."""
        at_brokers = self.at_brokers.partitions if self.has_partitions_at_brokers else ()
        return sorted({*self.in_znodes.partitions, *at_brokers})

    @property
    def has_partitions_at_brokers(self) -> bool:
        """True if partitions that brokers alone have count: members have them, or the offsets there count.

        Those of a group that continues there count: its znodes do not have topics that its new consumers have begun.
        """
        if self.at_brokers.live or counts_in_kafka(self.storage):
            return True
        return self.continues_at_brokers

    @property
    def continues_at_brokers(self) -> bool:
        """See :func:`continues_at_brokers`."""
        return continues_at_brokers(self.group, self.in_znodes.mark, self.in_znodes.live)

    @property
    def existing(self) -> Mapping[str, tuple[int, ...]]:
        """See :class:`ObservedGroup`."""
        return {**self.at_brokers.existing, **self.in_znodes.existing}

    @property
    def absent(self) -> frozenset[str]:
        """See :class:`ObservedGroup`."""
        return (self.in_znodes.absent | self.at_brokers.absent) - self.existing.keys() - self.undescribed

    @property
    def undescribed(self) -> frozenset[str]:
        """See :class:`ObservedGroup`."""
        return self.in_znodes.undescribed | self.at_brokers.undescribed

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
        """Of the offsets in ZooKeeper; None where the group continues at brokers, and has left them behind."""
        return None if self.continues_at_brokers else self.in_znodes.newest_commit_ms

    @property
    def mark(self) -> MigrationMark | None:
        """See :func:`counting_mark`."""
        return counting_mark(self.group, self.in_znodes.mark, self.in_znodes.live)

    @property
    def in_two_homes(self) -> str:
        """See :func:`describe_two_homes`."""
        return describe_two_homes(self.in_znodes.live, self.at_brokers.live)

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


def counting_mark(group: str, mark: MigrationMark | None, in_znodes: Collection[str]) -> MigrationMark | None:
    """The mark of a group in both, unless it shows what is observed: the group continues at brokers, not in ZooKeeper.

    Then it is judged as brokers have it, since a mark would hide that no member consumes there.

    A group that continues under another name is not this one at brokers. A mark that cannot be read names none.

    Args:
        group: its name.
        mark: in ZooKeeper.
        in_znodes: members in ZooKeeper.
    """
    return None if continues_at_brokers(group, mark, in_znodes) else mark


def continues_at_brokers(group: str, mark: MigrationMark | None, in_znodes: Collection[str]) -> bool:
    """True if a group was migrated to the group of its name at brokers, and no member has returned to ZooKeeper."""
    return mark is not None and mark.may_be_of(str(End("kafka", group))) and is_migrated(mark, in_znodes)


def is_lost(
    group: str, mark: MigrationMark | None, in_znodes: Collection[str], not_at_brokers: ZkConsumerError | None
) -> bool:
    """True if brokers have answered that they do not have a group that continues there.

    A mark that cannot be read does not show that it does.

    1. A group is migrated; 2. the new consumers end, or never start; 3. its offsets expire, and with them the group.
    The mark must not hide it then either, so brokers are asked for such a group also if they do not list it.

    Args:
        group: its name.
        mark: in ZooKeeper.
        in_znodes: members in ZooKeeper.
        not_at_brokers: the error of the brokers; None if they have it, or were not asked.
    """
    is_named = mark is not None and bool(mark.target)
    return is_named and continues_at_brokers(group, mark, in_znodes) and isinstance(not_at_brokers, NO_GROUP)


def describe_lost(group: str) -> str:
    """That brokers do not have a group that continues there, and what follows, in a sentence."""
    return (
        f"the brokers have no group {group}, where its consumers should be: its offsets may have expired, and then "
        "consumers that start begin by auto.offset.reset"
    )


def describe_two_homes(in_znodes: Collection[str], at_brokers: Collection[str]) -> str:
    """That a group has members in ZooKeeper and at brokers, in a sentence; empty if one of them has none."""
    if not (in_znodes and at_brokers):
        return ""
    return (
        f"it has members in ZooKeeper ({name_some(sorted(in_znodes))}) and at brokers "
        f"({name_some(sorted(at_brokers))}): both read every record"
    )


def counts_at_brokers(in_znodes_live: bool | None, at_brokers: str | None) -> bool:
    """True if the owner at brokers, which is live, is shown of a partition: that in ZooKeeper is none, or dead."""
    return at_brokers is not None and not in_znodes_live


class Home:
    """One of the two places where groups are, and what it has answered; it may be silent, or refuse, for a while.

    Args:
        source: its groups.
        described: its groups, in words.

    Attributes:
        listed: names as of its last answer; None if it has never answered.
        unlisted: which groups are missing from the last :meth:`names`, one sentence each.
        problems: that it did not answer when it was asked last, in a sentence; nothing if it did.
    """

    def __init__(self, source: GroupSource, described: str) -> None:
        self.source: Final = source
        self._described = described
        self._silence: ZkConsumerError | None = None  # why it did not list its groups, until it is asked
        self.listed: frozenset[str] | None = None
        self.unlisted: tuple[str, ...] = ()
        self.problems: tuple[str, ...] = ()

    def names(self) -> frozenset[str]:
        """Names of its groups; those of its last answer, if it does not answer now."""
        self._silence = None
        try:
            self.listed, self.unlisted = frozenset(self.source.names()), self.source.unlisted
        except NO_GROUP:
            self.listed, self.unlisted = frozenset(), ()
        except (*NO_ANSWER, ProtocolError) as error:  # for example while brokers load the topic of offsets
            self._silence, self.unlisted = error, (self._missing(error),)
        return self.listed or frozenset()

    def ask(
        self,
        groups: Sequence[str],
        question: Callable[[list[str]], T],
        silent: Callable[[dict[str, ZkConsumerError]], T],
        *,
        unlisted: Container[str] = (),
    ) -> T:
        """Ask for groups that were there at its last answer, or for all if it has never answered.

        Args:
            groups: names of groups.
            question: asks for some of them.
            silent: makes the answer of errors by name, if it is silent, or was when it should have listed its groups:
                then it is not asked, since it would be silent once more.
            unlisted: those of the groups that are asked for in any case.
        """
        asked = [name for name in groups if self.listed is None or name in self.listed or name in unlisted]
        silence, self._silence, self.problems = self._silence, None, ()
        if silence is None:
            try:
                return question(asked)
            except NO_ANSWER as error:
                silence = error
        self.problems = (self._missing(silence),)
        return silent(dict.fromkeys(asked, silence))

    def look(self, groups: Sequence[str], at: float, *, unlisted: Container[str] = ()) -> GroupsLook:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`; ``unlisted`` as of :meth:`ask`."""
        return self.ask(
            groups,
            lambda asked: self.source.look(asked, at),
            lambda failures: GroupsLook({}, {}, failures, self.problems),
            unlisted=unlisted,
        )

    def _missing(self, error: ZkConsumerError) -> str:
        return f"{self._described} cannot be listed now: {error}"


class EveryGroup:
    """A :class:`~zkconsumer.operate.groups.observedgroup.GroupSource` of both kinds.

    A group of one name in both is one: its offset that counts is chosen as for a group in ZooKeeper. Where ZooKeeper or
    the brokers do not answer, or refuse, the groups of the other are read, and that is a problem.

    Args:
        in_znodes: groups in ZooKeeper; it closes them.
        at_brokers: those of the brokers of the same cluster; likewise.
        storage: whose committed offset counts of a group in both.

    Attributes:
        in_znodes: ZooKeeper.
        at_brokers: the brokers.
        times: when records of the groups' partitions were written.
    """

    def __init__(self, in_znodes: GroupSource, at_brokers: GroupSource, *, storage: OffsetStorage = "auto") -> None:
        self._storage: Final[OffsetStorage] = storage
        self.in_znodes: Final = Home(in_znodes, "groups in ZooKeeper")
        self.at_brokers: Final = Home(at_brokers, "groups that brokers coordinate")
        self.times: Final = at_brokers.times

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Which groups are missing from the last :meth:`names`, one sentence each."""
        return (*self.in_znodes.unlisted, *self.at_brokers.unlisted)

    def close(self) -> None:
        """Close the connections to brokers. Idempotent."""
        self.in_znodes.source.close()
        self.at_brokers.source.close()

    def begin_round(self) -> None:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`."""
        self.in_znodes.source.begin_round()
        self.at_brokers.source.begin_round()

    def servers(self) -> tuple[ServerAnswer, ...]:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`; both may ask the same brokers."""
        return tuple(dict.fromkeys((*self.in_znodes.source.servers(), *self.at_brokers.source.servers())))

    def names(self) -> list[str]:
        """Names of all groups of both kinds, sorted; of one that does not answer, those of its last answer.

        Raises:
            ZkConsumerError: neither of them has ever answered.
        """
        names = sorted(self.in_znodes.names() | self.at_brokers.names())
        if self.in_znodes.listed is None and self.at_brokers.listed is None:
            raise BrokerUnavailable("; ".join(self.unlisted))
        return names

    def look(self, groups: Sequence[str], at: float) -> GroupsLook:
        """See :class:`~zkconsumer.operate.groups.observedgroup.GroupSource`."""
        in_znodes = self.in_znodes.look(groups, at)
        continuing = {n for n, group in in_znodes.groups.items() if continues_at_brokers(n, group.mark, group.live)}
        at_brokers = self.at_brokers.look(groups, at, unlisted=continuing)
        found: dict[str, ObservedGroup] = {}
        samples = {**at_brokers.samples, **in_znodes.samples}
        for name in groups:
            znodes, of_brokers = in_znodes.groups.get(name), at_brokers.groups.get(name)
            if znodes is not None and of_brokers is not None:
                found[name] = both = GroupInBoth(znodes, of_brokers, self._storage)
                merged = _merged(in_znodes.samples[name], at_brokers.samples[name])
                has_more = both.has_partitions_at_brokers
                samples[name] = {p: one for p, one in merged.items() if has_more or p in in_znodes.samples[name]}
            elif znodes is not None and is_lost(name, znodes.mark, znodes.live, at_brokers.failures.get(name)):
                found[name] = GroupInBoth(znodes, no_broker_group(name), self._storage, describe_lost(name))
            elif (only := znodes or of_brokers) is not None:
                found[name] = only
        live = {name for name, group in at_brokers.groups.items() if group.live}
        failures, partly_read = failures_in_both(groups, found, live, in_znodes.failures, at_brokers.failures)
        problems = (*in_znodes.problems, *at_brokers.problems)
        return GroupsLook(found, samples, failures, problems, partly_read)


NO_GROUP: Final = (GroupMissing, NoCommonVersion)
"""What shows that brokers do not have a group; those before 0.9 have none."""
NO_ANSWER: Final = (*TRANSIENT, ZooKeeperRefused)
"""What shows that a home does not list its groups, or a group, while the other one may: it is silent, or refuses."""


def failures_in_both(
    names: Iterable[str],
    found: Container[str],
    live_at_brokers: Container[str],
    in_znodes: Mapping[str, ZkConsumerError],
    at_brokers: Mapping[str, ZkConsumerError],
) -> tuple[dict[str, ZkConsumerError], dict[str, ZkConsumerError]]:
    """Why groups are found nowhere, by name; and why it is unknown what the other home has of those found.

    Args:
        names: of the groups.
        found: those that are found.
        live_at_brokers: those that have members there.
        in_znodes: the errors of ZooKeeper, by name.
        at_brokers: those of brokers.
    """
    failures: dict[str, ZkConsumerError] = {}
    partly_read: dict[str, ZkConsumerError] = {}
    for name in names:
        errors = [error for home in (in_znodes, at_brokers) if (error := home.get(name)) is not None]
        errors = [error for error in errors if not isinstance(error, NO_GROUP)]
        if name not in found:
            failures[name] = errors[0] if errors else missing_everywhere(name)
        elif errors and not counts_as_read(errors[0], live_at_brokers=name in live_at_brokers):
            partly_read[name] = errors[0]
    return failures, partly_read


def counts_as_read(error: ZkConsumerError, *, live_at_brokers: bool) -> bool:
    """True if a group needs no answer of the other home: it has members at brokers, and ZooKeeper is silent."""
    return live_at_brokers and isinstance(error, TRANSIENT)


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
