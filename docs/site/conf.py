"""Sphinx builds the site (`make site`) from the pages where they are, so that a link leads to the same file everywhere.

The source directory is the root of the checkout. The lists of pages are here and not in the pages, which a code forge
shows as well; a page that no list has gives a warning, and warnings are errors.
"""

import builtins
import configparser
import re
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

ROOT = Path(__file__).parents[2]
NAVIGATION = {
    "docs/index": {
        "Start": (
            "README", "docs/quickstart", "docs/demo", "examples/README", "docs/compatibility", "docs/reliability",
            "docs/choosing", "docs/benchmarks", "docs/measurements",
        ),
        "Consume": (
            "docs/programs", "docs/streams", "docs/asyncio", "docs/delivery", "docs/recipes", "docs/testing",
        ),
        "Spark": ("docs/spark",),
        "Operate": (
            "docs/deployment", "docs/operations", "docs/troubleshooting", "docs/upgrades", "docs/offsets",
            "docs/serve", "docker/README",
        ),
        "Migrate": ("docs/migration",),
        "Security": ("docs/security", "SECURITY"),
        "Reference": (
            "docs/api/consumer", "docs/api/errors", "docs/api/spark-api", "docs/api/testing-api", "docs/cli",
            "docs/config", "docs/metrics", "CHANGELOG",
        ),
        "Internals": (
            "docs/internals/architecture", "docs/internals/jvm-consumer", "docs/internals/notes", "CONTRIBUTING",
            "docs/internals/adr/README",
        ),
    },
    "docs/internals/adr/README": {
        "Decisions": sorted(f"docs/internals/adr/{path.stem}" for path in ROOT.glob("docs/internals/adr/0*.md")),
    },
}  # fmt: skip
"""By the page that lists them, with a caption."""


def setup_cfg(section, key):
    """A value of setup.cfg."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser[section][key]


project = setup_cfg("metadata", "name")
author = setup_cfg("metadata", "author")
version = release = setup_cfg("metadata", "version")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
include_patterns = ["*.md", "docs/**", "docker/*.md", "examples/*.md"]
exclude_patterns = [
    *(path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in ("docs", "docker", "examples")),
    "docs/site",
]
smartquotes = False  # two hyphens begin an option
myst_heading_anchors = 6
lexers["mermaid"] = TextLexer()  # drawn by code forges; shown here as text, which needs no program of another site

html_theme = "furo"
html_title = f"{project} {release}"
html_additional_pages = {"index": "first.html"}
templates_path = ["."]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_copy_source = False
html_show_copyright = html_show_sphinx = False

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_use_ivar = True
napoleon_use_rtype = False
nitpicky = True
nitpick_ignore = [("py:exc", name) for name in dir(builtins)]
nitpick_ignore_regex = [("py:(class|data|obj)", ".*")]  # types of signatures, of the standard library among others

_CITED = re.compile(r"(?<![\w/.`-])(?:docs/)?((?:[\w-]+/)*[\w-]+)\.md(#[\w-]+)?(?!`)")


def add_navigation(_app, page, source):
    """Append the lists of pages that the navigation is made of."""
    for caption, pages in NAVIGATION.get(page, {}).items():
        entries = "\n".join(f"/{name}" for name in pages if (ROOT / f"{name}.md").exists())
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def prepare_docstring(_app, what, _name, _obj, _options, lines):
    """Link the pages that a docstring cites, and hide the first line of an attribute's from napoleon.

    Napoleon takes what is before a colon in that line for the attribute's type.
    """
    if what in ("attribute", "property", "data"):
        lines[:0] = ["..", ""]
    lines[:] = [_CITED.sub(_link, line) for line in lines]


def _link(cited):
    name, anchor = cited[1], cited[2] or ""
    (page,) = [path for path in ROOT.glob("docs/**/*.md") if path.as_posix().endswith(f"/{name}.md")]
    target = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
    return f"`{name}.md{anchor} <../{target}{anchor}>`__"


def skip_fields(_app, _what, _name, obj, skip, _options):
    """Skip the fields of named tuples, whose docstrings say nothing; the docstring of the class describes them."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else skip


def setup(app):
    """Connect to Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=400)
    app.connect("autodoc-skip-member", skip_fields)
