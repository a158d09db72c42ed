"""The fetch benchmark: records per second and memory beside the JVM consumer and Python's clients, in one run."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from zkconsumer.bench.contest import OURS, Contest
from zkconsumer.bench.load import Load, fill
from zkconsumer.bench.machine import peak_memory_mib
from zkconsumer.bench.members import JVM, JVM_OPTIONS
from zkconsumer.bench.peers import BATCHES, PEERS, RECORDS, SLOW, SOCKET, Run, Task
from zkconsumer.bench.servers import bench_servers
from zkconsumer.errors import SandboxError
from zkconsumer.model import Broker
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.jvmconsumer import ConsumerJvm
from zkconsumer.sandbox.progress import Progress
from zkconsumer.zookeeper.registry import Registry
from zkconsumer.zookeeper.session import ZkSession

_BASE: Final = Load()
VARIANTS: Final = (
    _BASE,
    _BASE._replace(value_bytes=1024),
    _BASE._replace(value_bytes=10_240),
    _BASE._replace(codec="lz4"),
    _BASE._replace(codec="zstd"),
    _BASE._replace(partitions=1),
    _BASE._replace(partitions=64),
)
"""Each differs from the first in one thing."""

_UNKNOWN_TO_JVM: Final = ("zstd",)
"""Codecs younger than the JVM consumer, to which brokers answer with an error instead of records."""
_TIMEOUT_S: Final = 60.0
_WARMING: Final = 5
"""Readings that do not count: a broker that has just started compiles its code meanwhile, which costs whoever reads."""
_LONGER: Final = 4
"""So much more is read where several read at the same time, which do not begin at the same moment."""
_SLOW_LIMIT_MIB: Final = 381
"""400 MB."""


@dataclass(frozen=True)
class FetchSizes:
    """How large the contests are.

    Attributes:
        rounds: measurements of each contestant in each contest.
        seconds: after which a contestant that is slow is stopped.
        variants: what is in the topics.
    """

    rounds: int = 5
    seconds: float = 4.0
    variants: Sequence[Load] = VARIANTS


class FetchField:
    """Where the contests take place. Use :func:`fetch_field`."""

    def __init__(self, sandbox: Sandbox, session: ZkSession, directory: Path) -> None:
        self._sandbox = sandbox
        self._registry = Registry(session)
        self._directory = directory
        self._groups = count()

    def live_brokers(self) -> tuple[Broker, ...]:
        """The brokers of the sandbox."""
        return self._registry.live_brokers()

    def task(self, load: Load, seconds: float) -> Task:
        """Reading all of a load, in a group of its own."""
        leaders = [
            f"{broker.host}:{broker.port}" for broker in self.live_brokers() if load.only_on in (None, broker.id)
        ]
        return Task(
            self._sandbox.zookeeper_connect,
            ",".join(leaders),
            f"bench-{next(self._groups)}",
            load.topic,
            load.partitions,
            load.records,
            seconds,
        )

    def run(self, name: str, task: Task) -> Run:
        """Let one contestant read.

        Raises:
            SandboxError: it failed; with what it said.
        """
        return self._run_jvm(task) if name == JVM else finish(name, start(name, task))

    def _run_jvm(self, task: Task) -> Run:
        jvm = ConsumerJvm(self._directory, name="JVM reader", jvm_options=JVM_OPTIONS)
        jvm.start()
        try:
            consumer = jvm.consumer(
                {
                    "zookeeper.connect": task.zookeeper,
                    "group.id": task.group,
                    "consumer.id": "one",
                    "auto.offset.reset": "smallest",
                    "auto.commit.enable": "false",
                    "consumer.timeout.ms": str(int(_TIMEOUT_S * 1000)),  # rather fail than wait for ever
                }
            )
            seconds = consumer.drain(task.topic, task.records)
            return Run(task.records - 1, seconds, peak_memory_mib(jvm.pid))
        finally:
            jvm.kill()  # an orderly shutdown takes seconds, and its group is used once


def start(name: str, task: Task) -> subprocess.Popen[str]:
    """Start a contestant's process."""
    command = [sys.executable, "-m", "zkconsumer.bench.peers", name, json.dumps(task)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(name: str, process: subprocess.Popen[str]) -> Run:
    """Wait for a contestant's result.

    Raises:
        SandboxError: it failed; with what it said.
    """
    try:
        out, err = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        raise SandboxError(f"{name} was not done after {_TIMEOUT_S:g} s: {err[-2000:]}") from None
    except BaseException:  # Ctrl-C; it would go on looking for its servers for ever
        process.kill()
        raise
    if process.returncode != 0:
        raise SandboxError(f"{name} failed: {err[-2000:]}")
    return Run(*json.loads(out.splitlines()[-1]))


@contextmanager
def fetch_field(directory: Path, progress: Progress, brokers: int = 1) -> Iterator[FetchField]:
    """Start servers; see :func:`run_fetch_contests` for the arguments."""
    with bench_servers(progress, brokers=brokers) as (sandbox, session):
        yield FetchField(sandbox, session, directory)


def contestants() -> list[str]:
    """The contestants that are installed, the limit first."""
    installed = [name for name, (package, _) in PEERS.items() if name != SLOW and importlib.util.find_spec(package)]
    return [SOCKET, JVM, *(name for name in installed if name != SOCKET)]


def run_fetch_contests(sizes: FetchSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Run all contests of the fetch benchmark and return them.

    Args:
        sizes: how large they are.
        directory: for the JVM's log.
        progress: who is told what is going on.

    Raises:
        SandboxError: a server or a contestant failed.
    """
    base = sizes.variants[0]
    long = base._replace(total_bytes=_LONGER * base.total_bytes)
    with fetch_field(directory, progress) as field:
        contests = []
        for load in sizes.variants:
            with progress.step(f"filling a topic: {load}"):
                fill(field.live_brokers, load)
            if load == base:
                _warm_brokers(field, load, sizes)
            contests.append(_read_all(field, load, sizes, progress))
        fill(field.live_brokers, long)
        contests += [_share(field, reader, long, sizes, progress) for reader in (SOCKET, BATCHES, RECORDS)]
        contests.append(_read_slowly(field, sizes, progress))
    contests.append(_two_brokers(long, sizes, directory, progress))
    contests.append(_starting(sizes, progress))
    return contests


def _warm_brokers(field: FetchField, load: Load, sizes: FetchSizes) -> None:
    for _ in range(_WARMING):
        field.run(BATCHES, field.task(load, sizes.seconds))


def _read_all(field: FetchField, load: Load, sizes: FetchSizes, progress: Progress) -> Contest:
    """All contestants read a topic, in turn, round by round."""
    names = [name for name in contestants() if name != JVM or load.codec not in _UNKNOWN_TO_JVM]
    if load.value_bytes != _BASE.value_bytes:
        reference, targets = SOCKET, {BATCHES: "at least 0.7"}
    elif JVM in names:
        reference, targets = JVM, {BATCHES: "at least 8", RECORDS: "at least 1"}
    else:
        reference, targets = SOCKET, {}
    contest = Contest(f"Reading {load}", "records/s", reference, targets=targets)
    with progress.step(contest.title, sizes.rounds * len(names)) as advance:
        for number in range(sizes.rounds):
            for position, name in enumerate(names):
                advance(number * len(names) + position, name)
                try:
                    _note(contest, name, field.run(name, field.task(load, sizes.seconds)))
                except SandboxError as error:
                    if name.startswith(OURS):
                        raise
                    progress.say(f"{name} is left out of a round: {str(error).splitlines()[-1]}")
    return contest


def _share(field: FetchField, reader: str, load: Load, sizes: FetchSizes, progress: Progress) -> Contest:
    """One process, then two that read everything at the same time: they share nothing but the machine."""
    contest = Contest(f"Processes that read {load}, together", "records/s", f"{reader}, 1 process")
    with progress.step(contest.title, sizes.rounds):
        for _ in range(sizes.rounds):
            for processes in (1, 2):
                name = f"{reader}, {processes} process{'es' * (processes > 1)}"
                tasks = [field.task(load, sizes.seconds) for _ in range(processes)]
                _note(contest, name, *_together(reader, tasks))
    return contest


def _together(name: str, tasks: Sequence[Task]) -> list[Run]:
    """Let a contestant do several tasks at the same time, a process each."""
    running = [start(name, task) for task in tasks]
    return [finish(name, process) for process in running]


def _read_slowly(field: FetchField, sizes: FetchSizes, progress: Progress) -> Contest:
    """Peak memory of a consumer whose reader takes twenty batches a second while fetchers could fill any queue."""
    contest = Contest("Peak memory of a slow reader", "MiB", "", f"less than {_SLOW_LIMIT_MIB}")
    loads = [load for load in sizes.variants if load.partitions == max(one.partitions for one in sizes.variants)]
    with progress.step(contest.title, sizes.rounds * len(loads)):
        for load in loads:
            for _ in range(sizes.rounds):
                contest.add(f"{OURS}: {load}", field.run(SLOW, field.task(load, sizes.seconds)).peak_mib)
    return contest


def _two_brokers(load: Load, sizes: FetchSizes, directory: Path, progress: Progress) -> Contest:
    """One process reads from one broker or, with a fetcher for each, from two; and what their sockets give."""
    one, two = f"{OURS}, 1 broker", f"{OURS}, 2 brokers"
    contest = Contest(f"Reading {load} from more brokers", "records/s", one)
    with fetch_field(directory, progress, brokers=2) as field:
        alone = [load._replace(only_on=broker.id) for broker in field.live_brokers()]
        for each in (load, *alone):
            fill(field.live_brokers, each)
            _warm_brokers(field, each, sizes)
        with progress.step(contest.title, sizes.rounds):
            for _ in range(sizes.rounds):
                for name, drained in ((f"{SOCKET}, 1 broker", alone[:1]), (f"{SOCKET}, 2 brokers", alone)):
                    _note(contest, name, *_together(SOCKET, [field.task(each, sizes.seconds) for each in drained]))
                _note(contest, one, field.run(BATCHES, field.task(alone[0], sizes.seconds)))
                _note(contest, two, field.run(BATCHES, field.task(load, sizes.seconds)))
    return contest


def _starting(sizes: FetchSizes, progress: Progress) -> Contest:
    """Whole processes, from nothing to their end."""
    bare = "python -c pass"
    commands = {
        bare: ["-c", "pass"],
        f"{OURS}: import": ["-c", "import zkconsumer"],
        f"{OURS} --help": ["-m", "zkconsumer", "--help"],
    }
    targets = {f"{OURS}: import": "less than 0.2 s", f"{OURS} --help": "less than 0.3 s"}
    contest = Contest("Starting Python", "s", bare, targets=targets)
    with progress.step(contest.title, sizes.rounds):
        for _ in range(sizes.rounds):
            for name, arguments in commands.items():
                began = time.monotonic()
                subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
                contest.add(name, time.monotonic() - began)
    return contest


def _note(contest: Contest, name: str, *runs: Run) -> None:
    """Note runs that took place at the same time: what they read between the first beginning and the last end."""
    began, ended = min(run.began for run in runs), max(run.began + run.seconds for run in runs)
    contest.add(name, sum(run.records for run in runs) / (ended - began))
    contest.note_memory(name, max(run.peak_mib for run in runs))
