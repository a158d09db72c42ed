"""The parts cover all tests, and the gate's sample names tests that exist."""

import ast
from functools import cache

import click
import pytest

from tests.suites.__main__ import collect
from tests.suites.parts import PARTS, ROOT, Part, read_sample, sampled

SAMPLE = read_sample()


@cache
def functions(file):
    """Names of the tests of a file, methods as ``Class::name``."""
    names = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        names |= {target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return names


def test_each_directory_of_tests_is_in_one_part():
    having_tests = {path.relative_to(ROOT).parts[:2] for path in (ROOT / "tests").rglob("test_*.py")}
    listed = [path for part in PARTS.values() for path in part.paths]
    assert sorted(listed) == sorted("/".join(parts) for parts in having_tests)


@pytest.mark.parametrize("part", PARTS)
def test_the_sample_names_tests_that_exist(part):
    for test in sampled(SAMPLE, part):
        file, _, name = test.partition("::")
        assert file.startswith(PARTS[part].paths), test
        assert not name or name.partition("[")[0].partition("::")[0] in functions(file), test


def test_a_test_that_two_capabilities_need_runs_once():
    sample = {"web": {"the page": ["a::b", "a::c"], "the table": ["a::b"]}}
    assert sampled(sample, "web") == ["a::b", "a::c"]


def test_a_part_that_does_not_exist_is_refused(tmp_path):
    file = tmp_path / "gate.toml"
    file.write_text('[sparks]\n"a stream" = []\n')
    with pytest.raises(ValueError, match="sparks"):
        read_sample(file)


def test_a_part_is_known_by_its_tests(request):
    own = Part((str(request.path.relative_to(ROOT)),))
    assert request.node.nodeid in collect(own)


def test_a_part_without_tests_is_an_error():
    with pytest.raises(click.ClickException, match="cannot collect"):
        collect(Part(("tests/fixtures",)))
