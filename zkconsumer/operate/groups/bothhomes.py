"""Looks for a group in ZooKeeper and at brokers, and decides whose findings count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

from zkconsumer.errors import (
    BrokerUnavailable,
    CoordinatorMoved,
    GroupMissing,
    ZkConsumerError,
)
from zkconsumer.operate.groups.everygroup import (
    NO_ANSWER,
    NO_GROUP,
    continues_at_brokers,
    counting_mark,
    counts_as_read,
    describe_lost,
    describe_two_homes,
    is_lost,
    missing_everywhere,
)
from zkconsumer.operate.groups.observedgroup import unread_groups
from zkconsumer.zookeeper.rules.znodes import MigrationMark

F = TypeVar("F")


class Explained(NamedTuple, Generic[F]):
    """What was found of a group where it was looked for.

    Attributes:
        live: its members.
        findings: what keeps them from consuming.
        mark: of a migration; None if it has none.
        marked: the finding that it has this mark, which may be no finding of the group in ZooKeeper alone.
    """

    live: frozenset[str]
    findings: list[F]
    mark: MigrationMark | None = None
    marked: F | None = None


class Looks(NamedTuple, Generic[F]):
    """How a group is looked at.

    Attributes:
        in_znodes: looks in ZooKeeper; None if there is none.
        at_brokers: looks at brokers; None if none are named.
        without_coordinator: what is found if the group is not in ZooKeeper, and no broker coordinates it; may raise the
            error.
        unknown: a finding: whether the group has members in the other one, too, is unknown.
        warn: reports that, where the group counts as read; None for a finding there, too.
        twice: a finding: the group has members in both.
        lost: a finding: brokers do not have the group, which continues there.
    """

    in_znodes: Callable[[], Explained[F]] | None
    at_brokers: Callable[[], Explained[F]] | None
    without_coordinator: Callable[[ZkConsumerError], Explained[F]]
    unknown: Callable[[str], F]
    warn: Callable[[str], None] | None
    twice: Callable[[str], F]
    lost: Callable[[str], F]


def look_at_each(
    groups: Sequence[str],
    look: Callable[[str], list[F]],
    advance: Callable[[int, int], None],
    *,
    named: Collection[str],
) -> tuple[dict[str, list[F]], tuple[str, ...]]:
    """The findings of groups, by name, and which cannot be read; ``named`` and what it raises: :func:`unread_groups`.

    ``advance`` is called with the number of groups that were looked at, and that of all.
    """
    found: dict[str, list[F]] = {}
    failures: dict[str, ZkConsumerError] = {}
    for number, group in enumerate(groups):
        advance(number, len(groups))
        try:
            found[group] = look(group)
        except ZkConsumerError as error:
            failures[group] = error
    return found, unread_groups(found, failures, named)


def look_in_both(group: str, looks: Looks[F]) -> list[F]:
    """The findings of a group that may be in ZooKeeper, at brokers, or in both.

    Raises:
        GroupMissing: there is no such group.
        ZkConsumerError: the group is found nowhere, and ZooKeeper is silent or refuses, or its coordinator cannot be
            asked.
    """
    in_znodes, no_znodes = _look(looks.in_znodes, (GroupMissing, *NO_ANSWER))
    at_brokers, not_at_brokers = _look(looks.at_brokers, (ZkConsumerError,))
    only = in_znodes or at_brokers
    if only is None:
        return _found_nowhere(group, no_znodes, not_at_brokers, looks)
    if in_znodes is not None and is_lost(group, in_znodes.mark, in_znodes.live, not_at_brokers):
        return [looks.lost(describe_lost(group))]
    error, where = (no_znodes, "in ZooKeeper") if in_znodes is None else (not_at_brokers, "at brokers")
    if error is not None and not isinstance(error, NO_GROUP):
        unknown = f"whether it has members {where}, too, is unknown: {error}"
        is_live = at_brokers is not None and bool(at_brokers.live)
        if looks.warn is not None and counts_as_read(error, live_at_brokers=is_live):
            looks.warn(unknown)
        else:
            only.findings.append(looks.unknown(unknown))
    return counting_findings(group, in_znodes, at_brokers, looks.twice)


def _look(
    look: Callable[[], Explained[F]] | None, caught: tuple[type[ZkConsumerError], ...]
) -> tuple[Explained[F] | None, ZkConsumerError | None]:
    try:
        return None if look is None else look(), None
    except caught as error:
        return None, error


def _found_nowhere(
    group: str, no_znodes: ZkConsumerError | None, not_at_brokers: ZkConsumerError | None, looks: Looks[F]
) -> list[F]:
    """What the errors of both mean; None where it was not looked for."""
    if no_znodes is not None:
        if not_at_brokers is None or not isinstance(no_znodes, GroupMissing):
            raise no_znodes
        if isinstance(not_at_brokers, NO_GROUP):
            raise missing_everywhere(group)
    if isinstance(not_at_brokers, CoordinatorMoved | BrokerUnavailable):
        return looks.without_coordinator(not_at_brokers).findings
    raise not_at_brokers or missing_everywhere(group)


def counting_findings(
    group: str, in_znodes: Explained[F] | None, at_brokers: Explained[F] | None, twice: Callable[[str], F]
) -> list[F]:
    """Whose findings count: a group in ZooKeeper that stores offsets in Kafka is one at brokers, without members.

    Of a group with members at brokers alone, or that was migrated there, those of its znodes do not count, but for a
    mark that does.

    Args:
        group: its name.
        in_znodes: None if it has no znodes.
        at_brokers: None if the brokers do not have it, or were not asked.
        twice: makes a finding of the sentence that it has members in both.
    """
    if in_znodes is None or at_brokers is None:
        return [] if (only := in_znodes or at_brokers) is None else only.findings
    if not at_brokers.live and not continues_at_brokers(group, in_znodes.mark, in_znodes.live):
        return in_znodes.findings
    if not in_znodes.live:
        is_marked = counting_mark(group, in_znodes.mark, in_znodes.live) is not None
        return [*([in_znodes.marked] if is_marked and in_znodes.marked is not None else ()), *at_brokers.findings]
    finding = twice(describe_two_homes(in_znodes.live, at_brokers.live))
    return list(dict.fromkeys((finding, *in_znodes.findings, *at_brokers.findings)))
