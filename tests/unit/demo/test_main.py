"""The demo command without servers: usage, refusals, and the cost of its import."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from demo.__main__ import demo
from demo.sparkjob import Job
from zkconsumer.cli.main import EXIT_FAILED
from zkconsumer.errors import ZkConsumerError


def test_import_stays_cheap() -> None:
    script = (
        "import sys, demo.__main__; "
        "print([m for m in ('pyspark', 'kazoo', 'kafka', 'rich', 'demo.run', 'numpy', 'pyarrow') "
        "if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


@pytest.mark.parametrize("arguments", [["--what"], ["--keep", __file__], ["--png", str(Path(__file__).parent)]])
def test_usage_errors(arguments: list[str]) -> None:
    assert CliRunner().invoke(demo, arguments).exit_code == 2


def test_a_picture_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    result = CliRunner().invoke(demo, ["--png", str(tmp_path / "missing" / "a.png")])
    assert isinstance(result.exception, ZkConsumerError)
    assert "set another path with --png" in str(result.exception)


def test_an_error_is_printed_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo", "-v", "--png", str(tmp_path / "missing" / "a.png")]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (EXIT_FAILED, 1), ended.stderr
    assert ended.stderr.startswith("error: ")


def test_usage_names_the_command_to_type(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo", "-h"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("Usage: python -m demo [OPTIONS]")
    assert "-v, --verbose" in ended.stdout


def test_the_spark_job_is_read_back_unchanged(tmp_path: Path) -> None:
    import json

    job = Job({"zookeeper.connect": "h:1"}, "g", "t", 10, str(tmp_path), "/opt/some java")
    assert Job(**json.loads(job.save().read_text())) == job
