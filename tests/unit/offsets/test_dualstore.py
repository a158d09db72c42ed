"""DualOffsetStore over two stores in memory: which offset is used, and what each store gets."""

import pytest

from zkconsumer.errors import TopicAuthorizationFailed, ZooKeeperUnavailable
from zkconsumer.model import Stamp, TopicIdentity, TopicPartition
from zkconsumer.offsets.dualstore import DualOffsetStore
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.offsets.rules.topicorigins import TopicOrigin

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
NEW, OLD = "zkconsumer:1:new", "zkconsumer:1:old"
CREATED_AGAIN = {"t": TopicOrigin(TopicIdentity("new", 100), 100)}


class StoreInMemory:
    """Offsets in a dictionary; the mark of each is the store's name, and ``new_mark`` once it is committed."""

    def __init__(self, name, offsets):
        self.name = name
        self.offsets = dict(offsets)
        self.marks = {}
        self.new_mark = name
        self.topics = {}
        self.unreadable = set()
        self.refuses = set()
        self.again = []
        self.commits_made = []
        self.stamps = []
        self.invalidated = []
        self.closed = False

    def fetch(self, partitions, kept=(), *, again=False):
        self.again.append(again)
        return {p: self.offsets.get(p) for p in partitions if p not in self.unreadable}

    def commit(self, offsets, *, stamp=None, may_send=lambda: True, retry=True):
        done = {p: offset for p, offset in offsets.items() if p not in self.refuses}
        self.commits_made.append((dict(offsets), may_send(), retry))
        self.stamps.append(stamp)
        self.offsets.update(done)
        self.marks.update(dict.fromkeys(done, self.new_mark))
        return set(done)

    def sends(self, offsets):
        return [p for p, offset in offsets.items() if self.offsets.get(p) != offset]

    def consume(self, topics):
        self.topics |= topics

    def invalidate(self, partitions):
        self.invalidated += partitions

    def refused(self):
        return {p: TopicAuthorizationFailed(self.name) for p in self.unreadable}

    def stored(self, partitions):
        return {p: StoredOffset(self.offsets.get(p), self.marks.get(p, self.name)) for p in partitions}

    def commits(self):
        return {self.name: len(self.commits_made)}

    def location(self, partition):
        return f"{partition} in {self.name}"

    def close(self):
        self.closed = True


class Both:
    """A dual store and its two."""

    def __init__(self, in_zookeeper, in_kafka, rule="max"):
        self.zookeeper = StoreInMemory("zookeeper", in_zookeeper)
        self.kafka = StoreInMemory("kafka", in_kafka)
        self.dual = DualOffsetStore(self.zookeeper, self.kafka, rule)


@pytest.mark.parametrize(("rule", "expected"), [("max", 9), ("zookeeper", 5), ("kafka", 9)])
def test_the_rule_chooses_between_two_offsets(rule, expected):
    assert Both({T0: 5}, {T0: 9}, rule).dual.fetch([T0]) == {T0: expected}


@pytest.mark.parametrize("rule", ["max", "zookeeper", "kafka"])
def test_an_offset_in_one_store_counts_under_every_rule(rule):
    both = Both({T0: 5}, {T1: 6}, rule)
    assert both.dual.fetch([T0, T1, T2]) == {T0: 5, T1: 6, T2: None}


@pytest.mark.parametrize("rule", ["max", "zookeeper", "kafka"])
def test_a_negative_offset_in_one_store_leaves_that_of_the_other(rule):
    both = Both({T0: -1, T1: 6}, {T0: 5, T1: -1}, rule)
    assert both.dual.fetch([T0, T1]) == {T0: 5, T1: 6}
    assert both.dual.stored([T0, T1]) == {T0: StoredOffset(5, "kafka"), T1: StoredOffset(6, "zookeeper")}


def test_a_repeated_read_of_one_partition_keeps_what_is_known_of_the_others():
    both = Both({T0: 5, T1: 9}, {T0: 9, T1: 5})
    both.kafka.unreadable = {T1}
    assert both.dual.fetch([T0, T1]) == {T0: 9}
    assert both.dual.fetch([T1], again=True) == {}
    assert (both.zookeeper.again, both.kafka.again) == ([False, True], [False, True])
    assert both.dual.stored([T0]) == {T0: StoredOffset(9, "kafka")}


