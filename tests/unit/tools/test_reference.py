from pathlib import Path

from zkconsumer.config import PROPERTIES
from zkconsumer.tools.reference import configuration_reference

PAGE = Path(__file__).parents[3] / "docs" / "config.md"


def test_the_page_is_what_the_table_says():
    assert PAGE.read_text() == configuration_reference(), "run `make docs`"


def test_every_property_has_a_row():
    page = configuration_reference()
    assert all(f"| `{row.name}`" in page for row in PROPERTIES.values())
