"""``zkconsumer groups status`` and ``groups watch``: sample the lag of groups again and again."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from zkconsumer.cli.connection import ToolConnection, tool_options
from zkconsumer.cli.groupoptions import (
    all_option,
    chosen_groups,
    echo_documents,
    echo_lines,
    end_reading,
    group_option,
    groups_json_option,
    json_option,
    match_option,
    storage_option,
    warn,
)
from zkconsumer.cli.groupsource import open_groups
from zkconsumer.cli.terminaltext import printable
from zkconsumer.errors import TRANSIENT

if TYPE_CHECKING:
    from rich.live import Live

    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
    from zkconsumer.operate.groups.groupchanges import Change, GroupMoment
    from zkconsumer.operate.groups.lagsamples import LagSampler
    from zkconsumer.operate.groups.observedgroup import ObservedGroup

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_DAYS: Final = 36_500


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """A duration such as ``500ms``, ``10s`` or ``1m``."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", value)
    seconds = 0.0 if match is None else float(match[1]) * _UNITS[match[2]]
    if not _UNITS["ms"] <= seconds <= _LONGEST_DAYS * _UNITS["d"]:
        raise click.BadParameter(
            f"{value[:40]}: write a positive number and its unit, such as 500ms, 10s or 1m; 1ms to {_LONGEST_DAYS}d"
        )
    return seconds