def test_what_one_store_cannot_read_is_skipped():
    both = Both({T0: 1, T1: 1, T2: 1}, {T0: 2, T1: 2, T2: 2})
    both.zookeeper.unreadable, both.kafka.unreadable = {T0}, {T1}
    assert both.dual.fetch([T0, T1, T2]) == {T2: 2}
    assert both.dual.refused().keys() == {T1}, "permissions are Kafka's"


def test_kafka_gets_only_what_zookeeper_accepted():
    both = Both({}, {})
    both.zookeeper.refuses = {T1}
    assert both.dual.commit({T0: 5, T1: 6}) == {T0}
    assert [offsets for offsets, _, _ in both.kafka.commits_made] == [{T0: 5}]


def test_a_commit_is_done_once_both_stores_have_it():
    both = Both({}, {})
    both.kafka.refuses = {T0}
    assert both.dual.commit({T0: 5, T1: 6}) == {T1}


@pytest.mark.parametrize("retry", [True, False])
def test_both_stores_get_the_stamp_the_lease_and_the_patience(retry):
    both, stamp = Both({}, {}), Stamp("q", 1)
    both.dual.commit({T0: 5}, stamp=stamp, may_send=lambda: "asked", retry=retry)
    assert both.zookeeper.stamps == both.kafka.stamps == [stamp]
    assert both.zookeeper.commits_made == both.kafka.commits_made == [({T0: 5}, "asked", retry)]


def test_a_mark_is_of_the_store_whose_offset_counts():
    both = Both({T0: 5, T1: 9}, {T0: 9, T1: 5})
    both.dual.fetch([T0, T1])
    assert both.dual.stored([T0, T1]) == {T0: StoredOffset(9, "kafka"), T1: StoredOffset(9, "zookeeper")}
    both.dual.commit({T0: 10})
    assert both.dual.stored([T0]) == {T0: StoredOffset(10, "zookeeper")}, "what we wrote is in both"


@pytest.mark.parametrize(("rule", "store"), [("max", "zookeeper"), ("zookeeper", "zookeeper"), ("kafka", "kafka")])
def test_of_equal_offsets_the_mark_is_of_the_store_that_the_rule_names(rule, store):
    both = Both({T0: 10}, {T0: 10}, rule)
    both.dual.fetch([T0])
    assert both.dual.stored([T0]) == {T0: StoredOffset(10, store)}
    both.dual.commit({T0: 11, T1: 5})
    assert both.dual.stored([T0, T1]) == {T0: StoredOffset(11, store), T1: StoredOffset(5, store)}, (
        "as the next fetch finds it"
    )


@pytest.mark.parametrize(
    ("rule", "counting"),
    [
        ("max", StoredOffset(500, "kafka")),
        ("kafka", StoredOffset(500, "kafka")),
        ("zookeeper", StoredOffset(50, "zookeeper")),
    ],
)
def test_what_kafka_keeps_may_count_after_a_commit_that_it_refuses(rule, counting):
    """A Spark query that begins at the start of the logs commits less than another client has; Kafka refuses it."""
    both = Both({T0: 5}, {T0: 500}, rule)
    both.dual.fetch([T0])
    both.kafka.refuses = {T0}
    assert both.dual.commit({T0: 50}) == set()
    assert both.dual.stored([T0]) == {T0: counting}
    assert both.dual.fetch([T0]) == {T0: counting.offset}


def test_a_commit_that_both_stores_have_accepted_reads_nothing(monkeypatch):
    """Otherwise an outage of ZooKeeper right after it would be reported as a failed commit."""
    both = Both({}, {})
    both.dual.fetch([T0])

    def unavailable(_partitions):
        raise ZooKeeperUnavailable("no server answers")

    monkeypatch.setattr(both.zookeeper, "stored", unavailable)
    assert both.dual.commit({T0: 5}) == {T0}
    monkeypatch.undo()
    assert both.dual.stored([T0]) == {T0: StoredOffset(5, "zookeeper")}


