"""The demo command without servers: usage, refusals, and the cost of its import."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from zkconsumer.cli.demo import demo
from zkconsumer.demo.sparkjob import Job
from zkconsumer.errors import ZkConsumerError


def test_import_stays_cheap() -> None:
    script = (
        "import sys, zkconsumer.cli.demo; "
        "print([m for m in ('pyspark', 'kazoo', 'kafka', 'rich', 'zkconsumer.demo', 'numpy', 'pyarrow') "
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


def test_the_spark_job_is_read_back_unchanged(tmp_path: Path) -> None:
    import json

    job = Job({"zookeeper.connect": "h:1"}, "g", "t", 10, str(tmp_path), "/opt/some java")
    assert Job(**json.loads(job.save().read_text())) == job
