"""``python -m benchmarks``: benchmarks of this consumer and its peers, in one run."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from zkconsumer.cli.extras import require_extra
from zkconsumer.cli.main import SETTINGS, ProcessCommand, main
from zkconsumer.cli.sandbox import kafka_version_option, require_kafka_version

if TYPE_CHECKING:
    from benchmarks.contest import Contest
    from benchmarks.machine import Machine
    from benchmarks.stored import Row
    from zkconsumer.sandbox.progress import Progress

_WIDTH_ELSEWHERE = 160
_STORE = "benchmarks.store"
"""Key of the name below which a context keeps the result; None or absent if it does not."""

F = TypeVar("F", bound=Callable[..., Any])


class _Benchmarks(ProcessCommand, click.Group):
    """The group of all benchmarks."""


@click.group(cls=_Benchmarks, invoke_without_command=True, context_settings=SETTINGS)
@click.pass_context
def bench(context: click.Context) -> None:
    """Measure this consumer and its peers on servers started for the run, and print medians and ratios.

    Without a subcommand: fetch. Results depend on the machine and its load: compare only results of the same run.
    """
    if context.invoked_subcommand is None:
        context.invoke(fetch)


_rounds = click.option(
    "--rounds", type=click.IntRange(1), default=5, show_default=True, help="Measurements of each contestant."
)
_beside = click.option(
    "--beside",
    multiple=True,
    metavar="PYTHON",
    help="Interpreter of another environment with zkconsumer, such as an older release; may be repeated.",
)
_only = click.option(
    "--only",
    multiple=True,
    metavar="TEXT",
    help="Contestants that take part: those whose name contains the text; may be repeated. Default: all.",
)


def _keep_name(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    """Check the name before the run, which may take hours, and keep it for :func:`_store_result`."""
    if name is not None and not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise click.BadParameter("a name has small letters, digits and hyphens", context, parameter)
    context.meta[_STORE] = name


_store = click.option(
    "--store",
    metavar="NAME",
    expose_value=False,
    callback=_keep_name,
    help="Also write the result to benchmarks/results/benchmarks/NAME.json; `make docs` renews the tables of it.",
)
_markdown = click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown instead of a table.")
_json = click.option("--json", "as_json", is_flag=True, help="Print everything that was measured as JSON.")


def _taking_part(contestants: Sequence[str], only: Sequence[str]) -> list[str]:
    """The contestants that ``--only`` names; raises BadParameter if there are none."""
    named = [name for name in contestants if not only or any(text in name for text in only)]
    if not named:
        raise click.BadParameter(f"no contestant among {', '.join(contestants)}", param_hint="--only")
    return named


def _partitions(what_for: str) -> Callable[[F], F]:
    return click.option(
        "--partitions",
        type=click.IntRange(1, 20_000),
        multiple=True,
        default=(1000, 5000),
        show_default=True,
        help=f"Partitions of a topic {what_for}; may be repeated.",
    )


@bench.command()
@_rounds
@click.option(
    "--data",
    "names",
    multiple=True,
    default=("batches-75",),
    show_default=True,
    metavar="NAME",
    help="What to read: a data set, or 'all'; may be repeated. --list prints the names.",
)
@click.option("--list", "list_names", is_flag=True, help="Print the data sets and end.")
@_only
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=2.2, show_default=True, help="How long each contestant reads."
)
@click.option(
    "--scale", type=click.FloatRange(0.001, 10), default=1.0, show_default=True, help="Factor of the data sets' sizes."
)
@_beside
@_markdown
@_json
@_store
def fetch(
    rounds: int,
    names: tuple[str, ...],
    list_names: bool,
    only: tuple[str, ...],
    seconds: float,
    scale: float,
    beside: tuple[str, ...],
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Read topics, compared with the JVM consumer, the installed clients and a plain read of the same bytes.

    A data set takes up to 5 GB of disk in the directory for temporary files, and as much free memory for the page
    cache.
    """
    from benchmarks.datasets import DATA_SETS
    from benchmarks.fetch import CONTESTANTS, OTHERS, FetchSizes, run_fetch_contests

    known = [*DATA_SETS, *OTHERS]
    if list_names:
        for name in known:
            click.echo(f"{name:20}  {DATA_SETS[name] if name in DATA_SETS else OTHERS[name].__doc__}".rstrip())
        return
    wanted = known if "all" in names else list(names)
    if unknown := [name for name in wanted if name not in known]:
        raise click.BadParameter(f"no data set is called {', '.join(unknown)}; --list prints them", param_hint="--data")
    taking_part = _taking_part(CONTESTANTS, only)
    sizes = FetchSizes(rounds, seconds, wanted, taking_part, scale=scale, beside=beside)
    _run(partial(run_fetch_contests, sizes), as_markdown=as_markdown, as_json=as_json)


