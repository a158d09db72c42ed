"""A group on three ZooKeeper servers and three brokers, of which some lag, are killed, or are restarted."""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from tests.fixtures.fetch import brokers_of
from tests.fixtures.sandbox import Topics, keep_logs, produce_records
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.sandbox import Sandbox
from zkconsumer.wire.brokerclient import BrokerClient

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

PARTITIONS = 4
RECOVERY_S = 120.0


@pytest.fixture(scope="module")
def box(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Each test leaves all servers running."""
    with Sandbox(zookeepers=3, brokers=3, tick_time_ms=1000, max_session_timeout_ms=60_000) as made:
        yield made
        keep_logs(made, request, tmp_path_factory)


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


class Traffic:
    """A topic of the group's name, what was produced to it, and the members that read it.

    Args:
        connects: ``zookeeper.connect`` of each member.
    """

    def __init__(self, box: Sandbox, name: str, connects: list[str], session_ms: int = 10_000) -> None:
        Topics(box.bootstrap_servers).create(name, PARTITIONS, replication=3)
        self._box, self._name = box, name
        self.produced: list[bytes] = []
        self.readers: list[Reader] = []
        for connect in connects:
            config = ConsumerConfig(
                zookeeper_connect=connect,
                group_id=name,
                auto_offset_reset="smallest",
                auto_commit_interval_ms=500,
                zookeeper_session_timeout_ms=session_ms,
                zookeeper_connection_timeout_ms=30_000,
                rebalance_backoff_ms=1_000,
                rebalance_max_retries=30,
            )
            self.readers.append(Reader(ConsumerConnector(config), name))

    def produce(self, kind: str) -> None:
        values = [f"{kind}-{number}".encode() for number in range(200)]
        self.produced += values
        produce_records(self._box.bootstrap_servers, self._name, [(value, value) for value in values])

    def works(self, *loads: int) -> None:
        """Wait until everything is read, and the members own so many partitions each."""
        self.await_reads()
        eventually(lambda: [one.owned() for one in self.readers] == list(loads), RECOVERY_S)

    def await_reads(self) -> None:
        """Wait until everything is read."""

        def all_read() -> bool:
            assert not [one.failure for one in self.readers if one.failure]
            return set(self.produced) <= {value for one in self.readers for value in one.values}

        eventually(all_read, RECOVERY_S)

    def await_commits(self, connect: str) -> None:
        """Wait until the offsets that the group has stored add up to all that was produced."""
        path = f"/consumers/{self._name}/offsets/{self._name}"
        with connected(connect) as client:

            def committed() -> int:
                numbers = client.get_children(path) if client.exists(path) else ()
                return sum(int(client.get(f"{path}/{number}")[0]) for number in numbers)

            eventually(lambda: committed() == len(self.produced), RECOVERY_S)

    def leaders(self) -> set[int]:
        """Ids of the brokers that lead its partitions."""
        brokers = brokers_of(self._box.bootstrap_servers)
        with closing(BrokerClient(lambda: brokers, client_id="test", timeout_ms=10_000)) as client:
            return {broker.id for broker in client.metadata([self._name]).leaders.values()}


@contextmanager
def traffic(box: Sandbox, name: str, connects: list[str], session_ms: int = 10_000) -> Iterator[Traffic]:
    with ExitStack() as made:
        one = Traffic(box, name, connects, session_ms)
        for reader in one.readers:
            made.callback(reader.close)
        yield one


def test_what_a_lagging_follower_does_not_know_yet_is_not_read_again(box: Sandbox, unique_name: str) -> None:
    """One member is connected to the leader, and the one that takes over from it to the follower."""
    leader, follower = box.ensemble.leader(), box.ensemble.followers()[0]
    with traffic(box, unique_name, [leader.address, follower.address], session_ms=60_000) as group:
        group.produce("before")
        group.works(2, 2)
        group.await_commits(leader.address)
        first, second = group.readers
        owned = set(first.connector.describe().owned)
        follower.pause()
        try:
            values = [f"late-{number}".encode() for number in range(200)]
            records = [{"value": value, "partition": min(owned).partition} for value in values]
            group.produced += values
            produce_records(box.bootstrap_servers, unique_name, records)
            eventually(lambda: len(set(first.values) & set(values)) == 200)
            first.close()  # commits, and leaves: the follower has heard of neither
            group.await_commits(leader.address)
        finally:
            follower.resume()
        eventually(lambda: second.owned() == PARTITIONS, RECOVERY_S)
        group.produce("after")
        group.await_reads()
        assert Counter(first.values + second.values) == Counter(group.produced)


def test_a_group_follows_the_leaders_of_its_partitions(box: Sandbox, unique_name: str) -> None:
    with traffic(box, unique_name, [box.zookeeper_connect] * 2, session_ms=60_000) as group:
        group.produce("before")
        group.works(2, 2)
        killed = next(broker for broker in box.brokers if broker.broker_id in group.leaders())
        killed.kill()
        eventually(lambda: killed.broker_id not in group.leaders(), RECOVERY_S)
        group.produce("moved")
        group.works(2, 2)
        killed.start()
        group.produce("after")
        group.works(2, 2)
        assert Counter(value for one in group.readers for value in one.values) == Counter(group.produced)


def test_a_group_outlives_its_leader_and_a_restart_of_the_ensemble(box: Sandbox, unique_name: str) -> None:
    ensemble = box.ensemble
    with traffic(box, unique_name, [box.zookeeper_connect] * 2) as group:
        group.produce("before")
        group.works(2, 2)
        leader = ensemble.leader()
        leader.kill()
        group.produce("leaderless")
        group.works(2, 2)
        assert ensemble.await_leader() is not leader
        leader.start()
        eventually(lambda: len(ensemble.followers()) == 2)
        group.produce("complete")
        group.works(2, 2)
        ensemble.restart()
        group.produce("restarted")
        group.works(2, 2)
        # Records are read while the lease holds, also without a connection: a commit proves that it is back.
        group.await_commits(box.zookeeper_connect)


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
