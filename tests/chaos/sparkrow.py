"""R11: a Spark query of which processes are killed, that is stopped, and whose partitions others take for some time.

The faults of a schedule follow each other: each waits until the query has delivered a further batch, and then for the
seconds that it has as its ``at``. Their kinds:

- ``available``: not a fault; the query has the trigger AvailableNow, and is started again where it ends;
- ``driver``: SIGKILL of the driver's JVM; the query is started again;
- ``executor``, ``worker``: SIGKILL of an executor, of a Python worker that runs tasks;
- ``stop``: the query is stopped in the middle of a batch, and started again;
- ``member``: a member of ours joins the group in the middle of a batch, reads for some seconds, and leaves;
- ``query``: a second query of the group does so; it is stopped, or with the mode ``hard`` its driver is killed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from tests.chaos.ownrow import OwnRow, judge_no_ledger
from tests.chaos.schedule import Fault, Schedule
from tests.chaos.servers import Servers
from tests.chaos.verdicts import Verdict
from tests.fixtures.sandbox import produce_records
from tests.fixtures.spark import TOO_LATE, ObservedGroup
from tests.fixtures.sparkjob import EXECUTORS, PATIENCE_S, TASK_WORKERS, DeliveryJob, job_settings
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.connector.stream import MessageStream
from zkconsumer.model import Message

PARTITIONS: Final = 4
_EACH: Final = 160
"""Records that are produced before each fault: four batches."""
_LOOK_S: Final = 0.02
_FOUND_S: Final = 15.0
_FAILURES: Final = 3
"""Ends of the query that no fault explains, after which a trial is given up."""

_KINDS: Final = {"driver": 3, "executor": 1, "worker": 2, "stop": 2, "member": 2, "query": 1}
"""The kinds of faults, and how often each comes: a second JVM, and executors, need a while to start."""
_OTHERS: Final = frozenset({"member", "query"})
"""Kinds by which others own partitions for some time."""

Position = tuple[int, int]
"""Partition and offset."""
Delivery = tuple[int, Sequence[Position]]
"""Number of a batch, and what it had."""


def plan(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """Two to four faults; in every third trial the query reads what is available, and ends."""
    faults = [Fault("available", 0.0)] if chance.random() < 1 / 3 else []
    for _ in range(chance.randint(2, 4)):
        at = round(chance.uniform(0.0, 1.5), 2)
        (kind,) = chance.choices(tuple(_KINDS), tuple(_KINDS.values()))
        seconds = round(chance.uniform(1.0, 6.0), 2) if kind in _OTHERS else 0.0
        faults.append(Fault(kind, at, seconds=seconds, mode=chance.choice(("", "hard")) if kind == "query" else ""))
    return tuple(faults)


def ahead(stored: Mapping[int, int], *ends: Mapping[int, int]) -> dict[int, int]:
    """Stored offsets beyond what any checkpoint has finished, or a member has handed out, of the partition."""
    return {p: offset for p, offset in stored.items() if offset > max((end.get(p, 0) for end in ends), default=0)}


def judge(
    produced: Iterable[Position], queries: Sequence[Sequence[Delivery]], others: Counter[Position], *, alone: bool
) -> Verdict:
    """Judge what reached the sinks.

    Args:
        produced: all positions.
        queries: of each query the deliveries of batches, in their order.
        others: what members of ours were handed out.
        alone: True if no other member has had a partition: then a sink that knows batches has each row once.
    """
    verdict, wanted = Verdict(), set(produced)
    delivered, kept = Counter(others), Counter(others)
    for deliveries in queries:
        batches: dict[int, list[Position]] = {}
        for number, rows in deliveries:
            delivered.update(rows)
            same = batches.setdefault(number, sorted(rows)) == sorted(rows)
            verdict.require(same, f"batch {number} was repeated with other rows")
        kept.update(position for rows in batches.values() for position in rows)
    lost, invented = sorted(wanted - delivered.keys()), sorted(delivered.keys() - wanted)
    again = sorted(position for position, times in kept.items() if times > 1)
    verdict.figures |= {
        "produced": len(wanted),
        "lost": len(lost),
        "duplicates": delivered.total() - len(delivered),
        "duplicates in a sink that knows batches": len(again),
    }
    verdict.require(bool(wanted), "nothing was produced")
    verdict.require(not lost, f"{len(lost)} records lost: {lost[:1]}")
    verdict.require(not invented, f"{len(invented)} rows that were not produced: {invented[:1]}")
    verdict.require(not (again and alone), f"{len(again)} rows are in two batches: {again[:1]}")
    return verdict


class _Reader:
    """A member of ours in this process, which records what it is handed out."""

    def __init__(self, servers: Servers, name: str, handed_out: Counter[Position], ends: dict[int, int]) -> None:
        config = {
            "zookeeper.connect": servers.box.zookeeper_connect,
            "group.id": name,
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": "300",
            "zookeeper.session.timeout.ms": "30000",
            "zookeeper.connection.timeout.ms": "60000",
            "rebalance.max.retries": "20",
        }
        self._handed_out, self._ends = handed_out, ends
        self._connector = ConsumerConnector(ConsumerConfig.from_properties(config))
        (stream,) = self._connector.create_message_streams({name: 1})[name]
        self._thread = threading.Thread(target=self._read, args=[stream], daemon=True)
        self._thread.start()

    def _read(self, stream: MessageStream[Message]) -> None:
        for message in stream:
            self._ends[message.partition] = message.offset + 1  # first, since it may be committed from now on
            self._handed_out[message.partition, message.offset] += 1
            time.sleep(0.01)

    def close(self) -> None:
        """Leave; what was handed out is committed."""
        self._connector.shutdown()
        self._thread.join(PATIENCE_S)


class _SparkTrial:
    """One trial: a query, what is done to it, and what others of its group were handed out."""

    def __init__(self, servers: Servers, name: str, schedule: Schedule, stack: ExitStack) -> None:
        self._servers, self.name, self._stack = servers, name, stack
        self.directory = servers.directory / name
        self.directory.mkdir(parents=True)
        self.group = ObservedGroup(servers.zookeeper, name)
        self.produced: list[Position] = []
        self.handed_out: Counter[Position] = Counter()
        self._ends: dict[int, int] = {}
        self.jobs: list[DeliveryJob] = []
        self.failed = 0
        self._faults = schedule.faults
        kinds = {fault.kind for fault in self._faults}
        self._available = "available" in kinds
        self.alone = not kinds & _OTHERS
        master = "local-cluster[2,1,1024]" if "executor" in kinds else "local[2,8]"
        self.job = self._make("job", master, available=self._available)

    def _make(self, name: str, master: str, *, available: bool) -> DeliveryJob:
        trigger = {"availableNow": True} if available else {"processingTime": "0 seconds"}
        settings = job_settings(self._servers.box, self.name, self.name, master=master, trigger=trigger)
        self.jobs.append(DeliveryJob(self.directory / name, self.name, settings))
        self._stack.callback(self.jobs[-1].close)
        return self.jobs[-1]

    def run(self) -> None:
        """Inject all faults, and wait until everything is delivered.

        Raises:
            AssertionError: an offset was ahead of the checkpoint, or the query does not continue.
        """
        self._produce()
        self.job.start()
        for fault in self._faults:
            if fault.kind != "available":
                self._produce()
                self._await_delivery(self.job)
                self._watch_for(fault.at)
                getattr(self, f"_inject_{fault.kind}")(fault)
        wanted = Counter(partition for partition, _ in self.produced)
        self._await(self._all_delivered, "all is delivered")
        if not self._available:
            self._await(lambda: self.group.offsets(self.name) == wanted, "all is committed")

    def _produce(self) -> None:
        records = [{"value": b"v", "partition": number % PARTITIONS} for number in range(_EACH)]
        self.produced += produce_records(self._servers.box.bootstrap_servers, self.name, records)

    def _all_delivered(self) -> bool:
        found = set(self.handed_out)
        for job in self.jobs:
            found |= job.delivered().keys()
        return found >= set(self.produced)

    # -- waiting --------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Compare the group's offsets, which are read first, with the checkpoints."""
        stored = self.group.offsets(self.name)
        found = ahead(stored, *(job.finished() for job in self.jobs), self._ends)
        assert not found, f"the store is ahead of the checkpoint: {found}"
        if not self.job.runs:
            ended_well = self._available and self.job.exit_code == 0
            self.failed += not ended_well
            assert self.failed < _FAILURES, f"the query has failed {self.failed} times; see {self.job.log}"
            self.job.start()

    def _await(self, condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            self._look()
            assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what}"
            time.sleep(_LOOK_S)

    def _await_delivery(self, job: DeliveryJob) -> None:
        before = len(job.deliveries())
        self._await(lambda: len(job.deliveries()) > before, "the query delivers a batch")

    def _watch_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._await(lambda: time.monotonic() >= until, "time passes")

    # -- faults ---------------------------------------------------------------------------------------------------

    def _inject_driver(self, _: Fault) -> None:
        with suppress(ProcessLookupError):  # AvailableNow: it has just ended
            self.job.kill_driver()
        self.job.start()

    def _inject_executor(self, _: Fault) -> None:
        self._kill_one(EXECUTORS, 1)

    def _inject_worker(self, _: Fault) -> None:
        self._kill_one(TASK_WORKERS, 2)  # the first one is the daemon, which makes the others

    def _kill_one(self, words: str, at_least: int) -> None:
        def killed() -> bool:
            found = self.job.pids(words)
            with suppress(ProcessLookupError):  # it has just ended
                if len(found) >= at_least:
                    os.kill(found[-1], signal.SIGKILL)
                    return True
            return False

        with suppress(AssertionError):  # none: AvailableNow has just ended
            self._await(killed, f"a process with {words}", _FOUND_S if self._available else PATIENCE_S)

    def _inject_stop(self, _: Fault) -> None:
        code = self.job.stop()
        assert code == 0, f"a query that was stopped ended with exit code {code}; see {self.job.log}"
        self.job.start()

    def _inject_member(self, fault: Fault) -> None:
        reader = _Reader(self._servers, self.name, self.handed_out, self._ends)
        try:
            self._watch_for(fault.seconds)
        finally:
            reader.close()

    def _inject_query(self, fault: Fault) -> None:
        other = self._make(f"query-{len(self.jobs)}", "local[1,8]", available=False)
        other.start()
        self._await(other.started, "a second query has started")
        self._watch_for(fault.seconds)
        if fault.mode == "hard":
            other.kill_driver()
        else:
            other.stop()


