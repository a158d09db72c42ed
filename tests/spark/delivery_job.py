"""A Spark application that records all that it delivers: ``delivery_job.py SETTINGS.json``.

Each delivery of a batch is written atomically to a separate file, ``<batch id>.<time in ns>.json``: rows as
``[partition, offset]``. So a test can determine the content of an idempotent sink, and of any other. The query is
started again where it ended because Spark did not wait long enough for its source process. A file ``stop`` among the
deliveries stops it. While a task runs there is a file in ``tasks``, whose name begins with the executor's address. An
executor may have a pause of its own, in the variable ``DELIVERY_PAUSE_S``. With a directory ``files`` in the settings,
a sink of Spark writes the rows there, as Parquet, and not the application.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def main(settings: dict) -> None:
    builder = SparkSession.builder
    for name, value in settings["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    pause_s = settings["pause_s"]

    output = Path(settings["output"])
    (output / "tasks").mkdir(parents=True, exist_ok=True)

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = output / "tasks" / f"{os.environ.get('SPARK_LOCAL_IP')}-{os.getpid()}-{time.time_ns()}"
        for batch in batches:
            task.touch()
            time.sleep(float(os.environ.get("DELIVERY_PAUSE_S", pause_s)))  # work: a fault comes amid a batch
            yield batch
        task.unlink(missing_ok=True)

    def deliver(frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("partition", "offset").mapInArrow(slowly, "partition int, offset long").collect()
        whole = output / f"{batch_id:08d}.{time.time_ns()}.json"
        partial = whole.with_suffix(".partial")
        partial.write_text(json.dumps([list(row) for row in rows]), encoding="utf-8")
        partial.rename(whole)

    def start() -> StreamingQuery:
        frame = spark.readStream.format("zkconsumer").options(**settings["options"]).load()
        if files := settings.get("files"):
            rows = frame.select("partition", "offset").mapInArrow(slowly, "partition int, offset long")
            writer = rows.writeStream.format("parquet").option("path", files)
        else:
            writer = frame.writeStream.foreachBatch(deliver)
        writer = writer.option("checkpointLocation", settings["checkpoint"])
        return writer.trigger(**settings["trigger"]).start()

    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    partial = output / "pids.partial"
    partial.write_text(json.dumps({"application": os.getpid(), "jvm": jvm}), encoding="utf-8")
    partial.rename(output / "pids")
    while True:
        try:
            await_end(start(), output / "stop")
            break
        except Exception as error:
            if settings["too_late"] not in str(error):
                raise
    spark.stop()


def await_end(query: StreamingQuery, stop: Path) -> None:
    """Return when the query has ended; it is stopped as soon as the file exists."""
    while not query.awaitTermination(0.2):
        if stop.exists():
            query.stop()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
