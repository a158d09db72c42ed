"""The oldest releases that setup.cfg accepts of each dependency, Spark among them, in an environment of their own."""

import os
import subprocess
import sys

import pytest

from tests.fixtures.documents import ROOT
from tests.fixtures.installations import SPARKS, lower_bounds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

EXTRAS = ("spark", "web", "sasl")
FOR_TESTS = (
    "pytest",
    "pytest-timeout",
    "pytest-repeat",
    "hypothesis",
    "confluent-kafka",
    "aiokafka",
    "psutil",
    "trustme",
    "pandas",
)
OF_GROUPS = ("tests/unit/decode", "tests/integration/test_connector.py", "tests/integration/test_group_tools.py")
OF_SPARK = (
    "tests/spark/test_batch.py::test_rows_are_the_produced_records_with_sparks_own_types",
    "tests/spark/test_stream.py::test_available_now_reads_and_commits_all_records_and_leaves",
    "tests/spark/test_stream.py::test_every_batch_is_committed_at_once_and_a_restart_reads_nothing_twice",
    "tests/spark/test_stream.py::test_two_queries_of_one_group_share_the_partitions",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of a new environment with the oldest dependencies."""
    directory = tmp_path_factory.mktemp("lowest")
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    own = directory / "bin" / "python"
    subprocess.run([own, "-m", "pip", "install", "-q", *lower_bounds(*EXTRAS), *FOR_TESTS], check=True)
    return own


def run(python, tests):
    """Run tests with another Python; a warning of an old release is no error."""
    options = ["-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [python, "-m", "pytest", *options, *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.parametrize("dependencies", ["lowest"])
def test_groups_work(python, dependencies):
    run(python, OF_GROUPS)


@pytest.mark.parametrize("release", SPARKS)
def test_the_source_works(python, release):
    assert f"pyspark=={release.removesuffix('.0')}" in lower_bounds(*EXTRAS)
    run(python, OF_SPARK)
