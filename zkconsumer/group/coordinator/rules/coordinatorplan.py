"""The decisions of a group's coordinator: which share each member is commanded to own next (adr/0017).

A member is *commanded* when the coordinator has written its complete share. A partition moves in two steps: it is
withdrawn from the command of its holder, and granted to the next one when it is free. There is no barrier: a member
whose share stays the same gets no command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final, NamedTuple
from zlib import crc32

from zkconsumer.group.coordinator.rules.coordinatorznodes import STICKY
from zkconsumer.group.rules.assignors import ASSIGNORS, Assignment, Threads
from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.rules.partitionassignor import PartitionAssignor, assign_partitions
from zkconsumer.group.rules.rebalancetimes import longest_settling_seconds
from zkconsumer.group.rules.reconcile import Share
from zkconsumer.group.rules.stickyassignor import divide, sticky_assignor
from zkconsumer.model import Broker, ConsumerThreadId, TopicPartition
from zkconsumer.zookeeper.rules.znodes import PartitionOwnerNode

Shares = Mapping[str, Share]
"""Consumer id to the share that its command has; only members that obey commands."""

LATE_AFTER_TIMEOUTS: Final = 2 / 3
"""Session timeouts after which a partition that is awaited counts as late."""

_NAMED_BROKERS: Final = 3
"""Most brokers that a command names: one that answers is enough, and commands are small."""

Owners = Mapping[TopicPartition, str | None]
"""The text of the owner znode of each partition that was read, None if there was no such znode."""


def longest_wait_seconds(backoff_ms: int, session_timeout_s: float, *, patient: bool) -> float:
    """How long the coordinator may put off a plan while members keep coming and going.

    Nothing stops meanwhile: what waits are partitions of members that left, and new members.

    Args:
        backoff_ms: ``rebalance.backoff.ms``.
        session_timeout_s: the negotiated session timeout.
        patient: True if all members obey commands. JVM consumers wait half a backoff at most
            (:func:`~zkconsumer.group.rules.rebalancetimes.longest_settling_seconds`); a group of thousands joins for
            longer.
    """
    shortest = longest_settling_seconds(backoff_ms)
    return max(shortest, session_timeout_s / 2) if patient else shortest


class NextTurn(NamedTuple):
    """When a leader acts again without a change of its group.

    Whoever computes a time returns it, and none is kept for a later turn: a turn that does not look at something does
    not wake up for it, either. Otherwise a time that has passed would wake the leader again and again.

    Attributes:
        at_once: True if more can be done now.
        due_at: reading of the clock, later than that of this turn, at which something is due; None if nothing will be.
    """

    at_once: bool
    due_at: float | None = None


def earliest(moments: Iterable[float | None]) -> float | None:
    """The first of these moments; None stands for never."""
    return min((moment for moment in moments if moment is not None), default=None)


class Roles(NamedTuple):
    """The members of a group, by what the coordinator may expect of them.

    Attributes:
        followers: they obey commands.
        foreign: they compute their share by themselves: JVM consumers, and members with ``group.protocol=zookeeper``.
        returning: they obey commands, and their command node was deleted: they are about to register again, and keep
            what they own until then.
    """

    followers: frozenset[str]
    foreign: frozenset[str]
    returning: frozenset[str] = frozenset()


class CommandPlan(NamedTuple):
    """The next commands.

    Attributes:
        shares: the new share of each follower whose share changes.
        awaited: partitions that a follower should own and that are not free yet. Those that are granted may be without
            an owner as well, until their member obeys.
    """

    shares: dict[str, Share]
    awaited: frozenset[TopicPartition]


def roles(
    registered: Collection[str],
    with_command: Collection[str],
    registered_after: Collection[str],
    obeying: Collection[str] = (),
) -> Roles:
    """Who obeys commands, and who does not.

    A follower creates its registration and its command node in one transaction, and they end together. But they are
    listed by two requests: 1. ``ids`` is listed with C; 2. C leaves, and both nodes are gone; 3. the commands are
    listed without C, which would look like a JVM member, and all partitions of the group would be assigned in another
    way. So ``ids`` is listed again.

    Args:
        registered: consumer ids that were registered before the commands were listed.
        with_command: consumer ids that had a command node.
        registered_after: consumer ids that were registered after that.
        obeying: consumer ids of members with ``group.protocol=coordinator``.
    """
    known = frozenset(with_command)
    commandless = frozenset(registered).intersection(registered_after) - known
    return Roles(known.intersection(registered), commandless.difference(obeying), commandless.intersection(obeying))


def refusals(view: GroupView, followers: Collection[str], min_session_ms: int) -> dict[str, str]:
    """Members that must not own anything, and why.

    Args:
        view: subscriptions and session timeouts.
        followers: members that obey commands.
        min_session_ms: ``coordinator.min.session.ms``; a member that did not write its timeout is accepted.
    """
    reasons: dict[str, str] = {}
    for name in followers:
        timeout = view.session_ms.get(name)
        if name in view.unreadable:
            reasons[name] = f"its registration cannot be used: {view.unreadable[name]}"
        elif timeout is not None and timeout < min_session_ms:
            reasons[name] = (
                f"its session timeout of {timeout} ms is below coordinator.min.session.ms={min_session_ms} of the "
                "coordinator; increase zookeeper.session.timeout.ms, and check maxSessionTimeout of the servers"
            )
    return reasons


def target(
    view: GroupView,
    members: Roles,
    assignor: str,
    previous: Assignment,
    *,
    exclude_internal: bool,
    policy: str = STICKY,
    refused: Set[str] = frozenset(),
    own: PartitionAssignor | None = None,
) -> Assignment:
    """The partitions of all members.

    Where all of them obey, the policy decides; the sticky assignor keeps what it can of the previous assignment.
    Foreign members compute theirs, so where there are any, all are assigned by the assignor that these share. They know
    of no refusal: what they leave to a refused member is given to the other followers.

    Args:
        view: subscriptions of the members, and the topics that exist.
        members: those of the view that are still in the group.
        assignor: name of the shared assignor.
        previous: see :func:`previous`.
        exclude_internal: see :meth:`GroupView.threads_by_topic`.
        policy: name of the assignor of members that all obey.
        refused: followers that must not own anything.
        own: the application's assignor, used in place of the sticky one; there must be no foreign members then.

    Raises:
        AssignorFailed: what ``own`` returned cannot be used.
    """
    everyone = members.followers | members.foreign | members.returning
    if not members.foreign:
        everyone -= refused
    present = GroupView(
        members={name: subscription for name, subscription in view.members.items() if name in everyone},
        partitions=view.partitions,
        topics=view.topics,
    )
    threads = present.threads_by_topic(exclude_internal=exclude_internal)
    if members.foreign:
        shared = ASSIGNORS[assignor](threads, view.partitions)
        return _without(refused, shared, threads, members.followers - refused) if refused else shared
    if policy != STICKY:
        return ASSIGNORS[policy](threads, view.partitions)
    if own is not None:
        return _by_own(own, threads, replace(present, user_data=view.user_data), previous)
    return sticky_assignor(threads, view.partitions, previous)


def _by_own(
    own: PartitionAssignor, threads: Threads, present: GroupView, previous: Mapping[TopicPartition, ConsumerThreadId]
) -> Assignment:
    """The partitions of all threads as the application's assignor gives them to members."""
    streams: dict[str, dict[str, int]] = {name: {} for name in sorted(present.members)}
    for topic, of_topic in threads.items():
        for name, count in Counter(thread.consumer_id for thread in of_topic).items():
            streams[name][topic] = count
    held: dict[str, dict[TopicPartition, ConsumerThreadId]] = {name: {} for name in streams}
    for partition, thread in previous.items():
        if thread.consumer_id in held:
            held[thread.consumer_id][partition] = thread
    user_data = {name: data for name, data in present.user_data.items() if name in streams}
    owned = {name: frozenset(partitions) for name, partitions in held.items()}
    assigned = assign_partitions(own, streams, present.partitions, owned, user_data)
    return {
        partition: thread
        for name, partitions in assigned.items()
        for partition, thread in divide(name, partitions, streams[name], held[name]).items()
    }


