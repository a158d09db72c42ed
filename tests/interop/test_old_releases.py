"""JVM consumers of each release share groups with ours: same owners, nothing lost, each continues where another was."""

import re

import pytest

from jvmclients.zookeeperconsumer import CONSUMER_VERSIONS
from tests.fixtures.jvm import CRASHES, spread
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually

SUBSCRIBED = 2
"""Topics; up to 0.10.1 roundrobin needs the same subscriptions in all members."""
PARTITIONS = 4

each_release = pytest.mark.parametrize("version", CONSUMER_VERSIONS)
each_group = pytest.mark.parametrize(
    ("protocol", "strategy"),
    [("zookeeper", "range"), ("zookeeper", "roundrobin"), ("coordinator", "range"), ("coordinator", "roundrobin")],
)


class Shared:
    """A group of consumers of a release and of ours, and the records of its topics.

    Args:
        group: the group.
        oracle: a JVM of the release, whose assignor computes who should own what.
        topics: their names; each has as many partitions.
        produce: of the session's sandbox.
        protocol: of our members.
        strategy: of all members.
    """

    def __init__(self, group, oracle, topics, produce, protocol, strategy):
        self.group, self.oracle, self.topics = group, oracle, topics
        self._produce = produce
        self._strategy = strategy
        self.subscription = dict.fromkeys(topics, 1)
        self.common = {"partition_assignment_strategy": strategy}
        self.ours = {"group_protocol": protocol, "roundrobin_hash_era": "0.8" if oracle.version < "1" else "1.0"}
        self._end = 0

    def produce(self, count):
        """So many records to each partition, received by some member; returns the offsets before and after them."""
        began, self._end = self._end, self._end + count
        for number, topic in enumerate(self.topics):
            first = number * 1_000_000 + began * PARTITIONS
            self._produce(topic, spread(values(count * PARTITIONS, start=first), PARTITIONS))
        wanted = {(topic, p, n) for topic in self.topics for p in range(PARTITIONS) for n in range(began, self._end)}
        eventually(lambda: wanted <= {record[:3] for record in self.group.received()}, 120)
        return range(began, self._end)

    def settle(self):
        """Owners, when they are those that the release's assignor computes; each znode has its owner's session."""
        owners = {}

        def settled():
            owners.update(self.group.settle(self._strategy, jvm=self.oracle))
            sessions = [
                {self._session_of("owners", *partition), self._session_of("ids", thread.rpartition("-")[0])}
                for partition, thread in owners.items()
            ]
            return all(len(each) == 1 and each.isdisjoint({None, 0}) for each in sessions)

        eventually(settled)  # a JVM consumer may rebalance once more, with the same result
        assert len(owners) == SUBSCRIBED * PARTITIONS
        return owners

    def _session_of(self, *path):
        _, stat = self.group.node(*path)
        return stat.ephemeralOwner if stat is not None else None

    def commit_all(self, member):
        """Let a member commit that everything so far was consumed, in its own share."""
        for topic in self.topics:
            mine = {p for (t, p), thread in self.group.owners().items() if t == topic and is_of(thread, member)}
            self.group.commit_until(member, topic, dict.fromkeys(mine, self._end))

    def committed(self):
        """Offset by (topic, partition)."""
        return {(topic, p): offset for topic in self.topics for p, offset in self.group.offsets(topic).items()}


def is_of(thread, member):
    return thread.rpartition("-")[0] == member.consumer_id


def owned(owners, member):
    """(topic, partition) of what a member owns; it owns something, but not everything."""
    found = {tuple(partition) for partition, thread in owners.items() if is_of(thread, member)}
    assert 0 < len(found) < len(owners)
    return found


def received(member):
    """(topic, partition, offset) of all that a member received."""
    return {record[:3] for record in member.received()}


def product(partitions, offsets):
    return {(*partition, offset) for partition in partitions for offset in offsets}


@pytest.fixture
def share(group, jvm_of, topic_factory, produce):
    def make(version, protocol, strategy):
        oracle = jvm_of(version)
        assert re.fullmatch(rf"kafka_2\.\d+-{re.escape(version)}\.jar", oracle.code_source())
        names = [topic_factory(partitions=PARTITIONS) for _ in range(SUBSCRIBED)]
        return Shared(group, oracle, names, produce, protocol, strategy)

    return make


@each_release
@each_group
def test_a_member_of_ours_joins_and_leaves(share, version, protocol, strategy):
    shared = share(version, protocol, strategy)
    group = shared.group
    old = group.join_jvm("a", shared.subscription, jvm=shared.oracle, auto_commit_enable="false", **shared.common)
    everything = set(map(tuple, shared.settle()))
    first = shared.produce(50)
    assert received(old) == product(everything, first)
    shared.commit_all(old)
    ours = group.join("b", shared.subscription, auto_commit_enable="false", **shared.common, **shared.ours)
    owners = shared.settle()
    second = shared.produce(50)
    assert received(ours) == product(owned(owners, ours), second)
    assert received(old) >= product(owned(owners, old), second)
    shared.commit_all(ours)
    group.leave(ours)
    shared.settle()
    third = shared.produce(50)
    # It continues where ours has committed.
    assert received(old) == product(everything, first) | product(owned(owners, old), second) | product(
        everything, third
    )
    assert group.repeated_by_ours() == set()


@each_release
@each_group
def test_members_that_are_killed_are_replaced_by_the_other_kind(share, make_jvm, version, protocol, strategy):
    shared = share(version, protocol, strategy)
    group = shared.group
    victim_jvm = make_jvm(version=version, name=f"JVM {version} to kill")
    old = group.join_jvm(
        "a", shared.subscription, jvm=victim_jvm, auto_commit_interval_ms=100, **shared.common, **CRASHES
    )
    process = group.join_process(
        "b", shared.subscription, auto_commit_interval_ms=100, **shared.common, **shared.ours, **CRASHES
    )
    lost = owned(shared.settle(), process)
    first = shared.produce(50)
    # The last record that was handed out is not committed before the next is asked for.
    eventually(lambda: all(shared.committed().get(partition, 0) >= 49 for partition in lost))
    group.kill(process)
    shared.settle()
    at_the_kill = shared.committed()
    second = shared.produce(50)
    assert received(old) >= product(lost, second)
    again = received(old) & product(lost, first)
    assert again <= {(*partition, offset) for partition in lost for offset in first if offset >= 49}
    assert at_the_kill.keys() >= lost

    ours = group.join("c", shared.subscription, **shared.common, **shared.ours)
    lost = owned(shared.settle(), old)
    shared.produce(50)
    eventually(lambda: all(shared.committed().get(partition) == 150 for partition in lost))
    group.kill(old)
    shared.settle()
    fourth = shared.produce(50)
    assert received(ours) & product(lost, range(150, 200)) == product(lost, fourth)
    assert not received(ours) & product(lost, range(150))
    assert group.repeated_by_ours() == set()
