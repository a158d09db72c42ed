"""``python -m tests.suites``: the gate's sample, all tests in parts, where their time is spent, repeats under load."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from tests.fixtures.classarchives import make_archives
from tests.fixtures.examples import ALL_EXAMPLES
from tests.suites.parts import FAST, PARTS, ROOT, Part, read_sample, sampled
from tests.suites.results import TREE, ResultFile, tree_hash
from zkconsumer.sandbox.cache import cache_directory

_PYTEST: Final = (sys.executable, "-m", "pytest")
_TIMES: Final = ("-p", "tests.suites.times")
_STOPPED: Final = 2
"""Exit code of pytest when its time is over."""
_NOTHING_TO_RUN: Final = 5
_INCOMPLETE: Final = 3
_part_names = click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)), metavar=f"[{'|'.join(PARTS)}]...")


@click.group()
def main() -> None:
    """Run tests: a sample, all of them, with a record of their time, or repeatedly under load."""
    make_archives()


@main.command()
def fast() -> None:
    """Run what `make test` runs; a part that fails is the last one."""
    sys.exit(next((code for name in FAST if (code := _run_fast(name))), 0))


@main.command()
@_part_names
def gate(parts: tuple[str, ...]) -> None:
    """Run what the gate runs of some parts, by default of all: what `make test` runs, and the sample."""
    chosen = list(parts or PARTS)
    codes = [_run_fast(name) for name in chosen if name in FAST]
    sys.exit(max([*codes, _run_sample(chosen)]))


def _run_fast(name: str) -> int:
    _compile_tests(PARTS[name])
    return _run(PARTS[name], ["-m", "not slow", *PARTS[name].paths])


@main.command()
@click.option("--times", is_flag=True, help="Print minutes by suite, file and cause, too.")
@_part_names
def sample(parts: tuple[str, ...], times: bool) -> None:
    """Run only the sample in tests/gate.toml of some parts, by default of all."""
    sys.exit(_run_sample(list(parts or PARTS), *([_TIMES] if times else [])))


def _run_sample(parts: Sequence[str], options: Sequence[str] = ("--durations=20",)) -> int:
    """Run parts that need the same of pytest together, so that they share servers; return an exit code."""
    chosen = read_sample()
    runs: dict[Part, list[str]] = {}
    for name in parts:
        part = PARTS[name]
        runs.setdefault(Part((), part.arguments, part.required), []).extend(sampled(chosen, name))
    return max((_run(part, [*options, *tests]) for part, tests in runs.items() if tests), default=0)


@main.command("all")
@click.option("--minutes", type=float, help="Begin no further test after this time; the next run continues.")
@_part_names
def run_all(minutes: float | None, parts: tuple[str, ...]) -> None:
    """Run all tests that have not passed on this tree of files, and print which of them have never run.

    Exit codes: 0 if all have passed, 1 if a test failed, 3 if tests are left for the next run.
    """
    os.environ[ALL_EXAMPLES] = "1"
    file = ResultFile(_results_directory() / f"{tree_hash(ROOT, _tracked())}.jsonl")
    until = time.time() + minutes * 60 if minutes is not None else None
    click.echo(f"results: {file.path}")
    wanted = {name: collect(PARTS[name]) for name in parts or PARTS}
    broken = []
    for name, tests in wanted.items():
        done = {test for test, result in file.newest().items() if result.outcome != "failed"}
        if not done.issuperset(tests) and (until is None or time.time() < until):
            time_limit = [] if until is None else ["--results-until", str(until)]
            options = ["-p", "tests.suites.results", "--results-file", str(file.path), *time_limit]
            code = _run(PARTS[name], [*options, *PARTS[name].paths])
            # 1 is a failed test, which the file has; anything else but an end in time is a failure of the run.
            broken += [name] if code not in (0, 1, _STOPPED, _NOTHING_TO_RUN) else []
    sys.exit(1 if broken else _summary(file, [test for tests in wanted.values() for test in tests]))


def _summary(file: ResultFile, wanted: Sequence[str]) -> int:
    """Print what the results of this tree are, and return the exit code."""
    newest = file.newest()
    never = [test for test in wanted if test not in newest]
    found = Counter(newest[test].outcome for test in wanted if test in newest)
    minutes = sum(result.seconds for result in file) / 60
    for test in wanted:
        if test in newest and newest[test].outcome != "passed":
            click.echo(f"{newest[test].outcome}: {test}: {newest[test].reason}")
    files = Counter(test.partition("::")[0] for test in never)
    for name, count in files.items():
        click.echo(f"has never run on this tree: {count} of {name}")
    click.echo(
        f"{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped, {len(never)} never ran; "
        f"{minutes:.0f} minutes of tests on this tree"
    )
    return 1 if found["failed"] else _INCOMPLETE if never else 0


@main.command()
@click.argument("subject")
@click.argument("release")
def row(subject: str, release: str) -> None:
    """Run what has not passed on this tree of the tests of one row of docs/compatibility.md; `publish` stores the row.

    SUBJECT is the beginning of a heading of that page, such as `kafka`, RELEASE a release below it, such as 2.4.1.
    """
    from tests.suites import compatibility

    os.environ[ALL_EXAMPLES] = "1"
    parts = {name: collect(PARTS[name]) for name in ("servers", "native")}
    try:
        chosen = compatibility.row_tests(subject, release, parts)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    file = ResultFile(_results_directory() / f"{tree_hash(ROOT, _tracked())}.jsonl")
    options = ["-p", "tests.suites.results", "--results-file", str(file.path)]
    for name, tests in chosen.items():
        _run(PARTS[name], [*options, *tests])
    sys.exit(_summary(file, [test for tests in chosen.values() for test in tests]))


@main.command()
def publish() -> None:
    """Store which releases the tests ran with on this tree, for docs/compatibility.md.

    Of a release all of whose tests have a result the row is replaced; the others stay, unless the release has another
    number of tests now. `make docs` writes the page.
    """
    from tests.suites import compatibility

    file = ResultFile(_results_directory() / f"{tree_hash(ROOT, _tracked())}.jsonl")
    wanted = [test for part in PARTS.values() for test in collect(part)]
    rows = list(compatibility.rows_of(file.newest(), wanted, compatibility.commit()))
    compatibility.publish(rows, wanted)
    for row in rows:
        click.echo(f"{row.subject} {row.release}: {row.passed} passed, {row.failed} failed, {row.skipped} skipped")


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def times(arguments: tuple[str, ...]) -> None:
    """Run pytest with ARGUMENTS, and print minutes by suite, file and cause, and which tests wait for a clock."""
    sys.exit(subprocess.run([*_PYTEST, *_TIMES, *arguments], cwd=ROOT, check=False).returncode)


@main.command()
@click.option("--count", type=click.IntRange(min=1), default=20, show_default=True, help="Runs of each test.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Processes that run tests.")
@click.option("--since", help="Run the test files that have changed since this revision, if no TESTS are named.")
@click.argument("tests", nargs=-1)
def flaky(count: int, workers: int, since: str | None, tests: tuple[str, ...]) -> None:
    """Run TESTS many times while each worker has one core's worth of other load, and report those that failed."""
    chosen = list(tests) or _changed_tests(since)
    if not chosen:
        raise click.UsageError("no test file has changed; name TESTS, or --since REVISION")
    with tempfile.TemporaryDirectory(prefix="zkconsumer-flaky-") as directory, _load(workers):
        file = ResultFile(Path(directory) / "results.jsonl")
        options = ["-p", "tests.suites.results", "--results-file", str(file.path), "-n", str(workers)]
        code = _run(Part((), ()), [*options, "--count", str(count), "--dist", "loadfile", *chosen])
        results = list(file)
    failures = [result for result in results if result.outcome == "failed"]
    for result in failures:
        click.echo(f"failed: {result.test}: {result.reason}")
    click.echo(f"{len(results)} runs under load, {len(failures)} failed")
    sys.exit(code)


