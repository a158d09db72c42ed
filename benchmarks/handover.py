"""The hand-over benchmark: how long a group consumes nothing while it moves from ZooKeeper to Kafka.

The gap is the time from the last record that the old member returned to the first one of the new consumer. In between
the old member commits and leaves, its offsets are copied, and the new consumer starts and joins. Only the copy differs:
the commands of zkconsumer, or the JVM's tools as an operator combines them. After each cut-over the first offset of
every partition is compared with the last one of the old member.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.commands import DESCRIBE, EXPORT, Commands
from benchmarks.contest import OURS, Contest
from benchmarks.groupznodes import create_wide_topics
from benchmarks.servers import bench_servers
from jvmclients.zookeeperconsumer import ConsumerJvm
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.connector.connector import ConsumerConnector
from zkconsumer.errors import SandboxError
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.producer import Record, append_batches, encode_batches
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.bootstrap import bootstrap_brokers

_TOPIC: Final = "handed-over"
_BATCHES, _RECORDS = 100, 20
"""Batches of a partition, and records of a batch: far more than an old member reads before it is stopped."""
_FETCH_BYTES: Final = 4096
"""A fetch of the old member, so that it has read some of every partition soon."""
_LIMIT_S: Final = 120.0


@dataclass(frozen=True)
class HandoverSizes:
    """The sizes of the contest.

    Attributes:
        rounds: cut-overs of each contestant.
        partitions: of the topic.
        warm: further cut-overs of each contestant that go before, unmeasured.
    """

    rounds: int = 20
    partitions: int = 10
    warm: int = 1


def run_handover_contest(sizes: HandoverSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Run the contest on servers of its own.

    Raises:
        SandboxError: a server did not start, a command failed, or a new consumer did not begin at the next record.
    """
    jvm = ConsumerJvm(directory / "jvm", progress=progress)
    with bench_servers(progress) as (sandbox, _):
        field = _Field(sandbox, Commands(sandbox, jvm, directory), sizes.partitions)
        by_hand = f"by hand: ExportZkOffsets, ConsumerGroupCommand {jvm.version}"
        contest = Contest(f"Gap of a hand-over of {sizes.partitions} partitions to Kafka", "s", by_hand)
        contest.announce(by_hand)
        contestants: dict[str, Callable[[str], None]] = {by_hand: field.copy_by_hand, OURS: field.migrate}
        for number in range(-sizes.warm, sizes.rounds):
            for name, copy in contestants.items():
                gap = field.hand_over(f"{name.partition(' ')[0].strip(':')}-{number + sizes.warm}", copy)
                if number >= 0:
                    contest.add(name, gap)
        return [contest]


class _Field:
    """A topic with records, whose groups move one after the other."""

    def __init__(self, sandbox: Sandbox, commands: Commands, partitions: int) -> None:
        self._sandbox = sandbox
        self._commands = commands
        self._partitions = [TopicPartition(_TOPIC, number) for number in range(partitions)]
        create_wide_topics(sandbox, {_TOPIC: partitions})
        batches = list(encode_batches([Record(b"x" * 100)] * _RECORDS)) * _BATCHES
        brokers = bootstrap_brokers(sandbox.bootstrap_servers)
        append_batches(lambda: brokers, dict.fromkeys(self._partitions, batches))

    def hand_over(self, group: str, copy: Callable[[str], None]) -> float:
        """Move a group; returns the gap in seconds.

        Raises:
            SandboxError: the new consumer did not begin at the next record of each partition.
        """
        expected, last = self._consume_in_zookeeper(group)
        copy(group)
        found, first = self._consume_in_kafka(group)
        if found != expected:
            raise SandboxError(f"group {group} continued at {found}, not at {expected}")
        return first - last

    def _consume_in_zookeeper(self, group: str) -> tuple[dict[int, int], float]:
        """Consume until some of every partition is read; returns the next offsets, and when the last record came."""
        config = ConsumerConfig(
            zookeeper_connect=self._sandbox.zookeeper_connect,
            group_id=group,
            auto_offset_reset="smallest",
            fetch_message_max_bytes=_FETCH_BYTES,
        )
        following: dict[int, int] = {}
        with ConsumerConnector(config) as connector:
            (stream,) = connector.create_message_streams({_TOPIC: 1})[_TOPIC]
            for message in stream:
                following[message.partition] = message.offset + 1
                if len(following) == len(self._partitions):
                    break
            last = time.monotonic()
            connector.commit_offsets()
        return following, last

    def _consume_in_kafka(self, group: str) -> tuple[dict[int, int], float]:
        """Consume until a record of every partition is read; returns their offsets, and when the first one came."""
        from confluent_kafka import Consumer

        settings = {
            "bootstrap.servers": self._sandbox.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
        found: dict[int, int] = {}
        first = 0.0
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe([_TOPIC])
            deadline = time.monotonic() + _LIMIT_S
            while len(found) < len(self._partitions):
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    first = first or time.monotonic()
                    found.setdefault(message.partition() or 0, message.offset() or 0)
                elif time.monotonic() > deadline:
                    raise SandboxError(f"group {group} read no record of each partition within {_LIMIT_S:g} s")
        return found, first

    def migrate(self, group: str) -> None:
        """The commands of zkconsumer, as docs/migration.md has them."""
        plan = str(self._commands.new_file())
        ends = ("--from", f"zookeeper:{group}", "--to", f"kafka:{group}")
        self._commands.ours("migrate", "plan", *ends, "--output", plan)
        self._commands.ours("migrate", "run", plan, "--execute")
        self._commands.ours("migrate", "verify", plan)

    def copy_by_hand(self, group: str) -> None:
        """The JVM's tools: export the offsets, write them as the other tool reads them, and reset the group."""
        exported, wanted = self._commands.new_file(), self._commands.new_file()
        self._commands.theirs(EXPORT, "--group", group, "--output-file", str(exported))
        lines = exported.read_text(encoding="utf-8").splitlines()
        rows = [line.replace(":", "/").split("/")[-3:] for line in lines]
        wanted.write_text("".join(f"{','.join(row)}\n" for row in rows), encoding="utf-8")
        reset = ("--reset-offsets", "--from-file", str(wanted), "--execute")
        self._commands.theirs_of_brokers(DESCRIBE, "--group", group, *reset)
