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

from tests.fixtures.spark import await_until
from zkconsumer.sandbox import java_home_for_spark
from zkconsumer.sandbox.ports import free_port

PROJECT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "setup.cfg", "setup.py", "README.md", "LICENSE", "pyspark_zkconsumer.py")

pytestmark = pytest.mark.timeout(1800)  # an environment of 500 MB is created and packed

WHERE = """
import json, sys
from pyspark.sql import SparkSession

options, where = json.loads(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.getOrCreate()
def interpreters(batches):
    import os, sys
    import pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pydict({
            "python": [sys.executable] * batch.num_rows, "executor": [os.getcwd()] * batch.num_rows,
            "partition": batch.column(0), "offset": batch.column(1),
        })
frame = spark.read.format("zkconsumer").options(**options).load().select("partition", "offset")
rows = frame.mapInArrow(interpreters, "python string, executor string, partition int, offset long").collect()
open(where, "w").write(json.dumps([list(row) for row in rows]))
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
    shutil.copytree(PROJECT / "zkconsumer", source / "zkconsumer", ignore=shutil.ignore_patterns("__pycache__"))
    made = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    pip = [made / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, source], check=True)
    packed = directory / "environment.tar.gz"
    venv_pack.pack(prefix=str(made), output=str(packed), compress_level=1)
    return packed


@pytest.fixture
def cluster(tmp_path) -> Iterator[str]:
    """The address of a master with two workers."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    started = [_daemon(tmp_path / "master", "master.Master", "--host", "127.0.0.1", "--port", str(port))]
    try:
        await_until(lambda: _has_logged(tmp_path / "master", "I have been elected leader"), "the master is up")
        for number in range(2):
            name = tmp_path / f"worker-{number}"
            arguments = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(name / "work"))
            started.append(_daemon(name, "worker.Worker", *arguments, master))
        for number in range(2):
            name = tmp_path / f"worker-{number}"
            await_until(lambda name=name: _has_logged(name, "Successfully registered"), "the workers are up")
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


def _daemon(directory: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    import pyspark

    directory.mkdir()
    home = Path(pyspark.__file__).parent
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", "--webui-port", "0", *arguments],
            cwd=directory,
            env={
                **os.environ,
                "SPARK_HOME": str(home),
                "JAVA_HOME": str(java_home_for_spark()),
                "SPARK_DAEMON_MEMORY": "256m",
            },
            stdout=log,
            stderr=log,
        )


def _has_logged(directory: Path, words: str) -> bool:
    return words in (directory / "log").read_text(encoding="utf-8", errors="replace")


def test_executors_of_two_workers_read_with_the_sent_environment(
    cluster, environment, sandbox, topic_factory, produce, unique_name, tmp_path
):
    topic = topic_factory(partitions=4)
    produced = produce(topic, [{"value": b"v", "partition": n % 4} for n in range(1000)])
    home = tmp_path / "driver"
    unpacked = home / "environment"
    unpacked.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", environment, "-C", unpacked], check=True)
    confs = {
        "spark.archives": f"{environment}#environment",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        # Tasks wait for both executors: the first one could run all tasks.
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    }
    submit = " ".join(f"--conf {name}={value}" for name, value in confs.items())
    options = {
        "zookeeper.connect": sandbox.zookeeper_connect,
        "group.id": unique_name,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "numStreams": "4",
    }
    output = tmp_path / "output.json"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", WHERE, json.dumps(options), str(output)],
        cwd=home,
        env={
            **variables,
            "JAVA_HOME": str(java_home_for_spark()),
            "PYSPARK_PYTHON": "./environment/bin/python",
            "PYSPARK_SUBMIT_ARGS": f"--master {cluster} {submit} pyspark-shell",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    rows = json.loads(output.read_text(encoding="utf-8"))
    assert Counter((partition, offset) for _, _, partition, offset in rows) == Counter(produced)
    executors = {Path(where) for _, where, _, _ in rows}
    assert {where.parents[2].name for where in executors} == {"worker-0", "worker-1"}
    assert {Path(python).parts[-3:] for python, _, _, _ in rows} == {("environment", "bin", "python")}
