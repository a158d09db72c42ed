"""Stored runs of rounds, and the table that is made of them."""

from tests.rounds.store import Run, RunStore, publish, published, table


def run(kind, began, rounds=2, **figures):
    values = {"records": 10, "lost": 0, "by both": 0, "twice": 1, **figures}
    return Run(kind, began, rounds, "commit", "product", True, values)


FAILED = Run("jvm", 3, 50, "commit", "product", False, {})


def test_runs_come_back_from_their_directory(tmp_path):
    for one in (FAILED, run("jvm", 1), run("zkconsumer", 2)):
        RunStore(tmp_path / "new").add(one)
    assert list(RunStore(tmp_path / "new")) == [run("jvm", 1), FAILED, run("zkconsumer", 2)]


def test_published_runs_come_back_in_the_order_of_the_table(tmp_path):
    ordered = [run("jvm", 1), FAILED, run("zkconsumer", 0), run("mirrormaker", 0)]
    publish(reversed(ordered), tmp_path / "rounds.jsonl")
    assert published(tmp_path / "rounds.jsonl") == ordered


def test_the_table_has_a_line_for_each_kind_of_group():
    _, _, *lines = table([run("mirrormaker", 1), run("jvm", 1, 50, lost=2), FAILED, run("jvm", 4)]).splitlines()
    assert [line.partition(" | ")[2] for line in lines] == [
        "52 | 3 | 2 | 20 | 2 | 0 | 2 |",
        "2 | 1 | 1 | 10 | 0 | 0 | 1 |",
    ]
