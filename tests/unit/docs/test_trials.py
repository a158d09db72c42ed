"""The tables on the page about reliability are those of the published trials, and of the published runs of rounds."""

from pathlib import Path

from tests.chaos.store import README, published, summary, table
from tests.rounds import store as rounds

PAGE = Path(__file__).parents[3] / "docs" / "reliability.md"


def test_the_table_is_made_of_the_published_trials():
    assert table(published()) in PAGE.read_text(encoding="utf-8")


def test_the_readme_has_the_sums_of_the_published_trials():
    assert summary(published()) in README.read_text(encoding="utf-8")


def test_the_readme_has_the_sums_of_the_published_rounds():
    runs = rounds.published()
    assert all(run.passed and run.figures["lost"] == 0 for run in runs)
    assert {run.kind: run.rounds for run in runs} == {kind: 1 if kind == "fleet-200" else 50 for kind in rounds.KINDS}
    text = " ".join(README.read_text(encoding="utf-8").split())
    assert "Four kinds of groups moved there and back while records were produced, 50 rounds in one run of each" in text
    assert "a fleet of 200 groups once" in text


def test_the_table_of_rounds_is_made_of_the_published_runs():
    assert rounds.table(rounds.published()) in PAGE.read_text(encoding="utf-8")
