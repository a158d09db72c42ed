r"""Archives a topic as Parquet, as a job of ``format("kafka")`` did; reads on where that job's checkpoint ended.

What changes in the job:

    -   spark.readStream.format("kafka")
    -   .option("kafka.bootstrap.servers", "b1:9092")
    +   spark.readStream.format("zkconsumer")
    +   .option("zookeeper.connect", "h1:2181")
    +   .option("group.id", "archive")

Columns, types and the other options stay. The checkpoint belongs to the source that wrote it, so the new query has one
of its own. Its first batch starts where the old query ended: the offsets in Spark's checkpoint have the very form of
``startingOffsets``.

    python examples/from_kafka_source.py --zookeeper h1:2181 --group archive --topic clicks \
        --old-checkpoint /checkpoints/archive --checkpoint /checkpoints/archive-zk --output /data/clicks
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession


def end_of_old_query(checkpoint: Path) -> str:
    """The offsets at the end of the last finished batch, as JSON.

    ``commits/N`` says that batch N is finished, the last line of ``offsets/N`` where it ended (a query of one source).
    """
    finished = max(int(entry.name) for entry in (checkpoint / "commits").iterdir() if entry.name.isdigit())
    return (checkpoint / "offsets" / str(finished)).read_text(encoding="utf-8").splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Archive a topic as Parquet.")
    parser.add_argument("--zookeeper", required=True, metavar="HOST:PORT[,...][/CHROOT]")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--old-checkpoint", required=True, type=Path, metavar="DIRECTORY")
    parser.add_argument("--checkpoint", required=True, metavar="DIRECTORY")
    parser.add_argument("--output", required=True, metavar="DIRECTORY")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("archive").getOrCreate()
    clicks = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", arguments.zookeeper)
        .option("group.id", arguments.group)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", end_of_old_query(arguments.old_checkpoint))  # ignored once there is a checkpoint
        .load()
    )
    query = (
        clicks.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "offset", "timestamp")
        .writeStream.format("parquet")
        .option("path", arguments.output)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