@bench.command()
@_rounds
@_partitions("to join")
@click.option("--members", type=click.IntRange(2, 200), default=50, show_default=True, help="Members that settle.")
@click.option(
    "--topics",
    type=click.IntRange(0, 20_000),
    default=2000,
    show_default=True,
    help="Topics of one partition to join by a filter; 0 skips that measurement.",
)
@_markdown
@_json
@_store
def group(
    rounds: int, partitions: tuple[int, ...], members: int, topics: int, as_markdown: bool, as_json: bool
) -> None:
    """Join, settle and commit, compared with the JVM consumer: time and ZooKeeper requests."""
    from benchmarks.group import GroupSizes, run_group_contests

    sizes = GroupSizes(rounds, partitions, members, topics)
    _run(partial(run_group_contests, sizes), as_markdown=as_markdown, as_json=as_json)


@bench.command()
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True, help="Measurements of each kind.")
@click.option(
    "--members",
    type=click.IntRange(10, 50_000),
    multiple=True,
    default=(50, 500, 5000),
    show_default=True,
    help="Members of a group that one of them leaves; may be repeated.",
)
@click.option(
    "--cold",
    type=click.IntRange(10, 50_000),
    multiple=True,
    default=(500, 5000),
    show_default=True,
    help="Members that start together, all on the same partitions, two for each of the most; may be repeated.",
)
@click.option("--sessions", type=click.IntRange(2), default=50, show_default=True, help="Sessions that members share.")
@_markdown
@_json
@_store
def coordinator(
    rounds: int, members: tuple[int, ...], cold: tuple[int, ...], sessions: int, as_markdown: bool, as_json: bool
) -> None:
    """Groups with a coordinator: cold start, a member leaves, the leader ends, the assignor.

    All but three members of a group share sessions and have no fetchers: 5,000 whole ones would be 25,000 threads.
    """
    from benchmarks.coordinator import CoordinatorSizes, run_coordinator_contests

    sizes = CoordinatorSizes(rounds, members, sessions, min(500, max(members)), cold)
    _run(partial(run_coordinator_contests, sizes), as_markdown=as_markdown, as_json=as_json)


