"""A plugin that prints where the time of a run was spent: by suite, by file, by cause, and the tests that wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast

import pytest
from rich.console import Console
from rich.table import Table

from tests.suites.causes import CAUSES, REPORTED, Sampling

_FILES: Final = 25
_LONG_WAIT_S: Final = 2.0
"""A test that waits longer than this for a clock has a reason, or runs on a virtual clock."""


def pytest_configure(config: pytest.Config) -> None:
    """Sample in the processes that run tests, and print in the one that collects the reports."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Sampling())
    if not is_worker:
        config.pluginmanager.register(_Times())


class _Times:
    def __init__(self) -> None:
        self._tests: defaultdict[str, dict[str, float]] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, seconds in report.user_properties:
            if name == REPORTED:
                _add(self._tests[report.nodeid], cast(Mapping[str, float], seconds))

    def pytest_terminal_summary(self) -> None:
        console = Console(width=140)
        console.print(by_group("suite", self._tests, suite))
        console.print(by_group("file", self._tests, lambda test: test.partition("::")[0]))
        console.print(waiting(self._tests))


def suite(test: str) -> str:
    """The directory of a test below ``tests``."""
    return "/".join(test.split("/")[:2])


def by_group(title: str, tests: Mapping[str, Mapping[str, float]], group: Callable[[str], str]) -> Table:
    """Minutes by group and cause, the largest groups first."""
    groups: defaultdict[str, dict[str, float]] = defaultdict(dict)
    total: dict[str, float] = {}
    for test, seconds in tests.items():
        _add(groups[group(test)], seconds)
        _add(total, seconds)
    table = _table(title, "min")
    rows = sorted(groups.items(), key=lambda row: -sum(row[1].values()))
    for name, sums in (*rows[:_FILES], ("all", total)):
        table.add_row(name, *_cells(sums, 60.0, "{:.2f}"))
    return table


def waiting(tests: Mapping[str, Mapping[str, float]]) -> Table:
    """Tests that wait for a clock, the longest first; seconds."""
    table = _table("test that waits", "s")
    rows = [(test, seconds) for test, seconds in tests.items() if seconds.get("waits", 0.0) > _LONG_WAIT_S]
    for test, seconds in sorted(rows, key=lambda row: -row[1]["waits"]):
        table.add_row(test, *_cells(seconds, 1.0, "{:.1f}"))
    return table


def _add(sums: dict[str, float], seconds: Mapping[str, float]) -> None:
    for name, value in seconds.items():
        sums[name] = sums.get(name, 0.0) + value


def _table(title: str, unit: str) -> Table:
    table = Table(title, f"all ({unit})", *CAUSES, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _cells(seconds: Mapping[str, float], unit_s: float, form: str) -> Iterable[str]:
    yield form.format(sum(seconds.values()) / unit_s)
    for name in CAUSES:
        yield form.format(seconds.get(name, 0.0) / unit_s)
