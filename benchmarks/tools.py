"""The tool benchmark: commands on many partitions, compared with the tools of the JVM where they exist.

Every measurement is one process from start to end, so the start of Python and of the JVM is part of it. Each command
runs once before, unmeasured: Python then has compiled zkconsumer's modules, as ``pip install`` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.commands import DESCRIBE, EXPORT, IMPORT, Commands
from benchmarks.contest import OURS, Contest
from benchmarks.groupznodes import create_filled_topics, own_topic, store_offsets
from benchmarks.servers import bench_servers
from jvmclients.zookeeperconsumer import ConsumerJvm
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress
from zkconsumer.zookeeper.session import ZkSession

_RECORDS: Final = 2
"""Records of a partition: enough that two different offsets can be imported."""
_DESCRIBED, _STORED, _LARGE = "described", "stored", "large"


@dataclass(frozen=True)
class ToolSizes:
    """The sizes of the contests.

    Attributes:
        rounds: measurements of each contestant in each contest.
        partitions: number of partitions of the topic to describe.
        znodes: number of offset znodes to export, import and restore; a multiple of ``partitions``.
        large: number of partitions of a large topic to describe, to reset and to migrate; 0 skips these contests.
    """

    rounds: int = 5
    partitions: int = 1000
    znodes: int = 10_000
    large: int = 5000


class ToolField(Commands):
    """The servers of the contests: topics and groups that are made of offset znodes.

    Args:
        sandbox: running servers.
        session: open session to them.
        jvm: gives the command lines of the JVM's tools; it need not run.
        directory: for files that the commands write.
        sizes: of the contests.
    """

    def __init__(
        self, sandbox: Sandbox, session: ZkSession, jvm: ConsumerJvm, directory: Path, sizes: ToolSizes
    ) -> None:
        super().__init__(sandbox, jvm, directory)
        described, large = (
            [TopicPartition(topic, number) for number in range(size)]
            for topic, size in ((_DESCRIBED, sizes.partitions), (_LARGE, sizes.large))
        )
        create_filled_topics(sandbox, described + large, _RECORDS)
        self.stored = [f"{_STORED}-{number}" for number in range(sizes.znodes // sizes.partitions)]
        for group in (_DESCRIBED, *self.stored):
            store_offsets(session, group, described)
        # The tool of the JVM describes the topics that were ever owned.
        own_topic(session, _DESCRIBED, _DESCRIBED, described)
        store_offsets(session, _LARGE, large)


def run_tool_contests(sizes: ToolSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Run the contests on servers of their own.

    Raises:
        SandboxError: a server did not start, or a command failed.
    """
    jvm = ConsumerJvm(directory / "jvm", progress=progress)
    with bench_servers(progress) as (sandbox, session):
        field = ToolField(sandbox, session, jvm, directory, sizes)
        once = replace(sizes, rounds=1)
        for measured in (once, sizes):
            contests = [_describe(field, measured), *_offset_files(field, measured)]
            if sizes.large:
                contests += _large(field, measured)
        return contests


def _describe(field: ToolField, sizes: ToolSizes) -> Contest:
    jvm = field.name_of(DESCRIBE)
    contest = _contest(f"Describe a group of {sizes.partitions:,} partitions", jvm, target="1/20")
    for _ in range(sizes.rounds):
        contest.add(jvm, field.theirs(DESCRIBE, "--describe", "--group", _DESCRIBED))
        contest.add(OURS, field.ours("groups", "describe", "--group", _DESCRIBED))
    return contest


def _offset_files(field: ToolField, sizes: ToolSizes) -> Iterator[Contest]:
    """Offsets are exported, imported with other values, and restored; the JVM's tools then do the same."""
    tools = [field.name_of(main) for main in (EXPORT, IMPORT)]
    titles = [f"{verb} {sizes.znodes:,} offsets" for verb in ("Export", "Import", "Restore")]
    exported, imported = (_contest(titles[number], tools[number], target="2 s") for number in (0, 1))
    restored = _contest(titles[2], OURS, target="2 s")
    groups = [argument for group in field.stored for argument in ("--group", group)]
    for _ in range(sizes.rounds):
        file, snapshot = field.new_file(), field.new_file()
        exported.add(tools[0], field.theirs(EXPORT, *groups, "--output-file", str(file)))
        exported.add(OURS, field.ours("offsets", "export", *groups, "--output", str(field.new_file())))
        changed = field.new_file()
        changed.write_text(file.read_text(encoding="utf-8").replace(":0\n", ":1\n"), encoding="utf-8")
        imported.add(OURS, field.ours("offsets", "import", str(changed), "--execute", "--snapshot", str(snapshot)))
        restored.add(
            OURS, field.ours("offsets", "restore", str(snapshot), "--execute", "--snapshot", str(field.new_file()))
        )
        imported.add(tools[1], field.theirs(IMPORT, "--input-file", str(changed)))
        field.theirs(IMPORT, "--input-file", str(file))
    yield from (exported, imported, restored)


def _large(field: ToolField, sizes: ToolSizes) -> Iterator[Contest]:
    described = _contest(f"Describe a group of {sizes.large:,} partitions", OURS, target="5 s")
    planned = _contest(f"Dry run of a reset of {sizes.large:,} partitions", OURS, target="5 s")
    for _ in range(sizes.rounds):
        described.add(OURS, field.ours("groups", "describe", "--group", _LARGE))
        planned.add(OURS, field.ours("offsets", "reset", "--group", _LARGE, "--all-topics", "--to-latest"))
    yield from (described, planned, _migrated(field, sizes))


def _migrated(field: ToolField, sizes: ToolSizes) -> Contest:
    """A whole migration to Kafka: three processes, one after the other. Each round has a group in Kafka of its own."""
    contest = _contest(f"Plan, run and verify a migration of {sizes.large:,} partitions", OURS, target="15 s")
    for _ in range(sizes.rounds):
        plan = field.new_file()
        ends = ("--from", f"zookeeper:{_LARGE}", "--to", f"kafka:{_LARGE}-{plan.name}")
        contest.add(
            OURS,
            field.ours("migrate", "plan", *ends, "--output", str(plan))
            + field.ours("migrate", "run", str(plan), "--execute")
            + field.ours("migrate", "verify", str(plan)),
        )
    return contest


def _contest(title: str, reference: str, *, target: str) -> Contest:
    contest = Contest(title, "s", reference, target)
    contest.announce(reference)
    return contest
