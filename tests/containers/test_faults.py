"""A group whose members are containers with network identities of their own, and what may happen to containers."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from tests.fixtures.containers import ConsumerContainer
from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.zookeeper import connected
from zkconsumer.testing.containers import KafkaContainer, ZooKeeperContainer

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]  # the first test builds the images

GROUP = "contained"
TOPIC = "records"
PARTITIONS = 4
RECOVERY_S = 180.0
GRACE_S = 40  # leaving takes two seconds, but the machine may stand still
KILLED = 137
SHORT_SESSION_MS = 6_000
LONG_SESSION_MS = 60_000  # for members that must not lose their session where the machine stands still
PROPERTIES = {
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

    def until(self, condition: Callable[[], object], what: str) -> Any:
        """Wait until the condition is true, and return what it returned."""
        deadline = time.monotonic() + RECOVERY_S
        while not (result := self._value_of(condition)):
            errors = [consumer.get_logs()[1].decode()[-1500:] for consumer in self.consumers]
            assert time.monotonic() < deadline, f"{what}: not within {RECOVERY_S:g} s; consumers said: {errors}"
            time.sleep(0.2)  # the engine only answers questions: there is nothing to wait on
        return result

    def _value_of(self, condition: Callable[[], object]) -> object:
        try:
            return condition()
        except KazooException:
            return None  # on the way: a node has gone between two questions, or the connection is not back yet


@contextmanager
def group_of_two(servers, kafka, start_consumer, network, inner_connect, session_ms) -> Iterator[Group]:
    properties = {**PROPERTIES, "zookeeper.session.timeout.ms": session_ms}
    Topics(kafka.bootstrap_servers).create(TOPIC, PARTITIONS)
    consumers = [
        start_consumer(kafka, GROUP, TOPIC, properties, network=network, zookeeper=inner_connect) for _ in range(2)
    ]
    with connected(",".join(server.address for server in servers), 30) as client:
        group = Group(client, kafka, consumers)
        group.until(lambda: group.is_shared_by(2), "two members share the partitions")
        values = group.produce("before")
        group.until(lambda: values <= group.printed(), "records arrive")
        yield group


@pytest.fixture
def group(
    request, zookeeper_container, inner_kafka_container, consumer_container, container_network
) -> Iterator[Group]:
    """Two consumers that have printed some records; the parameter is their session timeout in ms."""
    connect = "zookeeper:2181"
    kafka = inner_kafka_container(connect)
    servers = [zookeeper_container]
    with group_of_two(servers, kafka, consumer_container, container_network, connect, request.param) as group:
        yield group


def test_a_group_continues_when_a_member_of_the_ensemble_is_killed(
    ensemble_containers: list[ZooKeeperContainer], inner_kafka_container, consumer_container, container_network
) -> None:
    connect = ",".join(f"zookeeper-{number}:2181" for number in (1, 2, 3))
    kafka = inner_kafka_container(connect)
    servers = ensemble_containers
    with group_of_two(servers, kafka, consumer_container, container_network, connect, SHORT_SESSION_MS) as group:
        leader = group.until(lambda: next((s for s in servers if s.mode() == "leader"), None), "a server leads")
        leader.kill()
        values = group.produce("without-the-leader")
        group.until(lambda: values <= group.printed(), "records arrive without the former leader")
        group.until(lambda: group.is_shared_by(2), "both members still share the partitions")
        leader.restart()
        group.until(lambda: leader.mode() in ("follower", "leader"), "the server is in the ensemble again")
        later = group.produce("with-all-again")
        group.until(lambda: later <= group.printed(), "records arrive")


@pytest.mark.parametrize("group", [SHORT_SESSION_MS], indirect=True)
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


@pytest.mark.parametrize("group", [LONG_SESSION_MS], indirect=True)
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
