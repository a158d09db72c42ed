"""A standalone cluster, two workers on this machine: executors have only the environment sent to them."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.spark import run_in_time
from tests.fixtures.sparkcluster import SparkCluster
from zkconsumer.sandbox import java_home_for_spark

PROJECT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "setup.cfg", "setup.py", "README.md", "LICENSE", "pyspark_zkconsumer.py")

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
    for batch in batches:
        same = {"python": sys.executable, "package": zkconsumer.__file__, "executor": os.getcwd()}
        yield pa.RecordBatch.from_pydict({
            **{name: [value] * batch.num_rows for name, value in same.items()},
            "partition": batch.column(0), "offset": batch.column(1),
        })
def rows(frame):
    columns = "python string, package string, executor string, partition int, offset long"
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
    _copy_package(source)
    made = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    pip = [made / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, source], check=True)
    packed = directory / "environment.tar.gz"
    venv_pack.pack(prefix=str(made), output=str(packed), compress_level=1)
    return packed


def _copy_package(target: Path) -> None:
    target.mkdir()
    for name in SOURCES:
        shutil.copy(PROJECT / name, target)
    shutil.copytree(PROJECT / "zkconsumer", target / "zkconsumer", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture
def cluster(tmp_path) -> Iterator[SparkCluster]:
    """A master with two workers."""
    made = SparkCluster(tmp_path / "cluster")
    try:
        names = ("worker-0", "worker-1")
        for name in names:
            made.start_worker(name)
        made.await_workers(*names)
        yield made
    finally:
        made.close()


@pytest.fixture
def read_on_cluster(cluster, sandbox, topic_factory, produce, unique_name, tmp_path):
    """Read all of a topic in a batch and in a stream: ``read_on_cluster(home, python, conf)`` returns what ran where.

    All is delivered once by each, by executors of both workers. The result is the interpreters and the files of the
    package.
    """
    topic = topic_factory(partitions=4)
    produced = produce(topic, [{"value": b"v", "partition": n % 4} for n in range(1000)])
    options = {
        "zookeeper.connect": sandbox.zookeeper_connect,
        "group.id": unique_name,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "numStreams": "4",
    }

    def read(home: Path, python: str, conf: dict[str, str]) -> tuple[set[Path], set[Path]]:
        complete = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            # Tasks wait for both executors: the first one could run all tasks.
            "spark.cores.max": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
            **conf,
        }
        submit = " ".join(f"--conf {name}={value}" for name, value in complete.items())
        output = tmp_path / "output.json"
        arguments = [json.dumps(options), str(output), str(tmp_path / "checkpoint")]
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment = {
            **variables,
            "JAVA_HOME": str(java_home_for_spark()),
            "PYSPARK_PYTHON": python,
            "PYSPARK_SUBMIT_ARGS": f"--master {cluster.master} {submit} pyspark-shell",
        }
        done = run_in_time([sys.executable, "-c", WHERE, *arguments], cwd=home, env=environment)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        batch, stream = json.loads(output.read_text(encoding="utf-8"))
        for rows in (batch, stream):
            assert Counter((partition, offset) for *_, partition, offset in rows) == Counter(produced)
            assert {Path(where).parents[1].name for _, _, where, _, _ in rows} == {"worker-0", "worker-1"}
        everything = batch + stream
        return {Path(row[0]) for row in everything}, {Path(row[1]) for row in everything}

    return read


def test_executors_of_two_workers_read_with_the_sent_environment(read_on_cluster, environment, tmp_path):
    home = tmp_path / "driver"
    unpacked = home / "environment"
    unpacked.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", environment, "-C", unpacked], check=True)
    conf = {"spark.archives": f"{environment}#environment"}
    pythons, packages = read_on_cluster(home, "./environment/bin/python", conf)
    assert {python.parts[-3:] for python in pythons} == {("environment", "bin", "python")}
    assert all("environment" in package.parts for package in packages)


def test_executors_read_with_the_package_in_a_zip_file_that_was_sent(read_on_cluster, tmp_path):
    """As with ``--py-files``; the compiled packages are installed there."""
    source = tmp_path / "source"
    _copy_package(source)
    sent = shutil.make_archive(str(tmp_path / "sent"), "zip", source)
    _, packages = read_on_cluster(tmp_path, sys.executable, {"spark.submit.pyFiles": sent})
    assert {package.parts[-3:] for package in packages} == {("sent.zip", "zkconsumer", "__init__.py")}
