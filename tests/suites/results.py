"""Keeps the outcome of each test on a tree of files, so that a run of all tests can be cut into several."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pytest

TREE: Final = (
    "zkconsumer",
    "benchmarks",
    ":!benchmarks/results",
    "demo",
    "jvmclients",
    "tests",
    "docker",
    "examples",
    ".ci",
    "Makefile",
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
)
"""What decides the outcome of a test, as git names it. Documents and published measurements are not among it."""

_FILE: Final = "--results-file"
_UNTIL: Final = "--results-until"


def tree_hash(root: Path, files: Iterable[str]) -> str:
    """A hash of the names and contents of files below ``root``; one that was deleted counts as empty."""
    digest = hashlib.sha256()
    for name in sorted(files):
        path = root / name
        content = path.read_bytes() if path.is_file() else b""
        digest.update(b"%s\0%d\0" % (name.encode(), len(content)) + content)
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a test.

    Attributes:
        test: pytest's node id.
        outcome: ``passed``, ``failed`` or ``skipped``.
        seconds: that it took, with its fixtures.
        reason: why it failed, in one line, or was skipped.
        began: when it began, in seconds since the epoch.
    """

    test: str
    outcome: str
    seconds: float
    reason: str = ""
    began: float = 0.0


class ResultFile:
    """A file of results, a line each; the newest line of a test counts. A line that was cut off is ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, result: Result) -> None:
        """Store the result of a test."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")

    def __iter__(self) -> Iterator[Result]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                yield Result(**json.loads(line))
            except ValueError:  # the process was killed while it wrote
                continue

    def newest(self) -> dict[str, Result]:
        """The newest result of each test."""
        return {result.test: result for result in self}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that `tests.suites` passes."""
    group = parser.getgroup("results")
    group.addoption(_FILE, type=Path, help="Results; tests that passed or were skipped are not run again.")
    group.addoption(_UNTIL, type=float, help="Time (seconds since the epoch) after which no further test is begun.")


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder in the process that receives the reports of all workers."""
    path = config.getoption(_FILE)
    if path is None:
        return
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_Selection(set(config.workerinput["done"])))
        return
    file = ResultFile(path)
    done = {test for test, result in file.newest().items() if result.outcome != "failed"}
    config.pluginmanager.register(_Selection(done))
    config.pluginmanager.register(_Recorder(config, file, config.getoption(_UNTIL)))
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_Workers(sorted(done)))


class _Workers:
    """Gives each worker the same set of tests that need no run."""

    def __init__(self, done: list[str]) -> None:
        self._done = done

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["done"] = self._done


class _Selection:
    def __init__(self, done: set[str]) -> None:
        self._done = done

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        known = [item for item in items if item.nodeid in self._done]
        config.hook.pytest_deselected(items=known)
        items[:] = [item for item in items if item.nodeid not in self._done]


class _Recorder:
    """Writes a test's result when its last phase has ended, and ends the run when its time is over."""

    def __init__(self, config: pytest.Config, file: ResultFile, until: float | None) -> None:
        self._config = config
        self._file = file
        self._until = until
        self._session: pytest.Session | None = None
        self._phases: dict[str, list[pytest.TestReport]] = {}

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        phases = self._phases.setdefault(report.nodeid, [])
        phases.append(report)
        if report.when != "teardown":
            return
        self._file.add(_result(self._phases.pop(report.nodeid)))
        if self._until is not None and time.time() > self._until and self._session is not None:
            self._session.shouldstop = "the time of this run is over"


def _result(phases: list[pytest.TestReport]) -> Result:
    failed = [phase for phase in phases if phase.failed]
    skipped = [phase for phase in phases if phase.skipped]
    outcome = "failed" if failed else "skipped" if skipped else "passed"
    reason = _reason((failed or skipped)[0]) if outcome != "passed" else ""
    return Result(
        phases[0].nodeid,
        outcome,
        round(sum(phase.duration for phase in phases), 3),
        reason,
        round(phases[0].start, 3),
    )


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):  # of a skip: file, line, reason
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return text.splitlines()[0] if text else ""
