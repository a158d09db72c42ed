import subprocess
import sys

import pytest

from benchmarks.contest import Contest
from benchmarks.datasets import DATA_SETS
from benchmarks.fetch import BATCHES, JVM_FRESH, JVM_WARM, finish, note, only_benchmarks, start, taking_part
from benchmarks.task import Run, Task
from tests.fixtures.documents import ROOT
from zkconsumer.errors import SandboxError


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


def test_a_reader_of_another_environment_imports_that_one_s_zkconsumer(tmp_path, monkeypatch):
    """This one has none. The reader starts, and does not find that of the checkout or of this process's path."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(ROOT)
    task = Task("h:1", "h:2", "group", "topic", partitions=1, records=1, seconds=1.0)
    process = start(BATCHES, task, str(tmp_path / "other/bin/python"), only_benchmarks(tmp_path))
    with pytest.raises(SandboxError, match="No module named 'zkconsumer'"):
        finish(BATCHES, process)
