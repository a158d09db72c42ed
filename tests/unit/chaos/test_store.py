"""Stored trials, and the table that is made of them."""

import pytest

from tests.chaos.store import Trial, TrialStore, code_identity, code_of, percentile, publish, published, table


def trial(seed, row="R1", members="", failures=(), **figures):
    values = {"produced": 10, "lost": 0, "duplicates": seed, "overlaps": 0, "stale commits": 0, **figures}
    return Trial(row, members, seed, "commit", "product", "{}", failures, values)


def test_trials_come_back_from_their_directory(tmp_path):
    trials = [trial(1), trial(2, members="+jvm", failures=("lost",), reassigned=float("inf"))]
    store = TrialStore(tmp_path / "new")
    for one in trials:
        store.add(one)
    assert sorted(TrialStore(tmp_path / "new"), key=lambda one: one.seed) == trials


def test_published_trials_come_back_in_the_order_of_the_table(tmp_path):
    trials = [trial(1), trial(10), trial(2, members="+jvm", failures=("lost",)), trial(1, row="R2")]
    publish(reversed(trials), tmp_path / "trials.jsonl")
    assert published(tmp_path / "trials.jsonl") == trials


def test_a_stored_trial_counts_for_the_same_code_only(tmp_path):
    store = TrialStore(tmp_path)
    store.add(trial(1))
    assert store.has("R1", "", 1, "product")
    for row, jvm, seed, product in (
        ("R2", "", 1, "product"),
        ("R1", "+jvm", 1, "product"),
        ("R1", "", 2, "product"),
        ("R1", "", 1, "another"),
    ):
        assert not store.has(row, jvm, seed, product)


@pytest.mark.parametrize(("share", "value"), [(0.5, 10.0), (0.99, 20.0), (0.05, 1.0), (1.0, 20.0)])
def test_percentiles_are_values_that_were_measured(share, value):
    assert percentile([float(number) for number in range(20, 0, -1)], share) == value


def test_the_table_has_a_line_for_each_row_and_kind_of_members():
    lines = table([trial(1, reassigned=2.5), trial(3, failures=("x",), reassigned=3.5), trial(1, "R2", members="+jvm")])
    _, _, first, second = lines.splitlines()
    assert first.startswith("| R1 | kill -9 of a random member | ours | 2 | 1 | 20 | 0 | 1, at most 3 | 0 | 0 |")
    assert "2.50 / 3.50" in first
    assert second.startswith("| R2 | real session expiry | ours and a JVM | 1 | 1 |")


def test_the_identity_of_the_code_names_commit_and_content():
    commit, product = code_identity()
    assert len(commit) >= 40
    assert product


def test_words_and_layout_do_not_change_the_identity_of_the_code():
    assert code_of('def one(of):\n    """Words."""\n    return of[0]  # why\n') == code_of("def one(of): return of[0]")
    assert code_of("def one(of): return of[0]") != code_of("def one(of): return of[1]")
