"""A standalone cluster whose workers and drivers are hosts with addresses of their own, which are killed and slow.

Executors have no route to ZooKeeper. Files are shared by all hosts, as on HDFS.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.brokergroup import ObservedBrokerGroup
from tests.fixtures.hosts import Host, network
from tests.fixtures.sandbox import PATIENT, Topics, produce_records
from tests.fixtures.spark import BOTH_PROTOCOLS, ObservedGroup, await_until
from tests.fixtures.sparkcluster import SparkCluster
from tests.fixtures.sparkjob import JVM_OPTIONS, PATIENCE_S, DeliveryJob
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.ports import free_port
from zkconsumer.sandbox.progress import Progress

PARTITIONS = 6
WORKERS = 3
SHORT_SESSION = {"zookeeper.session.timeout.ms": "10000", "session.timeout.ms": "10000"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # clusters and applications are started and killed


class Cluster:
    """Servers on this machine, and Spark on hosts of their network."""

    def __init__(self, box: Sandbox, spark: SparkCluster, zookeeper: str, brokers: str) -> None:
        self.box = box
        self.spark = spark
        self.zookeeper = zookeeper
        self.brokers = brokers
        self.workers: list[Host] = []
        self.drivers: list[Host] = []
        self._usual: set[Host] = set()
        self._started = 0

    def start_worker(self, host: Host, **variables: str) -> str:
        """Start a worker, in place of the one that runs there, and return its name."""
        host.kill()
        name = f"worker-{self._started}"
        self._started += 1
        self.spark.start_worker(name, host.address, prefix=host.command(), **variables)
        (self._usual.discard if variables else self._usual.add)(host)
        return name

    def heal(self) -> None:
        """Start the workers that do not run, and those that are slow."""
        harmed = [host for host in self.workers if host not in self._usual or not host.pids()]
        self.spark.await_workers(*[self.start_worker(host) for host in harmed])


@pytest.fixture(scope="module")
def started(tmp_path_factory) -> Iterator[Cluster]:
    """The cluster, with three workers that are about to start."""
    with network() as lan:
        for_brokers, for_zookeeper = lan.addresses
        ours, theirs = free_port(), free_port()
        listeners = f"LAN://{for_brokers}:{theirs},PLAINTEXT://127.0.0.1:{ours}"
        properties = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "LAN:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
        arguments: dict[str, Any] = {**PATIENT, "kafka_properties": {**PATIENT["kafka_properties"], **properties}}
        everywhere = {"clientPortAddress": "0.0.0.0"}
        with Sandbox(progress=Progress(), kafka_port=ours, zookeeper_properties=everywhere, **arguments) as box:
            directory = tmp_path_factory.mktemp("hosts") / "spark"
            spark = SparkCluster(directory, for_brokers, JAVA_TOOL_OPTIONS=JVM_OPTIONS)
            try:
                made = Cluster(box, spark, f"{for_zookeeper}:{box.zookeeper.port}", f"{for_brokers}:{theirs}")
                made.workers = [lan.add_host() for _ in range(WORKERS)]
                made.drivers = [lan.add_host() for _ in range(2)]
                for host in made.workers:
                    host.lose_route_to(for_zookeeper)
                yield made
            finally:
                spark.close()


@pytest.fixture
def cluster(started) -> Cluster:
    """The cluster, with three workers that run."""
    started.heal()
    return started


@pytest.fixture
def group(started, unique_name, protocol) -> Iterator[ObservedGroup | ObservedBrokerGroup]:
    """A group whose options are those of hosts."""
    if protocol == "kafka":
        observed = ObservedBrokerGroup(started.box.bootstrap_servers, unique_name)
        observed.connection["bootstrap.servers"] = started.brokers
        yield observed
        return
    with connected(started.box.zookeeper_connect) as client:
        made = ObservedGroup(client, unique_name)
        made.connection = {"zookeeper.connect": started.zookeeper}
        yield made


@pytest.fixture
def topic(started, unique_name) -> str:
    return Topics(started.box.bootstrap_servers).create(unique_name, PARTITIONS)


@pytest.fixture
def start_job(cluster, group, topic, make_job, tmp_path):
    """Start the application on the first host for drivers, with a task on each worker."""

    def start(options: Mapping[str, str] | None = None, conf: Mapping[str, str] | None = None, **others: Any) -> Any:
        logs = tmp_path / "events"
        logs.mkdir()
        settings = {
            "spark.cores.max": str(WORKERS),
            "spark.executor.memory": "512m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": logs.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            **(conf or {}),
        }
        all_options = {**group.connection, "numStreams": str(WORKERS), **(options or {})}
        place = {"master": cluster.spark.master, "host": cluster.drivers[0]}
        return make_job(cluster.box, topic, options=all_options, conf=settings, **place, **others)

    return start


def produce(cluster: Cluster, topic: str, count: int, value: bytes = b"v") -> list[tuple[int, int]]:
    records = [{"value": value, "partition": n % PARTITIONS} for n in range(count)]
    return produce_records(cluster.box.bootstrap_servers, topic, records)


def ended_tasks(directory: Path) -> list[dict[str, Any]]:
    """What Spark's log of events has of each task that has ended."""
    lines = [line for path in (directory / "events").iterdir() for line in path.read_text("utf-8").splitlines()]
    return [event for event in map(json.loads, lines) if event["Event"] == "SparkListenerTaskEnd"]