def milliseconds(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A duration in ms, for click; with a shorter one, groups or offsets would be deleted at once."""
    seconds = _seconds(context, parameter, value)
    if seconds is not None and seconds < _UNITS["m"]:
        raise click.BadParameter(f"{value}: give at least 1m; the units are ms, s, m, h and d")
    return None if seconds is None else round(seconds * 1000)


def duration_option(
    name: str, default: str, purpose: str, *, argument: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """An option with a duration, which the command gets in seconds, as ``argument`` if its own name is a keyword."""
    return click.option(
        name,
        *([] if argument is None else [argument]),
        callback=_seconds,
        default=default,
        metavar="DURATION",
        help=f"{purpose}  [default: {default}]",
    )


def interval_option(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``--interval`` between samples."""
    return duration_option("--interval", default, "Between samples.")


samples_option = click.option(
    "--samples",
    type=click.IntRange(2),
    help="Samples in a window.  [default: as many as cover 65 s, at least 10, at most 100]",
    metavar="COUNT",
)


def _require_verdict(interval: float, window: int) -> None:
    """Refuse samples that cover less time than a verdict on lag needs: a group that is stuck would be UNKNOWN for ever.

    Raises:
        click.UsageError: the message has what to write.
    """
    from zkconsumer.operate.groups.rules.lagstretches import JUDGED_S

    covered = interval * (window - 1)
    if covered < JUDGED_S:
        raise click.UsageError(
            f"{window} samples every {interval:g} s cover {covered:g} s, and a verdict on lag needs {JUDGED_S:.0f} s: "
            f"give --samples {math.ceil(JUDGED_S / interval) + 1}, or --interval "
            f"{math.ceil(JUDGED_S / (window - 1))}s, or --without-verdict for a short look"
        )


@click.command()
@tool_options
@group_option()
@all_option
@match_option
@interval_option("10s")
@samples_option
@click.option(
    "--without-verdict",
    is_flag=True,
    help="Accept samples of less than 65 s: a group with lag that did not fall is UNKNOWN, also if it is stuck.",
)
@click.option(
    "--problems",
    "only_problems",
    is_flag=True,
    help="Only groups that make the exit code 3, and in the table only their partitions that are not OK.",
)
@storage_option
@groups_json_option
def status(
    connection: ToolConnection,
    groups: tuple[str, ...],
    of_all: bool,
    pattern: str | None,
    interval: float,
    samples: int | None,
    without_verdict: bool,
    only_problems: bool,
    storage: OffsetStorage,
    as_json: bool,
) -> None:
    """Evaluate the lag of groups over a window of samples, which by default takes 90 s, with `--interval 2s` 66 s.

    A partition is RANGE (its offset lies outside the log), REWIND (the offset went down), STOP (lag, and no live owner
    for 30 s), STALL (a live owner, lag, and the offset did not move, or no offset although records came), WARN (it
    moves, but lag grew and never fell), UNKNOWN (no offset or no log end, or lag that a window of less than 65 s cannot
    judge) or OK. A group has the status of its worst partition; of several groups the worst comes first. It is NO
    MEMBERS if no member is registered and no partition is worse than WARN, at least WARN if it has members both in
    ZooKeeper and at brokers, or in ZooKeeper after a migration, or if its members have committed nothing although there
    are records, and MIGRATED if it was migrated and has no members in ZooKeeper, unless brokers are named, where it
    continues under its name. If auto.commit.interval.ms is longer than its default of 60 s, the window has to be
    longer, too. The exit code is 3 from WARN up, for a group without members that has lag, for one whose members
    subscribe to a topic that does not exist, and if groups, offsets or log ends could not be read: at the last sample,
    or at so many that lag cannot be judged.
    """
    from zkconsumer.operate.groups.groupdocuments import lag_document
    from zkconsumer.operate.groups.grouplist import matching, none_found
    from zkconsumer.operate.groups.rules.lagstatus import samples_for, worst_first

    window = samples or samples_for(interval)
    if not without_verdict:
        _require_verdict(interval, window)
    if groups and pattern is not None:
        raise click.UsageError("give --group or --match, not both")
    names = chosen_groups(connection, groups, of_all=of_all or pattern is not None)
    with _open_sampler(connection, window, storage, interval) as sampler:
        every = names or matching(sampler.groups(), pattern)
        sampler.sample(every, time.monotonic())
        sampler.missing(names)
        for at in _ticks(interval, window - 1):
            sampler.sample(every, at)
        judged = [(group, moment.lag) for group, moment in sampler.moments().items()]
        judged.sort(key=lambda item: worst_first(item[1].severity, item[1].lag))
        lags = {group: lag for group, lag in judged if lag.is_problem or not only_problems}
        unread = (*sampler.missing(names), *sampler.unjudged())
        observed = sampler.observed
    if as_json:
        documents = [lag_document(group, lag) for group, lag in lags.items()]
        echo_documents(documents, names)
    else:
        from zkconsumer.cli.grouptables import client_names, status_table

        clients = {group: client_names(observed[group].describe_members()) for group in lags}
        clock_ms = 1000 * (time.time() - time.monotonic())
        echo_lines(status_table(lags, clients, clock_ms=clock_ms, only_problems=only_problems))
        if only_problems:
            click.echo(f"{len(lags)} of {len(judged)} groups are problems", err=True)
    problems = (*sampler.problems, *sampler.missing_topics, *(() if every else none_found(pattern)))
    end_reading(connection.completed(unread), problems, found=any(lag.is_problem for lag in lags.values()))


@contextlib.contextmanager
def _open_sampler(
    connection: ToolConnection, window: int, storage: OffsetStorage, interval: float
) -> Iterator[LagSampler]:
    from zkconsumer.operate.groups.lagsamples import LagSampler

    with open_groups(connection, storage, interval=interval) as opened:
        yield LagSampler(opened.source, window=window)


def _ticks(interval: float, count: int) -> Iterator[float]:
    """The times of samples, each when it has come; with a progress bar if that takes time and there is a terminal."""
    from rich.console import Console
    from rich.progress import track

    began = time.monotonic()
    console = Console(stderr=True)
    hidden = not console.is_terminal or interval * count < 1
    for number in track(range(count), "Sampling", console=console, disable=hidden, transient=True):
        time.sleep(max(0.0, began + (number + 1) * interval - time.monotonic()))
        yield time.monotonic()


@click.command()
@tool_options
@group_option("Name of a group; repeatable; without it all groups are shown.")
@interval_option("2s")
@samples_option
@storage_option
@click.option("--for", "seconds", callback=_seconds, metavar="DURATION", help="End after this time.  [default: never]")
@click.option(
    "--every",
    callback=_seconds,
    metavar="DURATION",
    help="Also print a line with status and lag of each group after this time, where there is no terminal.  "
    "[default: changes alone]",
)
@json_option
def watch(
    connection: ToolConnection,
    groups: tuple[str, ...],
    interval: float,
    samples: int | None,
    storage: OffsetStorage,
    seconds: float | None,
    every: float | None,
    as_json: bool,
) -> None:
    """Watch lag, rates, owners and rebalances until Ctrl-C.

    On a terminal a table is kept up to date. Elsewhere each change is a line: a member that joined or left, another
    owner, another status, a group that becomes unreadable or readable again; with --every also the lag from time to
    time. With --json each line is a JSON object.
    The exit code is 3 if groups, offsets or log ends could not be read at the end.
    """
    from zkconsumer.operate.groups.rules.lagstatus import samples_for

    with (
        contextlib.suppress(KeyboardInterrupt),
        _open_sampler(connection, samples or samples_for(interval), storage, interval) as sampler,
    ):
        has_table = sys.stdout.isatty() and not as_json
        view = _LiveTable(one_group=len(groups) == 1) if has_table else _ChangeLines(as_json, every)
        with contextlib.suppress(KeyboardInterrupt), view.showing():
            _watch(sampler, view, groups, interval, math.inf if seconds is None else time.monotonic() + seconds)
        end_reading((), found=view.has_failed or bool(sampler.missing(groups)))


def _watch(sampler: LagSampler, view: _View, groups: tuple[str, ...], interval: float, ends: float) -> None:
    """Show a sample after the other until a time."""
    while True:
        began = time.monotonic()
        try:
            sampler.sample(groups or sampler.groups(), began)
            view.show(sampler)
        except TRANSIENT as error:  # the session connects again, as another one if need be
            view.fail(error)
        following = began + interval
        time.sleep(max(0.0, min(following, ends) - time.monotonic()))
        if following > ends:
            return


class _View(ABC):
    """Notes what changed between samples.

    Attributes:
        has_failed: True if the last sample could not be taken.
    """

    def __init__(self) -> None:
        from zkconsumer.operate.groups.reportedproblems import ReportedProblems

        self._moments: dict[str, GroupMoment] = {}
        self._rebalances: dict[str, int] = {}
        self._reported = ReportedProblems()
        self._unread: Mapping[str, str] = {}
        self._observed: Mapping[str, ObservedGroup] = {}
        self.has_failed = False

    def showing(self) -> AbstractContextManager[object]:
        """For the time in which samples are shown."""
        return contextlib.nullcontext()

    def show(self, sampler: LagSampler) -> None:
        """Show a sample."""
        from zkconsumer.operate.groups.groupchanges import GONE, group_began, group_changes

        self.has_failed = False
        moments = sampler.moments()
        changes = self._reading_changes(sampler.unread, self._moments.keys() & moments.keys())
        for group, moment in moments.items():
            former = self._moments.get(group)
            new_changes = [group_began(moment)] if former is None else list(group_changes(former, moment))
            changes += [(group, change) for change in new_changes]
            self._rebalances[group] = self._rebalances.get(group, 0) + any(
                change.kind == "owner" for change in new_changes
            )
        changes += [(group, GONE) for group in self._moments if group not in moments]
        self._moments, self._observed = moments, sampler.observed
        self._print(changes)
        warn(self._reported.after((*sampler.problems, *sampler.missing_topics)).new)

    def fail(self, error: ZkConsumerError) -> None:
        """Show that a sample could not be taken."""
        self.has_failed = True
        self._print(self._reading_changes({**dict.fromkeys(self._moments, str(error)), **self._unread}, ()))
        warn(self._reported.after([str(error)]).new)

    def _reading_changes(self, unread: Mapping[str, str], watched: Container[str]) -> list[tuple[str, Change]]:
        from zkconsumer.operate.groups.groupchanges import reading_changes

        former, self._unread = self._unread, unread
        return list(reading_changes(former, unread, watched))

    @abstractmethod
    def _print(self, changes: Sequence[tuple[str, Change]]) -> None:
        """Print what has changed since the last sample, by group."""


class _ChangeLines(_View):
    """A line, or a JSON object, for each change, and with ``every`` after so many seconds for each group."""

    def __init__(self, as_json: bool, every: float | None = None) -> None:
        super().__init__()
        self._as_json = as_json
        self._every = every
        self._printed_at = time.monotonic()

    def _print(self, changes: Sequence[tuple[str, Change]]) -> None:
        if self._every is not None and time.monotonic() - self._printed_at >= self._every:
            from zkconsumer.operate.groups.groupchanges import group_lag

            self._printed_at = time.monotonic()
            changes = [*changes, *((group, group_lag(moment)) for group, moment in self._moments.items())]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for group, change in changes:
            if self._as_json:
                click.echo(json.dumps({"at": now, "group": group, **change._asdict()}))
            else:
                click.echo(printable(f"{now} {group}: {change}"))
        sys.stdout.flush()


class _LiveTable(_View):
    """A table of the groups, or of the partitions of one group, that rich keeps up to date."""

    def __init__(self, *, one_group: bool) -> None:
        super().__init__()
        self._one_group = one_group
        self._live: Live | None = None

    def showing(self) -> AbstractContextManager[object]:
        """See :meth:`_View.showing`."""
        from rich.live import Live

        self._live = Live(auto_refresh=False)
        return self._live

    def _print(self, changes: Sequence[tuple[str, Change]]) -> None:  # noqa: ARG002 - the table counts rebalances
        from zkconsumer.cli.grouptables import client_names, live_table

        assert self._live is not None
        shown = self._observed if self._one_group else ()
        clients = {group: client_names(self._observed[group].describe_members()) for group in shown}
        table = live_table(self._moments, self._rebalances, one_group=self._one_group, clients=clients)
        self._live.update(table, refresh=True)
