"""All trials that docs/reliability.md requires: which are missing, and running them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import click
from confluent_kafka import KafkaException

from tests.chaos.everyrow import EVERY_ROW
from tests.chaos.kinds import ASSIGNED_BY_BROKERS, COORDINATED, IN_BROKERS, OURS
from tests.chaos.rows import Row
from tests.chaos.servers import Servers
from tests.chaos.store import Trial, TrialStore, code_identity
from tests.chaos.trial import run_undisturbed_trial
from zkconsumer.errors import SandboxError

PROTOCOLS: Final[Mapping[str, str]] = {
    "zookeeper": "",
    COORDINATED: "+coordinator",
    IN_BROKERS: "+brokers",
    ASSIGNED_BY_BROKERS: "+assigned",
}
"""By ``group.protocol``, what a stored trial has of its members."""

_COMMON: Final = ("R1", "R2", "R3", "R4", "R7-clean", "R7-hard", "R8")
_ROUND: Final = 5
"""Trials of each kind in a row."""


class Wanted(NamedTuple):
    """Trials of one row with one kind of members.

    Attributes:
        protocol: ``group.protocol`` of our members.
        jvm: True if one of the members is a JVM.
        trials: how many are required.
        alone: True if a trial needs the whole machine, so that a campaign of several processes leaves it out.
    """

    row: str
    protocol: str
    jvm: bool
    trials: int
    alone: bool = False

    @property
    def members(self) -> str:
        """What a stored trial has of its members."""
        return PROTOCOLS[self.protocol] + ("+jvm" if self.jvm else "")

    @property
    def ours(self) -> str:
        """The kind of our members."""
        return OURS if self.protocol == "zookeeper" else self.protocol

    @property
    def servers(self) -> tuple[str, int, int]:
        """Release of the brokers, number of brokers, number of ZooKeeper servers."""
        row = EVERY_ROW[self.row]
        return version_for(row, self.ours), row.brokers, row.zookeepers


def required() -> list[Wanted]:
    """The trials that are required."""
    wanted = [Wanted(row, "zookeeper", jvm, trials) for row in _COMMON for jvm, trials in ((False, 60), (True, 40))]
    wanted += [Wanted(row, COORDINATED, jvm, 15) for row in _COMMON for jvm in (False, True)]
    wanted += [Wanted(row, protocol, False, 30) for row in _COMMON for protocol in (IN_BROKERS, ASSIGNED_BY_BROKERS)]
    wanted += [Wanted("R5", protocol, False, 30) for protocol in PROTOCOLS]
    wanted += [Wanted("R5-ensemble", "zookeeper", False, 30), Wanted("R5-ensemble", COORDINATED, False, 10)]
    wanted += [Wanted("R6", "zookeeper", False, 20), Wanted("R6", "zookeeper", True, 20)]
    wanted += [Wanted("R6", protocol, False, 10) for protocol in (COORDINATED, IN_BROKERS, ASSIGNED_BY_BROKERS)]
    wanted += [Wanted("MIX", "zookeeper", False, 10), Wanted("MIX", "zookeeper", True, 10)]
    wanted += [Wanted("MIX", COORDINATED, False, 10), Wanted("MIX", COORDINATED, True, 10)]
    wanted += [Wanted("SEQ", protocol, False, 20 if protocol == "zookeeper" else 10) for protocol in PROTOCOLS]
    wanted += [Wanted("DONE", protocol, False, 10) for protocol in PROTOCOLS]
    wanted += [Wanted("KAFKA", IN_BROKERS, False, 30), Wanted("CONSUMER", ASSIGNED_BY_BROKERS, False, 30)]
    wanted += [Wanted("R9", protocol, False, 5, alone=True) for protocol in PROTOCOLS]
    wanted.append(Wanted("R11", "zookeeper", False, 50))
    return wanted


def version_for(row: Row, ours: str) -> str:
    """The release of the broker for members of a kind."""
    return EVERY_ROW["CONSUMER"].kafka_version if ours == ASSIGNED_BY_BROKERS else row.kafka_version


def servers_for(directory: Path, row: Row, ours: str) -> Servers:
    """The servers for trials of a row with members of a kind."""
    return Servers(directory, version_for(row, ours), brokers=row.brokers, zookeepers=row.zookeepers)


def missing(done: Collection[tuple[str, str, int]]) -> Iterator[tuple[Wanted, int]]:
    """What is to be run, with its seed.

    First some of each kind, then the next ones, so that a run that ends early has all. Those that need the same servers
    follow each other: servers that wait cost a tenth of a processor each.

    Args:
        done: row, members and seed of the trials that count.
    """
    wanted = sorted(required(), key=lambda one: one.servers)
    for first in range(1, max(one.trials for one in wanted) + 1, _ROUND):
        for one in wanted:
            for seed in range(first, min(first + _ROUND, one.trials + 1)):
                if (one.row, one.members, seed) not in done:
                    yield one, seed


class _CurrentServers:
    """The servers of the present trials; they end before those of the next ones are started."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started = 0
        self._what: tuple[str, int, int] | None = None
        self._servers: Servers | None = None

    def for_trials(self, wanted: Wanted) -> Servers:
        """Those that run, or others; raises SandboxError if one does not start."""
        if self._servers is None or self._what != wanted.servers:
            self.close()
            self._started += 1
            made = servers_for(self._directory / str(self._started), EVERY_ROW[wanted.row], wanted.ours)
            self._servers, self._what = made, wanted.servers
        return self._servers

    def close(self) -> None:
        """End them."""
        servers, self._servers = self._servers, None
        if servers is not None:
            servers.close()


def run_campaign(store: TrialStore, published: Collection[Trial], minutes: float, part: int, parts: int) -> list[Trial]:
    """Run what is missing, and store it.

    Args:
        store: of the trials.
        published: trials that count, too, if they are of this code.
        minutes: begin no further trial after this time.
        part: from 0 on, which part of the work.
        parts: into how many it is divided; more than one leave out the trials that need the whole machine.

    Returns:
        The trials that failed.
    """
    commit, product = code_identity()
    done = {(one.row, one.members, one.seed) for one in (*published, *store) if one.product == product}
    began, failed = time.monotonic(), []
    directory = Path(tempfile.mkdtemp(prefix="zkconsumer-chaos-"))
    servers = _CurrentServers(directory)
    try:
        for number, (wanted, seed) in enumerate(missing(done)):
            if number % parts != part or (wanted.alone and parts > 1):
                continue
            if time.monotonic() - began > 60 * minutes:
                break
            row, text = EVERY_ROW[wanted.row], f"{wanted.row}{wanted.members} seed {seed}"
            schedule = row.schedule(seed, jvm=wanted.jvm, ours=wanted.ours)
            try:
                verdict = run_undisturbed_trial(servers.for_trials(wanted), row, schedule)
            except (SandboxError, KafkaException) as error:  # the fault of the trial before has left a broker unwell
                click.echo(f"{text}: disturbed, {error}; not stored")
                servers.close()
                continue
            if verdict.failures and verdict.disturbance:
                click.echo(f"{text}: disturbed, {verdict.disturbance}; not stored")
                continue
            failures = tuple(verdict.failures)
            trial = Trial(
                row.name, wanted.members, seed, commit, product, schedule.to_json(), failures, verdict.figures
            )
            store.add(trial)
            click.echo(f"{text}: {'FAILED' if failures else 'passed'}")
            if failures:
                failed.append(trial)
                click.echo("\n".join(f"  {one}" for one in failures) + f"\n  --schedule '{schedule.to_json()}'")
    finally:
        servers.close()
        if failed:
            click.echo(f"ledgers and logs: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return failed
