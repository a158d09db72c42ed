"""Links, citations and paths in documents and code lead somewhere."""

import re
from itertools import pairwise

import pytest

from tests.fixtures.documents import PAGES, ROOT, broken, citations, links, name_of, prose, sources, table, unresolved

FORMER = re.compile(r"\b(?:SPEC|DESIGN|FACTS|ADR|DEFECTS)\b,? (?:section )?[0-9A-G]")
"""Citations by a number of a section, which nothing can resolve."""

PACKAGES = {path.name for path in (ROOT / "zkconsumer").iterdir() if path.is_dir()}
DIRECTORIES = {"benchmarks", "demo", "tests", "docs", "docker", "examples", "jvmclients", "zkconsumer"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_their_anchors_exist(page):
    assert [problem for target in links(page) if (problem := broken(page, target))] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_table_has_a_line_for_each_row(page):
    """Wrapped like a paragraph, it is one."""
    assert badly_wrapped(prose(page)) == []


def test_a_table_that_was_wrapped_is_found():
    whole = "| a | b |\n| --- | ---: |\n| 1 | 2 |\n"
    assert badly_wrapped(whole) == []
    assert badly_wrapped(whole.replace("|\n|", "| |")) == ["| a | b | | --- | ---: | | 1 | 2 |"]
    assert badly_wrapped(whole.replace("b |\n", "b\n| ")) != []


def badly_wrapped(text):
    """Lines that rule off the header of a table, and have something beside the rule, or no header of as many cells."""
    lines = ["", *text.splitlines()]
    ruled = [(header, line) for header, line in pairwise(lines) if re.search(r"\|\s*:?-{3,}:?\s*\|", line)]
    return [
        line
        for header, line in ruled
        if not re.fullmatch(r"\s*\|(\s*:?-{3,}:?\s*\|)+", line) or cells_of(header) != line.count("|") - 1
    ]


def cells_of(row):
    return len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row))) - 1


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_exist(page):
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*\.\w+)`", prose(page))
    ours = [path for path in named if path.split("/")[0] in PACKAGES | DIRECTORIES]
    assert [path for path in ours if not (ROOT / path).exists() and not (ROOT / "zkconsumer" / path).exists()] == []


def test_citations_in_code_name_a_page_and_a_heading():
    problems = [
        problem
        for source in sources()
        for path, anchor in citations(source.read_text(encoding="utf-8"))
        if (problem := unresolved(source, path, anchor))
    ]
    assert problems == []


def test_nothing_is_cited_by_a_number():
    files = [*sources(), *PAGES]
    assert [name_of(file) for file in files if FORMER.search(file.read_text(encoding="utf-8"))] == []


def test_every_page_is_reached_from_the_readme():
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached and page.suffix == ".md" and page.exists():
            reached.add(page)
            ahead += [(page.parent / target.partition("#")[0]).resolve() for target in links(page)]
    assert [name_of(page) for page in PAGES if page not in reached] == []


def test_the_map_names_every_package_and_no_other():
    mapped = {name for row in table(ROOT / "docs/internals/architecture.md", "Map") for name in row[0].split(", ")}
    package = ROOT / "zkconsumer"
    rooms = {path.parent.relative_to(package).as_posix() for path in package.rglob("__init__.py")}
    packages = {f"`{room}/`" for room in rooms - {"."} if not room.endswith("rules")}
    modules = {f"`{path.name}`" for path in (ROOT / "zkconsumer").glob("*.py") if not path.name.startswith("__")}
    assert mapped == packages | modules
