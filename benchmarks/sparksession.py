"""A Spark session for the benchmark, with Spark's own Kafka source, zkconsumer's, and the zero-work source."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zkconsumer.sandbox import JarSource, java_home_for_spark
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES: Final = 2
_STOP_TIMEOUT_S: Final = 30
_WORKER_MIB: Final = 1024
_ROOT: Final = Path(__file__).parents[1]


@contextmanager
def spark_session(directory: Path, progress: Progress, workers: int = 0) -> Iterator[SparkSession]:
    """Start Spark with its defaults; at the end its JVM is stopped.

    It is ``local[2]``, or with ``workers`` a standalone cluster (``local-cluster``): so many workers, each with an
    executor of one core, a JVM of its own that starts Python workers.

    The logs of Spark and the sources' processes go to ``spark.log``. The environment of this process is changed: only
    for programs that do nothing else.

    Args:
        directory: directory for logs and temporary files.
        progress: reports the steps.
        workers: as above.

    Raises:
        SandboxError: Java or the jars are missing and cannot be fetched.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    jars = JarSource.from_environment().provide(read_lock("spark-kafka"), progress)
    os.environ["JAVA_HOME"] = str(java_home_for_spark())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    for variable in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        os.environ.pop(variable, None)  # use the Spark of this Python, with its default settings
    conf = SparkConf().setMaster(f"local[{CORES}]").setAppName("zkconsumer-bench")
    conf.setAll([*_settings(directory), ("spark.jars", ",".join(map(str, jars)))])
    if workers:
        os.environ["SPARK_HOME"] = str(_own_home(directory))
        conf.setMaster(f"local-cluster[{workers},1,{_WORKER_MIB}]")
        conf.setAll([("spark.executor.memory", f"{_WORKER_MIB}m"), ("spark.executorEnv.PYTHONPATH", str(_ROOT))])
    with (directory / "spark.log").open("wb") as log, progress.step("starting Spark"):
        gateway: Any = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        context = SparkContext(conf=conf, gateway=gateway)
    context.setLogLevel("ERROR")
    session: SparkSession = SparkSession.builder.getOrCreate()
    try:
        _register(session, on_cluster=workers > 0)
        yield session
    finally:
        session.stop()
        _end(gateway)


def _own_home(directory: Path) -> Path:
    """Spark's files at a place where workers may write: they work in a directory below their home."""
    import pyspark

    home = directory / "home"
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    return home


def _settings(directory: Path) -> list[tuple[str, str]]:
    return [
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.driver.bindAddress", "127.0.0.1"),
        ("spark.driver.extraJavaOptions", "-XX:-UsePerfData"),
        ("spark.local.dir", str(directory)),
        ("spark.sql.warehouse.dir", str(directory / "warehouse")),
    ]


def _register(session: SparkSession, *, on_cluster: bool) -> None:
    """Register the Python sources: on a cluster as spark.md#tasks recommends, else without a listener of queries."""
    import zkconsumer.spark
    from benchmarks.zerowork import ZeroWorkDataSource
    from zkconsumer.spark.source import ZkConsumerDataSource

    if on_cluster:
        zkconsumer.spark.register(session)
    else:
        session.dataSource.register(ZkConsumerDataSource)
    session.dataSource.register(ZeroWorkDataSource)


def _end(gateway: Any) -> None:
    """Wait for the JVM to end; pyspark ends it only at the end of this process, without a wait."""
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_STOP_TIMEOUT_S)
