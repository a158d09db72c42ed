"""The demo as a whole: data, servers, both acts, picture and verdict."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from demo.checks import Check
from demo.flights import PACKAGE, Records, as_records, read_flights
from demo.picture import draw
from demo.querying import Querying
from demo.sharing import Sharing
from demo.stage import PARTITIONS, TOPIC, Servers, Stage, stopwatch
from demo.story import Story
from demo.workspace import Workspace
from zkconsumer.errors import ZkConsumerError


def run_demo(
    story: Story, picture: Path, keep: Path | None, kafka_version: str, *, brokers_coordinate: bool = False
) -> bool:
    """Run the demo and print its steps; True if every check holds.

    Args:
        story: prints the steps.
        picture: PNG file to write; replaced if it exists.
        keep: directory to work in, which is kept; None: a temporary one that is removed unless the demo fails.
        kafka_version: version of the broker.
        brokers_coordinate: the groups are those of ``group.protocol=kafka``.

    Raises:
        ZkConsumerError: a step failed, so that there is nothing to check; the message has the path of the logs.
    """
    clock = stopwatch()
    _expect_writable(picture)
    workspace = Workspace(keep)
    try:
        servers = Servers(workspace.logs, story.progress, kafka_version, brokers_coordinate=brokers_coordinate)
        checks = _play(story, workspace, picture, clock, servers)
        if not all(check.ok for check in checks):
            workspace.keep()
        story.verdict(checks, workspace.path if workspace.kept else None, picture, clock())
    except ZkConsumerError as error:
        workspace.keep()
        raise ZkConsumerError(f"{error}; all logs: {workspace.logs}") from error
    finally:
        workspace.close()
    return all(check.ok for check in checks)


def _expect_writable(picture: Path) -> None:
    """Fail at once if the picture cannot be written, rather than at the end."""
    directory = picture.resolve().parent
    if picture.is_dir() or not directory.is_dir() or not os.access(directory, os.W_OK):
        raise ZkConsumerError(f"cannot write the picture {picture}; set another path with --png")


def _play(
    story: Story, workspace: Workspace, picture: Path, clock: Callable[[], float], stopped: Servers
) -> list[Check]:
    with ThreadPoolExecutor(1) as background:
        loading = background.submit(_prepare)  # while the servers start
        with stopped as servers:
            with story.waiting(f"reading {PACKAGE}"):
                records = loading.result()
            story.step(
                f"Real data: {len(records):,} flights of {PACKAGE} as JSON, {records.value_bytes() / 1e6:.0f} MB, "
                f"keyed by route ({records.key_count()} keys)"
            )
            story.step(f"A real {servers.names}; topic {TOPIC} on {PARTITIONS} partitions")
            stage = Stage(servers, records, workspace, story, clock)
            checks = Sharing(stage).play() + Querying(stage).play()
    title = f"{len(records):,} flights: two consumers share them, a third joins, one is killed; then a Spark query"
    with story.waiting("drawing the picture"):
        draw(stage.timeline, stage.names, title, picture)
    return checks


def _prepare() -> Records:
    return as_records(read_flights(), PARTITIONS)
