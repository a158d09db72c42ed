"""Looks for a group in ZooKeeper and at brokers, and decides whose findings count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from zkconsumer.errors import (
    BrokerUnavailable,
    CoordinatorMoved,
    GroupMissing,
    ZkConsumerError,
    name_some,
)
from zkconsumer.operate.groups.everygroup import NO_GROUP, missing_everywhere
from zkconsumer.operate.groups.observedgroup import unread_groups

F = TypeVar("F")


class Explained(NamedTuple, Generic[F]):
    """The members of a group where it was looked for, and what keeps them from consuming."""

    live: frozenset[str]
    findings: list[F]


class Looks(NamedTuple, Generic[F]):
    """How a group is looked at.

    Attributes:
        in_znodes: looks in ZooKeeper; None if there is none.
        at_brokers: looks at brokers; None if none are named.
        without_coordinator: what is found if the group is not in ZooKeeper, and no broker coordinates it; may raise the
            error.
        unknown: a finding: whether brokers have the group, too, is unknown.
        twice: a finding: the group has members in both.
    """

    in_znodes: Callable[[], Explained[F]] | None
    at_brokers: Callable[[], Explained[F]] | None
    without_coordinator: Callable[[ZkConsumerError], Explained[F]]
    unknown: Callable[[str], F]
    twice: Callable[[str], F]


def look_at_each(
    groups: Sequence[str], look: Callable[[str], list[F]], advance: Callable[[int, int], None]
) -> tuple[dict[str, list[F]], tuple[str, ...]]:
    """The findings of groups, by name, and which cannot be read; raises as :func:`unread_groups`.

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
    return found, unread_groups(found, failures, groups)


def look_in_both(group: str, looks: Looks[F]) -> list[F]:
    """The findings of a group that may be in ZooKeeper, at brokers, or in both.

    Raises:
        GroupMissing: there is no such group.
        ZkConsumerError: ZooKeeper cannot be read; or the group is not there, and its coordinator cannot be asked.
    """
    in_znodes: Explained[F] | None = None
    missing: GroupMissing | None = None
    if looks.in_znodes is not None:
        try:
            in_znodes = looks.in_znodes()
        except GroupMissing as error:
            if looks.at_brokers is None:
                raise
            missing = error
    try:
        at_brokers = None if looks.at_brokers is None else looks.at_brokers()
    except ZkConsumerError as error:
        if in_znodes is None:
            at_brokers = _only_at_brokers(group, error, missing, looks)
        else:
            at_brokers = None
            if not isinstance(error, NO_GROUP):
                in_znodes.findings.append(looks.unknown(f"whether it has members at brokers, too, is unknown: {error}"))
    return counting_findings(in_znodes, at_brokers, looks.twice)


def _only_at_brokers(group: str, error: ZkConsumerError, missing: GroupMissing | None, looks: Looks[F]) -> Explained[F]:
    """What an error of brokers means for a group that ZooKeeper does not have."""
    if missing is not None and isinstance(error, NO_GROUP):
        raise missing_everywhere(group)
    if isinstance(error, CoordinatorMoved | BrokerUnavailable):
        return looks.without_coordinator(error)
    raise error


def counting_findings(
    in_znodes: Explained[F] | None, at_brokers: Explained[F] | None, twice: Callable[[str], F]
) -> list[F]:
    """Whose findings count: a group in ZooKeeper that stores offsets in Kafka is one at brokers, without members.

    Args:
        in_znodes: None if it has no znodes.
        at_brokers: None if the brokers do not have it, or were not asked.
        twice: makes a finding of the sentence that it has members in both.
    """
    if in_znodes is None or at_brokers is None:
        return [] if (only := in_znodes or at_brokers) is None else only.findings
    if not at_brokers.live:
        return in_znodes.findings
    if not in_znodes.live:
        return at_brokers.findings
    finding = twice(
        f"it has members in ZooKeeper ({name_some(sorted(in_znodes.live))}) and at brokers "
        f"({name_some(sorted(at_brokers.live))}): both read every record"
    )
    return list(dict.fromkeys((finding, *in_znodes.findings, *at_brokers.findings)))
