"""Group members without a data plane, and a cluster that is nothing but znodes: the control plane alone."""

import json

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.group.identity import new_consumer_id
from zkconsumer.group.member import GroupMember
from zkconsumer.model import TopicPartition

JVM = {"version": 1, "pattern": "static", "timestamp": "1"}


class Cluster:
    """A chroot with one broker and topics that no Kafka knows of."""

    def __init__(self, sandbox, zookeeper, name: str) -> None:
        self.connect = f"{sandbox.zookeeper_connect}/{name}"
        self.root = f"/{name}"
        self.zookeeper = zookeeper
        self.members: list[GroupMember] = []
        for path in ("consumers", "brokers/ids", "brokers/topics"):
            zookeeper.ensure_path(f"{self.root}/{path}")
        zookeeper.create(f"{self.root}/brokers/ids/1", b'{"version":1,"host":"h","port":1}')

    def create_topics(self, *names: str, partitions: int = 1) -> None:
        data = json.dumps({"version": 1, "partitions": {str(n): [1] for n in range(partitions)}}).encode()
        for answer in [self.zookeeper.create_async(f"{self.root}/brokers/topics/{name}", data) for name in names]:
            answer.get()

    def register_stranger(self, name: str, topic: str) -> None:
        document = json.dumps({**JVM, "subscription": {topic: 1}}).encode()
        self.zookeeper.create(f"{self.root}/consumers/g/ids/g_{name}", document, ephemeral=True, makepath=True)

    def member(self, name: str, fetch=None, before_commit=None, **values) -> GroupMember:
        config = ConsumerConfig(
            **{
                "zookeeper_connect": self.connect,
                "group_id": "g",
                "consumer_id": name,
                "zookeeper_session_timeout_ms": 10_000,
                "rebalance_max_retries": 20,
                **values,
            }
        )
        fetch = RecordingFetch() if fetch is None else fetch
        self.members.append(GroupMember(config, new_consumer_id(config), fetch, before_commit=before_commit))
        return self.members[-1]


class RecordingFetch:
    """A data plane that fetches nothing: it notes when it is stopped and started, and lets the test set positions."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.assignment: FetchAssignment | None = None
        self.position: dict[TopicPartition, int] = {}
        self.released: dict[TopicPartition, int] | None = None

    def stop(self, *, drain: bool = True) -> None:
        self.calls.append("stop")

    def start(self, assignment: FetchAssignment) -> None:
        self.calls.append("start")
        self.assignment = assignment
        self.position = {p: offset for p, offset in assignment.offsets.items() if offset is not None}

    def withhold(self) -> None:
        pass  # not noted: a busy machine lets the lease lapse at any time

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        return dict(self.position if handed_out or self.released is None else self.released)
