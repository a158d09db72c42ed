r"""Archives a topic with a file stream, which every release of Spark has; ``zkconsumer consume`` is the group's member.

It writes complete Parquet files into a directory that Spark can read, and commits the offsets of each complete file:

    zkconsumer consume --zookeeper h1:2181 --group archive --topic clicks --from-beginning \
        --format parquet --output /data/parts -p auto.commit.interval.ms=10000
    spark-submit examples/from_parts.py --parts /data/parts --checkpoint /data/checkpoint --output /data/clicks

The directory has to exist before the query starts. Needs neither zkconsumer nor Python 3.11 in Spark.
"""

import argparse

from pyspark.sql import SparkSession

SCHEMA = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, timestampType INT"


def main() -> None:
    parser = argparse.ArgumentParser(description="Archive a topic as Parquet.")
    parser.add_argument("--parts", required=True, metavar="DIRECTORY", help="of zkconsumer consume")
    parser.add_argument("--checkpoint", required=True, metavar="DIRECTORY")
    parser.add_argument("--output", required=True, metavar="DIRECTORY")
    parser.add_argument("--interval", default="10 seconds", help="of the trigger")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("archive").getOrCreate()
    query = (
        spark.readStream.schema(SCHEMA)
        .option("maxFileAge", "365d")  # files that are older than the newest one by more are ignored; the default is 7d
        .parquet(arguments.parts)
        .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "offset", "timestamp")
        .writeStream.format("parquet")
        .option("path", arguments.output)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(processingTime=arguments.interval)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
