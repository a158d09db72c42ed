"""Rows of releases from results of tests."""

import pytest

from tests.suites.compatibility import SUBJECTS, Row, publish, published, row_tests, rows_of
from tests.suites.results import Result

_, JVMS, *_ = SUBJECTS
SHARED = f"{JVMS.tests}::test_a_member_of_ours_joins_and_leaves"


def results(*tests, outcome="passed", began=86_400.0):
    return {test: Result(test, outcome, 1.0, began=began) for test in tests}


def test_a_test_belongs_to_the_release_in_its_parameters():
    named = [f"{SHARED}[zookeeper-range-0.8.2.2]", f"{SHARED}[0.8.2.2]", f"{SHARED}[0.8.2.2-range]"]
    others = [f"{SHARED}[10.8.2.2]", f"{SHARED}[0.8.2.2.1]", SHARED, "tests/unit/test_x.py::test_y[0.8.2.2]"]
    assert JVMS.chosen("0.8.2.2", [*named, *others]) == named


def test_a_row_counts_the_tests_of_its_release():
    first, second = f"{SHARED}[zookeeper-range-0.8.2.2]", f"{SHARED}[coordinator-range-0.8.2.2]"
    found = results(first) | results(second, outcome="failed", began=2 * 86_400.0)
    rows = [row for row in rows_of(found, [first, second], "abc") if row.subject == JVMS.name]
    assert Row(JVMS.name, "0.8.2.2", 1, 1, 0, "1970-01-03", "abc") in rows


def test_a_release_whose_tests_have_not_all_run_has_no_row():
    first, second = f"{SHARED}[zookeeper-range-0.8.2.2]", f"{SHARED}[coordinator-range-0.8.2.2]"
    assert list(rows_of(results(first), [first, second], "abc")) == []


def test_all_tests_count_for_the_release_that_they_run_with():
    found = results("tests/unit/t.py::t", f"{SHARED}[zookeeper-range-1.1.1]")
    (row,) = [row for row in rows_of(found, list(found), "abc") if row.subject == JVMS.name]
    assert (row.release, row.passed) == ("1.1.1", 2)


def test_published_rows_stay_until_they_are_replaced(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.touch()
    wanted = [f"{SHARED}[0.8.2.2]", f"{SHARED}[0.9.0.1]"]
    old, other = (Row(JVMS.name, release, 1, 0, 0, "2026-01-01", "abc") for release in ("0.8.2.2", "0.9.0.1"))
    publish([other, old], wanted, file)
    new = Row(JVMS.name, "0.8.2.2", 0, 1, 0, "2026-02-01", "def")
    publish([new, Row(JVMS.name, "0.7", 1, 0, 0, "2026-02-01", "def")], wanted, file)
    assert published(file) == [new, other]


def test_a_published_row_of_former_tests_is_removed(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.touch()
    one = [f"{SHARED}[range-0.8.2.2]"]
    publish([Row(JVMS.name, "0.8.2.2", 1, 0, 0, "2026-01-01", "abc")], one, file)
    publish([], [*one, f"{SHARED}[roundrobin-0.8.2.2]"], file)
    assert published(file) == []


def test_the_tests_of_a_row_are_found_by_part():
    tests = {"servers": [f"{SHARED}[0.8.2.2]", f"{SHARED}[0.9.0.1]"], "native": ["tests/native/t.py::t"]}
    assert row_tests("jvm", "0.8.2.2", tests) == {"servers": [f"{SHARED}[0.8.2.2]"]}


@pytest.mark.parametrize(
    ("subject", "release", "message"),
    [("k", "1", "Kafka brokers 1: "), ("x", "1", "the subjects are Kafka brokers, JVM"), ("jvm", "1.1.1", "test-all")],
)
def test_a_row_that_does_not_exist_is_refused(subject, release, message):
    with pytest.raises(ValueError, match=message):
        row_tests(subject, release, {})
