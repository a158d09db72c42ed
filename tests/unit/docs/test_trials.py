"""The table of trials on the page about reliability is that of the published trials."""

from pathlib import Path

from tests.chaos.store import published, table

PAGE = Path(__file__).parents[3] / "docs" / "reliability.md"


def test_the_table_is_made_of_the_published_trials():
    assert table(published()) in PAGE.read_text(encoding="utf-8")
