"""Random restarts of a whole source on real servers, by the rules of ``tests/fixtures/queryrestarts.py``.

The source runs in a separate process, is called in Spark's order, and is killed. ``ZKCONSUMER_RESTARTS`` is the number
of sequences.
"""

import contextlib
import json
import os
import random
import uuid
from collections.abc import Mapping

import pytest
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from tests.fixtures.fetch import brokers_of
from tests.fixtures.members import open_member
from tests.fixtures.queryrestarts import FATES, THEIR_METADATA, QueryRestarts
from tests.fixtures.sandbox import Topics, delete_records_before, produce_records
from tests.fixtures.sourceprocess import SourceProcess, await_gone
from tests.fixtures.spark import LONG_SESSION
from tests.fixtures.waiting import eventually
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import RetriableError
from zkconsumer.fetch.rules.fetchcontrol import FetchAssignment
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, stamp_of
from zkconsumer.offsets.zookeeperstore import ZooKeeperOffsetStore
from zkconsumer.sandbox import Sandbox
from zkconsumer.spark.acknowledge import acknowledge
from zkconsumer.spark.rules.offsetsjson import decode_offset
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.zookeeper.session import ZkSession

SEQUENCES = int(os.environ.get("ZKCONSUMER_RESTARTS", "25"))
STEPS = 12
PATIENCE_S = 180.0


class Idle:
    """The data plane of a member that owns its partitions without reading them."""

    needs_topics = False

    def stop(self, *, drain: bool = True) -> None: ...

    def start(self, assignment: FetchAssignment) -> None: ...

    def withhold(self) -> None: ...

    def deliver(self) -> None: ...

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        return {}

    def superseded(self) -> list[tuple[TopicPartition, int]]:
        return []


class SourceRestarts(QueryRestarts):
    """The world is a sandbox."""

    def __init__(
        self, sandbox: Sandbox, zookeeper: KazooClient, servers: Topics, admin: AdminClient, session: ZkSession
    ):
        super().__init__()
        self.sandbox, self.zookeeper, self.servers, self.admin = sandbox, zookeeper, servers, admin
        self.session = session
        run = uuid.uuid4().hex[:8]
        self.names = [f"restarts-{run}-t", f"restarts-{run}-u"]
        self.group = f"restarts-{run}"
        self.source = self.other = None
        self.client = BrokerClient(lambda: brokers_of(sandbox.bootstrap_servers), client_id="t", timeout_ms=10_000)

    def teardown(self):
        super().teardown()
        for name in self.topics:
            self.servers.delete(name)
        self.client.close()

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
        delete_records_before(self.admin, partition.topic, partition.partition, offset)

    def stored(self):
        if self.in_kafka:
            found = self._ask(lambda group: group.fetch(self._all())).found
            return {partition: one.offset for partition, one in found.items() if one.offset is not None}
        paths = {partition: self._path(partition) for partition in self._all()}
        return {p: int(self.zookeeper.get(path)[0]) for p, path in paths.items() if self.zookeeper.exists(path)}

    def written(self, partition):
        if self.in_kafka:
            found = self._ask(lambda group: group.fetch([partition])).found[partition]
            return found._replace(stamp=stamp_of(found.mark))
        store = ZooKeeperOffsetStore(self.session, self.group, is_stamping=True)
        return store.stored(store.fetch([partition]))[partition]

    def store(self, partition, offset):
        if self.in_kafka:
            outcome = self._ask(lambda group: group.commit({partition: StoredOffset(offset, THEIR_METADATA)}))
            assert not outcome.refused
            return
        self.zookeeper.ensure_path(self._path(partition))
        self.zookeeper.set(self._path(partition), b"%d" % offset)

    def delete_stored(self, partitions):
        if self.in_kafka:
            if stored := self.stored().keys() & set(partitions):
                self._ask(lambda group: group.delete(stored))
            return
        for partition in partitions:
            if self.zookeeper.exists(self._path(partition)):
                self.zookeeper.delete(self._path(partition))

    def rename_group(self, offsets):
        for partition, offset in offsets.items():
            self.store(partition, offset)

    def start_source(self, options, others):
        more = {
            "zookeeper.connect": self.sandbox.zookeeper_connect,
            "numStreams": "1",
            "rebalance.backoff.ms": "300",
            "rebalance.max.retries": "100",
            "socket.timeout.ms": "5000",
            **LONG_SESSION,
        }
        self.source = SourceProcess({**more, **options})
        self.source.ask("join")
        self.rebalance_source(others)

    def rebalance_source(self, others):
        """The other member takes the partitions that the assignor gives it, or leaves."""
        if others and self.other is None:
            config = ConsumerConfig(
                zookeeper_connect=self.sandbox.zookeeper_connect,
                group_id=self.group,
                rebalance_backoff_ms=300,
                rebalance_max_retries=100,
                zookeeper_session_timeout_ms=30_000,
                zookeeper_connection_timeout_ms=60_000,
            )
            self.other = open_member(config, Idle())
            self.other.join(Subscription.static(dict.fromkeys(self.names, 1)))
        elif not others:
            self._other_leaves()
        eventually(self._is_settled, PATIENCE_S)

    def owned(self):
        eventually(lambda: self.source.ask("share") is not None)
        return [TopicPartition(*partition) for partition in self.source.ask("share")[0]]

    def prepare_available_now(self):
        self.source.ask("prepare")

    def latest_offset(self, start, limit):
        """Call it repeatedly, as Spark does, while the source waits for a leader or for its group."""
        while (end := self.source.ask("latest_offset", start, limit)) == start:
            report = self.source.ask("report")
            if report is not None and self._reads_to_the_end(report):
                break
        return end

    def read(self, start, end):
        rows = {}
        for topic, number, offset, value in self.source.read(start, end):
            rows.setdefault(TopicPartition(topic, number), []).append((offset, value))
        for partition, span in decode_offset(end).spans.items():
            if span.size and not self._is_recreated(partition):
                log = self.logs[partition]
                expected = range(max(span.start, log.begin), min(span.until, log.end))
                assert rows.get(partition, []) == [(offset, b"%d" % offset) for offset in expected]

    def acknowledge(self, offset):
        with contextlib.suppress(TimeoutError):  # the source is slow to answer; it has the acknowledgement
            acknowledge(self.source.ask("report")["acknowledge"], offset.number)

    def stop_source(self):
        self.source.stop()
        self._other_leaves()

    def kill_source(self):
        before = set(self.zookeeper.get_children(f"/consumers/{self.group}/ids"))
        self.source.kill()
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
        """True by a report that is not older than the newest records: a trigger may fail, and leave the former one."""
        spans = {TopicPartition(t, int(n)): span for t, spans in report["topics"].items() for n, span in spans.items()}
        ends = {partition: self.logs[partition].end for partition in self.owned()}
        at_end = all(position >= end for position, end in spans.values())
        return at_end and {partition: end for partition, (_, end) in spans.items()} == ends

    def _produce(self, offsets):
        for partition, numbers in offsets.items():
            records = [{"value": b"%d" % number, "partition": partition.partition} for number in numbers]
            produce_records(self.sandbox.bootstrap_servers, partition.topic, records)

    def _ask(self, question):
        """Ask the coordinator of the group, again while the broker creates the topic of offsets."""
        answers = []

        def ask():
            with contextlib.suppress(RetriableError):
                answers.append(question(OffsetCoordinator(self.client, self.group)))
            return answers

        eventually(ask, PATIENCE_S)
        return answers[0]

    def _path(self, partition):
        return f"/consumers/{self.group}/offsets/{partition.topic}/{partition.partition}"


