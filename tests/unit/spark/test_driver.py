"""QueryDriver's planning against a broker that loses and gets leaders; its membership is a stub of two methods."""

import json
import logging
import threading
import time

import pytest

from tests.fix_waiting import eventually
from zkconsumer.core.fetchcontrol import FetchAssignment
from zkconsumer.errors import LeaderUnknown, OffsetOutOfRange, ZooKeeperUnavailable
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.spark.driver import QueryDriver
from zkconsumer.spark.offsets_json import decode_batch, encode_batch, initial_offset
from zkconsumer.spark.options import parse_options
from zkconsumer.spark.planning import Span

A, B, C = (TopicPartition("t", n) for n in range(3))


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


def test_partitions_that_have_no_leader_are_told_in_one_line_and_once(stub_broker, log, query, caplog):
    partitions = [TopicPartition("t", number) for number in range(8)]
    for partition in partitions:
        log(partition, 0, 10)
    stub_broker.leaderless = set(partitions[1:])
    ours = query(dict.fromkeys(partitions), startingOffsets="earliest")
    ours.trigger()
    ours.trigger()
    (line,) = [record.getMessage() for record in caplog.records if "leader" in record.getMessage()]
    assert "left out until their leader answers: t-1, t-2, t-3, t-4, t-5 and 2 more: LEADER_NOT_AVAILABLE" in line


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
    ours = query({A: 0, B: 0}, **{"rebalance.backoff.ms": "10000"})
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


@pytest.mark.parametrize(("answer_s", "least_s", "most_s"), [(0.002, 0.008, 0.05), (0.05, 0.05, 0.15)])
def test_idle_brokers_are_asked_as_often_as_they_answer_quickly(stub_broker, log, query, answer_s, least_s, most_s):
    log(A, 0, 10)
    ours = query({A: 10})
    begins, ends = [], []

    def take_time(_):
        begins.append(time.monotonic())
        threading.Event().wait(answer_s)
        ends.append(time.monotonic())

    assert ours.trigger() is None  # looks up more than the end of the log
    stub_broker.asked = take_time

    def shortest_pause():
        for _ in range(10):
            assert ours.trigger() is None
        return min(begin - end for begin, end in zip(begins[1:], ends, strict=False))

    eventually(lambda: shortest_pause() < most_s)  # a slow machine prolongs answers, and pauses with them
    assert shortest_pause() >= least_s


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


@pytest.mark.parametrize("stored", [0, 5, 10])
def test_a_restart_goes_on_after_its_last_batch_while_the_groups_offset_lies_in_it(stub_broker, log, query, stored):
    log(A, 0, 12)
    ours = query({A: stored})
    ours.offset = encode_batch({A: Span(0, 10)})
    assert ours.trigger() == {A: Span(10, 12)}
    assert ours.member.commits[0] == {A: 10}, "the end of the last batch is published"


@pytest.mark.parametrize("stored", [2, 11])
def test_a_restart_follows_the_group_where_somebody_moved_its_offset(stub_broker, log, query, stored, caplog):
    log(A, 0, 12)
    ours = query({A: stored})
    ours.offset = encode_batch({A: Span(3, 10)})
    with caplog.at_level(logging.WARNING):
        assert ours.trigger() == {A: Span(stored, 12)}
    assert f"the group's offset is {stored} although this query's last batch was [3, 10)" in caplog.text


def test_what_is_not_owned_is_never_committed(stub_broker, log, query):
    log(A, 0, 12)
    log(B, 0, 20)
    ours = query({A: 10})
    ours.offset = encode_batch({A: Span(0, 10), B: Span(0, 20)})
    ours.trigger()
    ours.trigger()
    ours.own({})
    ours.trigger()
    assert all(B not in offsets for offsets in ours.member.commits)
    assert ours.member.commits[-1] == {}


def test_available_now_drops_what_it_loses_and_leaves_what_it_gains_for_the_next_run(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    log(C, 0, 30)
    ours = query({A: 0, B: 0})
    ours.driver.prepare_available_now()
    ours.own({A: 0, C: 0})
    assert ours.trigger() == {A: Span(0, 10)}
    assert ours.trigger() is None


def test_starting_offsets_are_for_the_first_batch_only(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    log(C, 0, 30)
    ours = query({A: 4}, startingOffsets="latest")
    assert ours.trigger() is None
    log(A, 0, 11)
    assert ours.trigger() == {A: Span(10, 11)}
    ours.own({A: 11, B: 7, C: None})
    assert ours.trigger() == {B: Span(7, 20), C: Span(0, 30)}, "the group's offset; what grew is read from 0"


def test_starting_offsets_do_not_apply_to_a_checkpoint(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 4}, startingOffsets="latest")
    ours.offset = encode_batch({A: Span(0, 4)})
    assert ours.trigger() == {A: Span(4, 10)}


def test_nothing_is_planned_while_another_member_may_own(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 0})
    ours.member.may_deliver = lambda: False
    assert ours.trigger() is None
    del ours.member.may_deliver
    assert ours.trigger() == {A: Span(0, 10)}


def test_available_now_does_not_take_a_lapsed_lease_for_its_end(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 0}, **{"rebalance.backoff.ms": "10"})
    ours.driver.prepare_available_now()
    ours.member.may_deliver = lambda: False
    with pytest.raises(ZooKeeperUnavailable, match="other members may own"):
        ours.trigger()


@pytest.mark.parametrize("reset", ["smallest", "largest"])
def test_lost_offsets_are_counted_and_then_skipped(stub_broker, log, query, reset, caplog):
    log(A, 40, 100)
    with pytest.raises(OffsetOutOfRange, match=r"t-0: wanted 10, the log has \[40, 100\), 30 offsets are lost"):
        query({A: 10}).trigger()
    lenient = query({A: 10}, failOnDataLoss="false", **{"auto.offset.reset": reset})
    with caplog.at_level(logging.WARNING):
        assert lenient.trigger() == ({A: Span(40, 100)} if reset == "smallest" else None)
    assert "t-0: wanted 10, the log has [40, 100), 30 offsets are lost" in caplog.text


def test_times_are_looked_up_once_their_leader_is_there(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    stub_broker.times = {5000: {A: 3, B: 8}}
    ours = query({A: 9, B: 9}, startingTimestamp="5000")
    assert ours.trigger() == {A: Span(3, 10)}
    stub_broker.leaderless = set()
    assert ours.trigger() == {B: Span(8, 20)}


def test_a_time_without_a_record_fails_or_means_the_end(stub_broker, log, query):
    log(A, 0, 10)
    with pytest.raises(OffsetOutOfRange, match="no record is as new as the time to start at: t-0 at 5000 ms"):
        query({A: 9}, startingTimestamp="5000").trigger()
    ours = query({A: 9}, startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest")
    assert ours.trigger() is None
    assert ours.member.commits[-1] == {A: 10}
