from pathlib import Path

import pytest

from zkconsumer.config import PROPERTIES
from zkconsumer.connector.metrics import METRICS
from zkconsumer.tools.reference import PAGES, configuration_reference, metrics_reference

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_generated_from_the_table(page):
    assert (DOCS / f"{page}.md").read_text() == PAGES[page](), "run `make docs`"


def test_every_property_has_a_row():
    page = configuration_reference()
    assert all(f"| `{row.name}`" in page for row in PROPERTIES.values())


def test_every_metric_has_a_row():
    page = metrics_reference()
    assert all(f"| `{metric.name}" in page for metric in METRICS)
