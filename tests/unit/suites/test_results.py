"""Runs of pytest that continue where the former one ended."""

import subprocess
import sys

import pytest

from tests.suites.parts import ROOT
from tests.suites.results import Result, ResultFile, tree_hash

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_numbers(number, tmp_path_factory):
    assert number != 2, "two is refused"

def test_skipped():
    pytest.skip("is not here")
"""


def run(directory, *options):
    """Run the tests of a directory, recording their results."""
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(directory), "-p", "no:repeat"]
    plugin = ["-p", "tests.suites.results", "--results-file", str(directory / "results")]
    subprocess.run([*command, *plugin, *options, str(directory)], cwd=ROOT, check=False, capture_output=True)
    return {result.test.partition("::")[2]: result for result in ResultFile(directory / "results")}


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "test_numbers.py").write_text(TESTS)
    return tmp_path


@pytest.mark.slow
def test_only_what_failed_or_never_ran_is_run_again(directory):
    first = run(directory, "-n", "2")
    assert {name: result.outcome for name, result in first.items()} == {
        "test_numbers[0]": "passed",
        "test_numbers[1]": "passed",
        "test_numbers[2]": "failed",
        "test_numbers[3]": "passed",
        "test_skipped": "skipped",
    }
    assert "two is refused" in first["test_numbers[2]"].reason
    assert "is not here" in first["test_skipped"].reason
    again = run(directory)
    assert [name for name in again if again[name] != first[name]] == ["test_numbers[2]"]


def test_no_test_is_begun_after_the_time_is_over(directory):
    assert list(run(directory, "--results-until", "1")) == ["test_numbers[0]"]


def test_the_newest_result_counts_and_a_torn_line_does_not(tmp_path):
    file = ResultFile(tmp_path / "results")
    file.add(Result("a", "failed", 1.0, "refused"))
    file.add(Result("a", "passed", 2.0))
    with file.path.open("a") as end:
        end.write('{"test": "b", "outc')
    assert file.newest() == {"a": Result("a", "passed", 2.0)}


def test_a_tree_is_known_by_names_and_contents(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    both = tree_hash(tmp_path, ["a", "b"])
    assert tree_hash(tmp_path, ["b", "a"]) == both
    (tmp_path / "a").write_text("3")
    assert tree_hash(tmp_path, ["a", "b"]) != both
    assert tree_hash(tmp_path, ["a"]) != tree_hash(tmp_path, ["a", "b", "deleted"])
