"""The decoder's tests with other versions of CPython: one library serves them all."""

import configparser
import os
import subprocess

import pytest

from tests.fixtures.documents import ROOT
from tests.fixtures.interpreters import find_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

MINORS = (12, 13, 14)
FOR_TESTS = ("pytest", "pytest-timeout", "hypothesis", "confluent-kafka", "aiokafka", "psutil", "trustme")
TESTS = ("tests/unit/decode", "tests/property/test_kernels.py", "--ignore", "tests/unit/decode/test_schema.py")
"""Without the file that needs Spark."""


def requirements():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser["options"]["install_requires"].split("\n")[1:]


@pytest.mark.parametrize("minor", MINORS)
def test_other_versions_of_python_decode_with_the_same_library(minor, tmp_path):
    python = find_python(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor}; put one on the path, or name it in ZKCONSUMER_PYTHON_3_{minor}")
    subprocess.run([python, "-m", "venv", tmp_path], check=True)
    own = tmp_path / "bin" / "python"
    subprocess.run([own, "-m", "pip", "install", "-q", *requirements(), *FOR_TESTS], check=True)
    command = [own, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
