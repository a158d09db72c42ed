"""SparkField: the servers, the session and the jobs of the Spark benchmark."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.contest import OURS
from benchmarks.servers import bench_servers
from benchmarks.sparksession import CORES, spark_session
from zkconsumer.errors import SandboxError
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.admin import create_topics
from zkconsumer.sandbox.producer import Record, append_batches, encode_batches
from zkconsumer.sandbox.progress import Progress
from zkconsumer.spark.rows import spark_schema
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.zookeeper.session import ZkSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

SPARK: Final = 'Spark\'s format("kafka")'
SPARK_TUNED: Final = f"{SPARK}, kafka.fetch.max.wait.ms=50"
"""By default a task of that source often waits 500 ms for the timeout of a fetch at the end of the log."""
CEILING: Final = "zero-work source"
CEILING_CACHED: Final = f"{CEILING}, one batch in the cache"
"""The ceiling as first measured: higher than a source can reach whose rows come from memory."""
_FORMATS: Final = {
    OURS: "zkconsumer",
    SPARK: "kafka",
    SPARK_TUNED: "kafka",
    CEILING: "zerowork",
    CEILING_CACHED: "zerowork",
}
_TAKES_A_SCHEMA: Final = frozenset({"zkconsumer", "zerowork"})
_QUERY_TIMEOUT_S: Final = 600
_TIMEOUT_MS: Final = 60_000
_FEW: Final = 5
_TRICKLE_BATCHES: Final = 10


class Reading(NamedTuple):
    """The input of a job.

    Attributes:
        topic: name of the topic, which is read from its beginning to its end.
        value_bytes: length of each value.
        records: number of records.
        columns: names of the columns to read; empty for all.
    """

    topic: str
    value_bytes: int
    records: int
    columns: tuple[str, ...] = ()


class Endpoints(NamedTuple):
    """Addresses of the servers."""

    zookeeper: str
    bootstrap: str


def source_options(name: str, reading: Reading, endpoints: Endpoints, group: str, workers: int = 0) -> dict[str, str]:
    """The options of one contestant for reading a whole topic.

    On a cluster of so many workers each contestant has a task for each: the topic has as many partitions, which decide
    for Spark's own source, and ``numStreams`` is that of a cluster, as spark.md#tasks recommends.
    """
    if name in (CEILING, CEILING_CACHED):
        rows = {"topic": reading.topic, "records": str(reading.records), "valueBytes": str(reading.value_bytes)}
        return {**rows, "tasks": str(workers or CORES), "distinct": str(name == CEILING).lower()}
    if name == OURS:
        where = {"zookeeper.connect": endpoints.zookeeper, "group.id": group}
        where |= {"numStreams": str(workers)} if workers else {}
    else:
        where = {"kafka.bootstrap.servers": endpoints.bootstrap}
    if name == SPARK_TUNED:
        where["kafka.fetch.max.wait.ms"] = "50"
    return {**where, "subscribe": reading.topic, "startingOffsets": "earliest"}


def part_of_schema(columns: Sequence[str]) -> StructType:
    """The schema with only these columns."""
    from pyspark.sql.types import StructType

    fields = spark_schema(include_headers=True)
    return StructType([fields[name] for name in columns])


def few_row_batches(progresses: Sequence[Mapping[str, Any]], skip: int) -> list[float]:
    """Duration in ms of each micro-batch that had rows, from a query's progresses, without the first ``skip``."""
    with_rows = [progress for progress in progresses if progress["numInputRows"] > 0]
    return [float(progress["durationMs"]["triggerExecution"]) for progress in with_rows[skip:]]