@bench.command()
@_rounds
@click.option(
    "--members",
    type=click.IntRange(2, 500),
    multiple=True,
    default=(10, 50),
    show_default=True,
    help="Members of a group; may be repeated.",
)
@click.option(
    "--partitions", type=click.IntRange(3, 5000), default=100, show_default=True, help="Partitions of the topic."
)
@_only
@click.option(
    "--heartbeat-ms",
    type=click.IntRange(100, 15_000),
    default=3000,
    show_default=True,
    help="heartbeat.interval.ms of all members.",
)
@click.option(
    "--append-ms",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Time between two appends to a partition.",
)
@click.option(
    "--protocol",
    type=click.Choice(["kafka", "consumer"]),
    default="kafka",
    show_default=True,
    help="group.protocol of the members; consumer needs --kafka-version 4.0 or later.",
)
@kafka_version_option
@_markdown
@_json
@_store
def brokergroup(
    rounds: int,
    members: tuple[int, ...],
    partitions: int,
    only: tuple[str, ...],
    heartbeat_ms: int,
    append_ms: int,
    protocol: Literal["kafka", "consumer"],
    kafka_version: str | None,
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Rebalances of groups that brokers coordinate, compared with other clients.

    Members join together, one more joins, and one leaves, while a producer appends to all partitions. Measured are the
    time until all partitions have an owner, the time for which those that stay are not read, the commits that are
    accepted meanwhile, and the requests.
    """
    from benchmarks.brokergroup import CONTESTANTS, BrokerGroupSizes, run_broker_group_contests
    from benchmarks.groupclients import CLASSIC_ONLY

    able = [name for name in CONTESTANTS if protocol == "kafka" or name not in CLASSIC_ONLY]
    taking_part = _taking_part(able, only)
    if partitions <= max(members):
        raise click.BadParameter("there must be more partitions than members", param_hint="--partitions")
    version = require_kafka_version(kafka_version)
    sizes = BrokerGroupSizes(
        rounds, members, partitions, taking_part, heartbeat_ms, append_ms, kafka_version=version, protocol=protocol
    )
    _run(partial(run_broker_group_contests, sizes), as_markdown=as_markdown, as_json=as_json)


@bench.command()
@_rounds
@click.option(
    "--records",
    type=click.IntRange(10_000),
    default=3_000_000,
    show_default=True,
    help="Records of 100 bytes to read, and a sixth as many of 1 KiB.",
)
@_partitions("whose batches are planned")
@click.option(
    "--workers", type=click.IntRange(0), default=0, help="Measure streams alone, on a cluster of so many workers."
)
@click.option("--long", "long_stream", is_flag=True, help="Also stream ten times the records, on a few GB of disk.")
@_markdown
@_json
@_store
def spark(
    rounds: int,
    records: int,
    partitions: tuple[int, ...],
    workers: int,
    long_stream: bool,
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Read with the Spark source, compared with Spark's own Kafka source and a source that reads nothing."""
    from benchmarks.spark import SparkSizes, run_spark_contests

    sizes = SparkSizes(rounds, records, partitions, long_stream, workers)
    _run(partial(run_spark_contests, sizes), as_markdown=as_markdown, as_json=as_json)


@bench.command()
@click.option("--partitions", type=click.IntRange(1, 20_000), default=1000, show_default=True, help="With data.")
@click.option("--brokers", type=click.IntRange(1, 200), default=20, show_default=True, help="Simulated brokers.")
@click.option("--executors", type=click.IntRange(1, 1000), default=100, show_default=True, help="Light processes.")
@click.option("--batches", type=click.IntRange(2), default=6, show_default=True, help="Micro-batches.")
@click.option("--idle", type=click.FloatRange(0.1), default=15, show_default=True, help="Seconds of idle connections.")
@_json
@_store
def sparkscale(partitions: int, brokers: int, executors: int, batches: int, idle: float, as_json: bool) -> None:
    """The Spark source at the size of a cluster: time of the driver, connections, memory of tasks."""
    from benchmarks.machine import Machine
    from benchmarks.sparkscale import Sizes, measure_scale
    from zkconsumer.sandbox.progress import Progress

    machine = Machine.this()
    figures = measure_scale(Sizes(partitions, brokers, executors, batches, idle), Progress())
    _store_figures({name: (figure, "") for name, figure in figures.items()}, machine)  # names end in their units
    if as_json:
        click.echo(json.dumps({"figures": figures, "machine": machine._asdict()}))
        return
    for name, figure in figures.items():
        click.echo(f"{name:<46} {figure:9.1f}")
    click.echo(str(machine))


@bench.command()
@click.option("--groups", type=click.IntRange(1, 2000), default=200, show_default=True, help="Groups to migrate.")
@click.option(
    "--partitions", type=click.IntRange(1, 500), default=50, show_default=True, help="Partitions of each group."
)
@click.option("--workers", type=click.IntRange(1, 32), default=4, show_default=True, help="Groups at a time.")
@_json
@_store
def fleet(groups: int, partitions: int, workers: int, as_json: bool) -> None:
    """Seconds of the commands of `zkconsumer migrate fleet` for many groups."""
    from benchmarks.fleet import FleetSizes, measure_fleet
    from benchmarks.machine import Machine
    from zkconsumer.sandbox.progress import Progress

    machine = Machine.this()
    seconds = measure_fleet(FleetSizes(groups, partitions, workers), Progress())
    _store_figures({name: (took, "s") for name, took in seconds.items()}, machine)
    if as_json:
        click.echo(json.dumps({"seconds": seconds, "machine": machine._asdict()}))
        return
    for name, took in seconds.items():
        click.echo(f"{name:<22} {took:6.1f} s")
    click.echo(str(machine))


@bench.command()
@click.option("--groups", type=click.IntRange(1, 2000), default=200, show_default=True, help="Groups to sample.")
@click.option(
    "--partitions", type=click.IntRange(1, 500), default=50, show_default=True, help="Partitions of each group."
)
@click.option(
    "--topics", type=click.IntRange(1, 500), default=20, show_default=True, help="Topics, which the groups share."
)
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="How long CPU is measured.")
@_json
@_store
def serve(groups: int, partitions: int, topics: int, seconds: float, as_json: bool) -> None:
    """CPU and memory of `zkconsumer serve` with many groups, a sample every 10 s and a scrape every 15 s.

    After that: how long the list of the page and a scrape take, as the first request after a sample, which evaluates
    all groups, and as a later one.
    """
    from benchmarks.machine import Machine
    from benchmarks.serve import ServeSizes, measure_serve
    from zkconsumer.sandbox.progress import Progress

    machine = Machine.this()
    cost = measure_serve(ServeSizes(groups, partitions, topics, seconds=seconds), Progress())
    _store_figures(cost.figures(), machine)
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(cost), "machine": machine._asdict()}))
    else:
        click.echo(f"CPU {cost.cores:.1%} of a core, memory {cost.memory_mib:.0f} MiB, a sample {cost.sample_s:.2f} s")
        click.echo(f"100 groups of the list: {cost.list_s:.3f} s after a sample, again {cost.list_again_s:.3f} s")
        click.echo(f"/metrics: {cost.metrics_s:.3f} s after a sample, again {cost.metrics_again_s:.3f} s")
        click.echo(str(machine))


