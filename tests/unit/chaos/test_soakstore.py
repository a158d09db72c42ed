"""A report of a soak becomes a published line; docs/reliability.md shows the published lines, one of each protocol."""

from tests.chaos.growth import Usage, growth_per_hour
from tests.chaos.soak import PROTOCOL_NAMES, Soak, write_report
from tests.chaos.soakstore import BEGIN, END, publish, published, table
from tests.chaos.store import PAGE

FIGURES = {"produced": 144000.0, "lost": 0.0, "stale commits": 0.0}


def soak(protocol, samples, failures=()):
    return Soak(protocol, 1.0, 1, "c0ffee", "1b1085054", 60, failures, FIGURES, growth_per_hour(samples))


def test_reports_become_lines_a_table_and_a_picture(tmp_path):
    samples = [Usage(60.0 * minute, 90 << 20, 12, 30, 40, 1000 * minute) for minute in range(60)]
    good, bad = soak("zookeeper", samples), soak("kafka", samples, ("memory grows by 6.0% an hour",))
    reports = [write_report(one, samples, [30.0], tmp_path) for one in (good, bad)]
    page, file, picture = tmp_path / "page.text", tmp_path / "soaks.jsonl", tmp_path / "soak.png"
    page.write_text(f"before\n{BEGIN}\nformer\n{END}\nafter\n", encoding="utf-8")
    publish(reports, file, page, picture)
    assert published(file) == [good, bad]
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n{table([good, bad])}\n{END}\nafter\n"
    lines = table([good, bad]).splitlines()
    assert lines[2].startswith("| zookeeper | 1.00 | 1 | 60 | yes | 144000 | 0 | 0 | +0.0% |")
    assert lines[3].startswith("| kafka | 1.00 | 1 | 60 | no |")
    assert picture.stat().st_size > 1000


def test_the_page_shows_the_published_soaks_of_an_hour_with_each_protocol():
    soaks = published()
    assert table(soaks) in PAGE.read_text(encoding="utf-8")
    assert [one.protocol for one in soaks] == list(PROTOCOL_NAMES)
    assert all(one.hours >= 1 and not one.failures and one.figures["lost"] == 0 for one in soaks)
