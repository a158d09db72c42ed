"""The claims of the README: versions that the tests run on, dates of comparisons, names of extras."""

import configparser
import re

import pytest

from benchmarks.stored import read_result
from tests.fixtures.documents import ROOT, table
from tests.golden.captures import captures
from tests.reference.figures import bindings
from tests.suites.compatibility import SUBJECTS

README = ROOT / "README.md"
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


def test_the_dates_of_the_comparisons_are_those_of_their_runs():
    section = README.read_text(encoding="utf-8").split("### How fast\n")[1].split("\n#")[0]
    dates = sorted({read_result(binding.partition(" | ")[0]).date for _, binding in bindings(section)})
    assert re.findall(r"20\d\d-\d\d-\d\d", section) == [dates[0], dates[-1]]


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
