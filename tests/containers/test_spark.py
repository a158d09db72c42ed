"""The image of Spark: a driver and an executor, each with the arguments and variables that Kubernetes gives them.

There is no Kubernetes here. A standalone master without workers stands for its scheduler: it never starts an executor,
so all tasks run on the one that the test starts.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.fixtures.sandbox import Topics, produce_records
from zkconsumer.sandbox.java import java_home_for_spark
from zkconsumer.testing.containers import KafkaContainer, ZooKeeperContainer

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(2400)]  # building the image takes minutes

TOPIC = "records"
COUNT = 1000
ENDS_S = 900.0
DRIVER_PORT = 7078
EXECUTOR = {
    "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@driver:{DRIVER_PORT}",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_EXECUTOR_POD_IP": "executor",
    "SPARK_EXECUTOR_POD_NAME": "executor",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_APPLICATION_ID": "app",
}
JOB = """
import json
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
options = {"zookeeper.connect": "zookeeper:2181", "group.id": "contained", "subscribe": "records"}
frame = spark.read.format("zkconsumer").options(startingOffsets="earliest", **options).load()
count, values = frame.selectExpr("count(*)", "count(distinct value)").first()


def where(_):
    import socket
    from zkconsumer.decode.kernelloader import kernels

    return socket.gethostname(), type(kernels()).__name__


(executor,) = spark.sparkContext.parallelize([0], 1).map(where).collect()
print("RESULT", json.dumps([count, values, *executor]), flush=True)
"""


class Container(DockerContainer):
    """A container of the image, by its name in the network."""

    def __init__(self, network: Network, name: str, words: list[str], **variables: str) -> None:
        super().__init__("zkconsumer/spark", network=network, network_aliases=[name], hostname=name)
        self.with_command(words)
        for variable, value in variables.items():
            self.with_env(variable, value)

    def output(self) -> str:
        """What it has printed."""
        return "\n".join(text.decode() for text in self.get_logs())

    def has_ended(self) -> bool:
        """Whether its process has ended."""
        wrapped = self.get_wrapped_container()
        wrapped.reload()
        return bool(wrapped.status == "exited")


def java_options() -> list[str]:
    """What Spark's scheduler passes to the Java of each executor: the options with which it starts a driver, too."""
    submit = "org.apache.spark.deploy.SparkSubmit"
    home = Path(pyspark.__file__).parent
    java = java_home_for_spark() / "bin" / "java"
    launcher = [java, "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main", submit, "job.py"]
    # Spark's scripts set the latter, which decides about directories of Spark's own build only.
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"}
    printed = subprocess.run(launcher, stdout=subprocess.PIPE, check=True, timeout=120, env=environment)
    words = [word.strip() for word in printed.stdout.decode().split("\0")]
    (heap,) = [word for word in words if word.startswith("-Xmx")]
    return [f"-Dspark.driver.port={DRIVER_PORT}", *words[words.index(heap) + 1 : words.index(submit)]]


def errors(container: Container) -> str:
    """What a container has printed, without Spark's information and Java's stacks."""
    lines = container.output().splitlines()
    return "\n".join(line for line in lines if " INFO " not in line and not line.startswith("\t"))[-8000:]


@pytest.fixture
def started() -> Iterator[ExitStack]:
    """Ends the containers that a test enters."""
    with ExitStack() as stack:
        yield stack


def test_a_driver_and_an_executor_read_a_topic(
    spark_image: None,
    container_network: Network,
    zookeeper_container: ZooKeeperContainer,
    inner_kafka_container,
    started: ExitStack,
    tmp_path,
) -> None:
    kafka: KafkaContainer = inner_kafka_container("zookeeper:2181")
    Topics(kafka.bootstrap_servers).create(TOPIC, 4)
    values = [str(number).encode() for number in range(COUNT)]
    produce_records(kafka.bootstrap_servers, TOPIC, [(value, value) for value in values])
    job = tmp_path / "job.py"
    job.write_text(JOB, encoding="utf-8")
    master = ["spark-class", "org.apache.spark.deploy.master.Master", "--host", "master", "--port", "7077"]
    started.enter_context(Container(container_network, "master", master))
    settings = {"spark.master": "spark://master:7077", "spark.driver.host": "driver", "spark.driver.port": DRIVER_PORT}
    words = [
        "driver",
        *(word for item in settings.items() for word in ("--conf", "{}={}".format(*item))),
        "/opt/job.py",
    ]
    driver = Container(container_network, "driver", words, SPARK_DRIVER_BIND_ADDRESS="0.0.0.0")
    driver.with_volume_mapping(job, "/opt/job.py")
    started.enter_context(driver)
    options = {f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(java_options())}
    executor = Container(container_network, "executor", ["executor"], **EXECUTOR, **options)
    # Restarted until the driver listens. This replaces what the constructor was given.
    executor.with_kwargs(hostname="executor", restart_policy={"Name": "always"})
    started.enter_context(executor)
    deadline = time.monotonic() + ENDS_S
    while not driver.has_ended():
        assert time.monotonic() < deadline, errors(driver) + errors(executor)
        time.sleep(0.5)  # the engine cannot notify: it must be polled
    results = [line for line in driver.output().splitlines() if line.startswith("RESULT ")]
    assert results, errors(driver)
    assert json.loads(results[0].removeprefix("RESULT ")) == [COUNT, COUNT, "executor", "NativeKernels"]
