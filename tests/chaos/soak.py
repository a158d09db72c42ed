"""A soak: a group runs for hours while a random fault comes each minute; nothing may be lost, and nothing may grow."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from tests.chaos.campaign import PROTOCOLS, version_for
from tests.chaos.feed import LedgerFeed
from tests.chaos.group import Group
from tests.chaos.growth import Usage, growth_per_hour, read_usage
from tests.chaos.injector import Injector
from tests.chaos.kinds import OF_BROKERS, OURS, SESSION_S
from tests.chaos.members import OurMember
from tests.chaos.rows import ROWS
from tests.chaos.schedule import Fault, Schedule
from tests.chaos.servers import Servers
from tests.chaos.store import code_identity
from tests.chaos.trial import await_deliveries
from tests.chaos.verdicts import Evidence, Verdict
from zkconsumer.testing.checker import check

SURVIVOR: Final = 0
"""The member that is never ended, whose growth is measured; it is stopped, cut off and expired like the others."""

GROWTH: Final = 0.05
"""What nothing may grow by in an hour."""

_PER_SECOND: Final = 40
_FAULT_EVERY_S: Final = 60.0
_SAMPLE_EVERY_S: Final = 5.0
_JUDGED_H: Final = 0.5
"""A run that is shorter does not show growth: one page of memory would be per cents an hour."""


@dataclass(frozen=True, slots=True)
class Soak:
    """The result of a soak.

    Attributes:
        protocol: ``group.protocol`` of the members.
        hours: that it took.
        seed: of the faults.
        commit, product: see :class:`~tests.chaos.store.Trial`.
        faults: how many were injected.
        failures: why it failed, empty if it passed.
        figures: of the ledger.
        growth: by figure, the part of its mean by which it grows in an hour.
    """

    protocol: str
    hours: float
    seed: int
    commit: str
    product: str
    faults: int
    failures: tuple[str, ...]
    figures: Mapping[str, float | None]
    growth: Mapping[str, float]


def next_fault(chance: random.Random, protocol: str) -> Fault:
    """A random fault, of which the group recovers within a minute."""
    victim, anyone = chance.choice([1, 2]), chance.randrange(3)
    way = "fetching" if protocol in OF_BROKERS else "network"
    seconds = chance.uniform(0.2, 2.5) * SESSION_S
    faults = [
        Fault("kill", 0.0, victim, chance.uniform(0.5, 4.0)),
        Fault("leave", 0.0, victim, chance.uniform(0.5, 4.0)),
        Fault("pause", 0.0, anyone, seconds),
        Fault("expire", 0.0, anyone),
        Fault(way, 0.0, anyone, seconds, chance.choice(["cut", "refuse"])),
        Fault("fetching", 0.0, anyone, chance.uniform(0.5, 4.0), chance.choice(["half-close", "delay", "throttle"])),
        Fault("broker", 0.0, mode=chance.choice(["clean", "hard"])),
    ]
    if protocol not in OF_BROKERS:
        faults.append(Fault("servers", 0.0, seconds=chance.uniform(0.2, 1.5) * SESSION_S))
    return chance.choice(faults)


def run_soak(protocol: str, hours: float, seed: int, directory: Path) -> tuple[Soak, list[Usage], list[float]]:
    """Run it; files of a soak that failed stay in the directory.

    Returns:
        The result, the usage of the survivor over time, and when faults began, in seconds.
    """
    ours = OURS if protocol == "zookeeper" else protocol
    row, chance = ROWS["MIX"], random.Random(f"soak {protocol} {seed}")
    storage = "kafka" if ours in OF_BROKERS else "zookeeper"
    servers = Servers(directory, version_for(row, ours))
    commit, product = code_identity()
    failures: list[str] = []
    faults: list[float] = []
    try:
        name = f"soak-{protocol}-{seed}"
        address = servers.box.bootstrap_servers
        with (
            Group(servers, name, storage=storage) as group,
            LedgerFeed(address, name, group.ledger, backlog=500, per_second=_PER_SECOND) as feed,
        ):
            group.join((ours,) * 3)
            began = time.monotonic()
            with _sampling(group, began) as samples:
                while (elapsed := time.monotonic() - began) < 3600 * hours:
                    fault = next_fault(chance, ours)
                    faults.append(elapsed)
                    try:
                        Injector(group, feed).run(Schedule((ours,) * 3, (fault,)))
                        group.settle()
                    except AssertionError as error:
                        failures.append(f"after {elapsed:.0f} s, {fault}: {error}")
                        break
                    _show(elapsed, hours, len(faults), fault, group)
                    time.sleep(max(0.0, began + len(faults) * _FAULT_EVERY_S - time.monotonic()))
                feed.stop()
                await_deliveries(group)
            group.leave_all()
            ledger = group.whole_ledger()
            verdict = row.verdict(
                Evidence(ledger, check(ledger), frozenset(one.owner for one in group.everyone), SESSION_S, False, ours)
            )
        growth = growth_per_hour(samples)
        failures += _failures(verdict, growth, hours)
        if not failures:
            group.remove_files()
    finally:
        servers.close()
    took = round((time.monotonic() - began) / 3600, 3)
    result = Soak(protocol, took, seed, commit, product, len(faults), tuple(failures), verdict.figures, growth)
    return result, samples, faults


def _failures(verdict: Verdict, growth: Mapping[str, float], hours: float) -> list[str]:
    failures = [] if verdict.disturbance else list(verdict.failures)
    if hours >= _JUDGED_H:
        failures += (f"{name} grows by {part:.1%} an hour" for name, part in growth.items() if part >= GROWTH)
    return failures


@contextmanager
def _sampling(group: Group, began: float) -> Iterator[list[Usage]]:
    """The usage of the survivor, sampled by a thread until the end of the block."""
    samples: list[Usage] = []
    ended = threading.Event()
    survivor = group.members[SURVIVOR]
    assert isinstance(survivor, OurMember)
    log = survivor.directory / f"{survivor.name}.log"

    def sample() -> None:
        while not ended.wait(_SAMPLE_EVERY_S):
            watches = _watches(group)
            usage = read_usage(survivor.pid, log, watches, time.monotonic() - began)
            if usage is not None:
                samples.append(usage)

    thread = threading.Thread(target=sample, name="usage")
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def _watches(group: Group) -> int:
    answer = group.servers.box.zookeeper.ask("mntr")
    return next((int(line.split()[1]) for line in answer.splitlines() if line.startswith("zk_watch_count")), 0)


def _show(elapsed: float, hours: float, number: int, fault: Fault, group: Group) -> None:
    mode = f" ({fault.mode})" if fault.mode else ""
    click.echo(
        f"{elapsed / 60:5.1f} of {60 * hours:.0f} min, fault {number}: {fault.kind}{mode}, "
        f"{group.delivered() // 1024} KiB of ledger"
    )


def write_report(result: Soak, samples: Sequence[Usage], faults: Sequence[float], directory: Path) -> Path:
    """Write ``soak-PROTOCOL-SEED.json`` and a picture beside it; the path of the first."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"soak-{result.protocol}-{result.seed}.json"
    document = {**asdict(result), "samples": [one._asdict() for one in samples], "fault_times": list(faults)}
    file.write_text(json.dumps(document), encoding="utf-8")
    title = f"The member that is never ended; grey: faults (seed {result.seed}, {result.hours:g} h)"
    draw_usage({result.protocol: samples}, faults, file.with_suffix(".png"), title)
    return file


