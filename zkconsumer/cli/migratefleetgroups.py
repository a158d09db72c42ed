"""The groups that a command of ``zkconsumer migrate fleet`` is about, and how their servers are reached."""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.connection import ToolConnection, tool_options
from zkconsumer.cli.progress import progress
from zkconsumer.cli.writing import connected

if TYPE_CHECKING:
    from zkconsumer.operate.migrate.fleet import GroupOutcome
    from zkconsumer.operate.migrate.fleetfiles import Job
    from zkconsumer.operate.migrate.fleetsteps import Step
    from zkconsumer.operate.migrate.rules.fleetfacts import Verb
    from zkconsumer.operate.migrate.rules.fleetfile import FleetFile

_SINGLE = re.compile(
    "`(?:zkconsumer )?migrate (plan|run|verify|rollback|reverse|mirror)(?: --from zookeeper:[^`]* --to kafka:[^`]*)?`"
)
"""A command that a guard names, whose plan a fleet knows."""

DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))


def fleet_options(function: Callable[..., None]) -> Callable[..., None]:
    """The groups that a command is about, as :class:`ChosenGroups` in place of its options."""

    @DIRECTORY
    @tool_options
    @click.option(
        "--wave", type=click.IntRange(0), metavar="N", help="The groups of this wave; 0 only for `fleet status`."
    )
    @click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; repeatable.")
    @click.option("--cluster", "clusters", multiple=True, metavar="NAME", help="Only this cluster; repeatable.")
    @click.option("--workers", type=click.IntRange(1, 32), default=4, show_default=True, help="Groups at a time.")
    @functools.wraps(function)
    def command(connection: ToolConnection, **options: Any) -> None:
        fields = dataclasses.fields(ChosenGroups)
        common = {field.name: options.pop(field.name) for field in fields if field.name in options}
        function(ChosenGroups(connection, **common), **options)

    return command


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenGroups:
    """The options of a command about groups of a fleet."""

    connection: ToolConnection
    directory: Path
    wave: int | None
    groups: tuple[str, ...]
    clusters: tuple[str, ...]
    workers: int

    def fleets(self) -> list[FleetFile]:
        """The clusters that are meant."""
        from zkconsumer.operate.migrate.fleetfiles import read_fleets

        return read_fleets(self.directory, self.clusters)

    def jobs(self, *, required: bool = True) -> dict[str, list[Job]]:
        """The groups that are meant, by cluster; all of them without ``--wave`` and ``--group`` unless ``required``."""
        from zkconsumer.operate.migrate.fleetfiles import Job, files_of
        from zkconsumer.operate.migrate.rules.fleetfile import groups_of

        fleets = self.fleets()
        if required and self.wave == 0 and not self.groups:
            raise click.UsageError("groups of wave 0 are meant only with --group GROUP; `fleet status` shows them")
        if self.wave is None and not self.groups:
            if required:
                raise click.UsageError("give --wave N, or --group GROUP")
            chosen = [(file, group) for file in fleets for group in file.groups]
        else:
            chosen = groups_of(fleets, self.wave, self.groups)
        jobs: dict[str, list[Job]] = {}
        for file, group in chosen:
            jobs.setdefault(file.name, []).append(Job(file, group, files_of(self.directory, file, group)))
        if len(jobs) > 1 and (self.connection.named_zookeeper() or self.connection.named_brokers()):
            raise click.UsageError(
                f"servers are given for one cluster, and {', '.join(jobs)} are meant; give --cluster"
            )
        return jobs

    def connection_of(self, file: FleetFile) -> ToolConnection:
        """The servers of a cluster: those of the command, else those of its file."""
        given = self.connection
        return dataclasses.replace(
            given,
            zookeeper=given.named_zookeeper() or file.zookeeper or None,
            bootstrap_servers=given.named_brokers() or file.bootstrap_servers or None,
            config_file=given.config_file or (self.directory / file.config if file.config else None),
        )

    def command(self, verb: str, *options: str) -> str:
        """Another command about the same groups, to be pasted."""
        words = ["zkconsumer", "migrate", "fleet", verb, str(self.directory)]
        words += [] if self.wave is None else ["--wave", str(self.wave)]
        for option, names in (("--group", self.groups), ("--cluster", self.clusters)):
            words += [word for name in names for word in (option, name)]
        return self.connection.complete(shlex.join([*words, *options]))

    def pasteable(self, outcome: GroupOutcome, connection: ToolConnection) -> GroupOutcome:
        """Its reasons with commands of the fleet in place of those of a single plan, and with servers."""
        own = dataclasses.replace(self, wave=None, groups=(outcome.group,), clusters=(outcome.cluster,))
        reasons = (_SINGLE.sub(lambda verb: f"`{own.command(verb[1])}`", reason) for reason in outcome.reasons)
        return outcome._replace(reasons=tuple(connection.completed(reasons)))

    def each(
        self,
        verb: Verb,
        step: Step,
        what: str,
        *,
        reversed_: bool = False,
        show: Callable[[GroupOutcome], None] = lambda _outcome: None,
    ) -> list[GroupOutcome]:
        """Do a step for all groups whose state asks for it, with a progress bar; ``show`` is called as each ends."""
        from zkconsumer.operate.migrate.fleet import run_wave

        by_cluster = self.jobs()
        total = sum(map(len, by_cluster.values()))
        outcomes: list[GroupOutcome] = []
        with progress(what) as advance:
            for jobs in by_cluster.values():
                connection = self.connection_of(jobs[0].fleet)
                connection.config()  # what is wrong with the options is raised here, and not by a thread
                connect = functools.partial(connected, connection)
                for outcome in run_wave(jobs, connect, verb, step, workers=self.workers, reversed_=reversed_):
                    outcomes.append(self.pasteable(outcome, connection))
                    show(outcomes[-1])
                    advance(len(outcomes), total)
        order = {job.name: at for at, job in enumerate(job for jobs in by_cluster.values() for job in jobs)}
        return sorted(outcomes, key=lambda outcome: order[outcome[:2]])
