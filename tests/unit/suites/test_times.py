"""The tables of where time was spent."""

from tests.suites.times import by_group, suite, waiting

TESTS = {
    "tests/spark/test_a.py::one": {"work": 60.0, "waits": 30.0},
    "tests/spark/test_b.py::two": {"server starts": 30.0},
    "tests/web/test_c.py::three": {"waits": 1.0},
}


def cells(table):
    return [list(row) for row in zip(*(column.cells for column in table.columns), strict=True)]


def test_minutes_by_suite_and_cause():
    assert cells(by_group("suite", TESTS, suite)) == [
        ["tests/spark", "2.00", "0.50", "0.00", "0.50", "1.00"],
        ["tests/web", "0.02", "0.00", "0.00", "0.02", "0.00"],
        ["all", "2.02", "0.50", "0.00", "0.52", "1.00"],
    ]


def test_only_long_waits_are_listed():
    assert cells(waiting(TESTS)) == [["tests/spark/test_a.py::one", "90.0", "0.0", "0.0", "30.0", "60.0"]]
