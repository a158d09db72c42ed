"""The causes of a rebalance, the times between attempts, and what becomes of members that gave up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.model import ConsumerThreadId, TopicPartition

_LONGEST_RELEASE_S: Final = 4.0
_KILLED_SESSIONS: Final = 1.5


class RebalanceCause(Enum):
    """What made a rebalance necessary."""

    START = "start"
    SESSION = "session"
    """The group had removed the member, or its registration was damaged."""
    MEMBERS = "members"
    """A member joined, left, or changed its subscription."""
    TOPICS = "topics"
    """Topics or partitions were created or deleted."""
    OWNERSHIP = "ownership"
    """The same group: an owner znode was lost, an attempt failed, or an unreadable offset was repaired."""


def rebalance_cause(
    change: RebalanceCause, *, is_first: bool, joined_again: bool, has_recreated: bool
) -> RebalanceCause:
    """Why a member rebalances.

    Args:
        change: what has changed in the group since its last finished rebalance.
        is_first: True if there was none.
        joined_again: True if it had to join again since.
        has_recreated: True if topics that it consumed were deleted and created again since.
    """
    if is_first:
        return RebalanceCause.START
    if joined_again:
        return RebalanceCause.SESSION
    return RebalanceCause.TOPICS if has_recreated else change


def view_change(before: GroupView | None, after: GroupView) -> RebalanceCause:
    """What differs between two views of a group; ``before`` is None if there is none."""
    if before is None or before.members != after.members:
        return RebalanceCause.MEMBERS
    return RebalanceCause.TOPICS if before.partitions != after.partitions else RebalanceCause.OWNERSHIP


def settle_seconds(backoff_ms: int) -> float:
    """How long nothing may change before a rebalance starts: 50 ms, at most a tenth of the backoff (adr/0005)."""
    return min(50.0, backoff_ms / 10) / 1000


def longest_settling_seconds(backoff_ms: int) -> float:
    """How long a rebalance may be put off while members keep coming and going: half the backoff.

    JVM members try to claim their partitions once per backoff, and give up after some attempts
    (jvm-consumer.md#exhausted-retries).
    """
    return backoff_ms / 2 / 1000


def retry_seconds(backoff_ms: int, outages: int) -> float:
    """How long to wait after a failed attempt: the backoff; where ZooKeeper cannot be reached, longer each time.

    Any other failure may be over at any moment, and partitions have no consumer until then.

    Args:
        backoff_ms: ``rebalance.backoff.ms``.
        outages: attempts in a row that could not reach ZooKeeper: from the second on the pause is doubled with each, to
            at most 30 s. The blocking call at start passes 0 each time, as the JVM waits.
    """
    return min(backoff_ms / 1000 * 2.0 ** min(max(0, outages - 1), 16), max(30.0, backoff_ms / 1000))


def killed_member_seconds(session_ms: Iterable[float]) -> float:
    """How long a member that was killed is waited for: one and a half session timeouts; servers count them in ticks.

    Args:
        session_ms: each session timeout that may be the member's; the longest counts.
    """
    return _KILLED_SESSIONS * max(session_ms) / 1000


def orphan_delay_seconds(backoff_ms: int) -> float:
    """How long a partition may be without an owner before its computed owner is nudged: twice the backoff."""
    return 2 * backoff_ms / 1000


def retry_window_seconds(max_retries: int, backoff_ms: int) -> float:
    """How long a JVM member tries after an event: ``rebalance.max.retries`` attempts, a backoff apart.

    See jvm-consumer.md#attempt.
    """
    return max_retries * backoff_ms / 1000


def release_seconds(max_retries: int, backoff_ms: int) -> float:
    """How long a release may wait for work in progress: half of the window in which JVM members try to claim.

    They try at 0, 1, .. times the backoff and then give up for good. At most 4 s.
    """
    return max(0.0, min(_LONGEST_RELEASE_S, (max_retries - 1) * backoff_ms / 2 / 1000))


def given_up(
    assignment: Mapping[TopicPartition, ConsumerThreadId],
    owned: Mapping[TopicPartition, object],
    jvm_members: Collection[str],
) -> list[TopicPartition]:
    """Partitions that a live JVM member should own and does not: its attempts are used up.

    See jvm-consumer.md#exhausted-retries, architecture.md#nudging.

    Args:
        assignment: the partitions of all members.
        owned: owner of each partition, None if it has none.
        jvm_members: consumer ids of registered JVM members; zkconsumer members never give up.
    """
    return sorted(p for p, thread in assignment.items() if owned.get(p) is None and thread.consumer_id in jvm_members)


def held_by_others(
    assignment: Mapping[TopicPartition, ConsumerThreadId],
    owned: Mapping[TopicPartition, str | None],
    jvm_members: Collection[str],
) -> bool:
    """True if other members still hold what a live JVM member should own: it may give up before they release it."""
    return any(
        owned.get(p) not in (None, str(thread)) for p, thread in assignment.items() if thread.consumer_id in jvm_members
    )


def my_share(
    assignment: Mapping[TopicPartition, ConsumerThreadId], consumer_id: str
) -> dict[TopicPartition, ConsumerThreadId]:
    """The part of a group's assignment that one member has to claim."""
    return {partition: thread for partition, thread in assignment.items() if thread.consumer_id == consumer_id}


def total_wait_covers_session(max_retries: int, backoff_ms: int, session_timeout_ms: int) -> bool:
    """True if the attempts of a start outlast the session of a member that crashed (jvm-consumer.md#attempt)."""
    return max_retries * backoff_ms > session_timeout_ms
