"""A Spark application of its own, started in another directory: how the source is found, and how it dies."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.fix_spark import await_until, fair
from zkconsumer.sandbox import java_home_for_spark

APPLICATION = """
import sys
from pyspark.sql import SparkSession

zookeeper, group, topic, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
stream = (
    spark.readStream.format("zkconsumer")  # nobody has registered it
    .option("zookeeper.connect", zookeeper)
    .option("group.id", group)
    .option("subscribe", topic)
    .load()
)
query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
print("jvm", spark._jvm.java.lang.ProcessHandle.current().pid(), flush=True)
query.awaitTermination()
"""


def test_found_from_any_directory_and_gone_from_the_group_when_the_driver_is_killed(
    sandbox, group, topic_factory, tmp_path
):
    topic = topic_factory(partitions=2)
    arguments = [sandbox.zookeeper_connect, group.group, topic, str(tmp_path / "checkpoint")]
    environment = {**os.environ, "JAVA_HOME": str(java_home_for_spark()), "PYSPARK_PYTHON": sys.executable}
    log = tmp_path / "application.log"
    with log.open("w") as stderr:
        application = subprocess.Popen(
            [sys.executable, "-c", APPLICATION, *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with application:
        try:
            jvm = int(_jvm_line(application, log).split()[1])
            await_until(lambda: len(group.owners(topic)) == 2, "the query owns both partitions")
            patience = fair(0.5)
            os.kill(jvm, signal.SIGKILL)
            await_until(lambda: group.is_deserted(topic), "ids and owners are gone after kill -9", patience)
        finally:
            application.kill()


def _jvm_line(application: subprocess.Popen[str], log: Path) -> str:
    assert application.stdout is not None
    for line in application.stdout:
        if line.startswith("jvm "):
            return line
    raise AssertionError(log.read_text()[-3000:])
