"""The work of Spark's driver for a batch of many partitions, with and without a group; runs without Spark.

The group's part is the difference of two measurements that alternate round by round: the calls of Spark to a
:class:`~zkconsumer.spark.driver.QueryDriver` that owns every partition (``latestOffset``, which also commits the
previous batch, ``partitions``, ``reportLatestOffset``), and the same requests to the brokers and the same arithmetic
without membership, assignment, lease or commit. Every batch holds one record of each partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final

from benchmarks.contest import OURS, Contest
from zkconsumer.errors import SandboxError
from zkconsumer.ranges.logends import LogEnds
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.clusterview import read_cluster
from zkconsumer.spark.driver import QueryDriver
from zkconsumer.spark.rules.microbatch import RangePartition, cap_offsets, make_tasks, split_tasks
from zkconsumer.spark.rules.offsetsjson import Report, decode_offset, encode_offset, encode_report, initial_offset
from zkconsumer.spark.rules.options import SourceOptions, parse_options
from zkconsumer.spark.rules.sourceoffset import BatchPlan, next_offset

WARM_UP: Final = 3
"""Batches before the first measured one: one joins the group, the next creates the znodes of its offsets."""
PLANNING: Final = "questions and planning without a group"
ADDED: Final = f"{OURS}: what the group adds"
_STREAMS: Final = 2


def driver_contest(options: Mapping[str, str], partitions: int, rounds: int) -> Contest:
    """Measure the driver's work for batches of one record of each of ``partitions``.

    Args:
        options: options of the query; the topic needs ``rounds`` plus :data:`WARM_UP` records in every partition.
        partitions: number of partitions of the topic.
        rounds: number of batches to measure.

    Raises:
        SandboxError: a batch did not have a record of each partition.
        ZkConsumerError: ZooKeeper or the brokers cannot be reached.
    """
    logging.getLogger("zkconsumer").addHandler(logging.NullHandler())  # otherwise the driver would configure logging
    contest = Contest(
        f"Driver's work for a batch of {partitions:,} partitions",
        "ms",
        PLANNING,
        targets={OURS: "under 200 ms for 5,000", ADDED: "under 20 ms for 1,000"},
    )
    # Not on the main thread, where the driver would treat SIGTERM as the end of its query.
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(_measure, contest, parse_options(options), partitions, rounds).result()
    return contest


def _measure(contest: Contest, options: SourceOptions, partitions: int, rounds: int) -> None:
    with closing(_member_ms(options, partitions)) as with_group, closing(_planning_ms(options, partitions)) as without:
        for number in range(WARM_UP + rounds):
            planning, member = next(without), next(with_group)
            if number >= WARM_UP:
                contest.add(PLANNING, planning)
                contest.add(OURS, member)
                contest.add(ADDED, member - planning)


def _member_ms(options: SourceOptions, partitions: int) -> Generator[float, None, None]:
    """Duration of each batch's calls to the driver of a query."""
    driver = QueryDriver(options)
    try:
        finished = initial_offset(options.config.group_id)
        while True:
            began = time.perf_counter()
            planned = driver.latest_offset(finished, partitions)
            driver.partitions(finished, planned)
            driver.report()
            yield (time.perf_counter() - began) * 1000
            finished = _require_all(planned, partitions)
    finally:
        driver.stop()


def _planning_ms(options: SourceOptions, partitions: int) -> Generator[float, None, None]:
    """Duration of the work that any source must do for each of these batches."""
    view = read_cluster(options)
    positions = dict.fromkeys(view.partitions, 0)
    ends = LogEnds(options.config, lambda: view.brokers, "benchmark")
    try:
        offset = initial_offset(options.config.group_id)
        while True:
            began = time.perf_counter()
            finished = decode_offset(offset)
            positions.update((partition, span.until) for partition, span in finished.spans.items())
            available = {
                partition: Span(positions[partition], end) for partition, end in ends.latest(positions).items()
            }
            encode_report(
                Report(options.config.group_id, available, None, available.keys())
            )  # for the query's progress
            rows = cap_offsets(available, partitions)
            offset = encode_offset(next_offset(finished, BatchPlan(rows, positions, {}, {}), options.config.group_id))
            tasks = split_tasks(make_tasks(decode_offset(offset).spans, _STREAMS, None), None, None)
            _ = [RangePartition(task, view.brokers) for task in tasks]
            yield (time.perf_counter() - began) * 1000
            _require_all(offset, partitions)
    finally:
        ends.close()


def _require_all(offset: dict[str, Any], partitions: int) -> dict[str, Any]:
    planned = sum(span.size > 0 for span in decode_offset(offset).spans.values())
    if planned != partitions:
        raise SandboxError(f"a batch should have a record of each of {partitions} partitions, but has {planned}")
    return offset