def _numbers(choose):
    return set(choose.sample(range(6), choose.randint(0, 3)))


def _limit(choose):
    return choose.choice([None, choose.randint(1, 9)])


ANYTIME = {
    "produce": lambda choose: {"number": choose.randrange(6), "count": choose.randint(1, 9)},
    "retention": lambda choose: {"number": choose.randrange(6), "share": choose.randint(1, 3)},
    "create_or_grow": lambda choose: {"topic": choose.randrange(2), "count": choose.randint(1, 2)},
    "create_again": lambda choose: {"topic": choose.randrange(2), "size": choose.randint(0, 30)},
    "another_writes_the_offset": lambda choose: {"number": choose.randrange(6), "to": choose.randint(0, 12)},
}
STOPPED = {
    "offsets_are_deleted": lambda choose: {"number": choose.randrange(6), "everything": choose.random() < 0.5},
    "the_release_is_upgraded": lambda _: {},
    "the_checkpoint_is_restored": lambda choose: {"back": choose.randint(0, 3), "is_finished": choose.random() < 0.5},
    "the_group_is_renamed": lambda choose: {"copied": choose.random() < 0.5},
    "start": lambda choose: {"others": _numbers(choose)},
    "available_now": lambda choose: {"others": _numbers(choose), "limit": _limit(choose)},
    "once": lambda choose: {"others": _numbers(choose)},
}
RUNNING = {
    "trigger": lambda choose: {"limit": _limit(choose), "fate": choose.choice(FATES)},
    "rebalance": lambda choose: {"others": _numbers(choose)},
    "stop": lambda _: {},
    "crash": lambda _: {},
}
"""The possible events with their conditions and arguments. Hypothesis does not choose here: it needs a reproducible
world, but the servers determine which partitions a member gets first."""


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_random_restarts_on_real_servers(sandbox, zookeeper, topics, open_session, seed):
    choose = random.Random(seed)
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    session = open_session(sandbox.zookeeper_connect)
    world = SourceRestarts(sandbox, zookeeper, topics, admin, session)
    story = []

    def do(name, arguments):
        story.append(f"{name}({arguments})")
        getattr(world, name)(**arguments)
        world.what_is_stored_never_leads_what_was_read()

    try:
        do(
            "begin",
            {
                "starting": choose.choice(["group", "earliest", "latest"]),
                "reset": choose.choice(["smallest", "largest"]),
                "jvm_consumed": choose.random() < 0.5,
                "version_2": choose.random() < 0.3,
                "in_kafka": choose.random() < 0.5,
                "sizes": [choose.randint(0, 9) for _ in range(choose.randint(1, 3))],
            },
        )
        for _ in range(STEPS):
            of_state = RUNNING if world.running else STOPPED
            actions = of_state if choose.random() < 0.6 else ANYTIME
            name = choose.choice(sorted(actions))
            do(name, actions[name](choose))
    except BaseException as error:
        error.add_note("\n".join(story))
        raise
    finally:
        world.teardown()
