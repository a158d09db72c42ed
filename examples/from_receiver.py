r"""Counts words by user, as a job of the receiver ``KafkaUtils.createStream`` did until Spark 2.

The old job:

    stream = KafkaUtils.createStream(ssc, "h1:2181", "word-count", {"lines": 2})
    counts = stream.flatMap(lambda kv: kv[1].split()).map(lambda word: (word, 1)).reduceByKey(add)
    counts.foreachRDD(save)

The options ``zookeeper.connect``, ``group.id``, ``subscribe`` and ``numStreams`` replace ``zkQuorum``, ``groupId`` and
the map of topics to receiver threads. The group and its offsets stay: stop the old job, start this one, and it
continues where the old one stopped; members of both kinds may even run side by side for a while.

    python examples/from_receiver.py --zookeeper h1:2181 --group word-count --topic lines \
        --checkpoint /checkpoints/word-count --database counts.sqlite
"""

import argparse
import sqlite3
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def counts_of(lines: DataFrame) -> DataFrame:
    """Words with the number of their occurrences."""
    words = lines.select(f.explode(f.split(f.col("value").cast("string"), r"\s+")).alias("word"))
    return words.where("word != ''").groupBy("word").count()


def saver(database: str):
    """Adds the counts of a batch to a table, each batch once, however often Spark delivers it.

    The rows and the batch's number are one transaction: after a crash in between, Spark repeats the batch, and the
    number shows that it is stored already. Any database with transactions will do.
    """
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS counts (word TEXT PRIMARY KEY, count INTEGER)")
        connection.execute("CREATE TABLE IF NOT EXISTS batches (id INTEGER PRIMARY KEY)")

    def save(batch: DataFrame, batch_id: int) -> None:
        rows = [(row["word"], row["count"]) for row in counts_of(batch).collect()]
        with closing(sqlite3.connect(database)) as connection, connection:
            if connection.execute("SELECT 1 FROM batches WHERE id = ?", [batch_id]).fetchone():
                return
            connection.executemany(
                "INSERT INTO counts VALUES (?, ?) ON CONFLICT (word) DO UPDATE SET count = count + excluded.count", rows
            )
            connection.execute("INSERT INTO batches VALUES (?)", [batch_id])

    return save


def main() -> None:
    parser = argparse.ArgumentParser(description="Count words of a topic into a database.")
    parser.add_argument("--zookeeper", required=True, metavar="HOST:PORT[,...][/CHROOT]")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--checkpoint", required=True, metavar="DIRECTORY")
    parser.add_argument("--database", required=True, metavar="FILE")
    parser.add_argument("--follow", action="store_true", help="keep running; otherwise end when all is read")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("word-count").getOrCreate()
    lines = (
        spark.readStream.format("zkconsumer")
        .option("zookeeper.connect", arguments.zookeeper)
        .option("group.id", arguments.group)
        .option("subscribe", arguments.topic)
        .option("numStreams", 2)
        .option("auto.offset.reset", "smallest")  # used only if the group has no offset, as in the old job
        .load()
    )
    writer = lines.writeStream.foreachBatch(saver(arguments.database)).option(
        "checkpointLocation", arguments.checkpoint
    )
    query = (writer if arguments.follow else writer.trigger(availableNow=True)).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
