"""The examples in the documents: they compile, what they import and call exists, and commands have the options used."""

import ast
import re
import shlex

import click
import pytest

import zkconsumer
from benchmarks.__main__ import bench
from demo.__main__ import demo
from tests.fixtures.documents import PAGES, ROOT, examples, name_of, prose
from zkconsumer import ConsumerConnector, MessageStream, SimpleConsumer
from zkconsumer.cli.main import command

OWNERS = {"connector": ConsumerConnector, "simple": SimpleConsumer, "stream": MessageStream}
ROOTS = {"zkconsumer": command, "python -m benchmarks": bench, "python -m demo": demo}
PYTHON = [pytest.param(page, id=name_of(page)) for page in PAGES if examples(page, "python")]


@pytest.mark.parametrize("page", PYTHON)
def test_examples_name_what_exists(page):
    for node in (node for example in examples(page, "python") for node in ast.walk(ast.parse(example))):
        match node:
            case ast.ImportFrom(module="zkconsumer", names=names):
                assert [name.name for name in names if not hasattr(zkconsumer, name.name)] == []
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in OWNERS:
                assert hasattr(OWNERS[owner], name), f"{owner}.{name}"


def test_the_programs_of_a_page_are_those_of_the_tests():
    programs = [(ROOT / f"examples/{name}.py").read_text(encoding="utf-8") for name in ("two_threads", "handler")]
    assert examples(ROOT / "docs/programs.md", "python") == programs


def test_the_programs_of_a_page_have_thirty_lines():
    """A user types them: lines of code, without the docstring and empty lines."""
    for program in examples(ROOT / "docs/programs.md", "python"):
        lines = [line for line in program.splitlines() if line]
        assert ast.get_docstring(ast.parse(program)) == lines[0].strip('"')
        assert len(lines[1:]) <= 30


def commands_in(page):
    """Every command line of ours in a page, as the command and its words: in shell blocks, and in text."""
    lines = [line for block in examples(page, "sh") for line in block.splitlines()]
    lines += re.findall(rf"`((?:{'|'.join(ROOTS)}) [^`\n]+)`", prose(page))
    for line in lines:
        for piece in re.split(r"\s(?:\|\||\||&&)\s", line):
            words = shlex.split(piece, comments=True)
            for name, root in ROOTS.items():
                count = len(name.split())
                if words[:count] == name.split() and "..." not in words:
                    yield from split_nested(root, words[count:])


def split_nested(root, words):
    """The command, and the one that it runs: ``slow``, with its own options, runs a benchmark with its options."""
    inner = [] if words[:1] != ["slow"] else [n for n, word in enumerate(words) if n and word in root.commands]
    if not inner:
        yield root, words
        return
    yield root, words[: inner[0]]
    yield root, words[inner[0] :]


def resolve(found, words):
    """The command below another one that the words name, and the words after it."""
    while isinstance(found, click.Group) and words and not words[0].startswith("-"):
        below = found.get_command(click.Context(found), words[0])
        assert below is not None, f"no command {words[0]}"
        found, words = below, words[1:]
    return found, words


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_their_options_exist(page):
    for root, words in commands_in(page):
        if words[:1] == ["COMMAND"]:
            continue
        found, rest = resolve(root, words)
        options = {name for parameter in found.params for name in parameter.opts} | {"--help", "--version"}
        unknown = [word for word in rest if word.startswith("-") and word not in options | {"-vv"}]
        assert unknown == [], f"{found.name}: {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_targets_of_make_exist(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    used = re.findall(r"`make ([a-z-]+)`", prose(page))
    used += [
        line.split()[1] for block in examples(page, "sh") for line in block.splitlines() if line.startswith("make ")
    ]
    assert sorted(set(used) - targets) == []