def run_spark_trial(servers: Servers, schedule: Schedule) -> Verdict:
    """Run a schedule and judge it; the files of a trial that failed stay."""
    name = f"R11-{uuid4().hex[:8]}"
    servers.topics.create(name, PARTITIONS)
    failures: list[str] = []
    with ExitStack() as stack:
        trial = _SparkTrial(servers, name, schedule, stack)
        try:
            trial.run()
        except AssertionError as error:
            failures.append(str(error))
    verdict = judge(trial.produced, [job.deliveries() for job in trial.jobs], trial.handed_out, alone=trial.alone)
    verdict.figures["unexpected ends of the query"] = trial.failed
    verdict.failures = [*failures, *verdict.failures]
    late = sum(job.log.read_text(encoding="utf-8").count(TOO_LATE) for job in trial.jobs)
    verdict.disturbance = (
        f"Spark gave up a source process that had not started within 10 s, {late} times" if late else ""
    )
    if verdict.failures:
        Path(trial.directory / "schedule.json").write_text(schedule.to_json(), encoding="utf-8")
    else:
        shutil.rmtree(trial.directory, ignore_errors=True)
    return verdict


SPARK: Final = OwnRow(
    "R11",
    "a Spark query: driver, executor, worker killed, stopped in mid-batch, AvailableNow, hand-over during a batch",
    "lost 0; rows equal; the group's offsets never ahead of the checkpoint",
    plan,
    judge_no_ledger,
    run=run_spark_trial,
)
