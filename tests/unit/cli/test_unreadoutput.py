"""Commands that write, and whose standard output is closed, or full, before they have written."""

import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import pytest

from zkconsumer.cli.main import EXIT_PROBLEM, ProcessCommand, command, main
from zkconsumer.cli.unreadoutput import execute_option


@contextmanager
def output(monkeypatch, descriptor, *names):
    """These streams are the descriptor; Python flushes them at the end."""
    streams = [os.fdopen(os.dup(descriptor), "w", encoding="utf-8") for _ in names]
    os.close(descriptor)
    with monkeypatch.context() as patch:
        for name, stream in zip(names, streams, strict=True):
            patch.setattr(sys, name, stream)
        yield
    for stream in streams:
        with suppress(OSError):
            stream.close()


def closed_pipe():
    read, write = os.pipe()
    os.close(read)
    return write


def ended(monkeypatch, descriptor, *arguments, streams=("stdout",), code=0):
    """Exit code of a command, and what it has done."""
    did = []

    @click.command(cls=ProcessCommand)
    @execute_option()
    def each(execute):
        click.echo("a table")
        did.append("written" if execute else "shown")
        click.echo("written", err=True)
        raise click.exceptions.Exit(code)

    monkeypatch.setattr(sys, "argv", ["each", *arguments])
    with output(monkeypatch, descriptor, *streams), pytest.raises(SystemExit) as end:
        main(each, "each")
    return end.value.code, did


@pytest.mark.parametrize("streams", [("stdout",), ("stdout", "stderr")])
@pytest.mark.parametrize("code", [0, EXIT_PROBLEM])
def test_a_command_that_writes_does_its_work_although_its_reader_has_ended(monkeypatch, streams, code):
    """1. `offsets reset --execute | head -1`; 2. the table is longer; 3. nothing was written, with exit code 0."""
    assert ended(monkeypatch, closed_pipe(), "--execute", streams=streams, code=code) == (code, ["written"])


def test_a_command_that_reads_ends_with_its_reader(monkeypatch):
    assert ended(monkeypatch, closed_pipe(), code=EXIT_PROBLEM) == (0, [])


def test_a_command_that_has_written_and_cannot_print_it_fails(monkeypatch, capsys):
    if not Path("/dev/full").exists():
        pytest.skip("no device is full here")
    full = os.open("/dev/full", os.O_WRONLY)
    assert ended(monkeypatch, full, "--execute") == (1, ["written"])
    assert capsys.readouterr().err.splitlines() == [
        "written", "error: No space left on device; check the disk of the output"
    ]  # fmt: skip


def test_each_option_to_execute_is_of_this_kind():
    def options(group, path):
        for name in group.list_commands(click.Context(group)):
            one = group.get_command(click.Context(group), name)
            if isinstance(one, click.Group):
                yield from options(one, [*path, name])
            yield from ((" ".join([*path, name]), option) for option in one.params if option.name == "execute")

    found = dict(options(command, []))
    assert {"offsets reset", "migrate run", "migrate fleet run", "groups delete", "migrate unmark"} <= found.keys()
    assert {option.callback.__module__ for option in found.values()} == {"zkconsumer.cli.unreadoutput"}