@bench.command()
@_rounds
@click.option(
    "--partitions", type=click.IntRange(1, 20_000), default=1000, show_default=True, help="Partitions to describe."
)
@click.option(
    "--znodes", type=click.IntRange(1), default=10_000, show_default=True, help="Offsets to export, import and restore."
)
@click.option(
    "--large",
    type=click.IntRange(0, 20_000),
    default=5000,
    show_default=True,
    help="Partitions of a large topic to describe, to reset and to migrate; 0 skips that.",
)
@_markdown
@_json
@_store
def tools(rounds: int, partitions: int, znodes: int, large: int, as_markdown: bool, as_json: bool) -> None:
    """Commands on many partitions, compared with the tools of the JVM; each measurement is a whole process."""
    from benchmarks.tools import ToolSizes, run_tool_contests

    sizes = ToolSizes(rounds, partitions, znodes, large)
    _run(partial(run_tool_contests, sizes), as_markdown=as_markdown, as_json=as_json)


@bench.command()
@_rounds
@_beside
@_markdown
@_json
@_store
def start(rounds: int, beside: tuple[str, ...], as_markdown: bool, as_json: bool) -> None:
    """From the start of a process to its first record, and the memory of a member that then waits, beside clients."""
    from benchmarks.start import StartSizes, run_start_contests

    _run(partial(run_start_contests, StartSizes(rounds, beside)), as_markdown=as_markdown, as_json=as_json)


@bench.command()
@_rounds
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=5.0, show_default=True, help="How long each rate is measured."
)
@click.option(
    "--rate",
    "rates",
    type=click.IntRange(0, 1_000_000),
    multiple=True,
    default=(0, 10, 1000, 50_000),
    show_default=True,
    help="Records per second, 0 for an idle consumer; may be repeated.",
)
@_only
@_markdown
@_json
@_store
def latency(
    rounds: int, seconds: float, rates: tuple[int, ...], only: tuple[str, ...], as_markdown: bool, as_json: bool
) -> None:
    """One record from the producer to the handler, and the CPU time of a consumer at a rate, beside the other clients.

    It takes about 200 MB of disk for a round at 50,000 records/s.
    """
    from benchmarks.latency import CONTESTANTS, LatencySizes, run_latency_contests

    taking_part = _taking_part(CONTESTANTS, only)
    sizes = LatencySizes(rounds, seconds, sorted({*rates}), taking_part)
    _run(partial(run_latency_contests, sizes), as_markdown=as_markdown, as_json=as_json)


