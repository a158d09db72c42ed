from pathlib import Path

import pytest

from tests.reference.tables import PAGES

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_generated_from_the_table(page):
    assert (DOCS / f"{page}.md").read_text() == PAGES[page](), "run `make docs`"
