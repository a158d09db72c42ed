"""Each measured figure in README.md and docs/ is that of a stored result, and a wrong one is found."""

import re
from datetime import date

import pytest

from benchmarks.stored import read_result, stored_names
from tests.fixtures.documents import ROOT, name_of
from tests.reference.figures import COMMENT, Figure, bindings, figures, pages, problems, renewed, unshown, with_tables

MEASUREMENTS = ROOT / "docs/measurements.md"
CONCLUSIONS = ROOT / "docs/benchmarks.md"
BOUND = [page for page in pages() if COMMENT.search(page.read_text(encoding="utf-8"))]
VERSION = r"(?:Kafka|Spark|Python|consumer|KafkaConsumer) \d+\.\d+"
PAGE = """\
# Speed

A record comes in 4.37 times the time, `9.9 s` apart, in batches of 16 KiB: 2.0 to 3.0 s, and 33 % (see [how](5_s)).

<!-- figures
4.37 times: fetch-asyncio | asyncio | zkconsumer, asyncio, records / aiokafka
2.0 s: start | Start to first record, s | zkconsumer, records | highest max
3.0 s: tools | Restore | zkconsumer
33 %: fetch | batches-75 | zkconsumer, Arrow batches / no contestant
-->
<!-- given: 16 KiB, 9 s -->
"""


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_measured_figures_are_those_of_stored_results(page):
    """If this fails: CONTRIBUTING.md, Documents."""
    assert problems(page.read_text(encoding="utf-8")) == []


def test_the_tables_are_made_of_the_stored_results():
    page = MEASUREMENTS.read_text(encoding="utf-8")
    assert with_tables(page) == page, "run `make docs`"
    assert unshown(page) == []


def test_stored_results_have_a_command_and_a_date():
    for result in map(read_result, stored_names()):
        assert re.match("python -m benchmarks |python3 -m venv", result.command), result.name
        assert date.fromisoformat(result.date)
        assert result.rows


def changed(text, figure):
    """The text with another first digit of one figure: 5.37 for 4.37."""
    digit = (int(figure.number[0]) + 1) % 10
    return text[: figure.begin] + str(digit) + text[figure.begin + 1 :]


@pytest.mark.parametrize("page", BOUND, ids=name_of)
def test_each_wrong_figure_of_a_page_is_found(page):
    """Also where the text and its comment are wrong alike."""
    text = page.read_text(encoding="utf-8")
    names = {name for name, _ in bindings(text)}
    measured = [figure for figure in figures(text) if str(figure) in names]
    assert len(measured) >= len(names)
    missed = [str(figure) for figure in measured if problems(changed(text, figure)) == []]
    for line in re.finditer(r"^(\d\S*)( [^:\n]+)?: .* \| .*$", text, re.MULTILINE):
        figure = next(figure for figure in measured if str(figure) == line[0].partition(": ")[0])
        wrong = changed(changed(text, figure), Figure(line[1], "", line.start()))
        missed += [line[0] for _ in "1" if problems(wrong) == []]
    assert missed == []


def test_a_figure_without_a_result_is_found():
    found = problems("# Memory\n\nA reader takes 37 MiB and has 1,234,567 in a file.\n")
    assert found == ["Memory: the text has 37 MiB and 1,234,567, its comment no more"]


def test_what_is_wrong_with_a_figure_is_named():
    first, second, third, last = problems(PAGE)
    assert first == "Speed: 2.0 s: start | Start to first record, s | zkconsumer, records | highest max is 0.317"
    assert second == "Speed: 3.0 s: tools | Restore | zkconsumer is 1.216"
    assert third.startswith(
        "Speed: 33 %: fetch | batches-75 | zkconsumer, Arrow batches / no contestant names no stored"
    )
    assert last == "no figure is 9 s, which is named as given"


def test_a_page_is_renewed_from_the_stored_results():
    page = renewed(PAGE)
    assert "4.37 times the time" in page
    assert "16 KiB: 0.3 to 1.2 s" in page
    assert "\n0.3 s: start | " in page
    assert [problem for problem in problems(page) if " is " in problem and "given" not in problem] == []
    assert renewed(page) == page


def test_code_links_and_versions_have_no_figures():
    assert list(map(str, figures(PAGE))) == ["4.37 times", "16 KiB", "2.0 s", "3.0 s", "33 %"]
    assert list(map(str, figures("3% and 2.2 (warm) to 3.4 times"))) == ["3 %", "2.2 times", "3.4 times"]
    assert figures("Kafka 1.1.1 to 4.2, 50 members, `60 s`, 2026-11-29\n```\n5 s\n```\n") == []


def test_a_number_shows_what_it_is_rounded_from():
    figure = Figure("4.37", "times")
    assert [value for value in (4.364, 4.3651, 4.37, 4.3749, 4.376) if figure.shows(value)] == [4.3651, 4.37, 4.3749]
    assert Figure("1,234", "s").shows(1233.6)


def test_the_conclusions_have_no_number_without_a_unit():
    text = re.sub(r"<!--.*?-->", "", CONCLUSIONS.read_text(encoding="utf-8"), flags=re.DOTALL)
    known = {figure.begin for figure in figures(text)}
    plain = re.sub(r"`[^`]*`", lambda code: " " * len(code[0]), text)
    plain = re.sub(VERSION, lambda version: " " * len(version[0]), plain)
    unbound = re.finditer(r"(?<![\w.-])\d+\.\d+(?!\.?\d)", plain)
    assert [plain[number.start() - 20 : number.end() + 9] for number in unbound if number.start() not in known] == []


def test_the_conclusions_are_one_page():
    assert len(re.sub(r"<!--.*?-->", "", CONCLUSIONS.read_text(encoding="utf-8"), flags=re.DOTALL).split()) < 3000
