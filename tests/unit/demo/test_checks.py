"""Each check passes if it should, and fails for each of its reasons."""

from typing import Any

import pytest

from demo import checks
from demo.delivery import Delivery
from demo.timeline import Sample


def sample(
    owners: tuple[str | None, ...] = (), committed: tuple[int | None, ...] = (), ends: tuple[int, ...] = ()
) -> Sample:
    return Sample(0, frozenset(), owners, committed, ends)


@pytest.mark.parametrize(
    ("sizes", "ends", "ok"),
    [
        ([200_000, 100_000], (200_000, 100_000), True),
        ([200_000, 100_000], (200_001, 99_999), False),
        ([200_000, 100_000], (200_000, 99_999), False),
        ([200_000, 99_999], (200_000, 99_999), False),
    ],
)
def test_loaded(sizes: list[int], ends: tuple[int, ...], ok: bool) -> None:
    assert checks.loaded(sizes, ends).ok is ok


@pytest.mark.parametrize(("owners", "ok"), [(("a", "b"), True), (("a", "a"), False), (("a", None), False)])
def test_shared(owners: tuple[str | None, ...], ok: bool) -> None:
    assert checks.shared("x", sample(owners), {"a": "one", "b": "two"}).ok is ok


def test_without_members_no_partition_is_shared() -> None:
    assert not checks.shared("x", sample((None, None)), {}).ok


@pytest.mark.parametrize(
    ("exit_code", "partitions", "committed", "total", "ok"),
    [
        (137, [3, 4], 10, 20, True),
        (0, [3, 4], 10, 20, False),
        (137, [], 10, 20, False),
        (137, [3], 0, 20, False),
        (137, [3], 20, 20, False),
    ],
)
def test_killed_at_work(exit_code: int, partitions: list[int], committed: int, total: int, ok: bool) -> None:
    assert checks.killed_at_work(exit_code, partitions, committed, total).ok is ok


@pytest.mark.parametrize(
    ("counts", "failing", "figures"),
    [
        ({}, [], "count missing: 0, count duplicates: 0"),
        (
            {"lines": 12, "duplicates": 2, "duplicated_partitions": (1, 2)},
            [],
            "count missing: 0, count duplicates: 2 (in partitions 1-2)",
        ),
        ({"lines": 9, "missing": 1}, ["delivered at least once"], "count missing: 1, count duplicates: 0"),
        ({"lines": 11, "altered": 1}, ["key, value, offset as produced"], "count missing: 0, count duplicates: 0"),
    ],
)
def test_delivered(counts: dict[str, Any], failing: list[str], figures: str) -> None:
    perfect: dict[str, Any] = {
        "source": 10,
        "lines": 10,
        "missing": 0,
        "duplicates": 0,
        "duplicated_partitions": (),
        "altered": 0,
    }
    found = checks.delivered(Delivery(**{**perfect, **counts}))
    assert [check.name for check in found if not check.ok] == failing
    assert found[0].figures == figures


@pytest.mark.parametrize(
    ("codes", "deserted", "ok"), [([0, 0], True, True), ([0, 1], True, False), ([0, 0], False, False)]
)
def test_ended(codes: list[int], deserted: bool, ok: bool) -> None:
    assert checks.ended("x", codes, deserted).ok is ok


def test_aggregated() -> None:
    expected = {"A-B": (1,), "C-D": (2,), "E-F": (3,), "G-H": (4,)}
    assert checks.aggregated(expected, dict(expected)).ok
    wrong = checks.aggregated(expected, {"A-B": (1,)})
    assert not wrong.ok
    assert "3 routes differ (C-D, E-F, G-H)" in wrong.figures
    assert not checks.aggregated({}, {}).ok


@pytest.mark.parametrize(
    ("committed", "ends", "ok"),
    [
        ((5, 7), (5, 7), True),
        ((5, 6), (5, 7), False),
        ((5, None), (5, 7), False),
        ((6, 6), (5, 7), False),
        ((4, 7), (4, 7), False),
    ],
)
def test_no_lag(committed: tuple[int | None, ...], ends: tuple[int, ...], ok: bool) -> None:
    assert checks.no_lag("g", sample((None, None), committed, ends), [5, 7]).ok is ok
