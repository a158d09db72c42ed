r"""Archives a topic as Parquet with ``format("kafka")``, from the offsets of a group in ZooKeeper on.

The group is that of a JVM consumer, of a receiver (``KafkaUtils.createStream``), of zkconsumer or of its Spark source.
When its members have stopped, zkconsumer writes its offsets as the JSON of ``startingOffsets``:

    zkconsumer migrate plan --zookeeper h1:2181 --from zookeeper:archive --to spark-options:starting.json \
        --output archive.plan.json
    zkconsumer migrate run archive.plan.json --execute
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 examples/to_kafka_source.py \
        --bootstrap-server b1:9092 --topic clicks --starting-offsets starting.json \
        --checkpoint hdfs:///checkpoints/archive --output hdfs:///data/clicks

The file counts for the first start only: from then on the checkpoint has the position. To go back, stop the query:

    zkconsumer migrate plan --zookeeper h1:2181 --from spark:CHECKPOINT --to zookeeper:archive --output back.plan.json
    zkconsumer migrate run back.plan.json --execute

with a copy of the directories ``offsets`` and ``commits`` of the checkpoint as CHECKPOINT if it is not a local one.
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser(description="Archive a topic as Parquet.")
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,...]")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--starting-offsets", required=True, type=Path, metavar="FILE")
    parser.add_argument("--checkpoint", required=True, metavar="DIRECTORY")
    parser.add_argument("--output", required=True, metavar="DIRECTORY")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("archive").getOrCreate()
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", arguments.starting_offsets.read_text(encoding="utf-8"))  # without a checkpoint
        .load()
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
