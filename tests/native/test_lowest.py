"""The oldest releases that setup.cfg accepts of each dependency, Spark among them, in an environment of their own."""

import sys

import pytest

from tests.fixtures.installations import EXTRAS, SMOKE_TESTS, SPARKS, UNIT_TESTS, install, lower_bounds, run_tests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

OF_SPARK = (
    "tests/spark/test_batch.py::test_rows_are_the_produced_records_with_sparks_own_types",
    "tests/spark/test_stream.py::test_available_now_reads_and_commits_all_records_and_leaves",
    "tests/spark/test_stream.py::test_every_batch_is_committed_at_once_and_a_restart_reads_nothing_twice",
    "tests/spark/test_stream.py::test_two_queries_of_one_group_share_the_partitions",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of a new environment with the oldest dependencies."""
    return install(sys.executable, tmp_path_factory.mktemp("lowest"), lower_bounds(*EXTRAS))


@pytest.mark.parametrize("dependencies", ["lowest"])
def test_unit_tests_pass(python, dependencies):
    run_tests(python, "-n", "2", "--dist", "worksteal", *UNIT_TESTS)


@pytest.mark.parametrize("dependencies", ["lowest"])
def test_groups_work(python, dependencies):
    run_tests(python, *SMOKE_TESTS)


@pytest.mark.parametrize("release", SPARKS)
def test_the_source_works(python, release):
    assert f"pyspark=={release.removesuffix('.0')}" in lower_bounds(*EXTRAS)
    run_tests(python, *OF_SPARK)
