"""The start benchmark: seconds from the start of a process to its first record, and the memory of a member that waits.

Every contestant is a whole process that joins a group, prints a line for each record of a topic with one, and waits for
more. Each runs once before, unmeasured. ``new environment`` means an empty cache directory and home, as a container has
them when it starts.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.contest import Contest, rotated
from benchmarks.groupznodes import create_filled_topics
from benchmarks.machine import memory_mib
from benchmarks.peers import AIOKAFKA, BATCHES, CONFLUENT, RECORDS, labels
from benchmarks.servers import bench_servers
from zkconsumer.errors import SandboxError
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOPIC: Final = "start"
_SETTLE_S: Final = 3.0
"""From the first record until the memory is read: heartbeats, commits and fetches have happened by then."""
_LIMIT_S: Final = 60.0

_READ_BATCHES: Final = """
import sys
from zkconsumer import ConsumerConfig, ConsumerConnector
zookeeper, _, group, topic = sys.argv[1:]
config = ConsumerConfig(zookeeper_connect=zookeeper, group_id=group, auto_offset_reset="smallest")
connector = ConsumerConnector(config)
for batch in connector.create_message_streams({topic: 1})[topic][0].batches():
    print(batch.num_rows, flush=True)
"""
_READ_CONFLUENT: Final = """
import sys
from confluent_kafka import Consumer
_, bootstrap, group, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
while True:
    message = consumer.poll(1.0)
    if message is not None:
        print(message.value(), flush=True)
"""
_READ_AIOKAFKA: Final = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer
_, bootstrap, group, topic = sys.argv[1:]
async def read():
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    await consumer.start()
    async for message in consumer:
        print(message.value, flush=True)
asyncio.run(read())
"""
_PEERS: Final = {CONFLUENT: _READ_CONFLUENT, AIOKAFKA: _READ_AIOKAFKA}


@dataclass(frozen=True)
class StartSizes:
    """The sizes of the contests.

    Attributes:
        rounds: measurements of each contestant.
        beside: Python interpreters of other environments with zkconsumer, such as an older release.
        contestants: names of those that take part besides; None for all.
    """

    rounds: int = 5
    beside: Sequence[str] = ()
    contestants: Sequence[str] | None = None


def run_start_contests(sizes: StartSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Run the contests on servers of their own.

    Raises:
        SandboxError: a server did not start, or a contestant printed no record.
    """
    with bench_servers(progress) as (sandbox, _):
        create_filled_topics(sandbox, [TopicPartition(_TOPIC, 0)], 1)
        field = _Starts(sandbox, directory)
        commands = _commands(sizes)
        reference = next(iter(commands))
        began, began_new = (
            Contest(f"Start to first record{where}", "s", reference) for where in ("", ", new environment")
        )
        waiting = Contest("A member that waits, resident", "MiB", reference)
        for contest in (began, began_new, waiting):
            for name in commands:
                contest.announce(name)
        for number in range(-1, sizes.rounds):
            for name in rotated(list(commands), max(number, 0)):
                seconds, mebibytes = field.run(commands[name], is_new=False)
                if number >= 0:
                    began.add(name, seconds)
                    waiting.add(name, mebibytes)
                    began_new.add(name, field.run(commands[name], is_new=True)[0])
        return [began, began_new, waiting]


def _commands(sizes: StartSizes) -> dict[str, list[str]]:
    """Contestant to its command line, whose arguments :class:`_Starts` adds."""
    commands = {}
    for where, python in {"": sys.executable, **labels(sizes.beside)}.items():
        commands[f"{RECORDS}{where}"] = [python, "-m", "zkconsumer", "consume", "--from-beginning"]
        commands[f"{BATCHES}{where}"] = [python, "-c", _READ_BATCHES]
    commands |= {name: [sys.executable, "-c", text] for name, text in _PEERS.items()}
    wanted = sizes.contestants
    return {name: one for name, one in commands.items() if wanted is None or name in wanted or " of " in name}


class _Starts:
    """Starts contestants on the servers of the benchmark, in a working directory without a package."""

    def __init__(self, sandbox: Sandbox, directory: Path) -> None:
        self._servers = (sandbox.zookeeper_connect, sandbox.bootstrap_servers)
        self._directory = directory
        self._numbers = count()

    def run(self, command: Sequence[str], *, is_new: bool) -> tuple[float, float]:
        """Seconds to the first record, and resident MiB a while later."""
        zookeeper, _ = self._servers
        group = f"start-{next(self._numbers)}"
        if "consume" in command:
            arguments = ["--zookeeper", zookeeper, "--group", group, "--topic", _TOPIC]
        else:
            arguments = [*self._servers, group, _TOPIC]
        with _environment(self._directory, is_new=is_new) as environment:
            began = time.monotonic()
            with subprocess.Popen(
                [*command, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._directory,
                env=environment,
            ) as process:
                try:
                    return _measure(process, began)
                finally:
                    process.kill()


def _measure(process: subprocess.Popen[bytes], began: float) -> tuple[float, float]:
    assert process.stdout is not None
    assert process.stderr is not None
    readable, _, _ = select.select([process.stdout], [], [], _LIMIT_S)
    line = process.stdout.readline() if readable else b""
    seconds = time.monotonic() - began
    if not line:
        process.kill()
        raise SandboxError(
            f"a contestant printed no record in {seconds:.0f} s: {process.stderr.read().decode()[-2000:]}"
        )
    time.sleep(_SETTLE_S)
    return seconds, memory_mib(process.pid)


@contextmanager
def _environment(directory: Path, *, is_new: bool) -> Iterator[Mapping[str, str]]:
    """Variables of a contestant's process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if not is_new:
        yield kept
        return
    with tempfile.TemporaryDirectory(dir=directory) as home:
        yield {**kept, "HOME": home, "XDG_CACHE_HOME": home}
