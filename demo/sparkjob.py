"""The demo's Spark query, run as a separate process: ``python -m demo.sparkjob JOB.json``.

It reads the topic as a member of a second group and aggregates by key until all records are read. JOB.json has the
fields of :class:`Job`; the rows are written to its ``result``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zkconsumer.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_QUERY = "routes"
_WORKER_TOO_LATE = "Python worker failed to connect back"
_ATTEMPTS = 4
_STOP_TIMEOUT_S = 30
_PATIENCE = {
    # The default equals the session timeout: a busy machine would prevent the query from starting.
    "zookeeper.connection.timeout.ms": "30000",
    # How often, two seconds apart, the query tries to plan a batch before it fails.
    "rebalance.max.retries": "20",
}


@dataclass(frozen=True)
class Job:
    """The parameters of the query.

    Attributes:
        connection: the properties with which it finds the servers.
        group: group of the query.
        topic: topic to read.
        records_per_batch: maximum number of records in one micro-batch.
        directory: directory for checkpoint, temporary files and result.
        java_home: JAVA_HOME for Spark.
    """

    connection: dict[str, str]
    group: str
    topic: str
    records_per_batch: int
    directory: str
    java_home: str

    @property
    def result(self) -> Path:
        """Path of the result: ``{"batches": n, "rows": [{"route": ..., ...}]}``."""
        return Path(self.directory) / "result.json"

    def save(self) -> Path:
        """Write the job file and return its path."""
        path = Path(self.directory) / "job.json"
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")
        return path


def main(path: str) -> None:
    """Run the job described in a file."""
    job = Job(**json.loads(Path(path).read_text(encoding="utf-8")))
    os.environ["JAVA_HOME"] = job.java_home
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # avoids a look-up of the host's name, which fails on some laptops
    # Temporary files of all its processes go to a directory that is removed, however they end.
    os.environ["TMPDIR"] = tempfile.tempdir = job.directory
    for variable in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        os.environ.pop(variable, None)  # use the Spark of this Python, with its default settings
    spark = _session(job)
    # The automatic look-up is not enough: Spark skips it if the path of this Python has spaces.
    register(spark)
    try:
        _run(spark, job)
    except Exception as error:  # noqa: BLE001 - its text comes from the JVM, which is about to end: write it now
        sys.exit(f"{traceback.format_exc()}\nError: {' '.join(str(error).split())}")
    finally:
        _stop(spark)


def _run(spark: SparkSession, job: Job) -> None:
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            query = _start(spark, job)
            query.awaitTermination()
            break
        except Exception as error:
            # Spark gives a new Python process ten seconds, also where the machine is busy with other things for longer.
            if not attempts_left or _WORKER_TOO_LATE not in str(error):
                raise
            sys.stderr.write(f"starting the query again: {error}\n")
    rows = [row.asDict() for row in spark.table(_QUERY).collect()]
    batches = sum(progress["numInputRows"] > 0 for progress in query.recentProgress)
    job.result.write_text(json.dumps({"batches": batches, "rows": rows}), encoding="utf-8")


def _start(spark: SparkSession, job: Job) -> StreamingQuery:
    """Start the query, or continue from its checkpoint."""
    return (
        aggregate(flights(spark, job))
        .writeStream.format("memory")
        .queryName(_QUERY)
        .outputMode("complete")
        .option("checkpointLocation", str(Path(job.directory) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def _session(job: Job) -> SparkSession:
    from pyspark.sql import SparkSession

    session: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("zkconsumer-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # Quoted, since the path may have spaces.
        .config("spark.driver.extraJavaOptions", f'"-Djava.io.tmpdir={job.directory}" -XX:-UsePerfData')
        .config("spark.local.dir", job.directory)
        .config("spark.sql.warehouse.dir", str(Path(job.directory) / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    return session


def _stop(spark: SparkSession) -> None:
    """Stop Spark and wait for its JVM to end; pyspark ends it only at the end of this process, without a wait."""
    gateway: Any = spark.sparkContext._gateway  # the only access to the process
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_STOP_TIMEOUT_S)


def flights(spark: SparkSession, job: Job) -> DataFrame:
    """The stream of flights: the record's key as ``route``, and the fields of its JSON value."""
    from pyspark.sql import functions as f

    fields = "dep_time LONG, dep_delay LONG, distance LONG, air_time LONG"
    return (
        spark.readStream.format("zkconsumer")
        .options(**job.connection)
        .option("group.id", job.group)
        .option("subscribe", job.topic)
        .option("auto.offset.reset", "smallest")
        .options(**_PATIENCE)
        .option("maxOffsetsPerTrigger", job.records_per_batch)
        .load()
        .select(
            f.col("key").cast("string").alias("route"),
            f.from_json(f.col("value").cast("string"), fields).alias("flight"),
        )
        .select("route", "flight.*")
    )


def aggregate(frame: DataFrame) -> DataFrame:
    """The figures of :data:`demo.aggregate.FIGURES` by route."""
    from pyspark.sql import functions as f

    result: Any = frame.groupBy("route").agg(
        f.count("*").alias("flights"),
        f.count("dep_time").alias("departed"),
        f.sum("distance").alias("distance"),
        f.sum("air_time").alias("air_time"),
        f.max("dep_delay").alias("worst_delay"),
    )
    return result  # type: ignore[no-any-return]


if __name__ == "__main__":
    main(sys.argv[1])
