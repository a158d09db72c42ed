"""Lines that install an extra: no index has the package, so a page installs a checkout or a wheel.

A message is printed by an installed package: there pip takes ``zkconsumer[EXTRA]`` for installed, and fetches what the
extra needs.
"""

import configparser
import re

import pytest

from tests.fixtures.documents import ROOT

_LINE = re.compile(r"pip install [^`\n#]*")
_EXTRAS = re.compile(r"(?:\.|zkconsumer|\.whl)\[([a-z0-9,_-]+)\]")


def known_extras():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    return {*settings["options.extras_require"]}


def lines(*patterns):
    """Each line that installs something, with its file."""
    for pattern in patterns:
        for file in sorted(ROOT.glob(pattern)):
            for line in _LINE.findall(file.read_text(encoding="utf-8")):
                yield pytest.param(line, id=f"{file.relative_to(ROOT)}: {line}")


PAGES = list(lines("README.md", "SECURITY.md", "docs/*.md", "docker/*.md", "demo/*.md", "examples/*.md"))
MESSAGES = list(lines("zkconsumer/**/*.py"))


def test_lines_are_found():
    assert len(PAGES) > 10
    assert len(MESSAGES) > 4


@pytest.mark.parametrize("line", PAGES)
def test_a_page_installs_a_checkout_or_a_wheel(line):
    assert "zkconsumer[" not in line.replace(".whl[", "")
    assert "install zkconsumer" not in line


@pytest.mark.parametrize("line", PAGES + MESSAGES)
def test_extras_that_a_line_names_exist(line):
    for extras in _EXTRAS.findall(line):
        assert {*extras.split(",")} - {"{extra}"} <= known_extras()
