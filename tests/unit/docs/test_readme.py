"""The claims of the README: versions that the tests run on, figures of the benchmarks, names of extras."""

import configparser
import re

import pytest

from tests.fixtures.documents import ROOT, prose, table
from tests.golden.captures import captures
from tests.suites.compatibility import SUBJECTS

README = ROOT / "README.md"
FIGURE = re.compile(r"(?<![\w.,])(\d[\d.,]*\d|\d) (?:[KMG]i?B|%|m?s|times|groups|partitions|(?:records|rows)/s)(?!\w)")
SETTINGS = {"60"}
"""Figures that are settings: the default of ``auto.commit.interval.ms``."""
MAGIC_AT = 16
"""Where a record batch, or a message of the older formats, has its format."""


def setup_cfg():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config


def versions_of(what):
    (cell,) = [row[1] for row in table(README, "Compatibility") if row[0].startswith(what)]
    return cell.split(", ")


@pytest.mark.parametrize("subject", SUBJECTS[:5], ids=lambda subject: subject.name)
def test_versions_are_those_that_tests_run_with(subject):
    assert versions_of(subject.name.removesuffix(" in a shared group")) == list(subject.levels)


def test_python_is_the_oldest_that_is_accepted():
    assert setup_cfg()["options"]["python_requires"] == f">={versions_of('Python')[0]}"


def test_formats_and_codecs_are_those_of_the_captured_answers():
    fetched = [(capture.topic.partition(", ")[0], capture.fetched.records) for capture in captures()]
    formats = {records[MAGIC_AT] for _, records in fetched if len(records) > MAGIC_AT}
    assert versions_of("Message formats") == [str(magic) for magic in sorted(formats)]
    plain = {topic for topic, _ in fetched if "-" not in topic} - {"transactions"}
    assert set(versions_of("Compression")) == plain


def test_ratios_are_in_the_benchmarks():
    benchmarks = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    for job, ours, theirs, ratio, _ in table(README, "How fast"):
        figures = [re.search(r"[\d.,]+", cell.split("`")[-1] if "`" in cell else cell)[0] for cell in (ours, theirs)]
        assert all(f"| {figure} |" in benchmarks for figure in figures), job
        low, high = sorted(float(figure.replace(",", "")) for figure in figures)
        said = float(re.search(r"[\d.]+", ratio)[0])
        assert abs(high / low - said) <= 0.05 * said, job


def test_figures_are_those_of_a_benchmark():
    """Each is on the page of the benchmarks, rounded or not, where it has its command, machine and date."""
    benchmarks = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    measured = {float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", benchmarks)}
    known = {f"{value:.{digits}f}" for value in measured for digits in range(4)} | SETTINGS
    figures = {figure.replace(",", "") for figure in FIGURE.findall(prose(README))}
    ratios = {re.search(r"[\d.]+", row[3])[0] for row in table(README, "How fast")}
    assert figures - known - ratios == set()


def test_every_figure_of_the_benchmarks_has_its_command_and_date():
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    assert [section.splitlines()[0] for section in sections if "python -m benchmarks" not in section] == []
    parts = [part for section in sections for part in re.split(r"^### ", section, flags=re.MULTILINE)]
    undated = [
        part
        for part in parts
        if "| ratio |" in part and not re.search(r"machine.*?20\d\d-\d\d-\d\d", part, re.IGNORECASE | re.DOTALL)
    ]
    assert [part.splitlines()[0] for part in undated] == []


def test_extras_exist():
    names = set(setup_cfg()["options.extras_require"])
    text = "".join(page.read_text(encoding="utf-8") for page in [README, *(ROOT / "docs").glob("*.md")])
    lists = re.findall(r"'(?:\.|dist/[\w.-]+)\[([^\]]+)\]'", text)
    assert lists
    assert {name for each in lists for name in each.split(",")} - names == set()


def test_the_wheel_has_the_version_of_the_project():
    version = setup_cfg()["metadata"]["version"]
    assert f"dist/zkconsumer-{version}-py3-none-manylinux2014_x86_64.whl" in README.read_text(encoding="utf-8")


def test_sizes_of_environments_are_those_that_make_prints():
    printed = re.findall(r"into \$\(VENV\) \(about (\S+ GB), once\)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    text = README.read_text(encoding="utf-8")
    named = re.findall(r"^make venv .* about (\S+ GB)$", text, re.MULTILINE)
    assert [*named, *re.findall(r"`\.venv`, (\S+ GB);", text)] == printed
