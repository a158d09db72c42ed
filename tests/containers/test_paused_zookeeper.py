"""ZooKeeper freezes for longer than a session timeout: a group of two recovers.

One member lives in this process, the other in a container of the image that ``docker/consumer`` builds.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from tests.fixtures.containers import ConsumerContainer
from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.zookeeper import connected
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.testing.containers import KafkaContainer, ZooKeeperContainer

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]  # the first test builds the images

GROUP = "paused"
TOPIC = "records"
PARTITIONS = 4
SESSION_MS = 4_000
FROZEN_S = 3 * SESSION_MS / 1000
RECOVERY_S = 180.0

PROPERTIES = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "zookeeper.connection.timeout.ms": 30_000,
    "rebalance.backoff.ms": 500,
    "rebalance.max.retries": 20,
    "auto.commit.interval.ms": 500,
}


@dataclass
class LocalMember:
    """A member in this process: a thread reads its only stream until the connector is shut down."""

    connector: ConsumerConnector
    values: set[str] = field(default_factory=set)
    failure: BaseException | None = None

    def read(self) -> None:
        try:
            (stream,) = self.connector.create_message_streams({TOPIC: 1})[TOPIC]
            for message in stream:
                self.values.add(message.value.decode())
        except BaseException as error:  # noqa: BLE001 - raised again where the test waits
            self.failure = error


@contextmanager
def local_member(zookeeper_connect: str) -> Iterator[LocalMember]:
    config = ConsumerConfig(
        zookeeper_connect=zookeeper_connect, group_id=GROUP, auto_offset_reset="smallest", **PROPERTIES
    )
    with ConsumerConnector(config) as connector:
        member = LocalMember(connector)
        reader = threading.Thread(target=member.read, name="reader")
        reader.start()
        yield member
    reader.join(timeout=RECOVERY_S)
    assert not reader.is_alive()


class Group:
    """The records that both members have handed out, and their state in ZooKeeper as seen by another client."""

    def __init__(self, observer: KazooClient, local: LocalMember, remote: ConsumerContainer) -> None:
        self._observer = observer
        self._local = local
        self._remote = remote

    def has_handed_out(self, values: set[str]) -> bool:
        return values <= self._local.values | {record["value"] for record in self._remote.records()}

    def owns_everything_evenly(self) -> bool:
        """True if each member owns half of the partitions, by nodes of its registered session."""
        try:
            sessions = self._sessions()
            owned = self._owned_under_live_sessions(sessions)
        except (NoNodeError, KazooException):
            return False  # still changing: a node was deleted between two reads, or the connection is not restored yet
        return len(sessions) == 2 and sorted(owned.values()) == [PARTITIONS // 2, PARTITIONS // 2]

    def _sessions(self) -> dict[str, int]:
        ids = f"/consumers/{GROUP}/ids"
        found = self._observer.get_children(ids)
        return {member: self._observer.get(f"{ids}/{member}")[1].ephemeralOwner for member in found}

    def _owned_under_live_sessions(self, sessions: dict[str, int]) -> dict[str, int]:
        owned = dict.fromkeys(sessions, 0)
        for partition in range(PARTITIONS):
            data, status = self._observer.get(f"/consumers/{GROUP}/owners/{TOPIC}/{partition}")
            member, _, _ = data.decode().rpartition("-")  # an owner is the id of a consumer's thread
            if sessions.get(member) == status.ephemeralOwner:
                owned[member] += 1
        return owned

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + RECOVERY_S
        while not condition():
            assert self._local.failure is None, f"the member in this process failed: {self._local.failure!r}"
            assert self._remote.is_running(), f"the member in the container has ended; {self._summary()}"
            assert time.monotonic() < deadline, f"{what}: not within {RECOVERY_S:g} s; {self._summary()}"
            time.sleep(0.1)

    def _summary(self) -> str:
        _, errors = self._remote.get_logs()
        return (
            f"local handed out {len(self._local.values)}, remote {len(self._remote.records())}; "
            f"remote logged: {errors.decode()[-2000:]}"
        )


def values(kind: str) -> set[str]:
    return {f"{kind}-{number}" for number in range(400)}


@pytest.mark.parametrize("broker_session_ms", [30_000, SESSION_MS], ids=["broker-stays", "broker-expires-too"])
def test_group_of_two_recovers_from_a_frozen_zookeeper(
    zookeeper_container: ZooKeeperContainer,
    kafka_container: Callable[..., KafkaContainer],
    consumer_container: Callable[..., ConsumerContainer],
    broker_session_ms: int,
) -> None:
    kafka = kafka_container(broker_session_ms)
    Topics(kafka.bootstrap_servers).create(TOPIC, PARTITIONS)

    def produce(kind: str) -> set[str]:
        # With keys, so that every partition gets records of each kind.
        records = [(value.encode(), value.encode()) for value in sorted(values(kind))]
        produce_records(kafka.bootstrap_servers, TOPIC, records)
        return values(kind)

    with connected(zookeeper_container.address) as client, local_member(zookeeper_container.address) as local:
        remote = consumer_container(kafka, GROUP, TOPIC, PROPERTIES)
        group = Group(client, local, remote)
        group.until(group.owns_everything_evenly, "two members share the partitions")
        before = produce("before")
        group.until(lambda: group.has_handed_out(before), "records from before the freeze arrive")

        zookeeper_container.pause()
        try:
            during = produce("during")  # brokers do not need ZooKeeper for that
            # The sessions expire by time: there is no other condition to await.
            time.sleep(FROZEN_S)
        finally:
            zookeeper_container.resume()

        after = produce("after")
        group.until(lambda: group.has_handed_out(before | during | after), "records from during and after arrive")
        group.until(group.owns_everything_evenly, "two members share the partitions again")
        later = produce("later")
        group.until(lambda: group.has_handed_out(later), "records from after the recovery arrive")
        group.until(group.owns_everything_evenly, "two members still share the partitions")