@contextmanager
def _load(cores: int) -> Iterator[None]:
    """Keep so many cores busy."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def _run(part: Part, arguments: Sequence[str]) -> int:
    """Run pytest and return its exit code.

    Workers, and the commands that tests start, load compiled modules: where the environment forbids to write them, as
    in many images, each of these processes would compile the package and the tests again.
    """
    command = [*_PYTEST, *part.arguments, *arguments]
    return subprocess.run(command, cwd=ROOT, env=_environment(part), check=False).returncode


def _environment(part: Part) -> dict[str, str]:
    environment = {**os.environ, **dict.fromkeys(part.required, "1")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _compile_tests(part: Part) -> None:
    """Compile the tests of a part in a fresh clone, as pytest does: each worker would compile all of them."""
    if next((ROOT / part.paths[0]).rglob("__pycache__/*-pytest-*.pyc"), None) is not None:
        return
    places = sorted(
        place for path in part.paths for pattern in ("test_*.py", "[a-z]*/") for place in (ROOT / path).glob(pattern)
    )
    command = [*_PYTEST, "--collect-only", "-qq", "-p", "no:xdist"]
    halves = [
        subprocess.Popen([*command, *map(str, half)], cwd=ROOT, env=_environment(part), stdout=subprocess.DEVNULL)
        for half in (places[::2], places[1::2])
    ]
    for half in halves:  # what cannot be collected is reported by the tests' own run
        half.wait()


def collect(part: Part) -> list[str]:
    """All tests of a part."""
    command = [*_PYTEST, "--collect-only", "-q", "-p", "no:xdist", "-o", "addopts=", "--import-mode=importlib"]
    collected = subprocess.run(
        [*command, "--strict-markers", *part.paths], cwd=ROOT, capture_output=True, text=True, check=False
    )
    tests = [line for line in collected.stdout.splitlines() if "::" in line]
    if collected.returncode or not tests:
        raise click.ClickException(
            f"pytest cannot collect {' '.join(part.paths)}:\n{collected.stdout}{collected.stderr}"
        )
    return tests


def _results_directory() -> Path:
    directory = cache_directory() / "test-results"
    directory.mkdir(exist_ok=True)
    return directory


def _tracked() -> list[str]:
    """The files of the tree that git knows, or would add."""
    return _git("ls-files", "--cached", "--others", "--exclude-standard", "--", *TREE)


def _changed_tests(since: str | None) -> list[str]:
    """Test files that were changed or added since a revision, by default since the last release."""
    base = since or (_git("describe", "--tags", "--abbrev=0") or ["HEAD"])[0]
    changed = _git("diff", "--name-only", "--diff-filter=d", base, "--", "tests")
    return [name for name in changed if Path(name).name.startswith("test_")]


def _git(*arguments: str) -> list[str]:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()


if __name__ == "__main__":
    main()
