"""The oldest releases that setup.cfg accepts of each dependency, Spark among them, in environments of their own."""

import sys

import pytest

from tests.fixtures.fileparts import archive_parts
from tests.fixtures.installations import (
    BATCH_SPARKS,
    EXTRAS,
    FILE_STREAM_SPARKS,
    SMOKE_TESTS,
    SPARKS,
    UNIT_TESTS,
    install,
    lower_bounds,
    requirements,
    run_tests,
    with_spark,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

OF_SPARK = (
    "tests/spark/test_batch.py::test_rows_are_the_produced_records_with_sparks_own_types",
    "tests/spark/test_stream.py::test_available_now_reads_and_commits_all_records_and_leaves",
    "tests/spark/test_stream.py::test_every_batch_is_committed_at_once_and_a_restart_reads_nothing_twice",
    "tests/spark/test_stream.py::test_two_queries_of_one_group_share_the_partitions",
)
OF_BATCH_READS = (
    "tests/spark/test_batch.py::test_rows_are_the_produced_records_with_sparks_own_types",
    "tests/spark/test_batch.py::test_without_headers_there_is_no_such_column",
    "tests/spark/test_batch.py::test_a_batch_read_starts_at_the_groups_offset_and_leaves_no_trace",
    "tests/spark/test_batch.py::test_assigned_partitions_are_read_and_no_others",
    "tests/spark/test_batch.py::test_min_partitions_splits_tasks_and_num_streams_joins_them",
    "tests/spark/test_batch.py::test_all_mistakes_are_named_at_load",
    "tests/spark/test_columns.py::test_a_batch_read_of_some_columns_equals_a_select_of_them",
    "tests/spark/test_older_releases.py",
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


@pytest.mark.parametrize("release", BATCH_SPARKS)
def test_batch_reads_work_and_streams_are_refused(release, tmp_path):
    assert f"pyspark>={BATCH_SPARKS[0].removesuffix('.0')},<5" in requirements("spark")
    run_tests(install(sys.executable, tmp_path, with_spark(release)), *OF_BATCH_READS)


@pytest.mark.integration
@pytest.mark.parametrize("release", FILE_STREAM_SPARKS)
def test_a_file_stream_reads_what_a_member_writes(release, sandbox, topic_factory, produce, tmp_path):
    (tmp_path / "archive").mkdir()
    python = install(sys.executable, tmp_path / "python", [f"pyspark=={release}"])
    rows, _ = archive_parts(python, sandbox, topic_factory(partitions=2), produce, tmp_path / "archive")
    assert rows == sorted((number % 2, number // 2, str(number)) for number in range(400))
