"""Stored results of benchmarks: what a run stores, what is read again, and the table that is made of it."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import fleet, stored
from benchmarks.__main__ import bench
from benchmarks.contest import Contest
from benchmarks.machine import Machine
from benchmarks.stored import THROUGH, Result, Row, figure_rows, markdown_table, read_result, rows_of, write_result


def contest():
    contest = Contest("Joining", "s", reference="JVM", peers=("librdkafka",))
    for name, value in (("zkconsumer", 0.2), ("JVM", 2.0), ("librdkafka", 1.0)):
        contest.add(name, value)
        contest.add(name, 3 * value)
    contest.note_memory("zkconsumer", 120.4)
    return contest


def test_rows_have_what_the_contest_measured():
    ours, jvm, _ = rows_of([contest()])
    assert ours == Row("Joining", "zkconsumer", "s", 0.4, 0.2, 0.6, {"ratio": 0.1, "ratio to librdkafka": 0.2}, 120.4)
    assert (jvm.ratios["ratio"], jvm.peak_mib) == (1.0, None)


def test_a_stored_result_is_read_again(tmp_path):
    result = Result("joining", "python -m benchmarks group", "2026-11-29", "abc", "2 cores", list(rows_of([contest()])))
    file = write_result(result, tmp_path)
    assert len(file.read_text(encoding="utf-8").splitlines()) == 12, "a row is a line"
    assert stored.stored_names(tmp_path) == ["joining"]
    read = read_result("joining", tmp_path)
    assert write_result(read, tmp_path).read_text(encoding="utf-8") == file.read_text(encoding="utf-8")
    assert list(read.rows) == result.rows


def test_the_table_has_no_empty_columns():
    assert markdown_table(figure_rows({"a sample": (0.5, "s"), "CPU": (4.4, "% of a core")})).splitlines() == [
        "| job | contestant | figure | unit |",
        "| --- | --- | ---: | --- |",
        "| a sample | zkconsumer | 0.500 | s |",
        "| CPU | zkconsumer | 4.400 | % of a core |",
    ]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A directory for results, and a benchmark that takes no time."""
    monkeypatch.setattr(stored.write_result, "__defaults__", (tmp_path,))
    monkeypatch.setattr(fleet, "measure_fleet", lambda sizes, progress: {"fleet plan": float(sizes.groups)})
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["benchmarks", *arguments])
    return CliRunner().invoke(bench, arguments)


def test_a_run_is_stored_with_its_command_and_date(results, monkeypatch):
    assert run(monkeypatch, "fleet", "--groups", "7", "--json", "--store", "fleet-7").exit_code == 0
    values = json.loads((results / "fleet-7.json").read_text(encoding="utf-8"))
    assert values["command"] == "python -m benchmarks fleet --groups 7"
    assert values["date"] == Machine.this().date
    assert f"{Machine.this().cores} cores" in values["machine"]
    assert values["date"] not in values["machine"]
    assert values["rows"] == [{"job": "fleet plan", "contestant": "zkconsumer", "unit": "s", "median": 7.0}]


def test_a_run_without_a_name_is_not_stored(results, monkeypatch):
    assert run(monkeypatch, "fleet").exit_code == 0
    assert list(results.iterdir()) == []


def test_the_name_is_checked_before_the_run(results, monkeypatch):
    ended = run(monkeypatch, "fleet", "--store", "../fleet")
    assert (ended.exit_code, list(results.iterdir())) == (2, [])


def test_the_command_has_no_place_of_this_machine(monkeypatch):
    monkeypatch.setenv(THROUGH, "slow --loss 0.1")
    words = ["start", "--beside", "/somewhere/bin/python", "--store=start", "--markdown", "--rounds", "2"]
    assert stored._command(words) == "python -m benchmarks slow --loss 0.1 start --beside PYTHON --rounds 2"