def test_both_stores_are_invalidated_counted_and_closed():
    both = Both({}, {})
    both.dual.invalidate([T0])
    both.dual.commit({T0: 1})
    both.dual.close()
    assert both.zookeeper.invalidated == both.kafka.invalidated == [T0]
    assert both.dual.commits() == {"zookeeper": 1, "kafka": 1}
    assert both.dual.location(T0) == "t-0 in zookeeper or t-0 in kafka"
    assert both.zookeeper.closed
    assert both.kafka.closed


@pytest.mark.parametrize("rule", ["max", "zookeeper", "kafka"])
def test_an_offset_of_an_earlier_topic_leaves_that_of_the_other_store(rule):
    """1. Both stores have 50; 2. the topic is created again, so brokers delete theirs; 3. a client commits 5."""
    both = Both({T0: 50, T1: 5, T2: 50}, {T0: 5, T1: 50, T2: 60}, rule)
    both.zookeeper.marks, both.kafka.marks = {T0: 99, T1: 101, T2: 99}, {T0: NEW, T1: OLD, T2: OLD}
    both.dual.fetch([T0, T1, T2])
    both.dual.consume(CREATED_AGAIN)
    stored = both.dual.stored([T0, T1, T2])
    assert {p: one.offset for p, one in stored.items() if p != T2} == {T0: 5, T1: 5}
    assert stored[T2].mark in (99, OLD), "it shows the member that there was an earlier topic"
    assert both.dual.fetch([T0]) == {T0: 5}


@pytest.mark.parametrize("rule", ["max", "zookeeper", "kafka"])
@pytest.mark.parametrize("mark", ["", "zkconsumer:12ab"])
def test_what_may_be_a_copy_of_an_offset_of_an_earlier_topic_does_not_count(rule, mark):
    """1. A member commits 50 to both stores; 2. the topic is created again; the commit to Kafka names no topic."""
    both = Both({T0: 50}, {T0: 60}, rule)
    both.zookeeper.marks, both.kafka.marks = {T0: 99}, {T0: mark}
    both.dual.fetch([T0])
    both.dual.consume(CREATED_AGAIN)
    assert both.dual.stored([T0]) == {T0: StoredOffset(50, 99)}, "it shows that there was an earlier topic"


def test_what_may_be_a_copy_in_kafka_is_replaced_first():
    """1. The znode, which shows it, would be replaced; 2. the member is killed; 3. the next one continues at 60."""
    both = Both({T0: 50, T1: 50}, {T0: 60}, "max")
    both.zookeeper.marks, both.kafka.marks, both.kafka.new_mark = {T0: 99, T1: 99}, {T0: ""}, NEW
    both.dual.fetch([T0, T1])
    both.dual.consume(CREATED_AGAIN)
    both.kafka.refuses = {T0}
    assert both.dual.commit({T0: 10, T1: 5}) == {T1}
    assert (both.zookeeper.offsets, both.kafka.offsets) == ({T0: 50, T1: 5}, {T0: 60, T1: 5}), "the proof stays"
    both.kafka.refuses, both.zookeeper.refuses = set(), {T0}
    assert both.dual.commit({T0: 10}) == set()
    assert (both.zookeeper.offsets[T0], both.kafka.offsets[T0]) == (50, 10)
    both.zookeeper.refuses = set()
    requests = len(both.kafka.commits_made)
    assert both.dual.commit({T0: 11}) == {T0}
    assert len(both.kafka.commits_made) == requests + 1, "behind ZooKeeper, as always"


@pytest.mark.parametrize("in_zookeeper", [{T0: 50}, {}])
def test_where_kafkas_offset_names_an_earlier_topic_itself_zookeeper_is_first(in_zookeeper):
    """Else: 1. Kafka's, which shows that, is replaced; 2. the member is killed; 3. the next one continues at 50."""
    both = Both(in_zookeeper, {T0: 50}, "max")
    both.zookeeper.marks, both.kafka.marks = {T0: 101}, {T0: OLD}
    both.dual.fetch([T0])
    both.dual.consume({"t": TopicOrigin(TopicIdentity("new", 100))})
    both.zookeeper.refuses = {T0}
    assert both.dual.commit({T0: 10}) == set()
    assert both.kafka.offsets == {T0: 50}
