r"""Archives a topic as Parquet, as a job of ``format("kafka")`` did; continues where that job's checkpoint ended.

What changes in the job:

    -   spark.readStream.format("kafka")
    -   .option("kafka.bootstrap.servers", "b1:9092")
    +   spark.readStream.format("zkconsumer")
    +   .option("zookeeper.connect", "h1:2181")
    +   .option("group.id", "archive")

Columns, types and the other options stay. The checkpoint belongs to the source that wrote it, so the new query has a
separate one. Its first batch starts where the old query ended: the offsets in Spark's checkpoint have the format of
``startingOffsets``. Spark itself reads the checkpoints, so they may be in any file system that it supports: HDFS, S3,
...

    python examples/from_kafka_source.py --zookeeper h1:2181 --group archive --topic clicks \
        --old-checkpoint hdfs:///checkpoints/archive --checkpoint hdfs:///checkpoints/archive-zk --output /data/clicks

Once the new query has run, its own checkpoint is used, and the old one can be deleted.
"""

import argparse
import sys

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession


def read_log(spark: SparkSession, directory: str) -> dict[int, str]:
    """Contents of the files ``0``, ``1``, ... of a checkpoint, by number; empty if there is no such directory."""
    try:
        files = spark.read.text(directory, wholetext=True).select("_metadata.file_name", "value").collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return {}
    return {int(name): text for name, text in files if name.isdigit()}


def end_of_old_query(spark: SparkSession, checkpoint: str) -> str:
    """The offsets at the end of the last finished batch, as JSON.

    ``commits/N`` marks batch N as finished; the last line of ``offsets/N`` is its end (for a query of one source).
    """
    finished = read_log(spark, f"{checkpoint}/commits")
    if not finished:
        sys.exit(f"{checkpoint}/commits has no finished batch: check that this is the checkpoint of the old query")
    return read_log(spark, f"{checkpoint}/offsets")[max(finished)].splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Archive a topic as Parquet.")
    parser.add_argument("--zookeeper", required=True, metavar="HOST:PORT[,...][/CHROOT]")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--old-checkpoint", required=True, metavar="DIRECTORY")
    parser.add_argument("--checkpoint", required=True, metavar="DIRECTORY")
    parser.add_argument("--output", required=True, metavar="DIRECTORY")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("archive").getOrCreate()
    clicks = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", arguments.zookeeper)
        .option("group.id", arguments.group)
        .option("subscribe", arguments.topic)
    )
    if not read_log(spark, f"{arguments.checkpoint}/offsets"):  # the first start
        clicks = clicks.option("startingOffsets", end_of_old_query(spark, arguments.old_checkpoint))
    query = (
        clicks.load()
        .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "offset", "timestamp")
        .writeStream.format("parquet")
        .option("path", arguments.output)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
