"""The fetch benchmark: records per second and memory beside the JVM consumer and Python's clients, in one run.

Each data set has separate brokers. Their partitions are written as files before the brokers open them (see
:mod:`benchmarks.logsegment`), so all data are in the page cache. Then the brokers are warmed by prepared
requests, half of them in the version of the JVM consumer. In each round every contestant reads for the same time, from
its first record on; a data set is large enough that no contestant reaches its end within two seconds, and the report
names those that did. The order rotates from round to round.

The plain drain starts from the beginning again at the end of the topic. The JVM consumer takes part twice: *fresh* in a
new JVM each round, *warm* in one JVM that has read for some time before the first round.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.asyncpeers import ASYNC_BATCHES, ASYNC_RECORDS, CONFLUENT_ASYNC
from benchmarks.contest import OURS, Contest, rotated
from benchmarks.datasets import DATA_SETS, DataSet
from benchmarks.fetchfield import SINGLE_TOPIC, TOPIC, FetchField, fetch_field
from benchmarks.jvmreader import JvmReader
from benchmarks.manybrokers import many_broker_contests
from benchmarks.peers import AIOKAFKA, BATCHES, CONFLUENT, DRAIN, PEERS, RECORDS, SLOW, TUNED, labels
from benchmarks.task import Run, Task
from zkconsumer.errors import SandboxError
from zkconsumer.sandbox.progress import Progress

JVM_WARM: Final = "JVM consumer 1.1.1, warm"
JVM_FRESH: Final = "JVM consumer 1.1.1, fresh"
CONTESTANTS: Final = (BATCHES, RECORDS, JVM_WARM, JVM_FRESH, TUNED, CONFLUENT, AIOKAFKA, DRAIN)
"""All contestants, zkconsumer's first."""

_OWN: Final = (BATCHES, RECORDS)
_BEYOND_JVM: Final = "zstd"
"""A codec that is newer than the JVM consumer."""
_OLDEST_FOR_JVM: Final = (0, 10, 1)
"""The JVM consumer 1.1.1 sends requests that brokers before this release do not know."""
_TARGETS: Final[Mapping[str, Mapping[str, str]]] = {
    "batches-75": {BATCHES: "12x JVM, 8x tuned", RECORDS: "2x tuned"},
    "batches-1": {BATCHES: "5x JVM, 2x tuned", RECORDS: "1.2x tuned"},
    "format-1": {BATCHES: "5x JVM"},
    "tls": {BATCHES: "2x the best peer"},
}
_ENOUGH_S: Final = 2.0
_TIMEOUT_S: Final = 120.0
_LONGER: Final = 2
_SLOW_LIMIT_MIB: Final = 381
"""400 MB."""


@dataclass(frozen=True)
class FetchSizes:
    """The extent of the fetch benchmark.

    Attributes:
        rounds: measurements of each contestant in each contest.
        seconds: duration of each contestant's reading.
        names: names of data sets and of other contests.
        contestants: the contestants that take part.
        warm_seconds: duration of warming the brokers, and then the warm JVM consumer.
        scale: factor for the data sets' sizes; below 1, fast contestants reach the end too early.
        beside: Python interpreters of other environments with zkconsumer, such as an older release, whose
            readers take part in the contests of data sets.
    """

    rounds: int = 5
    seconds: float = 2.2
    names: Sequence[str] = ("batches-75",)
    contestants: Sequence[str] = CONTESTANTS
    warm_seconds: float = 8.0
    scale: float = 1.0
    beside: Sequence[str] = ()