class SparkField:
    """The servers, session and jobs of the contests; used by one thread."""

    def __init__(
        self, sandbox: Sandbox, session: ZkSession, spark: SparkSession, directory: Path, workers: int = 0
    ) -> None:
        self.endpoints = Endpoints(sandbox.zookeeper_connect, sandbox.bootstrap_servers)
        self._group_reader = GroupReader(session)
        self._spark = spark
        self._directory = directory
        self._workers = workers
        self._names = count()

    def live_brokers(self) -> tuple[Broker, ...]:
        """The brokers of the sandbox."""
        return self._group_reader.live_brokers()

    def new_name(self) -> str:
        """A new name for a group or a checkpoint."""
        return f"bench-{next(self._names)}"

    def create_topic(self, topic: str, partitions: int, records: int) -> None:
        """Create a topic with ``records`` small records in each partition."""
        client = BrokerClient(self.live_brokers, client_id="zkconsumer-bench", timeout_ms=_TIMEOUT_MS)
        try:
            create_topics(client, {topic: partitions}, timeout_s=2 * _TIMEOUT_MS / 1000)
        finally:
            client.close()
        if records:
            batch = _small_batch(records)
            append_batches(self.live_brokers, {TopicPartition(topic, n): [batch] for n in range(partitions)})

    # -- jobs -------------------------------------------------------------------------------------------------------

    def count_rows(self, name: str, reading: Reading) -> None:
        """Raise SandboxError unless the contestant reads all records."""
        rows = self._load(self._spark.read, name, reading).count()
        _require_all(name, rows, reading)

    def read_batch(self, name: str, reading: Reading) -> float:
        """Rows per second of reading the columns into a sink that drops them, including ``load()`` and planning."""
        began = time.perf_counter()
        self._load(self._spark.read, name, reading).write.format("noop").mode("overwrite").save()
        return reading.records / (time.perf_counter() - began)

    def read_stream(self, name: str, reading: Reading, limit: int | None = None) -> float:
        """Seconds from ``start()`` of an AvailableNow query to its end; raises as :meth:`_run_stream`."""
        return self._run_stream(name, reading, limit)[0]

    def stream_rate(self, name: str, reading: Reading, limit: int) -> float:
        """Rows per second of the batches of an AvailableNow query after the first; raises as :meth:`_run_stream`."""
        batches = [one for one in self._run_stream(name, reading, limit)[1] if one["numInputRows"]][1:]
        seconds: float = sum(one["durationMs"]["triggerExecution"] for one in batches) / 1000
        return float(sum(one["numInputRows"] for one in batches)) / seconds

    def _run_stream(self, name: str, reading: Reading, limit: int | None) -> tuple[float, list[Mapping[str, Any]]]:
        """Seconds from ``start()`` of an AvailableNow query to its end, and the progress of its batches.

        Raises:
            SandboxError: it did not end, or its batches did not have all rows.
        """
        options = {} if limit is None else {"maxOffsetsPerTrigger": str(limit)}
        writer = self._writer(self._load(self._spark.readStream, name, reading, options))
        began = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        ended = query.awaitTermination(_QUERY_TIMEOUT_S)
        seconds = time.perf_counter() - began
        if not ended:
            query.stop()
            raise SandboxError(f"{name} did not read {reading.topic} within {_QUERY_TIMEOUT_S} s")
        progresses = list(_progresses(query))
        _require_all(name, sum(progress["numInputRows"] for progress in progresses), reading)
        return seconds, progresses

    def trickle(self, name: str, topic: str, partitions: int) -> float:
        """Median duration in ms of batches with a few rows of one partition, each appended after the previous batch.

        Partitions take turns. The first turn of each is not measured: Spark's own source connects a consumer for each
        new partition, and keeps it.
        """
        reading = Reading(topic, 0, 0)
        writer = self._writer(self._load(self._spark.readStream, name, reading, {"startingOffsets": "latest"}))
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            query.processAllAvailable()
            few = _small_batch(_FEW)
            for number in range(partitions + _TRICKLE_BATCHES):
                append_batches(self.live_brokers, {TopicPartition(topic, number % partitions): [few]})
                query.processAllAvailable()
            durations = few_row_batches(_progresses(query), partitions)
        finally:
            query.stop()
        if not durations:
            raise SandboxError(f"{name} read none of the records appended to {topic}")
        return statistics.median(durations)

    def _load(self, reader: Any, name: str, reading: Reading, options: Mapping[str, str] | None = None) -> Any:
        """A frame of the columns; typed loosely, as batch and stream have no common type.

        Spark's own source does not accept a schema, so the columns are selected.
        """
        defaults = source_options(name, reading, self.endpoints, self.new_name(), self._workers)
        given = {**defaults, **(options or {})}
        if not reading.columns:
            return reader.format(_FORMATS[name]).options(**given).load()
        if _FORMATS[name] in _TAKES_A_SCHEMA:
            reader = reader.schema(part_of_schema(reading.columns))
        return reader.format(_FORMATS[name]).options(**given).load().select(*reading.columns)

    def _writer(self, frame: Any) -> Any:
        checkpoint = self._directory / "checkpoints" / self.new_name()
        return frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))


@contextmanager
def spark_field(directory: Path, progress: Progress, workers: int = 0) -> Iterator[SparkField]:
    """Start the servers and Spark, with so many workers of its own or none."""
    with bench_servers(progress) as (sandbox, session), spark_session(directory, progress, workers) as spark:
        yield SparkField(sandbox, session, spark, directory, workers)


def _progresses(query: StreamingQuery) -> list[Mapping[str, Any]]:
    progresses: list[Any] = query.recentProgress
    return progresses


def _require_all(name: str, rows: int, reading: Reading) -> None:
    if rows != reading.records:
        raise SandboxError(f"{name} read {rows} of {reading.records} records of {reading.topic}")


def _small_batch(records: int) -> bytes:
    (batch,) = encode_batches([Record(b"x" * 10, None, time.time_ns() // 1_000_000)] * records)
    return batch
