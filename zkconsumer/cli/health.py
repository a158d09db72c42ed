"""``zkconsumer health``: checks whether a consumer process works, for the health checks of containers."""

from __future__ import annotations

import http.client
import json
import sys

import click

from zkconsumer.cli.connection import METRICS_PORT_VARIABLE
from zkconsumer.cli.main import EXIT_PROBLEM
from zkconsumer.errors import UsageError, ZkConsumerError


@click.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    envvar=METRICS_PORT_VARIABLE,
    show_envvar=True,
    help="metrics.port of the consumer.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address on which it serves metrics.")
@click.option("--timeout-ms", type=click.IntRange(min=1), default=5_000, show_default=True, help="Limit for an answer.")
@click.option("--ready", is_flag=True, help="Fail also while the consumer joins, rebalances or waits for ZooKeeper.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def health(port: int | None, host: str, timeout_ms: int, ready: bool, as_json: bool) -> None:
    """Check that a consumer process works: that it answers, and has not left its group.

    The command reads the consumer's own metrics, so the consumer has to serve them (metrics.port). Exit code 0:
    healthy; 3: it answers and reports a problem; 1: it does not answer. What a consumer waits for and continues from by
    itself, such as a ZooKeeper that is away, is printed and is no problem; with --ready it is one. Whether records are
    delivered in time is not checked: alert on lag.
    """
    from zkconsumer.connector.processhealth import health_of

    if port is None:
        raise UsageError(f"no port is given; use --port or {METRICS_PORT_VARIABLE} with metrics.port of the consumer")
    problems, notes = health_of(_metrics_page(host, port, timeout_ms / 1000))
    if ready:
        problems, notes = problems + notes, []
    if as_json:
        click.echo(json.dumps({"healthy": not problems, "problems": problems, "notes": notes}))
    else:
        click.echo("\n".join([*(problems or ["healthy"]), *notes]))
    if problems:
        sys.exit(EXIT_PROBLEM)


def _metrics_page(host: str, port: int, timeout_s: float) -> str:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        page = answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise ZkConsumerError(
            f"no metrics at {host}:{port}: {error}; check that the consumer runs with metrics.port={port}"
        ) from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ZkConsumerError(
            f"{host}:{port} answers {answer.status} {answer.reason}; check that it is the metrics.port of a consumer"
        )
    return page
