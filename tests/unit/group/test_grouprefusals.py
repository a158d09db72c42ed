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


def test_a_commit_is_refused_more_seldom(reports):
    refusals = GroupRefusals(reports.append)
    for expected in (0, 1):
        refusals.committed(REFUSALS[0])
        assert len(reports) == expected


def test_a_refusal_ends_when_neither_attempts_nor_commits_are_refused(reports):
    refusals = GroupRefusals(reports.append)
    refusals.committed(REFUSALS[0])
    for _ in range(4):
        refusals.attempted(REFUSALS[0])
    refusals.committed(None)
    assert reports == [REFUSALS[0]], "attempts are still refused"
    refusals.attempted(None)
    assert reports == [REFUSALS[0], None]


def test_a_refusal_ends_although_the_other_kind_was_refused_less_often_than_is_reported(reports):
    refusals = GroupRefusals(reports.append)
    for _ in range(4):
        refusals.attempted(REFUSALS[0])
    refusals.committed(REFUSALS[0])
    refusals.attempted(None)
    assert reports == [REFUSALS[0], None]


def test_what_a_listener_raises_is_reported(reports):
    refusals, error = GroupRefusals(reports.append), ValueError("of the listener")
    for _ in range(4):
        refusals.attempted(error)
    assert reports == [error]
