"""QueryDriver's planning against a broker that loses and gets leaders; its membership is a stub of two methods."""

import json
import logging

import pytest

from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.errors import LeaderUnknown
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.spark.driver import QueryDriver
from zkconsumer.spark.offsets_json import decode_batch, initial_offset
from zkconsumer.spark.options import parse_options
from zkconsumer.spark.planning import Span

A, B = (TopicPartition("t", n) for n in range(2))


class Member:
    """Owns what it is told to, and remembers what was committed."""

    def __init__(self):
        self.commits = []

    def may_deliver(self):
        return True

    def live_brokers(self):
        return ()

    def commit(self, offsets):
        self.commits.append(dict(offsets))

    def leave(self):
        pass


class Query:
    """A driver that has joined and owns ``stored``, the group's offsets by partition."""

    def __init__(self, stub, stored, **options):
        self.driver = QueryDriver(
            parse_options(
                {
                    "zookeeper.connect": "unused:1",
                    "group.id": "g",
                    "subscribe": "t",
                    "refresh.leader.backoff.ms": "10",
                    "rebalance.backoff.ms": "100",
                    **options,
                }
            )
        )
        self.member = self.driver._member = Member()
        self.driver._brokers = (stub.broker,)
        self.driver._seen_before = frozenset({A, B})
        self.offset = initial_offset()
        self.generation = 0
        self.own(stored)

    def own(self, stored):
        """A rebalance ends with these."""
        self.generation += 1
        self.driver._control.start(
            FetchAssignment(self.generation, dict.fromkeys(stored, ConsumerThreadId("g_c", 0)), stored)
        )

    def trigger(self, least=None):
        """One batch, as Spark does it: None if there is nothing new."""
        end = self.driver.latest_offset(self.offset, None, least)
        if end == self.offset:
            return None
        self.offset = end
        return decode_batch(end)


@pytest.fixture
def query(stub_broker):
    made = []

    def make(stored, **options):
        made.append(Query(stub_broker, stored, **options))
        return made[-1]

    yield make
    for each in made:
        each.driver.stop()


@pytest.fixture
def log(stub_broker):
    """Set where the log of a partition begins and ends."""

    def set_log(partition, begin, end):
        entry = stub_broker.log(partition)
        entry.begin, entry.end = begin, end

    return set_log


@pytest.mark.parametrize("options", [{"startingOffsets": "earliest"}, {"startingOffsets": '{"t":{"0":0,"1":0}}'}])
def test_starting_offsets_hold_for_a_partition_that_gets_its_leader_later(stub_broker, log, query, options):
    log(A, 0, 10)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    ours = query({A: None, B: None}, **options)
    assert ours.trigger() == {A: Span(0, 10)}
    assert ours.trigger() is None
    assert ours.member.commits[-1] == {A: 10}
    stub_broker.leaderless = set()
    assert ours.trigger() == {B: Span(0, 20)}


def test_starting_offsets_of_a_leaderless_partition_outlast_a_rebalance(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    ours = query({A: None, B: None}, startingOffsets="earliest")
    assert ours.trigger() == {A: Span(0, 10)}
    ours.own({A: 10, B: None})
    assert ours.trigger() is None
    stub_broker.leaderless = set()
    assert ours.trigger() == {B: Span(0, 20)}


def test_an_offset_that_somebody_stored_meanwhile_is_law(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    ours = query({A: None, B: None}, startingOffsets="earliest")
    ours.trigger()
    ours.own({A: 10, B: 15})
    stub_broker.leaderless = set()
    assert ours.trigger() == {B: Span(15, 20)}


def test_known_positions_are_not_decided_anew_while_a_partition_has_no_leader(stub_broker, log, query, caplog):
    log(A, 0, 2000)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    ours = query({A: 0, B: 0})
    assert ours.trigger() == {A: Span(0, 2000)}
    log(A, 1500, 2500)  # retention deletes what was read long ago
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert ours.trigger() == {A: Span(2000, 2500)}
        assert ours.trigger() is None
    assert not caplog.records, "neither data loss nor, once more, the missing leader"


def test_a_log_that_became_shorter_does_not_forget_the_partitions_without_leader(stub_broker, log, query):
    log(A, 0, 100)
    log(B, 0, 20)
    ours = query({A: 0, B: 0}, failOnDataLoss="false")
    assert ours.trigger() == {A: Span(0, 100), B: Span(0, 20)}
    stub_broker.leaderless = {B}
    log(A, 0, 50)
    assert ours.trigger() is None
    assert ours.member.commits[-1] == {A: 50, B: 20}
    stub_broker.leaderless = set()
    log(B, 0, 25)
    assert ours.trigger() == {B: Span(20, 25)}


def test_available_now_waits_for_the_leaders_of_all_that_it_will_read(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    stub_broker.asked = lambda _: stub_broker.leaderless.clear()
    ours = query({A: 0, B: 0})
    ours.driver.prepare_available_now()
    assert ours.trigger() == {A: Span(0, 10), B: Span(0, 20)}
    log(B, 0, 30)
    assert ours.trigger() is None, "what comes later is not in the target"


def test_available_now_does_not_begin_without_a_leader(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    ours = query({A: 0, B: 0}, **{"rebalance.backoff.ms": "10"})
    with pytest.raises(LeaderUnknown, match="t-1"):
        ours.driver.prepare_available_now()


@pytest.mark.parametrize("stored", [{A: 0, B: 0}, {A: 10, B: 0}])
def test_available_now_does_not_end_while_a_leader_is_away(stub_broker, log, query, stored):
    log(A, 0, 10)
    log(B, 0, 20)
    ours = query(stored, **{"rebalance.backoff.ms": "10"})
    ours.driver.prepare_available_now()
    stub_broker.leaderless = {B}
    if stored[A] == 0:
        assert ours.trigger() == {A: Span(0, 10)}, "what can be read is read meanwhile"
    with pytest.raises(LeaderUnknown, match="t-1"):
        ours.trigger()
    stub_broker.leaderless = set()
    assert ours.trigger() == {B: Span(0, 20)}
    stub_broker.leaderless = {B}
    assert ours.trigger() is None, "B is at its target"
    assert ours.member.commits[-1] == {A: 10, B: 20}


def test_few_offsets_wait_for_more_or_for_the_delay(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 0}, minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    assert ours.trigger(5) == {A: Span(0, 10)}
    log(A, 0, 14)
    assert ours.trigger(5) is None
    assert ours.member.commits[-1] == {A: 10}, "what is finished is committed meanwhile"
    log(A, 0, 15)
    assert ours.trigger(5) == {A: Span(10, 15)}

    hasty = query({A: 0}, minOffsetsPerTrigger="50", maxTriggerDelay="0")
    assert hasty.trigger(50) == {A: Span(0, 15)}
    log(A, 0, 16)
    assert hasty.trigger(50) == {A: Span(15, 16)}, "the delay is over"


def test_available_now_waits_for_no_minimum(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 0}, minOffsetsPerTrigger="50")
    ours.driver.prepare_available_now()
    assert ours.trigger(50) == {A: Span(0, 10)}
    assert ours.trigger(50) is None


def test_nothing_new_is_the_same_offset_to_the_letter(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 0})
    ours.trigger()
    start = {"topics": {"t": {"0": [0, 10]}}, "v": 1}
    assert json.dumps(ours.driver.latest_offset(start, None)) == json.dumps(start), "Spark compares texts"
