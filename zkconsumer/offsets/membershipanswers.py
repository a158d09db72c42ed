"""What the error code of a coordinator's answer means for the membership that its request has named.

The only place of this rule, for JoinGroup, SyncGroup, heartbeats and requests of offsets; it is pure. That the
coordinator is another broker is no such code: :func:`~zkconsumer.wire.findcoordinator.expect_coordinator`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from zkconsumer.wire.errorcodes import ErrorCode


class MembershipAnswer(Enum):
    """What is true of the membership, and what its member does."""

    OTHER = "report the error, and try again after a pause"
    """The code is about something else."""
    REBALANCING = "join again with the same id"
    """The group forms a generation; until then the member may have its partitions."""
    OUTDATED = "own nothing unless a newer generation is known, and join again with the same id"
    """The group is in another generation. A thread may have joined it whose answer was not processed yet, so a commit
    waits for that; a heartbeat or a request to join after which there is none has ended the membership."""
    FENCED = "own nothing, and join again with the same id"
    """The group has continued without the member, whose id the coordinator knows."""
    REMOVED = "own nothing, and join as a new member"
    """The coordinator does not know the member any more."""
    REPLACED = "own nothing, and do not join again"
    """Another client has the ``group.instance.id``. A member that joined again would remove that client."""

    @property
    def ends(self) -> bool:
        """True if the membership is over once no newer generation is known."""
        return self not in (MembershipAnswer.OTHER, MembershipAnswer.REBALANCING)

    @property
    def keeps_id(self) -> bool:
        """True if the coordinator still knows the id of a member whose membership is over."""
        return self in (MembershipAnswer.OUTDATED, MembershipAnswer.FENCED)

    @property
    def awaits(self) -> bool:
        """True if the same request may be accepted in the next generation."""
        return self in (MembershipAnswer.REBALANCING, MembershipAnswer.OUTDATED)


_ANSWERS: Final[Mapping[int, MembershipAnswer]] = {
    ErrorCode.REBALANCE_IN_PROGRESS: MembershipAnswer.REBALANCING,
    ErrorCode.ILLEGAL_GENERATION: MembershipAnswer.OUTDATED,
    ErrorCode.STALE_MEMBER_EPOCH: MembershipAnswer.OUTDATED,
    ErrorCode.FENCED_MEMBER_EPOCH: MembershipAnswer.FENCED,
    ErrorCode.UNKNOWN_MEMBER_ID: MembershipAnswer.REMOVED,
    ErrorCode.GROUP_ID_NOT_FOUND: MembershipAnswer.REMOVED,
    ErrorCode.FENCED_INSTANCE_ID: MembershipAnswer.REPLACED,
}


def membership_answer(code: int, *, joins: bool = False) -> MembershipAnswer:
    """What an error code means.

    Args:
        code: error code of an answer.
        joins: True if the request was to join. Then a missing group is one of another kind, which no member can join;
            otherwise it was deleted, or its members use another protocol now.
    """
    if joins and code == ErrorCode.GROUP_ID_NOT_FOUND:
        return MembershipAnswer.OTHER
    return _ANSWERS.get(code, MembershipAnswer.OTHER)
