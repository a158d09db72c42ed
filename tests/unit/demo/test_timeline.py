"""Samples, bands, and the text of shares."""

import pytest

from demo.timeline import Band, Sample, number_ranges, ownership_bands, shares_text, without_idle_start


def sample(at: float, *owners: str | None, committed: int | None = 0, end: int = 10, members: str = "") -> Sample:
    return Sample(at, frozenset(members), owners, (committed,) * len(owners), (end,) * len(owners))


def test_lag_counts_from_the_beginning_without_a_commit() -> None:
    assert Sample(0, frozenset(), (None,) * 3, (None, 4, 10), (5, 10, 10)).lag == 11


@pytest.mark.parametrize(
    ("owners", "members", "expected"),
    [
        (("a", "a", "b"), "ab", True),
        (("a", "a", "a"), "ab", False),
        (("a", "b", "c"), "ab", False),
        (("a", "b", None), "ab", False),
        ((None, None), "", False),
    ],
)
def test_shared_by(owners: tuple[str | None, ...], members: str, expected: bool) -> None:
    assert sample(0, *owners).shared_by(members) is expected


def test_deserted() -> None:
    assert sample(0, None, None).deserted
    assert not sample(0, None, None, members="a").deserted
    assert not sample(0, None, "a").deserted


def test_partitions_and_commits_of_a_member() -> None:
    seen = Sample(0, frozenset("ab"), ("a", "b", "a"), (5, 7, None), (9, 9, 9))
    assert seen.owned_by("a") == [0, 2]
    assert seen.committed_of([0, 2]) == 5


def test_bands_last_until_another_owner_is_seen() -> None:
    samples = [sample(1, "a", None), sample(2, "a", "b"), sample(3, None, "a"), sample(4, "a", "a")]
    assert ownership_bands(samples) == [
        Band(0, "a", 1, 3),
        Band(0, "a", 4, 4),
        Band(1, "b", 2, 3),
        Band(1, "a", 3, 4),
    ]
    assert ownership_bands([]) == []


def test_an_idle_start_is_skipped_except_for_a_margin() -> None:
    idle = [sample(n / 10, None) for n in range(50)]
    busy = [sample(5, "a"), sample(6, None)]
    kept = without_idle_start([*idle, *busy], margin_s=1)
    assert (kept[0].at, kept[-1].at) == (4.0, 6)
    assert without_idle_start(idle) == idle
    assert without_idle_start([]) == []


@pytest.mark.parametrize(
    ("numbers", "text"), [([], "-"), ([3], "3"), ([3, 1, 2], "1-3"), ([0, 2, 3, 7, 8, 9], "0,2-3,7-9")]
)
def test_number_ranges(numbers: list[int], text: str) -> None:
    assert number_ranges(numbers) == text


def test_shares_text() -> None:
    assert shares_text({"a": "first"}, sample(0, "b", "a", "a", None)) == "first: 1-2, b: 0, no owner: 3"
