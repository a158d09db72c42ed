"""The positions of a query and its batch in flight: the real planner against a broker on a socket; its group is a
dictionary. Answers to commits are lost, and the source is killed, between any two steps.

``tests/spark/test_query_restarts.py`` runs the same rules through a whole source on real servers.
"""

from base64 import urlsafe_b64encode
from contextlib import ExitStack
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.fixtures.examples import examples
from tests.fixtures.kafka import MetadataRequest
from tests.fixtures.querydriver import TRANSACTIONS, Member
from tests.fixtures.queryrestarts import LIMITS, NUMBERS, THEIR_METADATA, Killed, QueryRestarts
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.cluster import brokercatalog
from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.model import Topic, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, our_metadata


def _topic_id(number):
    return urlsafe_b64encode(UUID(int=number).bytes).decode().rstrip("=")


FAULTS = ["none", "not done", "answer lost", "killed before", "killed after"]


class PlannerRestarts(QueryRestarts):
    """Adds events that real servers do not produce on request: faults, and a log that loses its end."""

    def __init__(self):
        super().__init__()
        self.stack = ExitStack()
        self.stub = self.stack.enter_context(running_stub_broker())
        self.stub.versions[MetadataRequest.API_KEY] = 12
        self.in_store = {}
        self.driver = self.member = None
        self.faults = []

    def teardown(self):
        super().teardown()
        self.stack.close()

    @rule(faults=st.lists(st.sampled_from(FAULTS), max_size=4))
    def requests_fail(self, faults):
        """What becomes of the next requests of the member to its store, one each."""
        self.faults = faults

    @rule(
        limits=st.lists(LIMITS, min_size=2, max_size=4),
        count=st.integers(1, 9),
        stopped=st.booleans(),
        back=st.integers(0, 3),
    )
    def work_and_end(self, limits, count, stopped, back):
        """Several batches in a row, and a restored checkpoint, which random events seldom make."""
        if not self.running:
            self.start(set())
        for limit in limits:
            for number in range(len(self._all())):
                self.produce(number, count)
            if not self.running or not self._batch(limit, "finished"):
                return
        if stopped:
            self.stop()
        else:
            self.crash()
        self.the_checkpoint_is_restored(back, is_finished=True)

    @precondition(lambda self: len(self.topics) > 1)
    @rule(topic=st.sampled_from([0, 1]))
    def delete_topic(self, topic):
        name = self.names[topic]
        partitions = [partition for partition in self._all() if partition.topic == name]
        self.delete_stored(partitions)  # in ZooKeeper, members find them outdated if the topic is created again
        del self.topics[name], self.stub.topic_ids[name]
        if self.counts_at_first_plan is not None:
            self.counts_at_first_plan[name] = 0
        for partition in partitions:
            del self.stub.logs[partition], self.logs[partition]
            self.due.pop(partition, None)
            self.rewound.pop(partition, None)
            self.cut.discard(partition)
        if self.running:
            self.rebalance(set())
            self.forget_late_commits(name)

    @rule(number=NUMBERS, lost=st.integers(1, 4))
    def unclean_leader_change(self, number, lost):
        partition = self._any(number)
        log = self.logs[partition]
        log.end = max(log.begin, log.end - lost)
        self.stub.log(partition).end = log.end
        if self.due.get(partition, 0) > log.end:
            self.due[partition] = log.end
            self.cut.add(partition)

    def make_topic(self, name, sizes):
        if self.in_kafka:  # brokers delete the offsets of a topic with it
            self.delete_stored([partition for partition in self.in_store if partition.topic == name])
        for number, size in enumerate(sizes):
            log = self.stub.log(TopicPartition(name, number))
            log.begin, log.end = 0, size
        czxid = next(TRANSACTIONS)
        self.stub.topic_ids[name] = UUID(int=czxid)
        return _topic_id(czxid)

    def grow_topic(self, name, count):
        for number in range(count):
            self.stub.log(TopicPartition(name, number))

    def append(self, partition, count):
        self.stub.log(partition).end += count

    def delete_before(self, partition, offset):
        self.stub.log(partition).begin = offset

    def stored(self):
        if self.running:
            self._keep_what_was_committed()
        return {partition: one.offset for partition, one in self.in_store.items()}

    def written(self, partition):
        return self.in_store.get(partition, StoredOffset(None))

    def store(self, partition, offset):
        self.in_store[partition] = StoredOffset(offset, THEIR_METADATA if self.in_kafka else next(TRANSACTIONS))

    def delete_stored(self, partitions):
        for partition in partitions:
            self.in_store.pop(partition, None)

    def forget_late_commits(self, name):
        self.delete_stored([partition for partition in self.in_store if partition.topic == name])
        late = [partition for partition in self.member.in_store if partition.topic == name]
        self.member.in_store.update(dict.fromkeys(late, StoredOffset(None)))

    def rename_group(self, offsets):
        self.in_store.clear()
        for partition, offset in offsets.items():
            self.store(partition, offset)

    def start_source(self, options, others):
        quick = {"refresh.leader.backoff.ms": "1", "rebalance.backoff.ms": "1", "rebalance.max.retries": "1000"}
        self.member = Member()
        self.member.fault = self._fault
        if self.in_kafka:
            self.member.next_mark = lambda stamp: our_metadata(str(next(TRANSACTIONS)), None, stamp)
        self.driver = self.member.make_driver({**quick, **options}, [self.stub.broker])
        self._assign(self._but(others))

    def rebalance_source(self, others):
        self._release()
        self._assign(self._but(others))

    def owned(self):
        return list(self.member.owned)

    def prepare_available_now(self):
        self.driver.prepare_available_now()

    def latest_offset(self, start, limit):
        while True:
            faults = len(self.faults)
            end = self.driver.latest_offset(start, limit)
            self._keep_what_was_committed()
            if end != start or faults == len(self.faults):
                return end

    def read(self, start, end):
        tasks = self.driver.partitions(start, end)
        read = {piece.topic_partition for task in tasks for piece in task.ranges}
        assert not any(self._is_recreated(partition) for partition in read)

    def acknowledge(self, offset):
        before, faults = len(self.member.commits), len(self.faults)
        self.member.acknowledge(offset.number)
        assert len(self.member.commits) == before + 1 or faults
        self._keep_what_was_committed()

    def stop_source(self):
        self.driver.stop()
        self._release()

    def kill_source(self):
        self.faults = []
        self._keep_what_was_committed()
        self.driver.stop()

    def _fault(self, is_done):
        fault = self.faults[0] if self.faults else None
        if fault is None or (fault in ("none", "answer lost", "killed after")) != is_done:
            return
        del self.faults[0]
        if fault.startswith("killed"):
            raise Killed
        if fault != "none":
            raise ZooKeeperUnavailable(fault)

    def _assign(self, partitions):
        stored = {p: self.in_store.get(p, StoredOffset(None)) for p in partitions}
        topics = {
            name: Topic(tuple(range(count)), TopicIdentity(identity, self.stub.topic_ids[name].int))
            for name, (identity, count) in self.topics.items()
        }
        self.member.own(stored, topics)

    def _release(self):
        self.member.release()
        self._keep_what_was_committed()

    def _keep_what_was_committed(self):
        self.in_store.update((p, one) for p, one in self.member.in_store.items() if one.offset is not None)


PlannerRestarts.TestCase.settings = settings(
    max_examples=examples(100),
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.generate,),  # shrinking takes minutes
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def denied_topics_are_soon_gone(monkeypatch):
    monkeypatch.setattr(brokercatalog, "DENIED_S", 0.05)


TestPlannerRestarts = PlannerRestarts.TestCase