def draw_usage(samples: Mapping[str, Sequence[Usage]], faults: Sequence[float], picture: Path, title: str) -> None:
    """Draw the usage of a member over time, a line for each name; faults, in seconds, are grey lines."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    series: Mapping[str, Callable[[Usage], float]] = {
        "memory (MiB)": lambda one: one.memory / 2**20,
        "threads": lambda one: one.threads,
        "descriptors": lambda one: one.descriptors,
        "watches": lambda one: one.watches,
        "log (KiB)": lambda one: one.log / 1024,
    }
    figure, axes = pyplot.subplots(len(series), 1, sharex=True, figsize=(9, 10))
    for axis, (name, value) in zip(axes, series.items(), strict=True):
        for label, usages in samples.items():
            axis.plot([one.at / 60 for one in usages], [value(one) for one in usages], linewidth=1, label=label)
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
        for at in faults:
            axis.axvline(at / 60, color="0.9", linewidth=0.6, zorder=0)
    axes[0].legend(loc="lower right", ncols=len(samples), fontsize="small")
    axes[0].set_title(title)
    axes[-1].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(picture)
    pyplot.close(figure)


def soak_lines(result: Soak) -> Iterator[str]:
    """The report in words."""
    yield f"{result.protocol}, {result.hours:g} h, seed {result.seed}, {result.faults} faults: " + (
        "FAILED" if result.failures else "passed"
    )
    yield "  " + ", ".join(f"{name} {value:g}" for name, value in result.figures.items() if value is not None)
    yield "  growth in an hour: " + ", ".join(f"{name} {part:+.1%}" for name, part in result.growth.items())
    yield from (f"  {failure}" for failure in result.failures)


PROTOCOL_NAMES: Final = tuple(PROTOCOLS)
