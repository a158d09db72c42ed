"""The Spark benchmark: this source compared with Spark's own Kafka source and the ceiling, in one run.

See measurements.md#spark.

All contestants run in one session, with Spark's defaults, two cores and the broker on the same machine. They take turns
in every contest, and the first turn of each is discarded: then code is compiled, workers are started and the broker's
files are in memory for all of them. Options are the defaults too, unless a name specifies otherwise, so Spark's own
source has a task for each of 8 partitions, and this one a task for each core. On a cluster (``workers``) the topic has
a partition for each worker, and each contestant as many tasks. Spark's also waits up to 500 ms in most of its tasks
(see ``SPARK_TUNED``), so it takes part a second time without that wait: that is the ratio of the fetching.
:mod:`benchmarks.zerowork` describes the ceiling.

The records have no keys, so the second column besides the value is one that queries of a few columns often have and
that differs from row to row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.contest import OURS, Contest
from benchmarks.load import Load, fill
from benchmarks.sparkdriver import WARM_UP, driver_contest
from benchmarks.sparkfield import (
    CEILING,
    CEILING_CACHED,
    SPARK,
    SPARK_TUNED,
    Reading,
    SparkField,
    source_options,
    spark_field,
)
from zkconsumer.decode.buffers import COLUMNS
from zkconsumer.sandbox.progress import Progress

_EVERYBODY: Final = (OURS, SPARK, SPARK_TUNED, CEILING, CEILING_CACHED)
_BESIDE_CEILING: Final = "at least 0.85"
_SHORT: Final = {CEILING: "ceiling", SPARK_TUNED: f"tuned {SPARK}"}
_SMALL_BYTES: Final = 100
_LARGE_BYTES: Final = 1024
_FEWER: Final = 6
"""Ratio of the numbers of small and large records."""
_LONGER: Final = 10
"""Factor for the number of records of the long stream."""
_CAPPED_BATCHES: Final = 10
_TRICKLE_PARTITIONS: Final = 8


@dataclass(frozen=True)
class SparkSizes:
    """The sizes of the contests.

    Attributes:
        rounds: measurements of each contestant in each contest.
        records: number of records of 100 bytes to read; a sixth of it for records of 1 KiB.
        partitions: numbers of partitions of the topics whose batches are planned.
        long: whether to also read ten times as many records in one stream.
        workers: of a cluster, on which only streams are measured; 0 for all contests on one machine.
    """

    rounds: int = 5
    records: int = 3_000_000
    partitions: tuple[int, ...] = (1000, 5000)
    long: bool = False
    workers: int = 0

    def small(self) -> Load:
        """Records of 100 bytes; on a cluster in a partition for each worker, so that all sources have equal tasks."""
        load = Load(_SMALL_BYTES, total_bytes=self.records * _SMALL_BYTES)
        return load._replace(partitions=self.workers) if self.workers else load

    def large(self) -> Load:
        """Records of 1 KiB."""
        return Load(_LARGE_BYTES, total_bytes=self.records // _FEWER * _LARGE_BYTES)


def run_spark_contests(sizes: SparkSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Run all contests of the Spark benchmark and return them.

    Args:
        sizes: sizes of the contests.
        directory: directory for Spark's files and log.
        progress: reports the steps.

    Raises:
        SandboxError: a server or Spark did not start, or a contestant did not read all records.
    """
    with spark_field(directory, progress, sizes.workers) as field:
        turns = _Turns(field, sizes.rounds, progress)
        if sizes.workers:
            return [turns.streaming(_fill(field, sizes.small(), progress), sizes.workers)]
        small, large = _fill(field, sizes.small(), progress), _fill(field, sizes.large(), progress)
        contests = [*_read_in_batch(turns, small), *turns.batch({large: "at least 2"})]
        contests.append(beside(contests[-1], CEILING, _BESIDE_CEILING))
        contests += [turns.stream(small, "at most 0.67"), turns.capped(small), turns.trickle()]
        if sizes.long:
            more = _fill(
                field, sizes.small()._replace(total_bytes=(_LONGER - 1) * small.records * _SMALL_BYTES), progress
            )
            contests.append(turns.stream(small._replace(records=small.records + more.records), "at most 0.33"))
        contests += [turns.driver(partitions) for partitions in sizes.partitions]
        return contests


def beside(contest: Contest, reference: str, target: str) -> Contest:
    """This source's measurements compared with another contestant's."""
    measured = {name: contest.measured[name] for name in (OURS, reference)}
    return Contest(f"{contest.title}, beside the {_SHORT[reference]}", contest.unit, reference, target, {}, measured)


def by_columns(contests: Mapping[int, Contest], target: str) -> Contest:
    """This source's measurements by the number of columns read, compared with the largest number.

    Args:
        contests: contests by the number of columns.
        target: target for the smallest number.
    """
    measured = {f"{OURS}, columns: {count}": contest.measured[OURS] for count, contest in sorted(contests.items())}
    names, everything = list(measured), contests[max(contests)]
    targets = {name: target if name == names[0] else "" for name in names}
    return Contest(f"{everything.title}, by columns", everything.unit, names[-1], "", targets, measured)


