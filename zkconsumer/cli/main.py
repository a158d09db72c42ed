"""The ``zkconsumer`` command: its table of subcommands, and the exit codes (cli.md#exit-codes).

0 ok, 1 failed, 2 usage, 3 a check found a problem. A subcommand's module is only imported when it is used.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import logging
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import click

from zkconsumer.cli.unreadoutput import discard
from zkconsumer.errors import ConfigError, UsageError, ZkConsumerError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_PROBLEM = 3

_VERBOSE = "verbose"

SETTINGS = {"help_option_names": ["-h", "--help"]}
"""Of the command of a process."""

COMMANDS = {
    "consume": "zkconsumer.cli.consume:consume",
    "groups": "zkconsumer.cli.groups:groups",
    "health": "zkconsumer.cli.health:health",
    "migrate": "zkconsumer.cli.migrate:migrate",
    "offsets": "zkconsumer.cli.offsets:offsets",
    "sandbox": "zkconsumer.cli.sandbox:sandbox",
    "serve": "zkconsumer.cli.serve:serve",
}
"""Subcommand to its module and attribute."""

SUMMARIES = {
    "consume": "Consume topics as a member of a group.",
    "groups": "Inspect consumer groups.",
    "health": "Check that a consumer process works, for container health checks.",
    "migrate": "Move the offsets of groups between ZooKeeper and Kafka.",
    "offsets": "Export, import and move the offsets of groups.",
    "sandbox": "Run a real ZooKeeper and Kafka until Ctrl-C.",
    "serve": "Serve a web page, an API and Prometheus metrics of the lag of groups.",
}


class _ClosedOutput(io.TextIOBase):
    """Standard output of a process that was started without one; output of a command must not be lost silently."""

    def write(self, _text: str) -> int:
        raise ZkConsumerError("standard output is closed, so the result cannot be printed; open it")


class LazyGroup(click.Group):
    """A group some of whose subcommands are in other modules, which are imported when the subcommand is used.

    Args:
        elsewhere: name of a subcommand to its module and attribute.
        arguments: those of :class:`click.Group`.
    """

    def __init__(self, *arguments: Any, elsewhere: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._elsewhere = elsewhere

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all subcommands, sorted; none is imported."""
        return sorted({*super().list_commands(ctx), *self._elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand, which accepts ``-v``; None if there is none of that name."""
        if cmd_name not in self._elsewhere:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._elsewhere[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        _accept_verbose(command)
        return command


class ProcessCommand(click.Command):
    """The command of a process. It ends normally if the reader of its output ends; click makes that a failure.

    One that writes continues (:func:`~zkconsumer.cli.unreadoutput.need_no_reader`).
    """

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the command line."""
        with _ended_by_reader():  # --help and --version print here
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and its subcommand."""
        with _ended_by_reader():
            return super().invoke(ctx)


class _RootGroup(ProcessCommand, LazyGroup):
    """Lists subcommands without importing them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(sorted(SUMMARIES.items()))


@click.group(cls=_RootGroup, elsewhere=COMMANDS, context_settings=SETTINGS)
@click.version_option(package_name="zkconsumer")
def command() -> None:
    """Kafka's ZooKeeper-based consumer groups: run a consumer, inspect a group, try both on real servers."""


def _accept_verbose(command: click.Command) -> None:
    """Let a command and its subcommands accept ``-v``, so that it may be written anywhere; idempotent."""
    if not any(parameter.name == _VERBOSE for parameter in command.params):
        help_text = "Log to standard error; twice for debugging."
        command.params.append(
            click.Option(["-v", "--verbose"], count=True, expose_value=False, callback=_add_verbosity, help=help_text)
        )
    for subcommand in command.commands.values() if isinstance(command, click.Group) else ():
        _accept_verbose(subcommand)


def _add_verbosity(context: click.Context, _parameter: click.Parameter, count: int) -> None:
    """Count ``-v`` before and after the names of commands together, and log accordingly."""
    total = context.meta[_VERBOSE] = context.meta.get(_VERBOSE, 0) + count
    _configure_logging(total)


def _configure_logging(verbose: int) -> None:
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger().setLevel(level)
    # Events of a member (it joined, rebalanced, lost ZooKeeper) are logged at every level.
    logging.getLogger("zkconsumer.events").setLevel(min(level, logging.INFO))
    # kazoo logs every failed connection attempt.
    logging.getLogger("zkconsumer.kazoo").setLevel(logging.ERROR if verbose < 2 else logging.NOTSET)


_accept_verbose(command)


@contextlib.contextmanager
def _ended_by_reader() -> Iterator[None]:
    """End normally if the reader of a pipe has closed it; click by default would make it a failure."""
    try:
        yield
    except BrokenPipeError:
        discard(sys.stdout)
        raise click.exceptions.Exit(0) from None


def main(started: click.Command = command, name: str = "zkconsumer") -> None:
    """Run a command; print an error of ours as one line on standard error.

    Args:
        started: the command of this process; it accepts ``-v`` as ``zkconsumer`` does.
        name: what its usage begins with.
    """
    _accept_verbose(started)
    if sys.stdout is None:
        sys.stdout = _ClosedOutput()
    try:
        sys.exit(started.main(prog_name=name, standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except click.ClickException as error:
        _fail(error.format_message(), EXIT_USAGE, _way_to_help(error))
    except click.Abort:
        _fail("interrupted")
    except ConfigError as error:
        _fail("\n       ".join(error.violations), EXIT_USAGE)
    except UsageError as error:
        _fail(str(error), EXIT_USAGE)
    except ZkConsumerError as error:
        _fail(str(error))
    except OSError as error:
        discard(sys.stdout)
        place = "" if error.filename is None else f"{error.filename}: "
        _fail(f"{place}{error.strerror or error}{_hint(error)}")


def _fail(message: str, code: int = EXIT_FAILED, hint: str = "") -> NoReturn:
    """End the process; the message is the last line of standard error, or its last lines if there are several."""
    click.echo(f"{hint}error: {message}", err=True)
    sys.exit(code)


def _way_to_help(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return "" if context is None else f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n\n"


def _hint(error: OSError) -> str:
    return "; check the disk of the output" if error.errno == errno.ENOSPC and error.filename is None else ""


if __name__ == "__main__":
    main()
