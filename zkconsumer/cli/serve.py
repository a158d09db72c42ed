"""``zkconsumer serve``: a web page, an API and metrics of the lag of groups."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from zkconsumer.cli.connection import ToolConnection, tool_options
from zkconsumer.cli.ending import EndedEarly, Ending
from zkconsumer.cli.extras import require_extra
from zkconsumer.cli.grouplag import duration_option, interval_option, samples_option
from zkconsumer.cli.groupoptions import match_option, storage_option
from zkconsumer.cli.groupsource import open_groups
from zkconsumer.errors import ZkConsumerError

if TYPE_CHECKING:
    from zkconsumer.offsets.rules.storedoffsets import OffsetStorage
    from zkconsumer.operate.groups.finding import Finding
    from zkconsumer.operate.serve.hosts import Address
    from zkconsumer.operate.serve.sampling import GroupSampling

_log = logging.getLogger(__name__)

_PACKAGES: Final = ("starlette", "uvicorn", "plotly")
_LONGEST_SAMPLE_S: Final = 5.0


def _address(_context: click.Context, _parameter: click.Parameter, value: str) -> Address:
    from zkconsumer.operate.serve.hosts import parse_address

    try:
        return parse_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@tool_options
@click.option(
    "--listen",
    "address",
    callback=_address,
    default="127.0.0.1:8087",
    metavar="HOST:PORT",
    help="Address to bind; port 0 is any free one.  [default: 127.0.0.1:8087]",
)
@click.option(
    "--allow-remote", is_flag=True, help="Allow an address that other machines can reach; there is no login, nor TLS."
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Name by which browsers and Prometheus address this server, besides IP addresses, localhost, the name in "
    "--listen and this machine's; repeatable.",
)
@interval_option("10s")
@samples_option
@duration_option("--history", "1h", "How long lag and rebalances are kept, in memory.")
@click.option(
    "--history-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep the history in this SQLite file as well, so that a restart continues it; it is created if there is "
    "none. One server at a time uses it.",
)
@match_option
@storage_option
@click.option(
    "--cluster", metavar="NAME", help="Label of all metrics, and name in Burrow's paths, which is local without it."
)
@click.option(
    "--fleet",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also serve how far the migration of the groups in this directory has come, see `migrate fleet`.",
)
def serve(
    connection: ToolConnection,
    address: Address,
    allow_remote: bool,
    hosts: tuple[str, ...],
    interval: float,
    samples: int | None,
    history: float,
    history_file: Path | None,
    pattern: str | None,
    storage: OffsetStorage,
    cluster: str | None,
    fleet: Path | None,
) -> None:
    """Serve a web page, an API and metrics of the lag of all groups, until Ctrl-C.

    With --bootstrap-server alone the groups are those that brokers coordinate, and no ZooKeeper is needed; with
    --zookeeper as well both kinds are shown.

    The address of the page is printed. /metrics has the names of kafka_exporter, /v3/kafka is Burrow's API, /api/groups
    has the documents of the group commands. /readyz answers 503 if the last sample ended more than three intervals ago,
    and /healthz only if no sample is tried any more: a restart does not help while ZooKeeper does not answer. Nothing
    is written to ZooKeeper. It needs the extra `web`.
    """
    require_extra("web", *_PACKAGES)
    from zkconsumer.cli.groupexplain import explain_one
    from zkconsumer.cli.migratefleet import fleet_document
    from zkconsumer.operate.groups.brokergroups import BrokerGroups
    from zkconsumer.operate.groups.lagsamples import LagSampler
    from zkconsumer.operate.groups.rules.lagstatus import samples_for
    from zkconsumer.operate.serve.groupsnapshots import LagRecorder
    from zkconsumer.operate.serve.historyfile import EarlierGroup, HistoryFile
    from zkconsumer.operate.serve.sampling import GroupSampling
    from zkconsumer.operate.serve.server import listen

    window = samples or samples_for(interval)
    ending = Ending()
    with (
        contextlib.suppress(EndedEarly),
        ending.by_signals(),
        listen(address, allow_remote=allow_remote) as listener,
        contextlib.ExitStack() as opened,
    ):
        with ending.raising():
            groups = opened.enter_context(open_groups(connection, storage, interval=interval, tries_again=True))
        sampler = LagSampler(groups.source, window=window)
        file = None if history_file is None else HistoryFile(history_file, round(1000 * history))
        earlier: dict[str, EarlierGroup] = {}
        if file is not None:
            opened.callback(file.close)
            earlier = file.earlier(time.monotonic(), round(1000 * time.time()), window)
            sampler.continue_from({group: of_group.samples for group, of_group in earlier.items()})
        recorded = {group: of_group.recorded for group, of_group in earlier.items()}
        recorder = LagRecorder(window, max(2, round(history / interval)), interval, recorded)
        sampling = GroupSampling(sampler, recorder, interval, file=file, pattern=pattern, on_failure=ending.ask)

        def explain(group: str) -> list[Finding]:
            # Not by the clients of the thread that samples.
            with contextlib.nullcontext() if groups.at_brokers is None else BrokerGroups(groups.config) as at_brokers:
                return explain_one(groups._replace(at_brokers=at_brokers), connection, group, storage)

        on_demand = OnDemand(explain, None if fleet is None else partial(fleet_document, connection, fleet))
        _serve(sampling, listener, cluster, {address.host, *hosts}, ending, on_demand)


class OnDemand(NamedTuple):
    """What is read for each request: what keeps a group from consuming, and the document of a fleet."""

    explain: Callable[[str], list[Finding]]
    fleet: Callable[[], dict[str, Any]] | None


def _serve(
    sampling: GroupSampling,
    listener: socket.socket,
    cluster: str | None,
    hosts: Collection[str],
    ending: Ending,
    on_demand: OnDemand,
) -> None:
    """Sample and answer until the end is asked for.

    Raises:
        ZkConsumerError: sampling has failed.
    """
    from zkconsumer.operate.serve.app import Sampled, web_app
    from zkconsumer.operate.serve.server import WebServer

    names = {name.lower() for name in ("localhost", socket.gethostname(), *hosts)}
    app = web_app(
        lambda: sampling.newest,
        time.monotonic,
        cluster,
        names,
        lambda: sampling.unsampled,
        *on_demand,
        sampled=Sampled(lambda: sampling.servers, lambda: sampling.ended),
    )
    server = WebServer(app, listener)
    sampling.start()
    server.start()
    try:
        click.echo(f"http://{server.address}/")
        sys.stdout.flush()
        ending.wait(lambda: _log.warning("the last sample: %s", sampling.describe()))
    finally:
        server.stop()
        sampling.stop(_LONGEST_SAMPLE_S)
    if sampling.failure is not None:
        raise ZkConsumerError(f"sampling has ended: {sampling.failure!r}; please report it") from sampling.failure
