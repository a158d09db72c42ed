"""The source under Spark Connect: a client that registers it, and a server in another process that runs it."""

import json
import os
import subprocess
import sys

import pytest

from tests.fixtures.spark import ATTEMPTS, LONG_SESSION, TOO_LATE
from zkconsumer.sandbox import java_home_for_spark

CLIENT = """
import gc, json, sys, time, weakref

from pyspark.sql import SparkSession
import zkconsumer.spark
from zkconsumer.spark.monitor import _monitors

options, output, checkpoint = json.loads(sys.argv[1]), *sys.argv[2:]


def await_until(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, monitor.snapshot()
        assert query.exception() is None, query.exception()
        time.sleep(0.05)


def stream(limit, to):
    frame = spark.readStream.format("zkconsumer").options(**options).option("maxOffsetsPerTrigger", limit).load()
    writer = frame.select("partition", "offset").writeStream.format("parquet").option("path", f"{output}{to}")
    return writer.option("checkpointLocation", f"{checkpoint}{to}").trigger(processingTime="1 second").start()


builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
seen = {"session": type(spark).__module__}
monitor = zkconsumer.spark.register(spark)
seen["again"] = [zkconsumer.spark.register(spark) is monitor for _ in range(2)]
seen["listeners"] = len(spark.streams._sqlb._listener_bus)

query = stream("60", "one")
await_until(lambda: sum(state.rows for state in monitor.snapshot()) == 100)
seen["state"] = [[state.group, state.rows, sum(state.lag.values()), len(state.lag)] for state in monitor.snapshot()]
query.stop()
await_until(lambda: not monitor.snapshot())
seen["rows"] = spark.read.parquet(f"{output}one").count()
seen["batch"] = spark.read.format("zkconsumer").options(**options).option("startingOffsets", "earliest").load().count()

# A client of Connect drops all listeners when its connection breaks.
spark.streams.removeListener(monitor)
seen["attached again"] = zkconsumer.spark.register(spark) is monitor, len(spark.streams._sqlb._listener_bus)

session = weakref.ref(spark)
spark.stop()
spark = monitor = query = builder = None
gc.collect()
seen["freed"] = session() is None, len(_monitors)
print("seen", json.dumps(seen), flush=True)
"""


def test_connect_reads_watches_and_frees_its_session(sandbox, topic_factory, produce, unique_name, tmp_path):
    pytest.importorskip("grpc", reason="needs pyspark[connect]")
    pytest.importorskip("grpc_status", reason="needs pyspark[connect]")
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"v", "partition": n % 2} for n in range(100)])
    options = {
        "zookeeper.connect": sandbox.zookeeper_connect,
        "group.id": unique_name,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **LONG_SESSION,
    }
    environment = {**os.environ, "JAVA_HOME": str(java_home_for_spark()), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", CLIENT, json.dumps(options)]
    for attempt in range(ATTEMPTS):  # each in a directory of its own
        directory = tmp_path / str(attempt)
        directory.mkdir()
        places = [str(directory / "output"), str(directory / "checkpoint")]
        done = subprocess.run(
            [*command, *places], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        if TOO_LATE not in done.stdout + done.stderr:
            break
    lines = [line for line in done.stdout.splitlines() if line.startswith("seen ")]
    assert lines, (done.stdout + done.stderr)[-4000:]
    assert json.loads(lines[0].removeprefix("seen ")) == {
        "session": "pyspark.sql.connect.session",
        "again": [True, True],
        "listeners": 1,
        "state": [[unique_name, 100, 0, 2]],
        "rows": 100,
        "batch": 100,
        "attached again": [True, 1],
        "freed": [True, 0],
    }