@bench.command()
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Cut-overs of each contestant.")
@click.option("--partitions", type=click.IntRange(1, 1000), default=10, show_default=True, help="Of the topic.")
@_markdown
@_json
@_store
def handover(rounds: int, partitions: int, as_markdown: bool, as_json: bool) -> None:
    """How long a group consumes nothing while it moves from ZooKeeper to Kafka, compared with the tools of the JVM.

    The gap is from the last record of the old member to the first one of the new consumer, which is librdkafka's.
    """
    from benchmarks.handover import HandoverSizes, run_handover_contest

    _run(partial(run_handover_contest, HandoverSizes(rounds, partitions)), as_markdown=as_markdown, as_json=as_json)


@bench.command(context_settings={"ignore_unknown_options": True})
@click.option("--round-trip-ms", type=click.FloatRange(0), default=5.0, show_default=True, help="Of each packet.")
@click.option("--loss", type=click.FloatRange(0, 100), default=0.1, show_default=True, help="Lost packets, in percent.")
@click.argument("benchmark", nargs=-1, required=True, type=click.UNPROCESSED)
def slow(round_trip_ms: float, loss: float, benchmark: tuple[str, ...]) -> None:
    """Run another benchmark in a network that is not loopback, with servers that wait for their disks; as root.

    BENCHMARK is its name and options, such as `group --members 10`.
    """
    from benchmarks.slownetwork import SlowNetwork, run_in
    from benchmarks.stored import THROUGH

    os.environ[THROUGH] = f"slow --round-trip-ms {round_trip_ms:g} --loss {loss:g}"
    command = [sys.executable, "-m", "benchmarks", *benchmark]
    raise SystemExit(run_in(SlowNetwork(round_trip_ms / 1000, loss / 100), command))


def _run(contests: Callable[[Path, Progress], list[Contest]], *, as_markdown: bool, as_json: bool) -> None:
    """Run contests with a temporary directory, and print the results."""
    require_extra("bench", "numpy", "pyspark", of_checkout=True)
    from benchmarks.machine import Machine
    from zkconsumer.sandbox.progress import Progress

    machine = Machine.this()  # first: it records the load before the run
    with tempfile.TemporaryDirectory(prefix="zkconsumer-bench-") as directory:
        done = contests(Path(directory), Progress())
    _print(done, machine, as_markdown=as_markdown, as_json=as_json)
    from benchmarks.report import remarks
    from benchmarks.stored import rows_of

    _store_result(rows_of(done), remarks(done), machine)


def _store_figures(figures: Mapping[str, tuple[float, str]], machine: Machine) -> None:
    """Store what a benchmark measured of zkconsumer alone, if ``--store`` is given; figures have a unit each."""
    from benchmarks.stored import figure_rows

    _store_result(figure_rows(figures), (), machine)


def _store_result(rows: Iterable[Row], remarks: Iterable[str], machine: Machine) -> None:
    """Store a result if ``--store`` is given."""
    from benchmarks.stored import result_of_run, write_result

    if name := click.get_current_context().meta.get(_STORE):
        file = write_result(result_of_run(name, rows, remarks, machine))
        click.echo(f"stored in {file}; `make docs` renews the tables of it", err=True)


def _print(contests: list[Contest], machine: Machine, *, as_markdown: bool, as_json: bool) -> None:
    from rich.console import Console

    from benchmarks import report

    if as_json:
        click.echo(report.as_json(contests, machine))
    elif as_markdown:
        click.echo(report.as_markdown(contests, machine))
    else:
        width = None if sys.stdout.isatty() else _WIDTH_ELSEWHERE
        console = Console(highlight=False, markup=False, emoji=False, width=width)
        report.print_table(console, contests, machine)


if __name__ == "__main__":
    main(bench, "python -m benchmarks")
