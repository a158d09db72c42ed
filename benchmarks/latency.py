"""The latency benchmark: from the producer to the handler of a record, and the CPU time that a consumer takes.

One producer appends to one partition at a steady rate, at most :data:`_APPENDS_PER_S` times a second. Each contestant
is a process of its own with default settings, which reads from the end of the topic. Its rates follow each other from
the highest to the lowest, so that a JVM has compiled what it reads with before it has few records.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from benchmarks.contest import OURS, Contest, rotated
from benchmarks.groupznodes import create_wide_topics
from benchmarks.jvmlatency import JvmLatency
from benchmarks.latencyreaders import READERS, LatencyTask
from benchmarks.machine import cpu_s
from benchmarks.members import JVM
from benchmarks.peers import AIOKAFKA, BATCHES, CONFLUENT, RECORDS
from benchmarks.servers import bench_servers
from benchmarks.stamps import Delays, LogFile
from benchmarks.steadyproducer import SteadyProducer
from zkconsumer.errors import SandboxError
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.bootstrap import bootstrap_brokers

CONTESTANTS: Final = (RECORDS, BATCHES, JVM, CONFLUENT, AIOKAFKA)

_TOPIC: Final = "latency"
_APPENDS_PER_S: Final = 500
_JOINING_RATE: Final = 10
"""Records per second until a contestant has the first one."""
_LIMIT_S: Final = 60.0
_POLL_S: Final = 0.05
_QUIET_S: Final = 0.3
_ENOUGH: Final = 0.9
"""A contestant with less than this share of the records of a rate is noted: it, or the producer, was too slow."""
_MS_PER_S: Final = 1000


@dataclass(frozen=True)
class LatencySizes:
    """The sizes of the contests.

    Attributes:
        rounds: measurements of each contestant.
        seconds: how long each rate is measured.
        rates: records per second; 0 for an idle consumer, of which only the CPU time is measured.
        contestants: names of those that take part.
        warm_s: how long each rate lasts before it is measured.
        warm_rounds: measurements of the first contestant that go before, unnoted: they warm the servers.
    """

    rounds: int = 5
    seconds: float = 5.0
    rates: Sequence[int] = (0, 10, 1000, 50_000)
    contestants: Sequence[str] = CONTESTANTS
    warm_s: float = 2.0
    warm_rounds: int = 1


class Measured(NamedTuple):
    """The figures of a contestant at a rate.

    Attributes:
        delays: of the records.
        cpu_ms: CPU time in ms per second.
    """

    delays: Delays
    cpu_ms: float


class Appends(NamedTuple):
    """The appends that give a rate.

    Attributes:
        every_s: seconds between two of them.
        records: number of records of each.
    """

    every_s: float
    records: int

    @classmethod
    def of(cls, rate: int) -> Appends:
        """The most frequent appends for a number of records per second, up to :data:`_APPENDS_PER_S`."""
        records = -(-rate // _APPENDS_PER_S)
        return cls(records / rate, records)


class _Reader(Protocol):
    """A running contestant."""

    @property
    def pid(self) -> int:
        """Of its process."""

    def close(self) -> None:
        """End it."""


class _Process:
    """A Python contestant in a process of its own, whose errors go to the standard error."""

    def __init__(self, name: str, task: LatencyTask) -> None:
        self._name = name
        command = [sys.executable, "-m", "benchmarks.latencyreaders", name, json.dumps(task)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        if self._process.poll() is not None:
            raise SandboxError(f"{self._name} has ended with exit code {self._process.returncode}; see its error above")
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class LatencyContests:
    """The contests of all rates.

    Args:
        rates: records per second.
        contestants: names, in the order of the report.
    """

    def __init__(self, rates: Sequence[int], contestants: Sequence[str]) -> None:
        self._of: dict[int, dict[str, Contest]] = {}
        for rate in sorted(rates):
            contests = {}
            if rate:
                for name in ("p50", "p99"):
                    target = "1 of the best peer"
                    contests[name] = Contest(f"{rate:,} records/s: latency, {name}", "ms", CONFLUENT, target)
            title = f"{rate:,} records/s: CPU" if rate else "Idle: CPU"
            contests["cpu"] = Contest(title, "ms/s", CONFLUENT, "at most 1")
            for contest in contests.values():
                for contestant in contestants:
                    contest.announce(contestant)
            self._of[rate] = contests

    def add(self, contestant: str, rate: int, measured: Measured, seconds: float) -> None:
        """Add the figures of one round."""
        contests = self._of[rate]
        contests["cpu"].add(contestant, measured.cpu_ms)
        if not rate:
            return
        received = measured.delays.records / seconds
        if received < _ENOUGH * rate:
            contests["p50"].notes.append(f"{contestant} received {received:,.0f} of {rate:,} records/s in a round.")
        if measured.delays.records:
            contests["p50"].add(contestant, measured.delays.p50)
            contests["p99"].add(contestant, measured.delays.p99)

    def all(self) -> list[Contest]:
        """All contests, the lowest rate first."""
        return [contest for contests in self._of.values() for contest in contests.values()]


def installed(names: Sequence[str] = CONTESTANTS) -> list[str]:
    """The contestants whose packages are installed."""
    return [name for name in names if name == JVM or find_spec(READERS[name][0]) is not None]


def run_latency_contests(sizes: LatencySizes, directory: Path, progress: Progress) -> list[Contest]:
    """Run the contests on servers of their own.

    Raises:
        SandboxError: a server did not start, or one of zkconsumer's contestants failed.
    """
    names = installed(sizes.contestants)
    contests = LatencyContests(sizes.rates, names)
    with bench_servers(progress) as (sandbox, _):
        create_wide_topics(sandbox, {_TOPIC: 1})
        field = _Field(sandbox, directory, sizes)
        with progress.step("warming the servers"):
            for _ in range(sizes.warm_rounds):
                field.measure(names[0])
        with progress.step("latency", sizes.rounds * len(names)) as advance:
            for number in range(sizes.rounds):
                for position, name in enumerate(rotated(names, number)):
                    advance(number * len(names) + position, name)
                    try:
                        figures = field.measure(name)
                    except SandboxError as error:
                        if name.startswith(OURS):
                            raise
                        progress.write_line(f"{name} is excluded from a round: {str(error).splitlines()[-1]}")
                    else:
                        for rate, measured in figures.items():
                            contests.add(name, rate, measured, sizes.seconds)
    return contests.all()


class _Field:
    """A topic that contestants read one after the other, each in a new group."""

    def __init__(self, sandbox: Sandbox, directory: Path, sizes: LatencySizes) -> None:
        self._sandbox, self._directory, self._sizes = sandbox, directory, sizes
        (self._broker,) = bootstrap_brokers(sandbox.bootstrap_servers)
        self._numbers = count()
        seconds = sizes.warm_s + sizes.seconds + _LIMIT_S
        self._most_records = int((sum(sizes.rates) + _JOINING_RATE) * seconds)

    def measure(self, contestant: str) -> Mapping[int, Measured]:
        """Run a contestant at all rates.

        Raises:
            SandboxError: it failed, or read nothing.
        """
        number = next(self._numbers)
        log = LogFile(self._directory / f"log-{number}", self._most_records)
        servers = (self._sandbox.zookeeper_connect, self._sandbox.bootstrap_servers)
        task = LatencyTask(*servers, f"latency-{number}", _TOPIC, str(log.path))
        try:
            with closing(self._started(contestant, task, log)) as reader:
                with self._records_at(_JOINING_RATE, reader, log):
                    pass
                return {rate: self._at(rate, reader, log) for rate in sorted(self._sizes.rates, reverse=True)}
        finally:
            log.path.unlink()

    def _started(self, contestant: str, task: LatencyTask, log: LogFile) -> _Reader:
        if contestant == JVM:
            return JvmLatency(task, log, self._directory / task.group)
        return _Process(contestant, task)

    def _at(self, rate: int, reader: _Reader, log: LogFile) -> Measured:
        """Measure one rate."""
        with self._records_at(rate, reader, log):
            time.sleep(self._sizes.warm_s)
            began, used = time.monotonic_ns(), cpu_s(reader.pid)
            time.sleep(self._sizes.seconds)
            used = cpu_s(reader.pid) - used
            ended = time.monotonic_ns()
        return Measured(log.delays(began, ended), used * 1e9 / (ended - began) * _MS_PER_S)

    @contextmanager
    def _records_at(self, rate: int, reader: _Reader, log: LogFile) -> Iterator[None]:
        """Append at this rate from before the contestant has the first record; at the end wait until it has all."""
        if not rate:
            yield
            return
        before, appends = len(log), Appends.of(rate)
        with closing(SteadyProducer(self._broker, _TOPIC, 1, appends.every_s, appends.records)) as producer:
            _await(lambda: len(log) > before, reader, producer)
            yield
            producer.expect_running()
        read = -1
        while read != len(log):
            read = len(log)
            time.sleep(_QUIET_S)


def _await(is_done: Callable[[], bool], reader: _Reader, producer: SteadyProducer) -> None:
    """Wait until the contestant has read something; raises SandboxError as :meth:`_Field.measure`."""
    deadline = time.monotonic() + _LIMIT_S
    while not is_done():
        producer.expect_running()
        if time.monotonic() > deadline:
            raise SandboxError(f"process {reader.pid} of a contestant has read no record within {_LIMIT_S:g} s")
        assert reader.pid
        time.sleep(_POLL_S)
