"""A group whose members are containers with network identities of their own, and what may happen to containers."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from tests.fixtures.containers import ConsumerContainer
from tests.fixtures.sandbox import Topics, produce_records
from zkconsumer.testing.containers import KafkaContainer, ZooKeeperContainer

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]  # the first test builds the images

GROUP = "contained"
TOPIC = "records"
PARTITIONS = 4
RECOVERY_S = 90.0
GRACE_S = 10
KILLED = 137
PROPERTIES = {
    "zookeeper.session.timeout.ms": 6_000,
    "zookeeper.connection.timeout.ms": 30_000,
    "rebalance.backoff.ms": 500,
    "rebalance.max.retries": 30,
    "auto.commit.interval.ms": 500,
}


class Group:
    """What a client outside of the containers sees of the group, and what its consumers have printed."""

    def __init__(self, client: KazooClient, kafka: KafkaContainer, consumers: list[ConsumerContainer]) -> None:
        self._client = client
        self._kafka = kafka
        self.consumers = consumers

    def produce(self, kind: str) -> set[str]:
        """Records with keys, so that every partition gets some."""
        values = {f"{kind}-{number}" for number in range(400)}
        records = [(value.encode(), value.encode()) for value in sorted(values)]
        produce_records(self._kafka.bootstrap_servers, TOPIC, records)
        return values

    def members(self) -> set[str]:
        return set(self._client.get_children(f"/consumers/{GROUP}/ids"))

    def owners(self) -> dict[int, str]:
        """The consumer id of each partition's owner."""
        path = f"/consumers/{GROUP}/owners/{TOPIC}"
        found = {
            int(number): self._client.get(f"{path}/{number}")[0].decode() for number in self._client.get_children(path)
        }
        return {number: thread.rpartition("-")[0] for number, thread in found.items()}

    def is_shared_by(self, count: int) -> bool:
        """True when so many members own all partitions, each as many."""
        owners = list(self.owners().values())
        return len(owners) == PARTITIONS and sorted(map(owners.count, set(owners))) == [PARTITIONS // count] * count

    def committed(self) -> int:
        path = f"/consumers/{GROUP}/offsets/{TOPIC}"
        return sum(int(self._client.get(f"{path}/{number}")[0]) for number in self._client.get_children(path))

    def printed(self) -> set[str]:
        return {record["value"] for consumer in self.consumers for record in consumer.records()}

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + RECOVERY_S
        while not self._holds(condition):
            errors = [consumer.get_logs()[1].decode()[-1500:] for consumer in self.consumers]
            assert time.monotonic() < deadline, f"{what}: not within {RECOVERY_S:g} s; consumers said: {errors}"
            time.sleep(0.2)  # the engine only answers questions: there is nothing to wait on

    def _holds(self, condition: Callable[[], object]) -> bool:
        try:
            return bool(condition())
        except KazooException:
            return False  # on the way: a node has gone between two questions, or the connection is not back yet


@contextmanager
def observer(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=connect, timeout=30.0)
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def group_of_two(servers, kafka, start_consumer, network, inner_connect) -> Iterator[Group]:
    Topics(kafka.bootstrap_servers).create(TOPIC, PARTITIONS)
    consumers = [
        start_consumer(kafka, GROUP, TOPIC, PROPERTIES, network=network, zookeeper=inner_connect) for _ in range(2)
    ]
    with observer(",".join(server.address for server in servers)) as client:
        group = Group(client, kafka, consumers)
        group.until(lambda: group.is_shared_by(2), "two members share the partitions")
        values = group.produce("before")
        group.until(lambda: values <= group.printed(), "records arrive")
        yield group


@pytest.fixture
def group(zookeeper_container, inner_kafka_container, consumer_container, container_network) -> Iterator[Group]:
    """Two consumers that have printed some records."""
    connect = "zookeeper:2181"
    kafka = inner_kafka_container(connect)
    with group_of_two([zookeeper_container], kafka, consumer_container, container_network, connect) as group:
        yield group


def test_a_group_continues_when_a_member_of_the_ensemble_is_killed(
    ensemble_containers: list[ZooKeeperContainer], inner_kafka_container, consumer_container, container_network
) -> None:
    connect = ",".join(f"zookeeper-{number}:2181" for number in (1, 2, 3))
    kafka = inner_kafka_container(connect)
    with group_of_two(ensemble_containers, kafka, consumer_container, container_network, connect) as group:
        (leader,) = (member for member in ensemble_containers if member.mode() == "leader")
        leader.kill()
        values = group.produce("without-the-leader")
        group.until(lambda: values <= group.printed(), "records arrive without the former leader")
        group.until(lambda: group.is_shared_by(2), "both members still share the partitions")
        leader.restart()
        assert leader.mode() == "follower"
        later = group.produce("with-all-again")
        group.until(lambda: later <= group.printed(), "records arrive")


def test_the_others_take_over_from_a_disconnected_container_until_it_is_back(group: Group) -> None:
    lost, left = group.consumers
    lost.disconnect()
    group.until(lambda: group.is_shared_by(1), "the other member owns all partitions")
    values = group.produce("while-disconnected")
    group.until(lambda: values <= {record["value"] for record in left.records()}, "the other member prints them")
    lost.connect()
    group.until(lambda: group.is_shared_by(2), "two members share the partitions again")
    later = group.produce("connected-again")
    group.until(lambda: later <= group.printed(), "records arrive")
    assert later & {record["value"] for record in lost.records()}


def test_docker_stop_commits_and_leaves_within_the_grace_period(group: Group) -> None:
    before = group.members()
    ending, staying = group.consumers
    code = ending.end(GRACE_S)
    assert code == 0, f"{KILLED} would be a kill after the grace period"
    assert len(group.members()) == len(before) - 1  # at once: no session has to expire
    group.until(lambda: group.is_shared_by(1), "the other member owns all partitions")
    # Nothing was consumed in between: all that both had printed is committed once, and the other one reads none again.
    values = group.produce("after")
    group.until(lambda: values <= {record["value"] for record in staying.records()}, "records arrive")
    group.until(lambda: group.committed() == 800, "all offsets are committed")
    printed = [record["value"] for consumer in group.consumers for record in consumer.records()]
    assert len(printed) == len(set(printed)), "a record was printed twice"
