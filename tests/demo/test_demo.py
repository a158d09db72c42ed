"""The demo as users run it: a command, with its exit code, its output and the files that remain."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

pytestmark = [pytest.mark.demo, pytest.mark.timeout(1800)]

LONGEST_S = 900
PATIENCE_S = 300.0


class Run:
    """A running demo. Its temporary directory, with spaces in its name, identifies its processes."""

    def __init__(self, directory: Path, *arguments: str, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        self.temporary = directory / "temporary files"
        self.kept = directory / "kept files"
        self.picture = directory / "the picture.png"
        self.temporary.mkdir()
        self._out, self._err = directory / "out.txt", directory / "err.txt"
        environment = {**os.environ, "TMPDIR": str(self.temporary), **variables}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "demo", "--png", str(self.picture), *arguments],
                cwd=directory,
                env=environment,
                stdout=out,
                stderr=err,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def exit_code(self) -> int:
        return self._process.wait(LONGEST_S + 60)

    def await_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self._process.poll() is None, f"ended before {what}: {self.out} {self.err}"
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
            time.sleep(0.05)

    def processes(self, mark: str = "") -> list[int]:
        """Processes with our directory and ``mark`` in their command line, without the demo itself."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                line = path.read_bytes()
                pid = int(path.parent.name)
                ours = str(self.temporary).encode() in line or str(self.kept).encode() in line
                if ours and mark.encode() in line and pid != self._process.pid:
                    found.append(pid)
        return found

    def expect_nothing_running(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while left := self.processes():
            assert time.monotonic() < deadline, f"processes {left} are still running"
            time.sleep(0.05)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    started: list[Run] = []

    def start(*arguments: str, variables: Mapping[str, str] = MappingProxyType({})) -> Run:
        started.append(Run(tmp_path, *arguments, variables=variables))
        return started[-1]

    yield start
    for run in started:
        run.end()


SLOW_SOURCE = """import pathlib, sys, time
if sys.orig_argv[-1] == "pyspark.sql.streaming.python_streaming_source_runner":
    slept = pathlib.Path(__file__).with_name("slept")
    if not slept.exists():
        slept.touch()
        time.sleep(15)
"""
"""``sitecustomize`` of Python processes: the first source process connects to Spark after Spark has given up."""


def test_a_source_process_that_is_slow_to_start_is_started_again(demo: Callable[..., Run], tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(SLOW_SOURCE, encoding="utf-8")
    run = demo(variables={"PYTHONPATH": os.pathsep.join([str(modules), *filter(None, [os.environ.get("PYTHONPATH")])])})
    assert run.exit_code() == 0, run.out + run.err
    assert (modules / "slept").exists()
    assert "224 routes x 5 figures, 0 routes differ" in run.out


@pytest.mark.parametrize(
    ("arguments", "servers"),
    [
        (["--kafka-version", "3.9.1"], "ZooKeeper and Kafka 3.9.1"),
        (["--kafka-version", "4.2.0"], "ZooKeeper and Kafka 4.2.0"),
        (["--group-protocol", "kafka"], "Kafka 4.2.0 without ZooKeeper"),
    ],
)
def test_all_checks_hold_and_only_the_picture_remains(
    demo: Callable[..., Run], arguments: list[str], servers: str
) -> None:
    run = demo(*arguments)
    assert run.exit_code() == 0, run.out + run.err

    assert f"A real {servers};" in run.out
    assert "336,776 of 336,776 on 8 partitions" in run.out
    assert re.search(r"delivered at least once +count missing: 0, count duplicates: [\d,]+ .*ok", run.out)
    assert "count altered: 0" in run.out
    assert "224 routes x 5 figures, 0 routes differ" in run.out
    for group in ("flights-audit", "flights-spark"):
        assert re.search(rf"lag of {group} +0 \(committed 336,776, log ends 336,776\) +ok", run.out)
    assert "FAILED" not in run.out
    assert all(character.isprintable() or character == "\n" for character in run.out + run.err)
    last, picture = run.out.splitlines()[-1], run.out.splitlines()[-2]
    assert re.fullmatch(r"Time: \d+ s", last)
    assert picture == f"Picture: {run.picture}"
    assert run.picture.read_bytes().startswith(b"\x89PNG")

    run.expect_nothing_running()
    assert list(run.temporary.iterdir()) == []


def test_lost_records_make_the_demo_fail(demo: Callable[..., Run], tmp_path: Path) -> None:
    run = demo("--keep", str(tmp_path / "kept files"))
    output = run.kept / "consumers" / "consumer-1.jsonl"
    run.await_until(lambda: output.exists() and output.stat().st_size > 1_000_000, "consumer-1 has written")
    os.truncate(
        output, 0
    )  # a disk that loses flushed data: the records were committed, so no member delivers them again
    assert run.exit_code() == 1, run.out + run.err
    missing = re.search(r"delivered at least once +count missing: ([\d,]+), .*FAILED", run.out)
    assert missing is not None, run.out
    assert int(missing[1].replace(",", "")) > 1000
    assert re.search(r"^FAILED: \d of \d+ checks: .*delivered at least once", run.out, re.MULTILINE)
    assert f"Kept: {run.kept}" in run.out
    assert run.picture.exists(), "the picture helps to find out why"
    run.expect_nothing_running()
    assert list(run.temporary.iterdir()) == []


def test_a_dying_consumer_ends_the_demo_and_keeps_the_logs(demo: Callable[..., Run]) -> None:
    run = demo()
    run.await_until(lambda: "Two consumer processes share" in run.out, "two consumers share")
    for pid in run.processes("consumer-1.jsonl"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert run.exit_code() == 1
    error = run.err.splitlines()[-1]
    assert error.startswith("error: consumer-1 ended with exit code")
    logs = Path(error.rpartition("all logs: ")[2])
    assert {path.name for path in logs.iterdir()} >= {"consumer-1.log", "consumer-2.log", "zookeeper.log"}
    run.expect_nothing_running()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_running_after_a_signal(demo: Callable[..., Run], number: signal.Signals) -> None:
    run = demo()
    run.await_until(lambda: "Two consumer processes share" in run.out, "two consumers share")
    assert len(run.processes()) >= 4
    run.signal(number)
    assert run.exit_code() == (-number if number == signal.SIGKILL else 1)
    run.expect_nothing_running()
    if number != signal.SIGKILL:
        assert run.err.splitlines()[-1] == "error: interrupted; nothing is left running"
        assert list(run.temporary.iterdir()) == []
