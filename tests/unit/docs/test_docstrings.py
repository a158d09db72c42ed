"""Docstrings: their examples hold, and those on the site link to no place that the site lacks."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

from tests.fixtures.documents import examples

ROOT = Path(__file__).parents[3]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "zkconsumer").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
    assert result.attempted


def is_public(key, value, module):
    """Whether a member of a module is a public class or function of its own."""
    is_own = (inspect.isclass(value) or inspect.isroutine(value)) and value.__module__ == module
    return is_own and not key.startswith("_")


def shown():
    """The objects of the API pages by name, as the directives of Sphinx name them."""
    for page in sorted((ROOT / "docs/api").glob("*.md")):
        module = "zkconsumer"
        for block in examples(page, "{eval-rst}"):
            for kind, name in re.findall(r"^\.\. (auto\w+|currentmodule):: ([\w.]+)", block, re.M):
                if kind == "currentmodule":
                    module = name
                elif kind == "automodule":
                    described = importlib.import_module(name)
                    yield name, described
                    members = vars(described).items()
                    yield from ((f"{name}.{key}", value) for key, value in members if is_public(key, value, name))
                else:
                    yield f"{module}.{name}", getattr(importlib.import_module(module), name)


def docstrings(name, shown_object):
    """The docstring of an object, and those of its public members."""
    yield name, shown_object.__doc__ or ""
    for member, value in vars(shown_object).items() if inspect.isclass(shown_object) else ():
        if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
            yield f"{name}.{member}", value.__doc__ or ""


def test_docstrings_of_the_site_name_no_file_of_the_repository():
    found = [pair for name, shown_object in shown() for pair in docstrings(name, shown_object)]
    assert {f"zkconsumer.{name}" for name in ("MessageStream.done", "errors", "read")} <= {name for name, _ in found}
    assert [name for name, text in found if re.search(r"\.md\b|\.py\b|\badr/", text)] == []