class Readers:
    """Runs contestants on one field; the warm JVM lives as long as this object."""

    def __init__(self, field: FetchField, sizes: FetchSizes) -> None:
        self._field = field
        self._sizes = sizes
        self._groups = count()
        self._warm: JvmReader | None = None
        self._elsewhere = {
            f"{name}{where}": (name, python) for where, python in labels(sizes.beside).items() for name in _OWN
        }
        self.loop_ns: dict[str, float] = {}

    def task(self, topic: str = TOPIC) -> Task:
        """The task of reading a topic in a new group."""
        field = self._field
        filled = field.topics[topic]
        brokers = field.brokers()
        leaders = [f"{brokers[broker].host}:{brokers[broker].port}" for broker in sorted(set(filled.leaders))]
        return Task(
            zookeeper=field.zookeeper,
            bootstrap=",".join(leaders),
            group=f"bench-{next(self._groups)}",
            topic=topic,
            partitions=len(filled.leaders),
            records=filled.records,
            seconds=self._sizes.seconds,
            kafka=field.data.kafka,
            ca_location=field.ca_location,
            prepared=str(field.prepared(topic)),
        )

    def run(self, name: str, topic: str = TOPIC) -> Run:
        """Run one contestant.

        Raises:
            SandboxError: it failed; the message has its output.
        """
        task = self.task(topic)
        if name == JVM_WARM:
            return self._warm_jvm().read(task)
        if name in self._elsewhere:
            original, python = self._elsewhere[name]
            return finish(name, start(original, task, python, only_benchmarks(self._field.directory)))
        if name != JVM_FRESH:
            return finish(name, start(name, task))
        reader = JvmReader(self._field.directory, "fresh JVM")
        try:
            run = reader.read(task)
            self.loop_ns[name] = reader.loop_ns()
            return run
        finally:
            reader.close()

    def close(self) -> None:
        """End the warm JVM."""
        if self._warm is not None:
            self._warm.close()

    def _warm_jvm(self) -> JvmReader:
        if self._warm is None:
            self._warm = JvmReader(self._field.directory, "warm JVM")
            began = time.monotonic()
            while time.monotonic() - began < self._sizes.warm_seconds:
                self._warm.read(self.task())
            self.loop_ns[JVM_WARM] = self._warm.loop_ns()
        return self._warm


def start(name: str, task: Task, python: str = sys.executable, modules: Path | None = None) -> subprocess.Popen[str]:
    """Start a contestant's process.

    Args:
        name: of the contestant.
        task: what it has to do.
        python: interpreter that runs it.
        modules: of :func:`only_benchmarks`, if the interpreter is that of another environment.
    """
    command = [python, "-m", "benchmarks.peers", name, json.dumps(task)]
    environment = None if modules is None else {**os.environ, "PYTHONPATH": str(modules)}
    # Python looks for modules in the working directory, too, which may be a checkout.
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=modules, env=environment
    )


def only_benchmarks(directory: Path) -> Path:
    """A directory for an interpreter's path, in which it finds ``benchmarks`` and nothing else of the checkout.

    The ``zkconsumer`` that it imports is then that of its own environment, which may have no ``benchmarks``.

    Args:
        directory: takes the new directory, unless it has it already.
    """
    place = directory / "modules"
    place.mkdir(exist_ok=True)
    link = place / "benchmarks"
    if not link.is_symlink():
        link.symlink_to(Path(__file__).resolve().parent, target_is_directory=True)
    return place


def finish(name: str, process: subprocess.Popen[str]) -> Run:
    """Wait for a contestant's result.

    Raises:
        SandboxError: it failed; the message has its output.
    """
    try:
        out, err = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        raise SandboxError(f"{name} did not finish within {_TIMEOUT_S:g} s: {err[-2000:]}") from None
    except BaseException:  # Ctrl-C; otherwise it would look for its servers without end
        process.kill()
        raise
    if process.returncode != 0:
        raise SandboxError(f"{name} failed: {err[-2000:]}")
    return Run(*json.loads(out.splitlines()[-1]))


