"""What each error code of a coordinator means for a membership."""

import pytest

from zkconsumer.offsets.membershipanswers import MembershipAnswer, membership_answer
from zkconsumer.wire.errorcodes import ErrorCode


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (ErrorCode.NONE, MembershipAnswer.OTHER),
        (ErrorCode.MEMBER_ID_REQUIRED, MembershipAnswer.OTHER),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, MembershipAnswer.OTHER),
        (ErrorCode.UNRELEASED_INSTANCE_ID, MembershipAnswer.OTHER),
        (-1, MembershipAnswer.OTHER),
        (ErrorCode.REBALANCE_IN_PROGRESS, MembershipAnswer.REBALANCING),
        (ErrorCode.ILLEGAL_GENERATION, MembershipAnswer.OUTDATED),
        (ErrorCode.STALE_MEMBER_EPOCH, MembershipAnswer.OUTDATED),
        (ErrorCode.FENCED_MEMBER_EPOCH, MembershipAnswer.FENCED),
        (ErrorCode.UNKNOWN_MEMBER_ID, MembershipAnswer.REMOVED),
        (ErrorCode.FENCED_INSTANCE_ID, MembershipAnswer.REPLACED),
    ],
)
def test_answers(code, answer):
    assert membership_answer(code) is membership_answer(code, joins=True) is answer


def test_a_group_that_is_gone_is_lost_for_members_and_refused_to_new_ones():
    assert membership_answer(ErrorCode.GROUP_ID_NOT_FOUND) is MembershipAnswer.REMOVED
    assert membership_answer(ErrorCode.GROUP_ID_NOT_FOUND, joins=True) is MembershipAnswer.OTHER


@pytest.mark.parametrize("answer", MembershipAnswer)
def test_what_follows_from_an_answer(answer):
    name = answer.name
    assert answer.awaits is (name in ("REBALANCING", "OUTDATED"))
    assert answer.ends is (name in ("OUTDATED", "FENCED", "REMOVED", "REPLACED"))
    assert answer.keeps_id is (name in ("OUTDATED", "FENCED"))
