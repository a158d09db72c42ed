"""Second act: a Spark streaming query in its own group aggregates the topic; its result must equal the source's."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence

from demo import aggregate, checks
from demo.checks import Check
from demo.observer import Observer
from demo.sparkjob import Job
from demo.stage import PARTITIONS, TOPIC, Stage
from demo.timeline import Sample
from zkconsumer.errors import ZkConsumerError
from zkconsumer.sandbox import java_home_for_spark
from zkconsumer.sandbox.process import JvmProcess
from zkconsumer.sandbox.progress import Advance

GROUP = "flights-spark"

_RECORDS_PER_BATCH = 60_000
_STALL_S = 300.0
"""Nothing shows progress between the join and the first commit, for which Spark's processes need some 10 s of CPU: on a
machine with fifteen times as many processes as CPUs more than 90 s."""
_LEAVING_S = 60.0


class Querying:
    """The second act. Used once."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._servers = stage.servers
        self._job = Job(
            connection=self._servers.connection,
            group=GROUP,
            topic=TOPIC,
            records_per_batch=_RECORDS_PER_BATCH,
            directory=str(stage.workspace.spark),
            java_home=str(java_home_for_spark()),
        )
        self._joined = False

    def play(self) -> list[Check]:
        """Play the act and return its checks.

        Raises:
            ZkConsumerError: the query failed.
        """
        exit_code, samples = self._run()
        final = self._servers.read(GROUP, self._stage.clock())
        result = json.loads(self._job.result.read_text(encoding="utf-8"))
        expected = aggregate.from_source(self._stage.records.table)
        actual = aggregate.from_rows(result["rows"])
        self._stage.story.step(
            f"A Spark query in group {GROUP} aggregated the topic in {result['batches']} micro-batches: "
            f"{len(actual)} routes, {sum(figures[0] or 0 for figures in actual.values()):,} flights"
        )
        at_work = _at_work(samples)
        names = dict.fromkeys(at_work.members, "Spark query")
        self._stage.names.update(names)
        return [
            checks.shared("Spark is the only member", at_work, names),
            checks.ended("Spark ends cleanly", [exit_code], final.deserted),
            checks.aggregated(expected, actual),
            checks.no_lag(GROUP, final, self._stage.records.partition_sizes(PARTITIONS)),
        ]

    def _run(self) -> tuple[int, list[Sample]]:
        """Run the query in a separate process, with its output in a log, and watch its group."""
        stage = self._stage
        # The class works for any process; here it is Python.
        process = JvmProcess(
            "the Spark query",
            [sys.executable, "-m", "demo.sparkjob", str(self._job.save())],
            stage.workspace.logs / "spark.log",
        )
        total = len(stage.records)
        with (
            Observer(self._servers.reader(GROUP), stage.timeline, stage.clock, self._servers.expect_alive) as watch,
            stage.story.waiting("a Spark query aggregates the topic", total) as advance,
        ):
            process.start()
            process_group = os.getpgid(process.pid)
            try:
                exit_code = process.run(
                    lambda: self._tick(watch, advance),
                    _STALL_S,
                    lambda: (watch.newest and watch.newest.committed, process.log.stat().st_size),
                )
            except BaseException:
                # Spark's JVM and its Python processes, too: none may write into a directory that is being removed.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process_group, signal.SIGKILL)
                process.kill()
                raise
            if exit_code == 0:
                # Spark has signalled the query's source process to leave, and does not wait for it.
                watch.wait_for(lambda sample: sample.deserted, "the query leaves its group", _LEAVING_S)
        if exit_code != 0:
            raise ZkConsumerError(f"the Spark query ended with exit code {exit_code}; {process.log_summary()}")
        return exit_code, stage.timeline.samples[GROUP]

    def _tick(self, watch: Observer, advance: Advance) -> None:
        watch.expect_alive()
        sample = watch.newest
        if sample is None:
            return
        if sample.members and not self._joined:
            self._joined = True
            self._stage.mark("the query joins")
        advance(sum(sample.ends) - sample.lag, "" if self._joined else "(Spark is starting)")


def _at_work(samples: Sequence[Sample]) -> Sample:
    """The last sample in which all partitions had an owner; if there is none, the last in which any had one."""
    whole = [sample for sample in samples if None not in sample.owners]
    return (whole or [sample for sample in samples if any(sample.owners)] or samples)[-1]