def run_fetch_contests(sizes: FetchSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Run the contests and return them.

    Args:
        sizes: selection and sizes of the contests.
        directory: for temporary files.
        progress: reports the steps.

    Raises:
        SandboxError: a server or one of zkconsumer's contestants failed.
    """
    contests: list[Contest] = []
    for name in sizes.names:
        run = OTHERS.get(name) or partial(_read_data_set, DATA_SETS[name])
        contests += run(sizes, directory, progress)
    return contests


def taking_part(data: DataSet, wanted: Sequence[str] = CONTESTANTS) -> list[str]:
    """The installed contestants that support the data set's codec, security protocol and brokers."""
    release = tuple(int(part) for part in data.kafka.split("."))
    jvm = not data.tls and data.codec != _BEYOND_JVM and release >= _OLDEST_FOR_JVM
    return [name for name in wanted if (jvm if name not in PEERS else _is_installed(PEERS[name][0]))]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not
        return False


def _read_data_set(data: DataSet, sizes: FetchSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Let all contestants read a topic, in turn, round by round."""
    data = data._replace(total_bytes=int(data.total_bytes * sizes.scale))
    names = taking_part(data, sizes.contestants)
    names += [f"{name}{where}" for where in labels(sizes.beside) for name in _OWN if name in names]
    contest = Contest(
        data.name,
        "records/s",
        JVM_WARM if JVM_WARM in names else TUNED,
        targets=_TARGETS.get(data.name, {}),
        peers=tuple(name for name in (JVM_FRESH, TUNED) if name in names),
        enough_s=_ENOUGH_S,
        about=str(data),
    )
    with fetch_field(data, directory, progress) as field:
        with progress.step("warming the brokers"):
            field.warm(sizes.warm_seconds)
        readers = Readers(field, sizes)
        try:
            _rounds(contest, names, readers.run, sizes.rounds, progress)
            if not data.single:
                return [contest, *_loop_contest(data, readers)]
            return [contest, _single(data, readers, sizes, progress)]
        finally:
            readers.close()


def _rounds(contest: Contest, names: Sequence[str], run: Callable[[str], Run], rounds: int, progress: Progress) -> None:
    """Measure each contestant in each round; contestants of other packages may fail."""
    for name in names:
        contest.announce(name)
    with progress.step(contest.title, rounds * len(names)) as advance:
        for number in range(rounds):
            for position, name in enumerate(rotated(names, number)):
                advance(number * len(names) + position, name)
                try:
                    note(contest, name, run(name))
                except SandboxError as error:
                    if name.startswith(OURS):
                        raise
                    progress.write_line(f"{name} is excluded from a round: {str(error).splitlines()[-1]}")


def _loop_contest(data: DataSet, readers: Readers) -> list[Contest]:
    """Measure the cost of the loop that drives the JVM consumer: the same loop over an iterator that does nothing."""
    contest = Contest(f"{data.name}: the loop that drives the JVM consumer", "ns/record", "")
    for name, nanoseconds in sorted(readers.loop_ns.items()):
        contest.add(name, nanoseconds)
    return [contest] if readers.loop_ns else []


def _single(data: DataSet, readers: Readers, sizes: FetchSizes, progress: Progress) -> Contest:
    """Read the same data from one broker and from all brokers, each in one process."""
    places = {
        f"{name}, {place}": (name, topic)
        for name in (BATCHES, RECORDS, TUNED, DRAIN)
        for place, topic in (("1 broker", SINGLE_TOPIC), (f"{data.brokers} brokers", TOPIC))
        if name in taking_part(data, sizes.contestants)
    }
    contest = Contest(
        f"{data.name}: one process, one broker or {data.brokers}",
        "records/s",
        f"{BATCHES}, 1 broker",
        targets={f"{BATCHES}, {data.brokers} brokers": "at least 0.9"},
        enough_s=_ENOUGH_S,
    )
    _rounds(contest, list(places), lambda place: readers.run(*places[place]), sizes.rounds, progress)
    return contest


def _processes(sizes: FetchSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Run one process, then two that read all data at the same time; they share only the machine."""
    data = DATA_SETS["large-100"]
    contests = []
    with fetch_field(data._replace(total_bytes=int(data.total_bytes * sizes.scale)), directory, progress) as field:
        field.warm(sizes.warm_seconds)
        readers = Readers(
            field, replace(sizes, seconds=_LONGER * sizes.seconds)
        )  # the two do not begin at the same time
        for reader in (DRAIN, BATCHES, RECORDS):
            names = {f"{reader}, 1 process": 1, f"{reader}, 2 processes": 2}
            contest = Contest("processes", "records/s", f"{reader}, 1 process", about=f"each reads all of {data}")
            for number in range(sizes.rounds):
                for name in rotated(list(names), number):
                    running = [start(reader, readers.task()) for _ in range(names[name])]
                    note(contest, name, *(finish(name, process) for process in running))
            contests.append(contest)
    return contests


def _asyncio(sizes: FetchSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Consumers in an event loop beside the synchronous ones of the same clients, on the data of batches-75."""
    data = DATA_SETS["batches-75"]
    targets = {ASYNC_BATCHES: f"at least 0.9 of {BATCHES}", ASYNC_RECORDS: f"faster than {AIOKAFKA}"}
    names = taking_part(data, (BATCHES, ASYNC_BATCHES, RECORDS, ASYNC_RECORDS, TUNED, CONFLUENT_ASYNC, AIOKAFKA))
    contest = Contest(
        "asyncio", "records/s", BATCHES, targets=targets, peers=(AIOKAFKA,), enough_s=_ENOUGH_S, about=str(data)
    )
    with fetch_field(data._replace(total_bytes=int(data.total_bytes * sizes.scale)), directory, progress) as field:
        with progress.step("warming the brokers"):
            field.warm(sizes.warm_seconds)
        readers = Readers(field, sizes)
        _rounds(contest, names, readers.run, sizes.rounds, progress)
    return [contest]


def _slow_reader(sizes: FetchSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Peak memory of a consumer with a slow reader, twenty batches per second, while fetchers could fill any queue."""
    data = DATA_SETS["large-64-partitions"]
    contest = Contest("slow-reader: peak memory", "MiB", "", f"less than {_SLOW_LIMIT_MIB}", about=str(data))
    with fetch_field(data._replace(total_bytes=int(data.total_bytes * sizes.scale)), directory, progress) as field:
        readers = Readers(field, replace(sizes, seconds=_LONGER * sizes.seconds))  # so that its queues fill up
        for _ in range(sizes.rounds):
            contest.add(f"{OURS}, slow reader", readers.run(SLOW).peak_mib)
    return [contest]


def _starting(sizes: FetchSizes, _directory: Path, progress: Progress) -> list[Contest]:
    """Measure whole processes, from their start to their end."""
    bare = "python -c pass"
    commands = {
        bare: ["-c", "pass"],
        f"{OURS}: import": ["-c", "import zkconsumer"],
        f"{OURS} --help": ["-m", "zkconsumer", "--help"],
    }
    targets = {f"{OURS}: import": "less than 0.2 s", f"{OURS} --help": "less than 0.3 s"}
    contest = Contest("starting: Python", "s", bare, targets=targets)
    with progress.step(contest.title, sizes.rounds):
        for _ in range(sizes.rounds):
            for name, arguments in commands.items():
                began = time.monotonic()
                subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
                contest.add(name, time.monotonic() - began)
    return [contest]


def _many_brokers(sizes: FetchSizes, _directory: Path, progress: Progress) -> list[Contest]:
    """CPU, requests and wake-ups of this consumer, with 1 to 100 simulated brokers and 8 to 1,000 partitions."""
    return many_broker_contests(sizes.rounds, sizes.seconds, progress)


OTHERS: Final[Mapping[str, Callable[[FetchSizes, Path, Progress], list[Contest]]]] = {
    "processes": _processes,
    "asyncio": _asyncio,
    "slow-reader": _slow_reader,
    "starting": _starting,
    "brokers-100": _many_brokers,
}
"""Contests without a data set, by name."""


def note(contest: Contest, name: str, *runs: Run) -> None:
    """Record concurrent runs: the records that they read between the first start and the last end."""
    began, ended = min(run.began for run in runs), max(run.began + run.seconds for run in runs)
    contest.add(name, sum(run.records for run in runs) / (ended - began))
    contest.note_memory(name, max(run.peak_mib for run in runs))
    contest.note_window(name, ended - began)
