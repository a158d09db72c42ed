"""The site: its build gives no warning, its links lead somewhere, and its reference has all public names."""

import re
import zlib
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

import zkconsumer
from tests.fixtures.documents import ROOT
from tests.release.site import build_site


class Page(HTMLParser):
    """Links, pictures and anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.add(values.get("id"))
        self.targets += [values[name] for name in ("href", "src") if values.get(name)]


def broken_links(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for target in page.targets:
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = unquote(target).partition("#")
            place = (path.parent / name.partition("?")[0]).resolve() if name else path
            if not place.exists() or (anchor and place in pages and anchor not in pages[place].anchors):
                yield f"{path.relative_to(site)}: {target}"


def documented(site):
    """Names of Python objects, without those that repeat another one under the name of its module."""
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    rows = [row.split() for row in zlib.decompress(inventory).decode().splitlines()]
    return {row[0] for row in rows if row[1].startswith("py:") and row[2] != "-1"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_site(tmp_path):
    """One test: the build takes long, and tests that shared it might run in different processes."""
    done = build_site(ROOT, tmp_path)
    assert done.stderr.splitlines() == []
    assert done.returncode == 0
    assert list(broken_links(tmp_path)) == []
    names = documented(tmp_path)
    assert [name for name in zkconsumer.__all__ if f"zkconsumer.{name}" not in names] == []
    assert [name for name in names if re.search(r"\._", name)] == []
    assert "searchindex.js" in {path.name for path in tmp_path.iterdir()}
    pictures = {path.name for path in (ROOT / "docs/images").iterdir()}
    assert pictures <= {path.name for path in (tmp_path / "_images").iterdir()}
