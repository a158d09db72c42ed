# %% [markdown]
# # A topic in a notebook
# Set `ZOOKEEPER` and `TOPIC` in the environment, or change them here.

# %%
import os
import tempfile
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import zkconsumer.spark

ZOOKEEPER = os.environ.get("ZOOKEEPER", "localhost:2181")
TOPIC = os.environ.get("TOPIC", "clicks")

spark = SparkSession.builder.appName("notebook").getOrCreate()
monitor = zkconsumer.spark.register(spark)

# %% [markdown]
# ## Look
# A batch read joins no group and commits nothing, so it does not affect other consumers.

# %%
everything = (
    spark.read.format("zkconsumer")
    .option("zookeeper.connect", ZOOKEEPER)
    .option("group.id", "notebook")
    .option("subscribe", TOPIC)
    .option("startingOffsets", "earliest")
    .load()
)
everything.groupBy("partition").agg(
    f.count("*").alias("records"), f.min("offset"), f.max("offset"), f.max("timestamp")
).orderBy("partition").show()

# %% [markdown]
# ## Follow
# A streaming query is a member of its group. It takes all partitions, or shares them with the group's other members.

# %%
stream = (
    spark.readStream.format("zkconsumer")
    .option("zookeeper.connect", ZOOKEEPER)
    .option("group.id", "notebook")
    .option("subscribe", TOPIC)
    .option("startingOffsets", "earliest")
    .load()
)
query = (
    stream.groupBy(f.col("key").cast("string").alias("key"))
    .count()
    .writeStream.format("memory")
    .queryName("by_key")
    .outputMode("complete")
    .option("checkpointLocation", tempfile.mkdtemp(prefix="notebook-"))
    .start()
)
query.processAllAvailable()
spark.table("by_key").orderBy("key").show()

# %% [markdown]
# ## Watch the lag
# Spark reports the progress of a query a moment after its batch.

# %%
while not (states := monitor.snapshot()):
    time.sleep(0.1)
for state in states:
    lag, owned = sum(state.lag.values()), len(state.owned)
    print(f"{state.query} of group {state.group}: {state.rows} rows, lag {lag} of {owned} partitions")

# %%
query.stop()  # leaves the group at once
