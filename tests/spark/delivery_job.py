"""A Spark application that records all that it delivers: ``delivery_job.py SETTINGS.json``.

Each delivery of a batch is written atomically to a separate file, ``<batch id>.<time in ns>.json``: rows as
``[partition, offset]``. So a test can determine the content of an idempotent sink, and of any other. The query is
started again where it ended because Spark did not wait long enough for its source process. A file ``stop`` among the
deliveries stops it.
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

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(pause_s)  # work, so that a fault comes in the middle of a batch
            yield batch

    output = Path(settings["output"])
    output.mkdir(exist_ok=True)

    def deliver(frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("partition", "offset").mapInArrow(slowly, "partition int, offset long").collect()
        whole = output / f"{batch_id:08d}.{time.time_ns()}.json"
        partial = whole.with_suffix(".partial")
        partial.write_text(json.dumps([list(row) for row in rows]), encoding="utf-8")
        partial.rename(whole)

    def start() -> StreamingQuery:
        frame = spark.readStream.format("zkconsumer").options(**settings["options"]).load()
        writer = frame.writeStream.foreachBatch(deliver).option("checkpointLocation", settings["checkpoint"])
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