def _read_in_batch(turns: _Turns, small: Reading) -> list[Contest]:
    """Batch reads of one, two and all columns, which take turns."""
    one, two = small._replace(columns=("value",)), small._replace(columns=("value", "timestamp"))
    of_all, of_one, of_two = turns.batch({small: "at least 4.5", one: "at least 8", two: ""})
    contests = [of_all, beside(of_all, CEILING, _BESIDE_CEILING)]
    contests += [of_one, beside(of_one, SPARK_TUNED, "at least 4.5"), of_two, beside(of_two, SPARK_TUNED, "")]
    return [*contests, by_columns({1: of_one, 2: of_two, len(COLUMNS): of_all}, "at least 1.5")]


def _fill(field: SparkField, load: Load, progress: Progress) -> Reading:
    with progress.step(f"appending {load.records:,} records of {load.value_bytes} bytes"):
        fill(field.live_brokers, load)
    return Reading(load.topic, load.value_bytes, load.records)


class _Turns:
    """Runs contests in which contestants take turns."""

    def __init__(self, field: SparkField, rounds: int, progress: Progress) -> None:
        self._field = field
        self._rounds = rounds
        self._progress = progress

    def batch(self, targets: Mapping[Reading, str]) -> list[Contest]:
        """Batch reads, one contest each; the contests take turns, so that their figures are comparable."""
        contests = {
            reading: Contest(f"Batch read of {_described(reading)}", "rows/s", SPARK, target)
            for reading, target in targets.items()
        }
        for reading in contests:
            with self._progress.step(f"counting {_described(reading)}"):
                for name in _EVERYBODY:
                    self._field.count_rows(name, reading)
        with self._progress.step("batch reads", self._rounds) as advance:
            for number in range(self._rounds + 1):
                for (reading, contest), name in itertools.product(contests.items(), _EVERYBODY):
                    advance(max(0, number - 1), f"rounds, {name}")
                    rate = self._field.read_batch(name, reading)
                    if number:
                        contest.add(name, rate)
        return list(contests.values())

    def stream(self, reading: Reading, target: str) -> Contest:
        """An AvailableNow query of one batch."""
        contest = Contest(f"AvailableNow over {_described(reading)}", "s", SPARK, target)
        return self._take(contest, _EVERYBODY, lambda name: self._field.read_stream(name, reading))

    def capped(self, reading: Reading) -> Contest:
        """An AvailableNow query of ten batches."""
        cap = -(-reading.records // _CAPPED_BATCHES)
        contest = Contest(f"AvailableNow over {_described(reading)}, {cap:,} a batch", "s", SPARK, "at most 0.77")
        return self._take(contest, _EVERYBODY, lambda name: self._field.read_stream(name, reading, cap))

    def streaming(self, reading: Reading, workers: int) -> Contest:
        """Batches of a query of ten on a cluster, without its start and its first batch."""
        cap = -(-reading.records // _CAPPED_BATCHES)
        title = f"Stream of {_described(reading)}, {cap:,} a batch, {workers} workers and tasks"
        contest = Contest(title, "rows/s", SPARK_TUNED, "at least 3")
        return self._take(contest, _EVERYBODY, lambda name: self._field.stream_rate(name, reading, cap))

    def trickle(self) -> Contest:
        """Batches of a few rows; each round is a query, measured by the median of its batches.

        Compared with Spark's own source as tuned for such batches; with its defaults it is far slower.
        """
        contest = Contest("A batch of 5 rows, trigger 0 s", "ms", SPARK_TUNED, "at most 50 ms more")
        topic = "trickle"
        self._field.create_topic(topic, _TRICKLE_PARTITIONS, 0)
        return self._take(
            contest, (OURS, SPARK, SPARK_TUNED), lambda name: self._field.trickle(name, topic, _TRICKLE_PARTITIONS)
        )

    def driver(self, partitions: int) -> Contest:
        """This source's driver work for a batch of many partitions; see :mod:`benchmarks.sparkdriver`."""
        topic, batches = f"wide-{partitions}", WARM_UP + self._rounds
        with self._progress.step(f"planning batches of {partitions:,} partitions"):
            self._field.create_topic(topic, partitions, batches)
            reading = Reading(topic, 0, partitions * batches)
            options = source_options(OURS, reading, self._field.endpoints, self._field.new_name())
            return driver_contest(options, partitions, self._rounds)

    def _take(self, contest: Contest, names: Sequence[str], measure: Callable[[str], float]) -> Contest:
        """Measure round by round; the first round is a warm-up."""
        with self._progress.step(contest.title, self._rounds) as advance:
            for number in range(self._rounds + 1):
                for name in names:
                    advance(max(0, number - 1), f"rounds, {name}")
                    figure = measure(name)
                    if number:
                        contest.add(name, figure)
        return contest


def _described(reading: Reading) -> str:
    size = f"{reading.value_bytes} B" if reading.value_bytes < _LARGE_BYTES else f"{reading.value_bytes // 1024} KiB"
    columns = f", only {' and '.join(reading.columns)}" if reading.columns else ""
    return f"{reading.records:,} records of {size}{columns}"
