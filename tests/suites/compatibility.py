"""Which releases the tests ran with: rows made of stored results, the published ones, and docs/compatibility.md."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from jvmclients.zookeeperconsumer import CONSUMER_VERSIONS, DEFAULT_CONSUMER_VERSION
from tests.fixtures.brokers import SMOKE_TESTED
from tests.fixtures.installations import BATCH_SPARKS, DEBIANS, PYTHONS, SPARKS
from tests.fixtures.zookeeperreleases import ZOOKEEPERS
from tests.suites.parts import ROOT
from tests.suites.results import Result
from zkconsumer.sandbox import DEFAULT_KAFKA_VERSION, known_kafka_versions

PUBLISHED: Final = ROOT / "benchmarks" / "results" / "compatibility.jsonl"

_FULL, _PART, _UNIT, _SMOKE = "all tests", "all tests of brokers", "unit tests and smoke", "smoke"
_BATCH = "batch reads"


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that has releases.

    Attributes:
        name: heading of its rows.
        tests: beginnings of the names of the tests that choose its release by a parameter, separated by spaces.
        levels: how much of the tests runs with a release, by the release, in the order of the page.
        expected: what is expected to work and has no test; empty if there is nothing.
        note: a paragraph below the rows.
    """

    name: str
    tests: str
    levels: Mapping[str, str]
    expected: str = ""
    note: str = ""

    def chosen(self, release: str, tests: Iterable[str]) -> list[str]:
        """The tests that run with a release: those whose parameters name it, or all if it is that of the others."""
        if self.levels[release] == _FULL:
            return list(tests)
        named = re.compile(rf"\[(?:.*[^\w.])?{re.escape(release)}(?![\w.])")
        return [test for test in tests if test.startswith(tuple(self.tests.split())) and named.search(test)]


_PYTHON: Final = ".".join(platform.python_version_tuple()[:2])

SUBJECTS: Final = (
    Subject(
        "Kafka brokers",
        "tests/brokers/",
        {
            **{release: _SMOKE if release in SMOKE_TESTED else _PART for release in known_kafka_versions()},
            DEFAULT_KAFKA_VERSION: _FULL,
        },
        "releases in between",
    ),
    Subject(
        "JVM consumers in a shared group",
        "tests/interop/test_old_releases.py",
        {**dict.fromkeys(CONSUMER_VERSIONS, _SMOKE), DEFAULT_CONSUMER_VERSION: _FULL},
        "releases in between",
    ),
    Subject(
        "ZooKeeper",
        "tests/interop/test_zookeeper_releases.py",
        {**dict.fromkeys(ZOOKEEPERS[:-1], _SMOKE), ZOOKEEPERS[-1]: _FULL},
        "releases in between",
    ),
    Subject(
        "Python",
        "tests/native/test_interpreters.py tests/native/test_debians.py",
        {_PYTHON: _FULL, **dict.fromkeys(PYTHONS, _UNIT)},
    ),
    Subject(
        "Spark",
        "tests/native/test_lowest.py",
        {**dict.fromkeys(BATCH_SPARKS, _BATCH), **dict.fromkeys(SPARKS, _SMOKE), version("pyspark"): _FULL},
    ),
    Subject("Releases of dependencies", "tests/native/test_lowest.py", {"lowest": _UNIT, "newest": _FULL}),
    Subject(
        "Debian",
        "tests/native/test_debians.py",
        {"bookworm": _FULL, **dict.fromkeys(DEBIANS, _SMOKE)},
        "other distributions with glibc 2.17 or later",
        "That the decoder's library needs no newer symbol is verified by `tests/unit/docs/test_packaging.py`.",
    ),
)


@dataclass(frozen=True, slots=True)
class Row:
    """What the tests with a release came to.

    Attributes:
        subject: name of a `Subject`.
        release: of it.
        passed: number of tests.
        failed: number of tests.
        skipped: number of tests.
        date: of the last of them.
        commit: of the project; it ends in ``-changed`` if the tree was another one.
    """

    subject: str
    release: str
    passed: int
    failed: int
    skipped: int
    date: str
    commit: str


def rows_of(results: Mapping[str, Result], wanted: Sequence[str], commit: str) -> Iterator[Row]:
    """The rows all of whose tests, which are among ``wanted``, have a result."""
    for subject in SUBJECTS:
        for release in subject.levels:
            tests = subject.chosen(release, wanted)
            if tests and results.keys() >= set(tests):
                found = [results[test] for test in tests]
                count = Counter(result.outcome for result in found)
                date = time.strftime("%Y-%m-%d", time.gmtime(max(result.began for result in found)))
                yield Row(subject.name, release, count["passed"], count["failed"], count["skipped"], date, commit)


def row_tests(subject: str, release: str, parts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The tests of one row, by the part that has them.

    Args:
        subject: beginning of the name of a `Subject`, in any case.
        release: of it.
        parts: tests of each part.

    Raises:
        ValueError: there is no such row, or all tests belong to it.
    """
    found = [known for known in SUBJECTS if known.name.lower().startswith(subject.lower())]
    if len(found) != 1:
        raise ValueError(f"{subject}: the subjects are {', '.join(known.name for known in SUBJECTS)}")
    levels = found[0].levels
    if levels.get(release, _FULL) == _FULL:
        known = ", ".join(name for name, level in levels.items() if level != _FULL)
        raise ValueError(f"{found[0].name} {release}: rows of their own have {known}; make test-all runs all tests")
    return {name: chosen for name, tests in parts.items() if (chosen := found[0].chosen(release, tests))}


def publish(rows: Iterable[Row], wanted: Sequence[str], file: Path = PUBLISHED) -> None:
    """Replace the published rows of the same releases; those of others stay if their tests are those of the row.

    Args:
        rows: of complete runs.
        wanted: all tests. A row that counts another number of them is of former tests, and is removed; so is one whose
            release no test names any more.
        file: the published rows.
    """
    known = [(subject, release) for subject in SUBJECTS for release in subject.levels]
    newest = {(row.subject, row.release): row for row in (*published(file), *rows)}
    kept = [
        row
        for subject, release in known
        if (row := newest.get((subject.name, release))) is not None
        and row.passed + row.failed + row.skipped == len(subject.chosen(release, wanted))
    ]
    file.write_text("".join(json.dumps(asdict(row)) + "\n" for row in kept), encoding="utf-8")


def published(file: Path = PUBLISHED) -> list[Row]:
    """The published rows."""
    return [Row(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def commit() -> str:
    """The commit, ending in ``-changed`` if files that it has are others now."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "zkconsumer", "tests", "jvmclients", "setup.cfg")
    return git("rev-parse", "HEAD") + ("-changed" if changed else "")
