"""Random restarts of a whole source on real servers, by the rules of ``tests/fix_queryrestarts.py``.

The source runs in a process of its own that is driven as Spark drives it, and killed. ``ZKCONSUMER_RESTARTS`` is the
number of sequences.
"""

import json
import os
import uuid
from collections.abc import Mapping

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from kazoo.client import KazooClient

from tests.fix_queryrestarts import QueryRestarts
from tests.fix_sandbox import Topics, produce_records
from tests.fix_sourceprocess import SourceProcess, await_gone
from tests.fix_waiting import eventually
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector.identity import new_consumer_id
from zkconsumer.connector.member import GroupMember
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.core.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox import Sandbox
from zkconsumer.spark.acknowledge import acknowledge
from zkconsumer.spark.offsets_json import decode_offset

SEQUENCES = int(os.environ.get("ZKCONSUMER_RESTARTS", "25"))


class Idle:
    """The data plane of a member that owns its share and reads nothing."""

    def stop(self, *, drain: bool = True) -> None: ...

    def start(self, assignment: FetchAssignment) -> None: ...

    def withhold(self) -> None: ...

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        return {}


class SourceRestarts(QueryRestarts):
    """The world is a sandbox."""

    sandbox: Sandbox
    zookeeper: KazooClient
    servers: Topics
    admin: AdminClient

    def __init__(self):
        super().__init__()
        run = uuid.uuid4().hex[:8]
        self.names = [f"restarts-{run}-t", f"restarts-{run}-u"]
        self.group = f"restarts-{run}"
        self.source = self.other = None

    def teardown(self):
        super().teardown()
        for name in self.topics:
            self.servers.delete(name)

    def make_topic(self, name, sizes):
        if name in self.topics:
            self.servers.delete(name)
        self.servers.create(name, len(sizes))
        self._produce({TopicPartition(name, number): range(size) for number, size in enumerate(sizes)})
        return json.loads(self.zookeeper.get(f"/brokers/topics/{name}")[0])["topic_id"]

    def grow_topic(self, name, count):
        self.servers.grow(name, count)

    def append(self, partition, count):
        end = self.logs[partition].end
        self._produce({partition: range(end, end + count)})

    def delete_before(self, partition, offset):
        for future in self.admin.delete_records([KafkaPartition(*partition, offset)]).values():
            future.result(60)

    def stored(self):
        paths = {partition: self._path(partition) for partition in self._all()}
        return {p: int(self.zookeeper.get(path)[0]) for p, path in paths.items() if self.zookeeper.exists(path)}

    def store(self, partition, offset):
        self.zookeeper.ensure_path(self._path(partition))
        self.zookeeper.set(self._path(partition), b"%d" % offset)

    def delete_stored(self, partitions):
        for partition in partitions:
            if self.zookeeper.exists(self._path(partition)):
                self.zookeeper.delete(self._path(partition))

    def rename_group(self, name, copied):
        before, self.group = self.group, name
        if copied:
            self.group = before
            offsets = self.stored()
            self.group = name
            for partition, offset in offsets.items():
                self.store(partition, offset)

    def start_source(self, options, others):
        more = {
            "zookeeper.connect": self.sandbox.zookeeper_connect,
            "numStreams": "1",
            "rebalance.backoff.ms": "300",
            "rebalance.max.retries": "100",
            "socket.timeout.ms": "5000",
        }
        self.source = SourceProcess({**more, **options})
        self.source.ask("join")
        self.rebalance_source(others)

    def rebalance_source(self, others):
        """The other member takes the share that the assignor gives it, or leaves."""
        if others and self.other is None:
            config = ConsumerConfig(
                zookeeper_connect=self.sandbox.zookeeper_connect,
                group_id=self.group,
                rebalance_backoff_ms=300,
                rebalance_max_retries=100,
            )
            self.other = GroupMember(config, new_consumer_id(config), Idle())
            self.other.join(Subscription.static(dict.fromkeys(self.names, 1)))
        elif not others:
            self._other_leaves()
        eventually(self._is_settled)

    def owned(self):
        return [TopicPartition(*partition) for partition in self.source.ask("share")[0]]

    def prepare_available_now(self):
        self.source.ask("prepare")

    def latest_offset(self, start, limit):
        """Asked again, as Spark does, while the source waits for a leader or for its group."""
        while (end := self.source.ask("latest_offset", start, limit)) == start:
            report = self.source.ask("report")
            if report is not None and self._reads_to_the_end(report):
                break
        return end

    def read(self, start, end):
        rows = {}
        for topic, number, offset, value in self.source.ask("read", start, end):
            rows.setdefault(TopicPartition(topic, number), []).append((offset, value))
        for partition, span in decode_offset(end).spans.items():
            if span.size and not self._is_recreated(partition):
                log = self.logs[partition]
                expected = range(max(span.start, log.begin), min(span.until, log.end))
                assert rows.get(partition, []) == [(offset, b"%d" % offset) for offset in expected]

    def acknowledge(self, offset):
        acknowledge(self.source.ask("report")["acknowledge"], offset.number)

    def stop_source(self):
        self.source.stop()
        self._other_leaves()

    def kill_source(self):
        before = set(self.zookeeper.get_children(f"/consumers/{self.group}/ids"))
        self.source.kill(self.sandbox.zookeeper_connect)
        await_gone(self.zookeeper, self.group, before - {self.other and self.other.consumer_id})
        self._other_leaves()

    def _other_leaves(self):
        if self.other is not None:
            self.other.leave()
            self.other = None

    def _is_settled(self):
        share = self.source.ask("share")
        if share is None:
            return False
        ours, identities = share
        theirs = [] if self.other is None else map(tuple, self.other.ownership())
        there = {name: identity for name, (identity, _) in self.topics.items()}
        return sorted([*ours, *theirs]) == sorted(map(tuple, self._all())) and identities == there

    def _reads_to_the_end(self, report: Mapping):
        positions = [span for topic in report["topics"].values() for span in topic.values()]
        return len(positions) == len(self.owned()) and all(position >= end for position, end in positions)

    def _produce(self, offsets):
        for partition, numbers in offsets.items():
            records = [{"value": b"%d" % number, "partition": partition.partition} for number in numbers]
            produce_records(self.sandbox.bootstrap_servers, partition.topic, records)

    def _path(self, partition):
        return f"/consumers/{self.group}/offsets/{partition.topic}/{partition.partition}"


@pytest.mark.timeout(60 * SEQUENCES)
def test_random_restarts_on_real_servers(sandbox, zookeeper, topics):
    attributes = {
        "sandbox": sandbox,
        "zookeeper": zookeeper,
        "servers": topics,
        "admin": AdminClient({"bootstrap.servers": sandbox.bootstrap_servers}),
    }
    run_state_machine_as_test(
        type("Restarts", (SourceRestarts,), attributes),
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=12,
            deadline=None,
            phases=(Phase.generate,),
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
