"""``zkconsumer migrate fleet`` on many groups: seconds of each command, from the start of a process to its end."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.commands import installed_environment, timed
from benchmarks.groupznodes import create_filled_topics, store_offsets
from benchmarks.servers import bench_servers
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox.progress import Progress

_RECORDS = 10


@dataclass(frozen=True)
class FleetSizes:
    """The sizes of the measurement.

    Attributes:
        groups: number of groups, which have offsets in ZooKeeper and no members.
        partitions: number of partitions of each of them, of one topic that all consume.
        workers: groups that a command works on at a time.
    """

    groups: int = 200
    partitions: int = 50
    workers: int = 4


def measure_fleet(sizes: FleetSizes, progress: Progress) -> dict[str, float]:
    """Survey, plan, run and undo the migration of a cluster; seconds by command.

    Raises:
        SandboxError: a server did not start, or a command failed.
    """
    partitions = [TopicPartition("bench", number) for number in range(sizes.partitions)]
    with bench_servers(progress) as (sandbox, session), tempfile.TemporaryDirectory() as directory:
        create_filled_topics(sandbox, partitions, _RECORDS)
        for number in range(sizes.groups):
            store_offsets(session, f"svc-{number:04}", partitions)
        fleet, servers = str(Path(directory, "fleet")), ("--zookeeper", sandbox.zookeeper_connect)
        wave = ("--wave", "1", "--workers", str(sizes.workers))
        lines = {
            "migrate survey --all": ("survey", "--all", *servers),
            "fleet init": ("fleet", "init", fleet, *servers),
            "fleet plan": ("fleet", "plan", fleet, *wave),
            "fleet run": ("fleet", "run", fleet, *wave, "--execute"),
            "fleet status": ("fleet", "status", fleet),
            "fleet verify": ("fleet", "verify", fleet, *wave),
            "fleet rollback": ("fleet", "rollback", fleet, *wave, "--execute"),
        }
        environment = installed_environment()
        command = [sys.executable, "-m", "zkconsumer", "migrate"]
        return {name: timed([*command, *words], environment) for name, words in lines.items()}
