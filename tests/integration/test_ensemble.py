"""A group on an ensemble of three ZooKeeper servers: the leader is killed, then all of it is restarted."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from kazoo.client import KazooClient

from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.sandbox import Sandbox

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

PARTITIONS = 4
RECOVERY_S = 120.0


class Reader:
    """A member whose only stream is read by a thread until the connector is shut down."""

    def __init__(self, connector: ConsumerConnector, topic: str) -> None:
        self.connector = connector
        self.values: list[bytes] = []
        self.failure: BaseException | None = None
        self._topic = topic
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            (stream,) = self.connector.create_message_streams({self._topic: 1})[self._topic]
            for message in stream:
                self.values.append(message.value)
        except BaseException as error:  # noqa: BLE001 - raised again where the test waits
            self.failure = error

    def owned(self) -> int:
        return len(self.connector.describe().owned)

    def close(self) -> None:
        self.connector.shutdown()
        self._thread.join()


@contextmanager
def members(box: Sandbox, group: str, topic: str, count: int = 2) -> Iterator[list[Reader]]:
    config = ConsumerConfig(
        zookeeper_connect=box.zookeeper_connect,
        group_id=group,
        auto_offset_reset="smallest",
        auto_commit_interval_ms=500,
        zookeeper_session_timeout_ms=10_000,
        zookeeper_connection_timeout_ms=30_000,
        rebalance_backoff_ms=1_000,
        rebalance_max_retries=30,
    )
    with ExitStack() as made:
        readers = []
        for _ in range(count):
            readers.append(Reader(ConsumerConnector(config), topic))
            made.callback(readers[-1].close)
        yield readers


def await_commits(box: Sandbox, group: str, count: int) -> None:
    """Wait until the sum of the offsets that the group has stored of the topic of its name is ``count``."""
    path = f"/consumers/{group}/offsets/{group}"
    client = KazooClient(box.zookeeper_connect)

    def committed() -> int:
        numbers = client.get_children(path) if client.exists(path) else ()
        return sum(int(client.get(f"{path}/{number}")[0]) for number in numbers)

    client.start(timeout=60)
    try:
        eventually(lambda: committed() == count, RECOVERY_S)
    finally:
        client.stop()
        client.close()


def test_a_group_outlives_its_leader_and_a_restart_of_the_ensemble(
    private_sandbox: Callable[..., Sandbox], unique_name: str
) -> None:
    box = private_sandbox(zookeepers=3, tick_time_ms=1000)
    ensemble = box.ensemble
    Topics(box.bootstrap_servers).create(unique_name, PARTITIONS)
    produced: set[bytes] = set()

    def produce(kind: str) -> None:
        values = [f"{kind}-{number}".encode() for number in range(200)]
        produced.update(values)
        produce_records(box.bootstrap_servers, unique_name, [(value, value) for value in values])

    def works() -> None:
        def all_read() -> bool:
            assert not [one.failure for one in readers if one.failure]
            return produced <= {value for one in readers for value in one.values}

        eventually(all_read, RECOVERY_S)
        eventually(lambda: [one.owned() for one in readers] == [PARTITIONS // 2] * 2, RECOVERY_S)

    with members(box, unique_name, unique_name) as readers:
        produce("before")
        works()
        leader = ensemble.leader()
        leader.kill()
        produce("leaderless")
        works()
        assert ensemble.await_leader() is not leader
        leader.start()
        eventually(lambda: len(ensemble.followers()) == 2)
        produce("complete")
        works()
        ensemble.restart()
        produce("restarted")
        works()
        # Records are read while the lease holds, also without a connection: a commit proves that it is back.
        await_commits(box, unique_name, len(produced))


def test_the_command_runs_an_ensemble_and_several_brokers(unique_name: str) -> None:
    command = [sys.executable, "-m", "zkconsumer", "sandbox", "--json", "--zookeepers", "3", "--brokers", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            places = json.loads(process.stdout.readline())
            assert len(set(places["zookeeper"].split(","))) == len(set(places["kafka"].split(","))) == 3
            Topics(places["kafka"]).create(unique_name, partitions=1, replication=3)
            produce_records(places["kafka"], unique_name, [b"replicated"])
        finally:
            process.terminate()
    assert process.returncode == 0
