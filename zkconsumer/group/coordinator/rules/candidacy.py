"""When a member of a group with ``group.protocol=coordinator`` stands for election (adr/0017)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple
from zlib import crc32

from zkconsumer.group.coordinator.rules.coordinatorznodes import CANDIDATES
from zkconsumer.zookeeper.rules.coordinatorpaths import LEADER, candidate_name

_LONGEST_WITHOUT_PLAN: Final = 2.0
"""Session timeouts after which a candidate replaces a leader that does not react to a change of the members."""

_LONGEST_WITHOUT_LEADER: Final = 1.5
"""Session timeouts after which any member stands for election: candidates may be hung while their sessions live."""


def look_interval(consumer_id: str, session_timeout_s: float) -> float:
    """Seconds between two looks at the leader and the candidates, about a session timeout.

    It differs from member to member, so that not all of them look at the same moment.
    """
    return session_timeout_s * (0.75 + 0.5 * crc32(consumer_id.encode()) / 0xFFFFFFFF)


def looks_at_once(obeying: int | None) -> bool:
    """True if a member that has just registered looks at once, and not only after :func:`look_interval`.

    The first that register do: they become candidates, and one of them the leader. Where there are as many others, one
    of these has looked, or does. Of 50 members that join together 47 do not ask, and do not try places that are taken.
    Where the others have been killed, and their nodes are still there, the member looks when its command is late.

    Args:
        obeying: number of members with a command right after the registration, the new one included; None if unknown.
    """
    return obeying is None or obeying <= CANDIDATES


def free_slot(names: Collection[str], consumer_id: str) -> int | None:
    """A place for one more candidate, None if there are enough.

    Members that look at the same time try different places.

    Args:
        names: children of the coordinator's node.
        consumer_id: of the member that looks.
    """
    free = [slot for slot in range(CANDIDATES) if candidate_name(slot) not in names]
    return free[crc32(consumer_id.encode()) % len(free)] if free else None


def is_candidate(names: Collection[str], slot: int | None) -> bool:
    """True if this member's candidature stands: another client may have deleted its node."""
    return slot is not None and candidate_name(slot) in names


def runs(names: Collection[str], slot: int | None, missing_s: float, session_timeout_s: float) -> bool:
    """True if this member tries to become the leader.

    Args:
        names: children of the coordinator's node.
        slot: where this member is a candidate, None if it is none.
        missing_s: for how long it has seen no leader, in seconds.
        session_timeout_s: the negotiated session timeout.
    """
    if LEADER in names:
        return False
    return is_candidate(names, slot) or missing_s >= _LONGEST_WITHOUT_LEADER * session_timeout_s


class LeaderProgress(NamedTuple):
    """What a candidate saw of the leader's progress.

    Attributes:
        planned: version of the members that the leader last planned from; None if it has not planned.
        late_since: when this member first saw that the members have changed since; None if they have not.
    """

    planned: int | None
    late_since: float | None


def progress(before: LeaderProgress, planned: int | None, present: int, now: float) -> LeaderProgress:
    """What a candidate knows of the leader's progress after another look.

    Args:
        before: after the last look.
        planned: version of the members that the leader last planned from; None if it has not planned in its epoch.
        present: version of the members now.
        now: reading of a monotonic clock, in seconds.
    """
    if planned == present:
        return LeaderProgress(planned, None)
    moved = planned != before.planned or before.late_since is None
    return LeaderProgress(planned, now if moved else before.late_since)


def is_hung(seen: LeaderProgress, now: float, session_timeout_s: float) -> bool:
    """True if the leader's session lives, and the leader does not plan.

    A leader that is only slow moves on: each plan, also one that ends with a refusal, ends the wait.
    """
    return seen.late_since is not None and now - seen.late_since >= _LONGEST_WITHOUT_PLAN * session_timeout_s
