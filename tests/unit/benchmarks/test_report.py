import json

from rich.console import Console

from benchmarks.contest import Contest
from benchmarks.machine import Machine, peak_memory_mib
from benchmarks.report import as_json, as_markdown, print_table


def contests():
    contest = Contest("Joining", "s", reference="JVM", target="at most 0.1")
    for value in (1.0, 2.0, 3.0):
        contest.add("JVM", value)
        contest.add("zkconsumer", value / 10)
    contest.note_memory("zkconsumer", 120.4)
    return [contest]


def test_markdown_has_a_row_for_each_contestant():
    lines = as_markdown(contests(), Machine.this()).splitlines()
    assert lines[2] == "| Joining | JVM | 1.000 | 2.000 | 3.000 | s | 1 |  |"
    assert lines[3] == "|  | zkconsumer | 0.100 | 0.200 | 0.300 | s | 0.100 | 120 |"
    assert "cores" in lines[-1]


def test_json_has_every_round():
    (contest,) = json.loads(as_json(contests(), Machine.this()))["contests"]
    assert contest["measured"]["JVM"] == [1.0, 2.0, 3.0]
    assert contest["median_ratio"]["zkconsumer"] == 0.1


def test_each_named_peer_has_a_column_of_ratios():
    contest = Contest("reading", "records/s", reference="JVM", peers=("librdkafka",))
    for name, value in (("zkconsumer", 8.0), ("JVM", 1.0), ("librdkafka", 2.0)):
        contest.add(name, value)
    lines = as_markdown([contest, *contests()], Machine.this()).splitlines()
    assert lines[0].split(" | ")[6:8] == ["ratio", "ratio to librdkafka"]
    assert lines[2] == "| reading | zkconsumer | 8.000 | 8.000 | 8.000 | records/s | 8.00 | 4.00 |  |"
    assert lines[5] == "| Joining | JVM | 1.000 | 2.000 | 3.000 | s | 1 |  |  |"
    (found, _) = json.loads(as_json([contest, *contests()], Machine.this()))["contests"]
    assert found["median_ratio_to"] == {"librdkafka": {"zkconsumer": 4.0, "JVM": 0.5, "librdkafka": 1.0}}


def test_measurements_that_were_too_short_are_named():
    contest = Contest("reading", "records/s", reference="", enough_s=2.0, about="words")
    contest.add("zkconsumer", 8.0)
    contest.note_window("zkconsumer", 1.5)
    lines = as_markdown([contest], Machine.this()).splitlines()
    assert "reading: words." in lines
    assert "reading: measured for less than 2 s: zkconsumer 1.50 s." in lines


def test_the_table_fits_a_terminal(capsys):
    print_table(Console(width=120, highlight=False), contests(), Machine.this())
    assert "at most 0.1" in capsys.readouterr().out


def test_our_own_peak_memory_is_plausible():
    import os

    assert 5 < peak_memory_mib(os.getpid()) < 20_000
