"""GroupRefusals: which errors of attempts are reported, and when."""

import pytest

from zkconsumer.errors import (
    AuthenticationFailed,
    GroupAuthorizationFailed,
    MemberRefused,
    ZooKeeperRefused,
    ZooKeeperUnavailable,
)
from zkconsumer.group.grouprefusals import GroupRefusals

REFUSALS = [
    GroupAuthorizationFailed("no", "Read"),
    MemberRefused("too short"),
    ZooKeeperRefused("no permission"),
    AuthenticationFailed("the password is wrong"),
]


@pytest.fixture
def reports():
    return []


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_is_reported_from_the_fourth_in_a_row_until_it_ends(reports, refusal):
    refusals = GroupRefusals(reports.append)
    for expected in (0, 0, 0, 1, 2):
        refusals.attempted(refusal)
        assert reports == [refusal] * expected
    refusals.attempted(None)
    assert reports == [refusal, refusal, None]
    refusals.attempted(refusal)
    assert len(reports) == 3


def test_other_failures_neither_count_nor_end_a_refusal(reports):
    refusals = GroupRefusals(reports.append)
    for _ in range(4):
        refusals.attempted(ZooKeeperUnavailable("no answer"))
    assert reports == []
    for refusal in (*REFUSALS, ZooKeeperUnavailable("no answer"), REFUSALS[1]):
        refusals.attempted(refusal)
    assert reports == [REFUSALS[3], REFUSALS[1]]
