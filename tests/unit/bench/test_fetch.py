import pytest
from click.testing import CliRunner

from zkconsumer.bench.contest import Contest
from zkconsumer.bench.datasets import DATA_SETS
from zkconsumer.bench.fetch import BATCHES, JVM_FRESH, JVM_WARM, note, taking_part
from zkconsumer.bench.task import Run
from zkconsumer.cli.bench import bench


@pytest.mark.parametrize(
    ("name", "takes_part"), [("batches-75", True), ("zstd-5", False), ("tls", False), ("format-0", False)]
)
def test_the_jvm_reads_only_supported_data_sets(name, takes_part):
    names = taking_part(DATA_SETS[name])
    assert BATCHES in names
    assert (JVM_FRESH in names, JVM_WARM in names) == (takes_part, takes_part)


def test_runs_at_the_same_time_count_from_first_to_last():
    contest = Contest("reading", "records/s", "")
    note(contest, "two", Run(100, 2.0, 10.0, began=5.0), Run(300, 2.0, 30.0, began=7.0))
    assert contest.measured == {"two": [100.0]}  # 400 records from 5 to 9
    assert (contest.memory, contest.windows) == ({"two": 30.0}, {"two": 4.0})


def test_data_sets_differ_in_their_description():
    assert len({str(data) for data in DATA_SETS.values()}) == len(DATA_SETS)


def test_the_data_sets_are_listed_without_running_them():
    result = CliRunner().invoke(bench, ["fetch", "--list"])
    assert result.exit_code == 0
    assert all(name in result.output for name in DATA_SETS)


@pytest.mark.parametrize("arguments", [["--data", "batches-7"], ["--only", "librdkafka 3"]])
def test_unknown_names_are_refused(arguments):
    result = CliRunner().invoke(bench, ["fetch", *arguments])
    assert result.exit_code == 2
