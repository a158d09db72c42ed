"""The Spark source at the size of a cluster: the driver's time, connections, and memory of tasks; on simulated brokers.

The executors are light: each is a process that was forked from one that has everything imported, as ``pyspark.daemon``
forks its Python workers, and that runs :func:`zkconsumer.spark.taskreading.read_ranges` for one task after the other. A
real executor has such a worker for each of its cores. What a real one has besides costs brokers nothing: a JVM, which
takes the rows. The driver is a :class:`~zkconsumer.spark.driver.QueryDriver` that owns all partitions. Its group is a
stand-in, so its time is that of questions to brokers and of planning; ``python -m benchmarks spark`` has the group's.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple, cast

from benchmarks.machine import memory_mib, peak_memory_mib
from benchmarks.manybrokers import finish_process, start_process
from benchmarks.simbrokers import TOPIC, Counts, Simulation
from zkconsumer.errors import SandboxError
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.group.member import GroupMember
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import Broker, ConsumerThreadId, Topic, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.sandbox.progress import Progress
from zkconsumer.spark import worker
from zkconsumer.spark.clusterview import ClusterView
from zkconsumer.spark.driver import DriverParts, QueryDriver
from zkconsumer.spark.keptconnections import KeptConnections
from zkconsumer.spark.rules.microbatch import RangePartition
from zkconsumer.spark.rules.offsetsjson import initial_offset
from zkconsumer.spark.rules.options import SourceOptions, parse_options
from zkconsumer.spark.sparkfetchcontrol import SparkFetchControl
from zkconsumer.spark.taskreading import read_ranges

_COLUMNS: Final = ("key", "value", "offset")
_CLOSED_S: Final = 30.0
_BATCHES_PER_SECOND: Final = 2.0


class Sizes(NamedTuple):
    """What to simulate.

    Attributes:
        partitions: with data, on all brokers.
        brokers: brokers.
        executors: processes that read.
        batches: micro-batches, of which the first is not measured.
        idle_s: for how long executors keep idle connections; otherwise that is a minute.
    """

    partitions: int = 1000
    brokers: int = 20
    executors: int = 100
    batches: int = 6
    idle_s: float = 15.0


class TaskDone(NamedTuple):
    """What a task has read, and the memory of its process: before its first task, and the peak, in MiB."""

    rows: int
    before_mib: float
    peak_mib: float


def measure_scale(sizes: Sizes, progress: Progress) -> dict[str, float]:
    """Run micro-batches, and return the figures by their names.

    Raises:
        SandboxError: a process failed, or a task did not read what was planned.
    """
    simulation = Simulation(sizes.brokers, sizes.partitions, sizes.partitions, 75, _BATCHES_PER_SECOND)
    with ExitStack() as cleaning:
        options = parse_options(
            {
                "zookeeper.connect": "unused:1",
                "group.id": "simulation",
                "subscribe": TOPIC,
                "startingOffsets": "earliest",
                "numStreams": "1",
            }
        )
        # Forked before this process has threads, and a pipe whose end the brokers wait for.
        fork = multiprocessing.get_context("fork")
        gc.freeze()
        pool = cleaning.enter_context(fork.Pool(sizes.executors, _begin, [options, sizes.idle_s]))
        alone = cleaning.enter_context(fork.Pool(1, _begin, [options, sizes.idle_s]))
        brokers = start_process("benchmarks.simbrokers", json.dumps(simulation), cleaning)
        assert brokers.stdout is not None
        if not (ports := brokers.stdout.readline()):
            finish_process(brokers)
        found = tuple(Broker(number, "127.0.0.1", port) for number, port in enumerate(json.loads(ports)))
        member = _Alone(sizes.partitions)
        driver = member.make_driver(options, found)
        cleaning.callback(driver.stop)
        figures = _stream(driver, sizes, brokers, pool, progress)
        figures |= _one_task(driver, alone)
        finish_process(brokers)
    return figures


def _stream(driver: QueryDriver, sizes: Sizes, brokers: Any, pool: Any, progress: Progress) -> dict[str, float]:
    planned_ms, tasks_ms, read_ms, connected = [], [], [], []
    offset, done, accepted = initial_offset("simulation"), [], 0
    with progress.step("micro-batches", sizes.batches) as advance:
        for number in range(sizes.batches):
            advance(number, f"{sizes.partitions} partitions")
            time.sleep(1 / _BATCHES_PER_SECOND)
            began = time.perf_counter()
            end = driver.latest_offset(offset, None)
            planned = time.perf_counter()
            driver._parallelism = sizes.executors  # as the application's listener reports it
            tasks = driver.partitions(offset, end)
            made = time.perf_counter()
            done = pool.map(_run, tasks, chunksize=1)
            ended = time.perf_counter()
            wanted = sum(piece.size for task in tasks for piece in task.ranges)
            if (rows := sum(one.rows for one in done)) != wanted:
                raise SandboxError(f"the tasks of a batch have read {rows} of {wanted} rows")
            offset, counts = end, _counts(brokers)
            connected.append(counts.connected)
            if number:
                planned_ms.append((planned - began) * 1000)
                tasks_ms.append((made - planned) * 1000)
                read_ms.append((ended - made) * 1000)
            else:
                accepted = counts.accepted
    after = _counts(brokers)
    questions = _counts(brokers).questions
    return {
        "tasks of a batch": len(done),
        "driver: plan a batch, ms": statistics.median(planned_ms),
        "driver: make its tasks, ms": statistics.median(tasks_ms),
        "executors: read it, ms": statistics.median(read_ms),
        "driver: questions for each batch": questions / sizes.batches,
        "open connections, most": max(connected),
        "connections opened by the first batch": accepted,
        "connections opened by each later one": (after.accepted - accepted) / max(1, sizes.batches - 1),
        "open connections, a while after the last task": _await_closed(brokers, sizes.brokers + 1),
        "memory of an executor before its tasks, MiB": max(one.before_mib for one in done),
        "peak memory of a task, MiB": max(one.peak_mib - one.before_mib for one in done),
    }


def _one_task(driver: QueryDriver, alone: Any) -> dict[str, float]:
    """A single task that reads all partitions, of all brokers."""
    start = initial_offset("simulation")
    driver._parallelism = 1
    end = driver.latest_offset(start, None)
    tasks = driver.partitions(start, end)
    merged = tasks[0].__class__(
        tuple(piece for task in tasks for piece in task.ranges),
        tasks[0].brokers,
        {partition: epoch for task in tasks for partition, epoch in task.epochs.items()},
    )
    done = alone.apply(_run, (merged,))
    return {"peak memory of one task of all partitions, MiB": done.peak_mib - done.before_mib}


def _counts(brokers: subprocess.Popen[str]) -> Counts:
    assert brokers.stdin is not None
    assert brokers.stdout is not None
    brokers.stdin.write("\n")
    brokers.stdin.flush()
    return Counts(*json.loads(brokers.stdout.readline()))


def _await_closed(brokers: subprocess.Popen[str], most: int) -> int:
    """How many connections are open when those of the executors are closed, or should be."""
    until = time.monotonic() + _CLOSED_S
    while (connected := _counts(brokers).connected) > most and time.monotonic() < until:
        time.sleep(0.1)
    return connected


# -- an executor's Python worker ------------------------------------------------------------------------------------

_state: dict[str, Any] = {}


def _begin(options: SourceOptions, idle_s: float) -> None:
    worker.connections = KeptConnections(idle_s)
    _state.update(options=options, before_mib=memory_mib(os.getpid()))


def _run(task: RangePartition) -> TaskDone:
    rows = sum(batch.num_rows for batch in read_ranges(_state["options"], task, _COLUMNS))
    return TaskDone(rows, _state["before_mib"], peak_memory_mib(os.getpid()))


# -- the driver -----------------------------------------------------------------------------------------------------


class _Alone:
    """The only member of a group without a store: its offsets are those that the driver commits."""

    release_s = 1.0
    consumer_id = "simulation_alone"

    def __init__(self, partitions: int) -> None:
        self._stored = {TopicPartition(TOPIC, number): StoredOffset(None) for number in range(partitions)}
        self._topics = {TOPIC: Topic(tuple(range(partitions)), TopicIdentity("simulated", 1))}
        self._thread = ConsumerThreadId("simulation_alone", 0)
        self._fetch: SparkFetchControl

    def make_driver(self, options: SourceOptions, brokers: tuple[Broker, ...]) -> QueryDriver:
        view = ClusterView(brokers, frozenset(self._stored), {}, frozenset(), frozenset())
        parts = DriverParts(
            prepare_process=lambda _: None,
            ignore_sigterm=lambda: None,
            read_cluster=lambda _: view,
            assemble_member=cast(Callable[..., GroupMember], self._assemble),
            open_acknowledgements=lambda *_: None,
        )
        return QueryDriver(options, parts)

    def _assemble(self, _config: object, _id: str, fetch: SparkFetchControl, **_: object) -> _Alone:
        self._fetch = fetch
        return self

    def open(self) -> None:
        pass

    def join(self, _: Subscription) -> None:
        owned = {p: AssignedPartition(self._thread, stored=stored) for p, stored in self._stored.items()}
        self._fetch.start(FetchAssignment(1, owned, self._topics))

    def ownership(self) -> dict[TopicPartition, ConsumerThreadId]:
        return dict.fromkeys(self._stored, self._thread)

    def may_deliver(self) -> bool:
        return True

    def live_brokers(self) -> tuple[Broker, ...]:
        return ()

    def commit(self, offsets: Mapping[TopicPartition, int], *, generation: int) -> None:  # noqa: ARG002
        self._stored |= {partition: StoredOffset(offset, offset) for partition, offset in offsets.items()}

    def stored(self, partitions: Collection[TopicPartition], _: int) -> dict[TopicPartition, StoredOffset]:
        return {partition: self._stored[partition] for partition in partitions}

    def leave(self) -> None:
        pass