def _without(refused: Set[str], assignment: Assignment, threads: Threads, followers: Set[str]) -> Assignment:
    """The assignment after refused members have given theirs to the followers that subscribe and have least."""
    given = {partition: thread for partition, thread in assignment.items() if thread.consumer_id not in refused}
    loads = Counter(given.values())
    for partition in sorted(assignment.keys() - given.keys()):
        heirs = [thread for thread in threads[partition.topic] if thread.consumer_id in followers]
        if heirs:
            given[partition] = heir = min(heirs, key=lambda thread: (loads[thread], thread))
            loads[heir] += 1
    return given


def previous(commanded: Shares, intended: Assignment) -> Assignment:
    """The assignment to stay close to: the commands, and for a partition that is being moved where it is to go.

    Without the latter a change of the group in the middle of a move could redirect the move.

    Args:
        commanded: the present commands.
        intended: the last target; empty for a coordinator that was just elected.
    """
    return {**intended, **{partition: thread for share in commanded.values() for partition, thread in share.items()}}


def undecided(aim: Assignment, commanded: Shares) -> list[TopicPartition]:
    """Partitions of followers that are in no command: their owner znodes have to be read before :func:`plan`."""
    held = _holders(commanded)
    return sorted(p for p, thread in aim.items() if thread.consumer_id in commanded and p not in held)