@BOTH_PROTOCOLS
def test_a_worker_that_is_killed_amid_a_batch(cluster, group, topic, start_job, tmp_path):
    produced = produce(cluster, topic, 240)  # six batches
    job: DeliveryJob = start_job(pause_s=1.0)
    job.await_batches(2, group)
    victim = cluster.workers[0]
    await_until(lambda: victim.address in job.reading(), "it runs a task", PATIENCE_S)
    victim.kill()
    job.await_all(produced, group)
    assert job.kept() == Counter(produced)
    assert job.delivered() == Counter(produced), "Spark repeats the task, not the batch"
    assert job.stop() == 0
    tasks = ended_tasks(tmp_path)
    assert {task["Task Info"]["Host"] for task in tasks} == {host.address for host in cluster.workers}
    assert "ExecutorLostFailure" in {task["Task End Reason"]["Reason"] for task in tasks}


@BOTH_PROTOCOLS
def test_a_driver_that_is_killed_and_started_on_another_host(cluster, group, topic, start_job):
    produced = produce(cluster, topic, 120)  # three batches: the third is in flight when the driver is killed
    job: DeliveryJob = start_job(SHORT_SESSION)
    job.await_batches(2, group)
    members = group.ids()
    job.host.kill()
    eventually(lambda: not job.runs)
    assert group.ids() == members, "nothing has left the group"
    job.require_not_ahead(group)
    produced += produce(cluster, topic, 40)
    job.host = cluster.drivers[1]
    job.start()
    job.await_all(produced, group)
    assert job.kept() == Counter(produced)
    assert job.delivered().total() - len(produced) <= 40, "at most the batch in flight"


@BOTH_PROTOCOLS
def test_speculative_tasks_write_each_row_once(cluster, group, topic, start_job, tmp_path):
    from pyarrow import parquet

    slow = cluster.workers[0]
    cluster.spark.await_workers(cluster.start_worker(slow, DELIVERY_PAUSE_S="10"))
    produced = produce(cluster, topic, 120)
    quick = {"interval": "100ms", "multiplier": "1.5", "quantile": "0.5"}
    conf = {"spark.speculation": "true", **{f"spark.speculation.{name}": value for name, value in quick.items()}}
    files = tmp_path / "files"
    job: DeliveryJob = start_job(conf=conf, files=files)
    await_until(lambda: sum(group.offsets(topic).values()) == len(produced), "all is committed", PATIENCE_S)
    assert job.stop() == 0
    names = [
        json.loads(line)["path"].removeprefix("file://")
        for batch in (files / "_spark_metadata").glob("[0-9]*")
        for line in batch.read_text("utf-8").splitlines()[1:]
    ]
    rows = [row for name in names for row in parquet.read_table(name).to_pylist()]
    assert Counter((row["partition"], row["offset"]) for row in rows) == Counter(produced)
    tasks = ended_tasks(tmp_path)
    assert any(task["Task Info"]["Speculative"] and task["Task End Reason"]["Reason"] == "Success" for task in tasks)
    assert "TaskKilled" in {
        task["Task End Reason"]["Reason"] for task in tasks if task["Task Info"]["Host"] == slow.address
    }


@pytest.mark.parametrize("protocol", ["kafka"], indirect=True)
def test_an_executor_behind_a_slow_network(cluster, group, topic, start_job, tmp_path):
    large = bytes(20_000)
    produced = produce(cluster, topic, 40, large)
    job: DeliveryJob = start_job()
    job.await_all(produced, group)  # all executors have started
    slow = cluster.workers[0]
    slow.slow_down("1mbit")  # brokers send whole record batches: each takes seconds
    try:
        slowed_ms = time.time() * 1000
        produced += produce(cluster, topic, 200, large)
        job.await_all(produced, group)
    finally:
        slow.speed_up()
    assert job.stop() == 0
    assert job.delivered() == Counter(produced)
    took_ms: Counter[str] = Counter()
    for task in (ended["Task Info"] for ended in ended_tasks(tmp_path)):
        if task["Launch Time"] > slowed_ms:
            took_ms[task["Host"]] += task["Finish Time"] - task["Launch Time"]
    assert took_ms.keys() == {host.address for host in cluster.workers}
    assert max(took_ms, key=took_ms.__getitem__) == slow.address, took_ms
