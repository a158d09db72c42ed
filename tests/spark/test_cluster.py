"""A standalone cluster, two workers on this machine: executors have only the environment sent to them."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.spark import BOTH_PROTOCOLS, LONG_SESSION, run_in_time
from tests.fixtures.sparkcluster import SparkCluster
from tests.fixtures.sparkjob import JVM_OPTIONS
from zkconsumer.sandbox import java_home_for_spark

PROJECT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "setup.cfg", "setup.py", "README.md", "LICENSE")
WORKERS = ("worker-0", "worker-1")
OF_THE_TESTS = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""Variables of the tests' own Python: Spark's processes could find the package by them, without anything sent."""

pytestmark = pytest.mark.timeout(1800)  # an environment of 500 MB is created and packed

WHERE = """
import json, sys
from pyspark.sql import SparkSession

options, where, checkpoint = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
spark = SparkSession.builder.getOrCreate()
def interpreters(batches):
    import os, sys
    import pyarrow as pa
    import zkconsumer
    where = {"directory": os.getcwd(), "python": sys.executable, "package": zkconsumer.__file__}
    for batch in batches:
        yield pa.RecordBatch.from_pydict({
            **{name: [os.path.abspath(path)] * batch.num_rows for name, path in where.items()},
            "partition": batch.column(0), "offset": batch.column(1),
        })
def rows(frame):
    columns = "directory string, python string, package string, partition int, offset long"
    return [list(row) for row in frame.select("partition", "offset").mapInArrow(interpreters, columns).collect()]
batch = rows(spark.read.format("zkconsumer").options(**options).load())
stream = []
writer = spark.readStream.format("zkconsumer").options(**options).load().writeStream
writer = writer.foreachBatch(lambda frame, _: stream.extend(rows(frame))).trigger(availableNow=True)
writer.option("checkpointLocation", checkpoint).start().awaitTermination()
open(where, "w").write(json.dumps([batch, stream]))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """A packed virtual environment with this project and its dependencies, as in docs/spark.md."""
    import venv_pack

    directory = tmp_path_factory.mktemp("environment")
    source = directory / "source"
    source.mkdir()
    for name in SOURCES:
        shutil.copy(PROJECT / name, source)
    _copy_package(source)
    made = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    pip = [made / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, source], check=True)
    packed = directory / "environment.tar.gz"
    venv_pack.pack(prefix=str(made), output=str(packed), compress_level=1)
    return packed


def _copy_package(target: Path) -> None:
    shutil.copy(PROJECT / "pyspark_zkconsumer.py", target)  # by which Spark finds the source
    shutil.copytree(PROJECT / "zkconsumer", target / "zkconsumer", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture
def cluster(tmp_path) -> Iterator[SparkCluster]:
    """A master with two workers, which name no Python for executors, and no place of this package."""
    made = SparkCluster(tmp_path / "cluster", JAVA_TOOL_OPTIONS=JVM_OPTIONS, **dict.fromkeys(OF_THE_TESTS))
    try:
        for name in WORKERS:
            made.start_worker(name)
        made.await_workers(*WORKERS)
        yield made
    finally:
        made.close()


@dataclass(frozen=True)
class Place:
    """Where an executor has read."""

    directory: Path
    python: Path
    package: Path


@pytest.fixture
def read_on_cluster(cluster, group, topic_factory, produce, tmp_path):
    """Read all of a topic in a batch and in a stream: ``read_on_cluster(home, python, *arguments of spark-submit)``.

    All is delivered once by each, by executors of both workers. The result is the places where they read.
    """
    topic = topic_factory(partitions=4)
    produced = produce(topic, [{"value": b"v", "partition": n % 4} for n in range(1000)])
    options = {
        **group.connection,
        "group.id": group.group,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "numStreams": "4",
        **LONG_SESSION,
    }
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        # Tasks wait for both executors: the first one could run all tasks.
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    }

    def read(home: Path, python: str, *arguments: str) -> set[Place]:
        confs = " ".join(f"--conf {name}={value}" for name, value in conf.items())
        output = tmp_path / "output.json"
        variables = {name: value for name, value in os.environ.items() if name not in OF_THE_TESTS}
        environment = {
            **variables,
            "JAVA_HOME": str(java_home_for_spark()),
            "JAVA_TOOL_OPTIONS": JVM_OPTIONS,
            "PYSPARK_PYTHON": python,
            "PYSPARK_SUBMIT_ARGS": f"--master {cluster.master} {confs} {' '.join(arguments)} pyspark-shell",
        }
        command = [sys.executable, "-c", WHERE, json.dumps(options), str(output), str(tmp_path / "checkpoint")]
        done = run_in_time(command, cwd=home, env=environment)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        places = set()
        for rows in json.loads(output.read_text(encoding="utf-8")):
            assert Counter((partition, offset) for *_, partition, offset in rows) == Counter(produced)
            found = {Place(*map(Path, row[:3])) for row in rows}
            assert {place.directory.parents[1].name for place in found} == set(WORKERS)
            places |= found
        return places

    return read


@BOTH_PROTOCOLS
def test_executors_of_two_workers_read_with_the_sent_environment(read_on_cluster, environment, tmp_path):
    home = tmp_path / "driver"
    unpacked = home / "environment"
    unpacked.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", environment, "-C", unpacked], check=True)
    for place in read_on_cluster(home, "./environment/bin/python", "--archives", f"{environment}#environment"):
        sent = place.directory / "environment"
        assert place.python == sent / "bin" / "python"
        assert place.package.is_relative_to(sent)


@BOTH_PROTOCOLS
def test_executors_read_with_the_package_in_a_zip_file_that_was_sent(read_on_cluster, tmp_path):
    """The compiled packages are installed there."""
    source = tmp_path / "source"
    source.mkdir()
    _copy_package(source)
    sent = shutil.make_archive(str(tmp_path / "sent"), "zip", source)
    for place in read_on_cluster(tmp_path, sys.executable, "--py-files", sent):
        assert place.package == place.directory / "sent.zip" / "zkconsumer" / "__init__.py"
