"""Restarts of a query: the real planner against a broker on a socket; its group is a dictionary.

``tests/spark/test_query_restarts.py`` runs the same rules through a whole source on real servers.
"""

from contextlib import ExitStack

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.fixtures.querydriver import TRANSACTIONS, Member
from tests.fixtures.queryrestarts import NUMBERS, QueryRestarts
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.core.groupview import Topic
from zkconsumer.core.offsets import StoredOffset
from zkconsumer.model import TopicIdentity, TopicPartition


class PlannerRestarts(QueryRestarts):
    """Adds an event that a single real broker cannot produce: a log that loses its end."""

    def __init__(self):
        super().__init__()
        self.stack = ExitStack()
        self.stub = self.stack.enter_context(running_stub_broker())
        self.in_store = {}
        self.driver = self.member = None

    def teardown(self):
        super().teardown()
        self.stack.close()

    @rule(number=NUMBERS, lost=st.integers(1, 4))
    def unclean_leader_change(self, number, lost):
        partition = self._any(number)
        if self._last().known is None:
            return  # version 1 has no marks
        log = self.logs[partition]
        log.end = max(log.begin, log.end - lost)
        self.stub.log(partition).end = log.end
        if self.due.get(partition, 0) > log.end:
            self.due[partition] = log.end
            self.cut.add(partition)

    def make_topic(self, name, sizes):
        for number, size in enumerate(sizes):
            log = self.stub.log(TopicPartition(name, number))
            log.begin, log.end = 0, size
        return f"id-{next(TRANSACTIONS)}"

    def grow_topic(self, name, count):
        for number in range(count):
            self.stub.log(TopicPartition(name, number))

    def append(self, partition, count):
        self.stub.log(partition).end += count

    def delete_before(self, partition, offset):
        self.stub.log(partition).begin = offset

    def stored(self):
        return {partition: one.offset for partition, one in self.in_store.items()}

    def store(self, partition, offset):
        self.in_store[partition] = StoredOffset(offset, next(TRANSACTIONS))

    def delete_stored(self, partitions):
        for partition in partitions:
            self.in_store.pop(partition, None)

    def rename_group(self, offsets):
        self.in_store.clear()
        for partition, offset in offsets.items():
            self.store(partition, offset)

    def start_source(self, options, others):
        quick = {"refresh.leader.backoff.ms": "1", "rebalance.backoff.ms": "1"}
        self.member = Member()
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
        end = self.driver.latest_offset(start, limit)
        self._keep_what_was_committed()
        return end

    def read(self, start, end):
        self.driver.partitions(start, end)

    def acknowledge(self, offset):
        before = len(self.member.commits)
        self.member.acknowledge(offset.number)
        assert len(self.member.commits) == before + 1
        self._keep_what_was_committed()

    def stop_source(self):
        self.driver.stop()
        self._release()

    def kill_source(self):
        self.driver.stop()

    def _assign(self, partitions):
        stored = {p: self.in_store.get(p, StoredOffset(None)) for p in partitions}
        topics = {
            name: Topic(tuple(range(count)), TopicIdentity(identity, int(identity.removeprefix("id-"))))
            for name, (identity, count) in self.topics.items()
        }
        self.member.own(stored, topics)

    def _release(self):
        self.member.release()
        self._keep_what_was_committed()

    def _keep_what_was_committed(self):
        self.in_store.update((p, one) for p, one in self.member.stored.items() if one.offset is not None)


PlannerRestarts.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.generate,),  # shrinking takes minutes
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
TestPlannerRestarts = PlannerRestarts.TestCase