def plan(aim: Assignment, commanded: Shares, owners: Owners) -> CommandPlan:
    """The next commands: each follower keeps what it should keep, and gets of the rest what is free.

    A partition is free if no command has it and, as read after that, no member owns it; it is also free for the member
    that owns it. So no partition is ever in two commands, and none is commanded while another member holds it.

    Args:
        aim: the partitions of all members.
        commanded: the present command of every follower.
        owners: owner znodes of the :func:`undecided` partitions, read after the commands were written.
    """
    wanted: dict[str, dict[TopicPartition, ConsumerThreadId]] = {name: {} for name in commanded}
    for partition, thread in aim.items():
        if thread.consumer_id in wanted:
            wanted[thread.consumer_id][partition] = thread
    held = _holders(commanded)
    shares: dict[str, Share] = {}
    awaited: set[TopicPartition] = set()
    for name, present in commanded.items():
        granted = {
            partition: thread
            for partition, thread in wanted[name].items()
            if partition in present or (partition not in held and _is_free(partition, name, owners))
        }
        awaited |= wanted[name].keys() - granted.keys()
        if granted != present:
            shares[name] = granted
    return CommandPlan(shares, frozenset(awaited))


def brokers_for(consumer_id: str, brokers: Sequence[Broker]) -> tuple[Broker, ...]:
    """The brokers that the command of a member names: three, from another one on for each member.

    Args:
        consumer_id: of the member.
        brokers: all that live.
    """
    if not brokers:
        return ()
    first = crc32(consumer_id.encode()) % len(brokers)
    return tuple([*brokers[first:], *brokers[:first]][:_NAMED_BROKERS])


def _is_free(partition: TopicPartition, consumer_id: str, owners: Owners) -> bool:
    if partition not in owners:
        return False
    owner = owners[partition]
    return owner is None or PartitionOwnerNode.consumer_of(owner) == consumer_id


def _holders(commanded: Shares) -> set[TopicPartition]:
    return {partition for share in commanded.values() for partition in share}


class Awaited(NamedTuple):
    """A partition that is not owned yet by the member that should own it.

    Attributes:
        by: consumer id of the member that has to act: the owner has to release it, or, if it is in a command, the
            member with this command has to claim it; None if another program's owner znode is in the way.
        since: reading of a monotonic clock, in seconds, when it was first found to be awaited.
        is_granted: True if it is to be claimed, False if it is to be released.
    """

    by: str | None
    since: float
    is_granted: bool = False


def awaited_since(
    before: Mapping[TopicPartition, Awaited],
    to_release: Mapping[TopicPartition, str | None],
    to_claim: Mapping[TopicPartition, str],
    now: float,
) -> dict[TopicPartition, Awaited]:
    """Since when each partition has been awaited; the time begins again where another member has to act.

    Args:
        before: the same, at the last plan.
        to_release: partitions that have to be released, and their owners.
        to_claim: partitions in commands that have no owner, and the members that have to claim them.
        now: reading of a monotonic clock, in seconds.
    """
    awaited = {partition: Awaited(by, now) for partition, by in to_release.items()}
    awaited.update((partition, Awaited(by, now, is_granted=True)) for partition, by in to_claim.items())
    for partition, waiting in awaited.items():
        former = before.get(partition)
        if former is not None and (former.by, former.is_granted) == (waiting.by, waiting.is_granted):
            awaited[partition] = former
    return awaited


def overdue(
    awaited: Mapping[TopicPartition, Awaited], now: float, session_timeout_s: float
) -> dict[TopicPartition, Awaited]:
    """Partitions that should have been released or claimed: the member has had two thirds of a session timeout.

    One that commits and releases, or claims, needs far less, and one that has died is gone after a session timeout.
    """
    patience_s = session_timeout_s * LATE_AFTER_TIMEOUTS
    return {partition: waiting for partition, waiting in sorted(awaited.items()) if now - waiting.since >= patience_s}
