"""Fixtures around a real Spark: one session for all tests, and eyes on the znodes of a group."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.sandbox import Sandbox, java_home_for_spark

DEADLINE_S = 90.0
LONGEST_DRAIN_S = 4.0
"""How long a query lets a rebalance wait for its batch in flight, with ``rebalance.max.retries=10``."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A SparkSession ``local[2]`` in which nothing was registered: the source is found by its look-up."""
    os.environ["JAVA_HOME"] = str(java_home_for_spark())
    os.environ["PYSPARK_PYTHON"] = sys.executable  # another python3 on PATH would be tried otherwise
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("zkconsumer-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def await_until(condition: Callable[[], Any], what: str, timeout_s: float = DEADLINE_S) -> Any:
    """Poll until ``condition`` is true, and return what it returned."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.01)
    return result


class GroupNodes:
    """Reads the znodes of one group, as another member or a monitor would see them."""

    def __init__(self, client: Any, group: str) -> None:
        self._client = client
        self.group = group

    def _children(self, path: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            return sorted(self._client.get_children(f"/consumers/{self.group}{path}"))
        except NoNodeError:
            return []

    def exists(self) -> bool:
        return self._client.exists(f"/consumers/{self.group}") is not None

    def ids(self) -> list[str]:
        return self._children("/ids")

    def sessions(self) -> set[int]:
        """ZooKeeper sessions of the members."""
        return {stat.ephemeralOwner for stat in self._registrations()}

    def _registrations(self) -> list[Any]:
        stats = [self._client.exists(f"/consumers/{self.group}/ids/{member}") for member in self.ids()]
        return [stat for stat in stats if stat is not None]

    def owners(self, topic: str) -> dict[int, str]:
        """Consumer id by partition."""
        from kazoo.exceptions import NoNodeError

        owners = {}
        for partition in self._children(f"/owners/{topic}"):
            try:
                data, _ = self._client.get(f"/consumers/{self.group}/owners/{topic}/{partition}")
                owners[int(partition)] = data.decode().rpartition("-")[0]
            except NoNodeError:
                pass
        return owners

    def offsets(self, topic: str) -> dict[int, int]:
        """Committed offset by partition."""
        path = f"/consumers/{self.group}/offsets/{topic}"
        return {int(p): int(self._client.get(f"{path}/{p}")[0]) for p in self._children(f"/offsets/{topic}")}

    def set_offset(self, topic: str, partition: int, offset: int) -> None:
        path = f"/consumers/{self.group}/offsets/{topic}/{partition}"
        self._client.ensure_path(path)
        self._client.set(path, str(offset).encode())

    def is_deserted(self, topic: str) -> bool:
        return not self.ids() and not self.owners(topic)

    def await_drained(self, topic: str, offsets: Mapping[int, int]) -> bool:
        """Wait until the batch that was in flight when the newest member registered is committed, up to ``offsets``.

        Returns:
            False if it took so long that the rebalance may not have waited for it.
        """
        await_until(lambda: self.offsets(topic) == offsets, "the batch in flight is committed")
        registered = max(stat.ctime for stat in self._registrations()) / 1000  # ZooKeeper's clock is this machine's
        return time.time() - registered < LONGEST_DRAIN_S

    def await_leaving(self, topic: str, session: int, sandbox: Sandbox) -> None:
        """Wait until the member with this session is gone, because it left: not because the session expired."""
        await_until(lambda: self.is_deserted(topic), "ids and owners are gone")
        log = sandbox.zookeeper.log.read_text(encoding="utf-8", errors="replace")
        assert f"Expiring session {session & 0xFFFF_FFFF_FFFF_FFFF:#x}," not in log


@pytest.fixture
def group(sandbox: Sandbox, unique_name: str) -> Iterator[GroupNodes]:
    """A consumer group of the test's own."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=sandbox.zookeeper_connect)
    client.start()
    yield GroupNodes(client, unique_name)
    client.stop()
    client.close()


@dataclass
class Sink:
    """What one query delivered, batch by batch; written by Spark's callback thread, read by the test."""

    batches: list[list[tuple[int, int, bytes]]] = field(default_factory=list)
    hold: threading.Event | None = None
    entered: threading.Event = field(default_factory=threading.Event)
    failure: Exception | None = None

    def __call__(self, frame: Any, _: int) -> None:
        rows = [tuple(row) for row in frame.select("partition", "offset", "value").collect()]
        self.batches.append([(partition, offset, bytes(value)) for partition, offset, value in rows])
        self.entered.set()
        if self.hold is not None:
            self.hold.wait(DEADLINE_S)
        if self.failure is not None:
            raise self.failure

    def rows(self) -> list[tuple[int, int, bytes]]:
        return [row for batch in list(self.batches) for row in batch]

    def positions(self) -> Counter[tuple[int, int]]:
        """How often each (partition, offset) was delivered."""
        return Counter((partition, offset) for partition, offset, _ in self.rows())


Start = Callable[..., Any]


@pytest.fixture
def start_query(spark: Any, sandbox: Sandbox, group: GroupNodes, tmp_path: Any) -> Iterator[Start]:
    """Start a query of the test's group: ``start_query(topic, sink, checkpoint="c", options={...}, trigger={...})``.

    Without a topic the options name what to read; without a schema all columns are.

    A query that follows others begins when these have left. Spark does not wait for the process that it tells to leave:
    the next query would share the partitions with it, and an AvailableNow query would only read its share.
    """
    started: list[Any] = []

    def start(
        topic: str | None,
        sink: Sink,
        *,
        checkpoint: str = "checkpoint",
        options: Mapping[str, str] | None = None,
        trigger: Mapping[str, Any] | None = None,
        schema: str | None = None,
    ) -> Any:
        if not any(query.isActive for query in started):
            await_until(lambda: not group.ids(), "the queries before this one have left")
        source = spark.readStream.format("zkconsumer")
        if schema is not None:
            source = source.schema(schema)
        frame = (
            source.option("zookeeper.connect", sandbox.zookeeper_connect)
            .option("group.id", group.group)
            .options(**{"auto.offset.reset": "smallest", **({"subscribe": topic} if topic else {}), **(options or {})})
            .load()
        )
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        query = writer.start()
        started.append(query)
        return query

    yield start
    for query in started:
        query.stop()


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


@contextmanager
def start_application(
    sandbox: Sandbox, group: GroupNodes, topic: str, directory: Path
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The application and the pid of its JVM; both are gone afterwards."""
    arguments = [sandbox.zookeeper_connect, group.group, topic, str(directory / "application-checkpoint")]
    environment = {**os.environ, "JAVA_HOME": str(java_home_for_spark()), "PYSPARK_PYTHON": sys.executable}
    log = directory / "application.log"
    with log.open("w") as stderr:
        application = subprocess.Popen(
            [sys.executable, "-c", APPLICATION, *arguments],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with application:
        try:
            yield application, int(_jvm_line(application, log).split()[1])
        finally:
            application.kill()


def _jvm_line(application: subprocess.Popen[str], log: Path) -> str:
    assert application.stdout is not None
    for line in application.stdout:
        if line.startswith("jvm "):
            return line
    raise AssertionError(log.read_text()[-3000:])
