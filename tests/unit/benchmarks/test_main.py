"""The command of the benchmarks without servers: usage, what it prints, and how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench
from benchmarks.datasets import DATA_SETS
from zkconsumer.cli.main import EXIT_FAILED

COMMAND = (sys.executable, "-m", "benchmarks")
FULL = Path("/dev/full")


def test_the_data_sets_are_listed_without_running_them():
    result = CliRunner().invoke(bench, ["fetch", "--list"])
    assert result.exit_code == 0
    assert all(name in result.output for name in DATA_SETS)


@pytest.mark.parametrize("arguments", [["--data", "batches-7"], ["--only", "librdkafka 3"]])
def test_unknown_names_are_refused(arguments):
    result = CliRunner().invoke(bench, ["fetch", *arguments])
    assert result.exit_code == 2


def test_usage_names_the_command_to_type(tmp_path):
    ended = subprocess.run([*COMMAND, "fetch", "-h"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("Usage: python -m benchmarks fetch [OPTIONS]")
    assert "-v, --verbose" in ended.stdout


def test_a_reader_that_ends_does_not_make_it_fail(tmp_path):
    with subprocess.Popen(
        [*COMMAND, "-v", "fetch", "--list", "-v"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


def test_an_output_that_is_full_is_an_error_of_one_line(tmp_path):
    if not FULL.exists():
        pytest.skip("this system has no /dev/full")
    with FULL.open("wb") as full:
        ended = subprocess.run(
            [*COMMAND, "fetch", "--list"], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ended.returncode, ended.stderr.count("\n")) == (EXIT_FAILED, 1)
    assert ended.stderr.startswith("error: No space left on device")
