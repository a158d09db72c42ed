"""The page of commands is what the commands' own help says, and has all of it."""

import click

from tests.fixtures.documents import ROOT
from tests.reference.commands import cli_reference
from zkconsumer.cli.main import COMMANDS, SUMMARIES, command

PAGE = ROOT / "docs/cli.md"


def leaves(path, found):
    """Commands that do something, below one command."""
    if isinstance(found, click.Group):
        context = click.Context(found)
        for name in found.list_commands(context):
            yield from leaves([*path, name], found.get_command(context, name))
    else:
        yield " ".join(path), found


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == cli_reference(), "run `make docs`"


def test_every_command_and_option_is_documented():
    sections = dict(section.split("\n", 1) for section in PAGE.read_text(encoding="utf-8").split("\n## "))
    for path, found in leaves([], command):
        assert path in sections
        names = [
            name
            for parameter in found.params
            if parameter.name != "verbose"
            for name in (parameter.opts if isinstance(parameter, click.Option) else [parameter.human_readable_name])
        ]
        assert [name for name in names if name not in sections[path]] == []


def test_every_command_has_a_summary():
    assert SUMMARIES.keys() == COMMANDS.keys()
