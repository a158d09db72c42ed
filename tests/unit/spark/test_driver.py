"""QueryDriver's planning with a broker that loses and gets leaders; its group is in memory."""

import itertools
import json
import logging
import threading
import time

import pytest

from tests.fixtures.batches import build
from tests.fixtures.fork import in_forked_child
from tests.fixtures.kafka import ListOffsetsRequest, MetadataRequest
from tests.fixtures.querydriver import Member
from tests.fixtures.stubbroker import EPOCH_VERSIONS
from zkconsumer.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    ConfigError,
    GenerationEnded,
    GroupAuthorizationFailed,
    LeaderUnknown,
    LeaseLapsed,
    MalformedZnode,
    MemberRefused,
    MembershipLost,
    OffsetOutOfRange,
    OffsetsNotStored,
    RebalanceAwaited,
    TopicAuthorizationFailed,
    UsageError,
    ZooKeeperRefused,
)
from zkconsumer.model import Topic, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.sandbox.producer import Record
from zkconsumer.spark.readerclaim import ReaderClaim
from zkconsumer.spark.rules import idlepauses
from zkconsumer.spark.rules.idlepauses import IdlePauses
from zkconsumer.spark.rules.offsetsjson import decode_offset, encode_offset, initial_offset
from zkconsumer.spark.rules.sourceoffset import KnownTopic, SourceOffset
from zkconsumer.wire.errorcodes import ErrorCode

A, B, C = (TopicPartition("t", n) for n in range(3))


class Query:
    """A driver that has joined and owns ``stored``, the group's offsets by partition."""

    def __init__(self, stub, stored, **options):
        self.member = Member()
        self.driver = self.member.make_driver(
            {
                "group.id": "g",
                "subscribe": "t",
                "refresh.leader.backoff.ms": "10",
                "rebalance.backoff.ms": "100",
                **options,
            },
            [stub.broker],
        )
        self.offset = initial_offset("g")
        self.own(stored)

    def own(self, stored, partitions=3, topic_id="id", others=()):
        """End a rebalance with these offsets; each has its own mark unless one is given."""
        marked = {
            p: one if isinstance(one, StoredOffset) else StoredOffset(one, None if one is None else 500 + one)
            for p, one in stored.items()
        }
        topics = {name: Topic((0,), TopicIdentity(name, 41)) for name in others}
        self.member.own(marked, {"t": Topic(tuple(range(partitions)), TopicIdentity(topic_id, 40)), **topics})

    def rebalance(self, stored):
        """As :meth:`own`, with committed offsets taken from the store."""
        self.member.release()
        self.own({p: self.member.in_store.get(p, one) if one is ... else one for p, one in stored.items()})

    def after(self, spans, marks=None, known=3):
        """Continue from a checkpoint whose last batch this was."""
        stored = {partition: StoredOffset(spans[partition].start, mark) for partition, mark in (marks or {}).items()}
        self.offset = encode_offset(SourceOffset("g", 9, {"t": KnownTopic(known, "id")}, spans, stored, query="1"))
        return self

    def trigger(self, least=None, limit=None):
        """Run one batch, as Spark does; returns the span of each partition; None if there are no new records."""
        end = self.driver.latest_offset(self.offset, limit, least)
        if end == self.offset:
            return None
        self.offset = end
        return {p: span for p, span in decode_offset(end).spans.items() if span.size}


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
    """Set the beginning and end of a partition's log."""

    def set_log(partition, begin, end):
        entry = stub_broker.log(partition)
        entry.begin, entry.end = begin, end

    return set_log


@pytest.mark.parametrize("starting", ["latest", "group"])
def test_the_first_plan_has_the_start_of_every_owned_partition(stub_broker, log, query, starting):
    log(A, 0, 10)
    log(B, 0, 20)
    ours = query({A: None, B: None}, startingOffsets=starting)
    assert ours.trigger() == {}, "a plan without rows"
    planned = decode_offset(ours.offset)
    assert planned.spans == {A: Span(10, 10), B: Span(20, 20)}
    assert planned.known == {"t": KnownTopic(3, "id")}
    log(A, 0, 11)
    assert ours.trigger() == {A: Span(10, 11)}
    assert ours.member.commits[-1] == {A: 10, B: 20}


@pytest.mark.parametrize("starting", ["latest", "group"])
def test_a_restart_continues_where_the_first_plan_started(stub_broker, log, query, starting):
    log(A, 0, 10)
    before = query({A: None}, startingOffsets=starting)
    before.trigger()
    log(A, 0, 15)
    after = query({A: None}, startingOffsets=starting)
    after.offset = before.offset
    assert after.trigger() == {A: Span(10, 15)}


def test_no_offset_is_committed_before_it_is_in_the_checkpoint(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: None}, startingOffsets="earliest")
    assert ours.trigger() == {A: Span(0, 10)}
    assert all(offsets == {} for offsets in ours.member.commits)
    assert ours.trigger() is None
    assert ours.member.commits[-1] == {A: 10}


def test_a_query_begins_when_every_partition_has_a_leader(stub_broker, log, query, caplog):
    log(A, 0, 10)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    stub_broker.times = {5000: {A: 3, B: 8}}
    ours = query({A: 9, B: 9}, startingTimestamp="5000")
    assert ours.trigger() is None
    assert "no leader answers for t-1" in caplog.text
    stub_broker.leaderless = set()
    assert ours.trigger() == {A: Span(3, 10), B: Span(8, 20)}


def test_after_the_first_plan_a_partition_without_leader_does_not_stop_the_others(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    ours = query({A: 0, B: 7}).after({A: Span(0, 0)})
    assert ours.trigger() == {A: Span(0, 10)}
    ours.rebalance({A: ..., B: ...})
    assert ours.trigger() is None
    assert ours.member.commits[-1] == {A: 10}
    stub_broker.leaderless = set()
    assert ours.trigger() == {B: Span(7, 20)}


def test_partitions_without_leader_are_logged_once_in_one_line(stub_broker, log, query, caplog):
    partitions = [TopicPartition("t", number) for number in range(8)]
    for partition in partitions:
        log(partition, 0, 10)
    stub_broker.leaderless = set(partitions[1:])
    ours = query(dict.fromkeys(partitions, 0)).after({A: Span(0, 0)})
    ours.trigger()
    ours.trigger()
    (line,) = [record.getMessage() for record in caplog.records if "leader" in record.getMessage()]
    assert (
        "group g: skipped until their leader answers: t-1, t-2, t-3, t-4, t-5 and 2 more: LEADER_NOT_AVAILABLE" in line
    )


def test_known_positions_stay_while_a_partition_has_no_leader(stub_broker, log, query, caplog):
    log(A, 0, 2000)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    ours = query({A: 0, B: 0}).after({A: Span(0, 0)})
    assert ours.trigger() == {A: Span(0, 2000)}
    log(A, 1500, 2500)  # retention deletes records that were read long ago
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
    assert ours.member.commits == [{A: 100, B: 20}, {A: 50}], "otherwise a restart would skip the records after 50"
    stub_broker.leaderless = set()
    log(B, 0, 25)
    assert ours.trigger() == {B: Span(20, 25)}
    assert decode_offset(ours.offset).spans[A] == Span(50, 50)


def test_available_now_waits_for_the_leaders_of_all_that_it_will_read(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    ours = query({A: 0, B: 0}, **{"rebalance.backoff.ms": "10000"}).after({})
    ours.driver.prepare_available_now()
    assert ours.trigger() == {A: Span(0, 10)}
    stub_broker.asked = lambda _: stub_broker.leaderless.clear()
    log(A, 0, 15)
    assert ours.trigger() == {B: Span(0, 20)}
    log(B, 0, 30)
    assert ours.trigger() is None, "later records are not in the target"


def test_available_now_finds_what_a_new_leader_lost_since_the_last_run(stub_broker, log, query, caplog):
    stub_broker.versions = dict(EPOCH_VERSIONS)
    stub_broker.log(A).write(10, 0)
    stub_broker.log(A).write(20, 0)
    ours = query({A: 0}, failOnDataLoss="false")
    ours.driver.prepare_available_now()
    assert ours.trigger() == {A: Span(0, 30)}
    stub_broker.log(A).elect_uncleanly(10, 25, 1)
    next_night = query({A: 30}, failOnDataLoss="false")
    next_night.offset = ours.offset
    next_night.driver.prepare_available_now()
    assert next_night.trigger() == {A: Span(10, 35)}
    assert "the leader of epoch 1 has lost the records from offset 10 on" in caplog.text


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_leader_lost_before_the_offset_of_another_member_is_not_lost_to_the_query(stub_broker, query, restarted):
    stub_broker.versions = dict(EPOCH_VERSIONS)
    stub_broker.log(A).write(10, 0)
    stub_broker.log(A).write(20, 0)
    ours = query({A: 0})
    assert ours.trigger() == {A: Span(0, 30)}
    ours.member.release()
    stub_broker.log(A).elect_uncleanly(10, 25, 1)
    read_by_another_member = {A: StoredOffset(20, 9999)}
    if restarted:
        again = query(read_by_another_member)
        ours, again.offset = again, ours.offset
    else:
        ours.own(read_by_another_member)
    assert ours.trigger() == {A: Span(20, 35)}
    stub_broker.log(A).elect_uncleanly(20, 25, 2)
    with pytest.raises(OffsetOutOfRange, match=r"t-0: wanted 35, the log has \[0, 20\)"):
        ours.trigger()


def test_a_new_query_does_not_begin_without_a_leader(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    stub_broker.leaderless = {B}
    ours = query({A: 0, B: 0}, **{"rebalance.backoff.ms": "10"})
    ours.driver.prepare_available_now()
    with pytest.raises(LeaderUnknown, match="t-1"):
        ours.trigger()


def test_available_now_asks_again_after_one_attempt_that_took_longer_than_its_patience(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    patience_s = 4 * 0.01
    ours = query({A: 0, B: 0}, **{"rebalance.backoff.ms": "10"})
    stub_broker.leaderless = {B}

    def answer_late(_):
        time.sleep(2 * patience_s)  # what is tested is an attempt that takes so long
        stub_broker.leaderless.clear()

    stub_broker.asked = answer_late
    ours.driver.prepare_available_now()
    assert ours.trigger() == {A: Span(0, 10), B: Span(0, 20)}


@pytest.mark.parametrize("is_outdated", [True, False])
def test_available_now_expects_no_offset_of_an_earlier_topic_in_the_log(log, query, caplog, is_outdated):
    log(A, 0, 10)
    ours = query({A: StoredOffset(90, 7)}, failOnDataLoss="false").after({})
    ours.member.outdated = {A} if is_outdated else set()
    ours.own({A: StoredOffset(90, 7)})
    ours.driver.prepare_available_now()
    assert ours.trigger() == ({A: Span(0, 10)} if is_outdated else None)
    assert ("log end is below an offset that was read, committed or given" in caplog.text) is not is_outdated


@pytest.mark.parametrize("stored", [{A: 0, B: 0}, {A: 10, B: 0}])
def test_available_now_does_not_end_while_a_leader_is_away(stub_broker, log, query, stored):
    log(A, 0, 10)
    log(B, 0, 20)
    ours = query(stored, **{"rebalance.backoff.ms": "10"}).after({})
    ours.driver.prepare_available_now()
    stub_broker.leaderless = {B}
    if stored[A] == 0:
        assert ours.trigger() == {A: Span(0, 10)}, "other partitions are read meanwhile"
    with pytest.raises(LeaderUnknown, match="t-1"):
        ours.trigger()
    stub_broker.leaderless = set()
    assert ours.trigger() == {B: Span(0, 20)}
    stub_broker.leaderless = {B}
    assert ours.trigger() is None, "B is at its target"
    assert {p: one.offset for p, one in ours.member.in_store.items()} == {A: 10, B: 20}


@pytest.mark.parametrize(
    ("storage", "error"), [("zookeeper", MalformedZnode), ("kafka", BrokerUnavailable)], ids=["zookeeper", "kafka"]
)
def test_available_now_does_not_end_with_an_owned_partition_unread(log, query, caplog, storage, error):
    log(A, 0, 10)
    stored_in = {"offsets.storage": storage, "dual.commit.enabled": "false"}
    ours = query({A: 0}, **stored_in, **{"rebalance.backoff.ms": "10"}).after({})
    ours.member.unreadable = {B}
    ours.driver.prepare_available_now()
    assert ours.trigger() == {A: Span(0, 10)}, "other partitions are read"
    with pytest.raises(error, match="the start of t-1 is unknown"):
        ours.trigger()
    assert ours.member.commits[-1] == {A: 10}
    assert "other members own t-1" not in caplog.text
    ours.member.unreadable = set()
    assert ours.trigger() is None


@pytest.mark.parametrize(("value_bytes", "tasks"), [(10, 1), (1000, 3)])
def test_a_batch_of_many_bytes_has_a_task_for_each_32_mib(stub_broker, log, query, value_bytes, tasks):
    for partition in (A, B, C):
        log(partition, 0, 100_000)
        stub_broker.log(partition).batches = {0: build([Record(b"v" * value_bytes)])}
    ours = query({A: 0, B: 0, C: 0}, numStreams="1")
    for _ in range(2):
        start = ours.offset
        assert ours.trigger()
        assert len(ours.driver.partitions(start, ours.offset)) == tasks
        stub_broker.fetches.clear()
        for partition in (A, B, C):
            log(partition, 0, 200_000)
    assert ours.trigger() is None
    assert not stub_broker.fetches, "the size of records was asked for once"


def test_idle_brokers_are_asked_once_per_fetch_wait(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 10}, **{"fetch.wait.max.ms": "80"}).after({A: Span(5, 10)})
    for _ in range(5):  # the first one asks for more than the end of the log; pauses grow
        assert ours.trigger() is None
    asked = []
    stub_broker.asked = lambda _: asked.append(time.monotonic())
    for _ in range(4):
        assert ours.trigger() is None
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert len(pauses) == 3, "one question each"
    assert min(pauses) >= 0.08


def test_a_trigger_with_new_records_and_the_idle_one_after_it_do_not_pause(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 10}, **{"fetch.wait.max.ms": "20000"}).after({A: Span(5, 10)})
    for _ in range(3):
        assert ours.trigger() is None
    assert ours.driver._planner._idle.pause_s > 0.1
    for end in (12, 13):
        log(A, 0, end)
        assert ours.trigger()
        assert ours.driver._planner._idle == IdlePauses()
    assert ours.trigger() is None
    assert ours.driver._planner._idle.pause_s == 0.0


def test_a_rebalance_ends_the_pause_of_an_idle_query(stub_broker, log, query, monkeypatch):
    monkeypatch.setattr(idlepauses, "_LONGEST_S", 160.0)
    log(A, 0, 10)
    log(B, 0, 0)
    ours = query({A: 10}, **{"fetch.wait.max.ms": "160000", "socket.timeout.ms": "160000"}).after({A: Span(5, 10)})
    assert ours.trigger() is None
    rebalance = threading.Timer(0.1, ours.rebalance, [{A: 10, B: 0}])
    rebalance.start()
    began = time.monotonic()
    assert ours.trigger() is None, "without a rebalance it would pause for 20 s"
    assert time.monotonic() - began < 15
    rebalance.join()
    assert ours.trigger() is None
    assert ours.driver.report()["owned"] == {"t": [0, 1]}


def test_few_offsets_wait_for_more_or_for_the_delay(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 0}, minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    assert ours.trigger(5) == {A: Span(0, 10)}
    log(A, 0, 14)
    assert ours.trigger(5) is None
    assert ours.member.commits[-1] == {A: 10}, "finished batches are committed meanwhile"
    log(A, 0, 15)
    assert ours.trigger(5) == {A: Span(10, 15)}

    hasty = query({A: 0}, minOffsetsPerTrigger="50", maxTriggerDelay="0")
    assert hasty.trigger(50) == {A: Span(0, 15)}
    log(A, 0, 16)
    assert hasty.trigger(50) == {A: Span(15, 16)}, "the delay has passed"


def test_available_now_waits_for_no_minimum(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 0}, minOffsetsPerTrigger="50")
    ours.driver.prepare_available_now()
    assert ours.trigger(50) == {A: Span(0, 10)}
    assert ours.trigger(50) is None


@pytest.mark.parametrize("version_2", [True, False])
def test_without_new_records_the_offset_has_the_same_text(stub_broker, log, query, version_2):
    log(A, 0, 10)
    ours = query({A: 10}).after({A: Span(0, 10)})
    start = {**ours.offset, "n": 0x7F, "extra": "is kept"}
    if version_2:
        start = {**VERSION_2, "topics": {"t": {"0": [0, 10, 7]}}}
    assert json.dumps(ours.driver.latest_offset(start, None)) == json.dumps(start), "Spark compares texts"


def test_no_two_plans_have_the_same_text(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 0})
    assert ours.trigger() == {A: Span(0, 10)}
    first = ours.offset
    ours.rebalance({A: StoredOffset(0, 9999)})  # an operator rewinds the group while another member owns the partition
    assert ours.trigger() == {A: Span(0, 10)}
    assert ours.offset != first


@pytest.mark.parametrize("stored", [StoredOffset(0, 7), StoredOffset(10, 8), StoredOffset(None)])
def test_a_restart_continues_after_its_last_batch_unless_the_offset_was_moved(stub_broker, log, query, stored):
    log(A, 0, 12)
    ours = query({A: stored}).after({A: Span(0, 10)}, {A: 7})
    assert ours.trigger() == {A: Span(10, 12)}
    assert ours.member.commits[-1] == {A: 10}, "the end of the last batch is published"


@pytest.mark.parametrize("stored", [2, 3, 5, 11])
def test_a_restart_follows_the_group_where_its_offset_was_moved(stub_broker, log, query, stored, caplog):
    log(A, 0, 12)
    ours = query({A: stored}).after({A: Span(3, 10)}, {A: 7})
    with caplog.at_level(logging.WARNING):
        assert ours.trigger() == {A: Span(stored, 12)}
    assert (
        f"t-0 continues at the group's offset {stored}, although this query's last batch of it was [3, 10)"
        in caplog.text
    )
    assert all(A not in offsets for offsets in ours.member.commits), "10 must not overwrite it"


@pytest.mark.parametrize("mark", [7, "", "zkconsumer:1"])
@pytest.mark.parametrize("killed", [True, False])
def test_an_offset_that_the_query_did_not_start_at_skips_nothing(stub_broker, log, query, mark, killed):
    """1. The first batch is planned. 2. A rebalance or a crash comes before its end is committed."""
    log(A, 0, 600)
    ours = query({A: StoredOffset(500, mark)}, startingOffsets="earliest")
    assert ours.trigger(limit=50) == {A: Span(0, 50)}
    if killed:
        after = query({A: StoredOffset(500, mark)}, startingOffsets="earliest")
        after.offset, ours = ours.offset, after
    else:
        ours.rebalance({A: ...})
    assert ours.trigger(limit=100) == {A: Span(50, 150)}


def test_a_partition_that_another_member_owned_keeps_what_was_stored(stub_broker, log, query):
    """1. A batch is planned. 2. Another member owns the partition, and commits nothing. 3. It comes back."""
    log(A, 0, 600)
    log(B, 0, 10)
    ours = query({A: StoredOffset(500, ""), B: StoredOffset(0, "")}, startingOffsets="earliest")
    assert ours.trigger(limit=61) == {A: Span(0, 59), B: Span(0, 2)}
    ours.rebalance({B: ...})
    assert ours.trigger() == {B: Span(2, 10)}
    ours.own({A: StoredOffset(500, ""), B: StoredOffset(10, "")})
    assert ours.trigger() == {A: Span(59, 600)}


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_restored_checkpoint_is_processed_again(stub_broker, log, query, caplog, acknowledged):
    """An operator's move is law all the same."""
    log(A, 0, 600)
    log(B, 0, 600)
    ours = query({A: 0, B: 0})
    ours.trigger(limit=100)
    backup = ours.offset
    for _ in range(3):
        ours.trigger(limit=100)
    if acknowledged:
        ours.member.acknowledge(ours.offset["n"])
    else:
        ours.driver.latest_offset(ours.offset, 1)
    after = query({A: ours.member.in_store[A], B: StoredOffset(170, 9999)})
    after.offset = backup
    with caplog.at_level(logging.WARNING):
        assert after.trigger() == {A: Span(50, 600), B: Span(170, 600)}
    assert "t-0 at 50: the query committed the group's offset later than this checkpoint was written" in caplog.text
    assert after.member.commits[-1] == {A: 50}


def test_the_members_late_commit_of_an_earlier_batch_is_the_querys_own(stub_broker, log, query):
    """1. The store refuses a commit; 2. the next batch ends; 3. the member's timer commits the first; 4. a restart."""
    log(A, 0, 30)
    ours = query({A: 0})
    ours.trigger(limit=10)
    ours.member.refusals = [OffsetsNotStored("offsets not stored: t-0")]
    assert ours.trigger(limit=10) == {A: Span(10, 20)}
    ours.member.commit()
    after = query({A: ours.member.in_store[A]})
    after.offset = ours.offset
    assert after.trigger() == {A: Span(20, 30)}


VERSION_2 = {
    "group": "g",
    "known": {"t": [3, "id"]},
    "n": 9,
    "topics": {"t": {"0": [3, 10, 7], "1": [0, 20, ""], "2": [5, 5, None]}},
    "v": 2,
}


@pytest.mark.parametrize(
    "stored",
    [
        {A: StoredOffset(10, 8), B: StoredOffset(20, "zkconsumer:1"), C: StoredOffset(5, 8)},
        {A: StoredOffset(3, 7), B: StoredOffset(0, ""), C: None},
        {A: StoredOffset(500, 7), B: None, C: StoredOffset(5, "")},
    ],
)
def test_a_query_continues_after_a_checkpoint_of_version_2(stub_broker, log, query, stored):
    for partition in (A, B, C):
        log(partition, 0, 30)
    ours = query(stored)
    ours.offset = VERSION_2
    assert ours.trigger() == {A: Span(10, 30), B: Span(20, 30), C: Span(5, 30)}
    assert (ours.offset["v"], ours.offset["n"]) == (3, 10)
    ours.rebalance(dict.fromkeys([A, B, C], ...))
    assert ours.trigger() is None
    assert ours.member.commits[-1] == {A: 30, B: 30, C: 30}


def test_a_partition_of_version_2_that_is_gained_later_keeps_its_end(stub_broker, log, query):
    for partition in (A, B, C):
        log(partition, 0, 30)
    ours = query({C: StoredOffset(5, 8)})
    ours.offset = VERSION_2
    assert ours.trigger() == {C: Span(5, 30)}
    ours.own({A: StoredOffset(500, 7), B: StoredOffset(0, ""), C: StoredOffset(30, 9)})
    assert ours.trigger() == {A: Span(10, 30), B: Span(20, 30)}


def test_the_checkpoint_of_another_group_is_refused_unless_it_is_named(stub_broker, log, query):
    log(A, 0, 12)
    start = encode_offset(SourceOffset("old", 9, {"t": KnownTopic(3, "id")}, {A: Span(0, 10)}))
    end = {**start, "n": 10}
    with pytest.raises(UsageError, match="set checkpointGroup=old"):
        query({A: None}).driver.latest_offset(start, None)
    with pytest.raises(UsageError, match="set checkpointGroup=old"):
        query({A: None}).driver.partitions(start, end)
    ours = query({A: None}, checkpointGroup="old")
    ours.offset = start
    assert ours.trigger() == {A: Span(10, 12)}
    assert decode_offset(ours.offset).group == "g"


def test_a_topic_that_was_created_again_is_data_loss(stub_broker, log, query):
    log(A, 0, 12)
    strict = query({A: 10}).after({A: Span(0, 10)}, {A: 7})
    strict.own({A: 10}, topic_id="another")
    with pytest.raises(OffsetOutOfRange, match="t was deleted and created again"):
        strict.trigger()
    lenient = query({A: 10}, failOnDataLoss="false").after({A: Span(0, 10), B: Span(0, 5)}, {A: 7, B: 8})
    lenient.own({A: 10}, topic_id="another")
    assert lenient.trigger() == {A: Span(0, 12)}
    assert decode_offset(lenient.offset).spans == {A: Span(0, 12)}, "its earlier state is forgotten"
    assert lenient.trigger() is None


def test_offsets_of_partitions_not_owned_are_never_committed(stub_broker, log, query):
    log(A, 0, 12)
    log(B, 0, 20)
    ours = query({A: 10}).after({A: Span(0, 10), B: Span(0, 20)})
    ours.trigger()
    ours.trigger()
    owned = list(ours.member.commits)
    ours.own({})
    ours.trigger()
    assert all(B not in offsets for offsets in owned)
    assert ours.member.commits == owned
    assert decode_offset(ours.offset).spans[B] == Span(20, 20)


def test_a_commit_of_an_ended_assignment_is_not_made(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 0})
    ours.trigger()
    ours.member.generation += 1  # two rebalances have happened on the other thread
    assert ours.driver.latest_offset(ours.offset, None) == ours.offset
    assert all(offsets == {} for offsets in ours.member.commits)


@pytest.mark.parametrize("error", [RebalanceAwaited, GenerationEnded, MembershipLost])
def test_a_commit_between_two_generations_lets_the_batch_be_planned_again(stub_broker, log, query, error):
    log(A, 0, 10)
    ours = query({A: 0}, **{"rebalance.backoff.ms": "10000"})
    assert ours.trigger() == {A: Span(0, 10)}
    log(A, 0, 15)
    ours.member.refusals = [error("between two generations")] * 2
    assert ours.trigger() == {A: Span(10, 15)}, "by the same call"
    assert (ours.member.refusals, ours.member.commits[-1]) == ([], {A: 10})


def test_an_offset_that_the_store_refuses_does_not_stop_the_query(stub_broker, log, query, caplog):
    log(A, 0, 10)
    ours = query({A: 0})
    assert ours.trigger() == {A: Span(0, 10)}
    log(A, 0, 15)
    ours.member.refusals = [OffsetsNotStored("offsets not stored: t-0")]
    assert ours.trigger() == {A: Span(10, 15)}
    assert "the offsets of finished batches are committed later: offsets not stored: t-0" in caplog.text
    assert ours.trigger() is None
    assert ours.member.commits[-1] == {A: 15}


@pytest.mark.parametrize(("parallelism", "tasks"), [(None, 1), (2, 2), (8, 3)])
def test_tasks_are_as_many_as_the_cluster_runs_at_a_time(stub_broker, log, query, parallelism, tasks):
    for partition in (A, B, C):
        log(partition, 0, 400_000)
    ours = query({A: 0, B: 0, C: 0}, numStreams="1")
    start = ours.offset
    ours.trigger()
    ours.member.acknowledge(1, parallelism)
    assert len(ours.driver.partitions(start, ours.offset)) == tasks
    assert ours.member.subscription.topics == {"t": 1}, "the weight in the group is numStreams"


def test_a_query_warns_once_that_most_of_the_cluster_is_idle(stub_broker, log, query, caplog):
    ours, start = query({A: 0}), initial_offset("g")
    for end, warnings in ((9, 0), (400_009, 1), (800_009, 1)):
        log(A, 0, end)
        ours.trigger()
        ours.member.acknowledge(1, 200)
        ours.driver.partitions(start, ours.offset)
        assert caplog.text.count("has 1 tasks, one for each partition with data, but the cluster runs 200") == warnings


def test_the_report_follows_a_rebalance_before_the_next_plan(stub_broker, log, query):
    log(A, 0, 9)
    log(B, 0, 9)
    ours = query({A: 0, B: 4})
    assert ours.driver.report() is None
    ours.trigger()

    def report():
        encoded = ours.driver.report()
        return encoded["topics"], encoded["owned"], encoded["rebalances"]

    assert report() == ({"t": {"0": [0, 9], "1": [4, 9]}}, {"t": [0, 1]}, 1)
    ours.own({B: 4, C: 0})
    assert report() == ({"t": {"1": [4, 9]}}, {"t": [1, 2]}, 2)
    ours.own({A: 9, B: 4})
    assert report() == ({"t": {"1": [4, 9]}}, {"t": [0, 1]}, 3), "another member may have read partition 0"


def test_in_a_group_of_brokers_tasks_are_made_by_size(stub_broker, log, query, caplog):
    caplog.set_level(logging.INFO)
    for partition, end in ((A, 6), (B, 3), (C, 2)):
        log(partition, 0, end)
    brokers = {"group.protocol": "kafka", "bootstrap.servers": "unused:1"}
    ours = query({A: 0, B: 0, C: 0}, numStreams="2", **brokers)
    start = ours.offset
    ours.trigger()
    subscribed = ours.member.subscription
    assert (subscribed.topics, subscribed.weight) == ({"t": 1}, 2), "one consumer thread, which counts for two"
    assert "joining with 2 streams (option numStreams: 2" in caplog.text
    tasks = [[piece[1] for piece in task.ranges] for task in ours.driver.partitions(start, ours.offset)]
    assert tasks == [[0], [1, 2]]


@pytest.mark.parametrize("protocol", ["kafka", "coordinator"])
def test_available_now_waits_for_what_others_release_where_a_first_share_may_be_empty(
    stub_broker, log, query, protocol
):
    log(A, 0, 10)
    brokers = {"group.protocol": protocol, "bootstrap.servers": "unused:1", "rebalance.backoff.ms": "10000"}
    ours = query({}, **brokers)
    gained = threading.Timer(0.5, ours.own, [{A: 4}])
    gained.start()
    ours.driver.prepare_available_now()
    assert ours.trigger() == {A: Span(4, 10)}
    gained.join()


@pytest.mark.parametrize("longest", ["max.poll.interval.ms", "session.timeout.ms"])
def test_available_now_begins_in_a_group_of_brokers_after_rebalances_that_outlast_its_patience(
    stub_broker, log, query, longest
):
    log(A, 0, 10)
    brokers = {"group.protocol": "kafka", "bootstrap.servers": "unused:1", "rebalance.backoff.ms": "10"}
    limits = {"max.poll.interval.ms": "1", "session.timeout.ms": "30", "heartbeat.interval.ms": "10", longest: "60000"}
    ours = query({A: 4}, **brokers, **limits)
    rebalances = list(range(3))

    def rebalance_late(_):
        if rebalances:
            rebalances.pop()
            time.sleep(0.06)  # the patience is 0.04 s
            ours.rebalance({A: 4})

    stub_broker.asked = rebalance_late
    ours.driver.prepare_available_now()
    assert ours.trigger() == {A: Span(4, 10)}
    assert rebalances == []


def test_available_now_drops_lost_partitions_and_reads_gained_ones(stub_broker, log, query, caplog):
    log(A, 0, 10)
    log(B, 0, 20)
    log(C, 0, 30)
    ours = query({A: 0, B: 0}).after({})
    ours.driver.prepare_available_now()
    ours.rebalance({A: 0, C: 0})
    assert ours.trigger() == {A: Span(0, 10), C: Span(0, 30)}
    log(C, 0, 31)
    assert ours.trigger() is None, "the target is fixed when a partition is gained"
    assert "other members own t 1" in caplog.text


def test_available_now_of_a_new_query_fixes_its_starts(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: None}, startingOffsets="latest")
    ours.driver.prepare_available_now()
    assert ours.trigger() == {}
    assert ours.trigger() is None
    log(A, 0, 12)
    next_night = query({A: 10}, startingOffsets="latest")
    next_night.offset = ours.offset
    next_night.driver.prepare_available_now()
    assert next_night.trigger() == {A: Span(10, 12)}


def test_available_now_ends_at_the_end_of_a_truncated_log(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 4}, failOnDataLoss="false").after({})
    ours.driver.prepare_available_now()
    assert ours.trigger(limit=1) == {A: Span(4, 5)}
    log(A, 0, 6)
    assert ours.trigger() == {A: Span(5, 6)}
    assert ours.trigger() is None


def test_starting_offsets_are_for_the_first_plan_only(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    log(C, 0, 30)
    ours = query({A: 4}, startingOffsets="latest")
    assert ours.trigger() == {}
    log(A, 0, 11)
    assert ours.trigger() == {A: Span(10, 11)}
    ours.rebalance({A: 11, B: 7})
    assert ours.trigger() == {B: Span(7, 20)}, "the group's offset"


@pytest.mark.parametrize("name", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_a_new_query_is_refused_a_start_of_partitions_that_do_not_exist(stub_broker, log, query, name):
    log(A, 0, 10)
    given = {"subscribe": "t,u", name: '{"t":{"0":4,"7":1},"u":{"0":1}}'}
    with pytest.raises(UsageError, match="partition t-7, partition u-0 does not exist in the cluster of unused:1"):
        query({A: 4}, **given).trigger()
    restarted = query({A: 4}, **given).after({A: Span(0, 4)}, known=1)
    assert restarted.trigger() == {A: Span(4, 10)}, "the option is for the first plan only"


def test_growth_after_the_first_plan_is_read_from_the_beginning(stub_broker, log, query):
    log(A, 0, 10)
    log(B, 0, 20)
    log(C, 0, 30)
    ours = query({A: 10, B: None, C: None}, startingOffsets="latest").after({A: Span(0, 10)}, known=2)
    assert ours.trigger() == {C: Span(0, 30)}, "t-1 existed at the first plan, t-2 did not"
    assert ours.member.commits[-1] == {A: 10, B: 20}, "only the group's store has the start of t-1"
    log(B, 0, 25)
    restarted = query({A: 10, B: 20, C: None}, startingOffsets="latest")
    restarted.offset = ours.offset
    assert restarted.trigger() == {B: Span(20, 25)}


def test_nothing_is_planned_while_another_member_may_own(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 0})
    ours.member.may_deliver = lambda: False
    assert ours.trigger() is None
    del ours.member.may_deliver
    assert ours.trigger() == {A: Span(0, 10)}


def test_available_now_does_not_end_because_of_an_expired_lease(stub_broker, log, query):
    log(A, 0, 10)
    ours = query({A: 0}, **{"rebalance.backoff.ms": "10"})
    ours.driver.prepare_available_now()
    ours.member.may_deliver = lambda: False
    with pytest.raises(LeaseLapsed, match="other members may own"):
        ours.trigger()


@pytest.mark.parametrize("reset", ["smallest", "largest"])
def test_lost_offsets_are_counted_and_existing_records_are_read(stub_broker, log, query, reset, caplog):
    log(A, 40, 100)
    with pytest.raises(OffsetOutOfRange, match=r"t-0: wanted 10, the log has \[40, 100\), 30 offsets are lost"):
        query({A: 10}).trigger()
    lenient = query({A: 10}, failOnDataLoss="false", **{"auto.offset.reset": reset})
    with caplog.at_level(logging.WARNING):
        assert lenient.trigger() == {A: Span(40, 100)}
    assert "t-0: wanted 10, the log has [40, 100), 30 offsets are lost" in caplog.text


def test_a_time_without_a_record_fails_or_means_the_end(stub_broker, log, query):
    log(A, 0, 10)
    with pytest.raises(OffsetOutOfRange, match="no record is as new as the start time: t-0 at 5000 ms"):
        query({A: 9}, startingTimestamp="5000").trigger()
    ours = query({A: 9}, startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest")
    assert ours.trigger() == {}
    assert decode_offset(ours.offset).spans == {A: Span(10, 10)}


def lags(stub_broker, log, end, answers):
    """Let this many answers to ListOffsets have this end of A, as those of a lagging new leader; then the right one."""
    right = stub_broker.logs[A].end
    left = [end] * answers

    def asked(_):
        log(A, 0, left.pop() if left else right)

    stub_broker.asked = asked


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_log_end_that_steps_back_for_a_moment_is_no_data_loss(stub_broker, log, query, fail):
    log(A, 0, 50)
    ours = query({A: 20}, failOnDataLoss=fail)
    assert ours.trigger() == {A: Span(20, 50)}
    log(A, 0, 60)
    lags(stub_broker, log, 40, answers=4)
    assert ours.trigger() == {A: Span(50, 60)}


def test_a_missing_permission_fails_the_query(query, log, stub_broker):
    log(A, 0, 5)
    stub_broker.offset_errors[A] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(TopicAuthorizationFailed, match="topic t cannot be read"):
        query({A: 0}).trigger()


def test_a_permission_that_arrives_late_lets_the_query_begin(query, log, stub_broker):
    log(A, 0, 5)
    stub_broker.offset_errors[A] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    asked = []

    def grant(_):
        asked.append(None)
        if len(asked) == 3:
            stub_broker.offset_errors.clear()

    stub_broker.asked = grant
    assert query({A: 0}).trigger() == {A: Span(0, 5)}


def test_a_stored_offset_that_may_not_be_read_fails_the_query(query, log):
    log(A, 0, 5)
    running = query({A: 0})
    refused = {B: TopicAuthorizationFailed("no", "t", "Describe")}
    running.member.own({}, {}, refused=refused)
    with pytest.raises(TopicAuthorizationFailed):
        running.trigger()


def test_a_group_that_may_not_be_used_fails_the_query(query, log):
    log(A, 0, 5)
    running = query({A: 0})
    running.trigger()
    running.member.on_refusal(GroupAuthorizationFailed("no", "Read"))
    with pytest.raises(GroupAuthorizationFailed):
        running.trigger()


NEEDS_AN_OPERATOR = [
    AuthenticationFailed("the password is wrong"),
    ConfigError("ssl.ca.location cannot be used"),
    GroupAuthorizationFailed("no", "Read"),
    MemberRefused("the session timeout is too short"),
    ZooKeeperRefused("no permission"),
]


@pytest.mark.parametrize("refusal", NEEDS_AN_OPERATOR)
def test_a_refusal_that_the_member_has_reported_ends_the_query(query, log, refusal):
    log(A, 0, 5)
    running = query({A: 0})
    running.trigger()
    running.member.on_refusal(refusal)
    with pytest.raises(type(refusal)):
        running.trigger()


@pytest.mark.parametrize("refusal", NEEDS_AN_OPERATOR)
def test_the_fourth_refusal_in_a_row_ends_the_query(query, log, refusal):
    log(A, 0, 5)
    running = query({A: 0})
    running.trigger()
    log(A, 0, 9)
    running.member.refusals = [refusal] * 3
    assert running.trigger() == {A: Span(5, 9)}, "by the same call"
    running.member.refusals = [refusal] * 4
    with pytest.raises(type(refusal)):
        running.trigger()


def test_brokers_that_do_not_answer_do_not_interrupt_a_row_of_refusals(query, log):
    log(A, 0, 5)
    running = query({A: 0})
    running.driver.prepare_available_now()
    running.trigger()
    refusal = GroupAuthorizationFailed("no", "Read")
    running.member.refusals = [refusal, refusal, BrokerUnavailable("gone"), refusal, refusal]
    with pytest.raises(GroupAuthorizationFailed):
        running.trigger()


def test_a_query_that_does_not_share_its_group_joins_no_other_member(log, query):
    log(A, 0, 10)
    ours = query({A: None, B: None, C: None}, **{"group.share": "false", "zookeeper.session.timeout.ms": "1"})
    ours.member.others = {"g_jvm"}
    with pytest.raises(UsageError, match="its members g_jvm are live"):
        ours.trigger()
    assert ours.member.subscription is None, "it has not joined"


def test_a_query_that_does_not_share_its_group_ends_when_it_has_to(log, query):
    for partition in (A, B, C):
        log(partition, 0, 10)
    ours = query({A: 0, B: 0, C: 0}, **{"group.share": "false"})
    assert ours.trigger() == dict.fromkeys((A, B, C), Span(0, 10))
    ours.member.others = {"g_jvm"}
    ours.rebalance({A: ..., B: ...})
    with pytest.raises(UsageError, match="own a part of its partitions: g_jvm"):
        ours.trigger()


def test_a_query_that_does_not_share_its_group_notices_a_member_that_has_left_again(log, query):
    for partition in (A, B):
        log(partition, 0, 30)
    ours = query({A: 0, B: 0}, **{"group.share": "false"})
    assert ours.trigger(limit=20) == {A: Span(0, 10), B: Span(0, 10)}
    ours.rebalance({A: ...})  # another member reads t-1 from 10 to 20, commits and leaves
    ours.own({A: ours.member.in_store[A], B: 20})
    with pytest.raises(UsageError, match=r"t-1 at 20 \(this query has read it to 10\); with group\.share=false"):
        ours.trigger()
    restarted = query({A: ours.member.in_store[A], B: 20}, **{"group.share": "false"})
    restarted.offset = ours.offset
    assert restarted.trigger() == {A: Span(10, 30), B: Span(20, 30)}, "the offset may have been set while it stood"


def test_a_query_that_does_not_share_its_group_notices_who_has_left_before_it_looked(log, query):
    for partition in (A, B):
        log(partition, 0, 30)
    ours = query({A: 0, B: 0}, **{"group.share": "false"})
    assert ours.trigger(limit=20) == {A: Span(0, 10), B: Span(0, 10)}
    ours.rebalance({A: ...})
    assert ours.trigger() == {A: Span(10, 30)}, "no other member is in the group when it is read"
    ours.own({A: ours.member.in_store[A], B: 20})
    with pytest.raises(UsageError, match="t-1 at 20"):
        ours.trigger()


def test_a_query_that_does_not_share_its_group_notices_who_read_a_new_partition(log, query):
    for partition in (A, B):
        log(partition, 0, 30)
    ours = query({}, **{"group.share": "false"})
    ours.own({A: 0}, partitions=1)
    ours.trigger()
    ours.member.release()
    ours.own({A: ours.member.in_store[A], B: 20}, partitions=2)
    with pytest.raises(UsageError, match="nor seen them when it started: t-1 at 20; with"):
        ours.trigger()


@pytest.mark.parametrize("stamped", [True, False])
def test_a_query_that_does_not_share_its_group_continues_at_its_own_commits(log, query, stamped):
    """A start that retention has moved is committed, although no batch ends there; a store may refuse stamps."""
    for partition in (A, B):
        log(partition, 0, 30)
    ours = query({A: 0, B: 0}, failOnDataLoss="false", **{"group.share": "false"})
    ours.trigger(limit=20)
    log(B, 30, 30)
    for _ in range(2):
        ours.rebalance({A: ..., B: ...})
        ours.trigger(limit=5)
        assert ours.member.in_store[B].offset == 30
        if not stamped:
            ours.member.in_store[B] = ours.member.in_store[B]._replace(stamp=None)


def test_a_plan_that_a_rebalance_interrupted_is_the_first_one_still(log, query):
    """What was committed before the query began is law: its first plan is made again."""
    log(A, 12, 30)
    ours = query({A: 11}, failOnDataLoss="false", **{"group.share": "false"}).after({A: Span(0, 10)}, {A: 7})
    ours.own({A: 11}, partitions=1)
    interrupted = []

    def rebalances(is_done):
        if not interrupted:
            interrupted.append(is_done)
            ours.own({A: 11}, partitions=1)

    ours.member.fault = rebalances
    assert ours.trigger() == {A: Span(12, 30)}
    assert interrupted


UNFINISHED = encode_offset(SourceOffset("g", 9, {"t": KnownTopic(3, "id")}, {A: Span(0, 10)}))


def test_a_query_that_does_not_share_its_group_repeats_no_batch_beside_other_members(log, query):
    log(A, 0, 10)
    ours = query({A: 0}, **{"group.share": "false", "zookeeper.session.timeout.ms": "1"})
    ours.member.others = {"g_jvm"}
    with pytest.raises(UsageError, match="its members g_jvm are live"):
        ours.driver.partitions(ours.offset, UNFINISHED)
    ours.member.others = set()
    assert len(ours.driver.partitions(ours.offset, UNFINISHED)) == 1


def test_a_second_reader_of_a_driver_repeats_no_batch(log, query, tmp_path):
    log(A, 0, 10)
    directory = tmp_path / "blockmgr-1"
    directory.mkdir()
    first, second = query({A: 0}), query({A: 0})
    for reader in (first, second):
        reader.member.claim = lambda options: ReaderClaim(options, directory, 0.0)
    assert len(first.driver.partitions(first.offset, UNFINISHED)) == 1
    with pytest.raises(UsageError, match="another reader of group g runs under this Spark driver"):
        second.driver.partitions(second.offset, UNFINISHED)
    first.offset = UNFINISHED
    first.trigger()  # it joins with the claim that it has
    with pytest.raises(UsageError, match="another reader of group g"):
        second.driver.partitions(second.offset, UNFINISHED)
    first.driver.stop()
    assert len(second.driver.partitions(second.offset, UNFINISHED)) == 1


def test_a_forked_child_leaves_the_query_alone(log, query, caplog):
    """A provider of tokens may fork. The threads that the end waits for are the parent's."""
    log(A, 0, 10)
    ours = query({A: 0})
    ours.trigger()

    def stop():
        ours.driver.stop()
        assert "the query's member of group g" in caplog.text
        assert "is not closed by its child" in caplog.text

    assert in_forked_child(stop)


U = TopicPartition("u", 0)


@pytest.fixture
def deletable(stub_broker, log):
    """A broker that can report that a topic does not exist, with the topics t and u; returns what deletes u."""
    stub_broker.versions[MetadataRequest.API_KEY] = 12
    log(A, 0, 10)
    log(U, 0, 10)
    return lambda: stub_broker.logs.pop(U)


@pytest.mark.parametrize("joined", [True, False])
def test_an_unfinished_batch_is_repeated_without_topics_that_were_deleted(query, deletable, joined, caplog):
    deletable()
    known = {"t": KnownTopic(3, "id"), "u": KnownTopic(1, "u")}
    end = encode_offset(SourceOffset("g", 9, known, {A: Span(0, 10), U: Span(0, 5)}))
    strict, lenient = query({A: 0}), query({A: 0}, failOnDataLoss="false")
    if joined:
        for ours in (strict, lenient):
            ours.driver.prepare_available_now()
    with pytest.raises(OffsetOutOfRange, match=r"the topics of an unfinished batch were deleted: u-0 \[0, 5\)"):
        strict.driver.partitions(strict.offset, end)
    (task,) = lenient.driver.partitions(lenient.offset, end)
    assert [piece.topic_partition for piece in task.ranges] == [A]
    assert "it is repeated without u-0 [0, 5)" in caplog.text


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("joined", [True, False])
def test_an_unfinished_batch_is_not_read_from_a_topic_that_was_created_again(query, stub_broker, log, joined, answers):
    """Brokers before 2.8 do not know it: the checkpoint has the czxid of the topic's znode."""
    stub_broker.versions[MetadataRequest.API_KEY] = 4
    log(A, 0, 10)
    log(U, 0, 10)
    known = {"t": KnownTopic(3, "id"), "u": KnownTopic(1, 40)}
    end = encode_offset(SourceOffset("g", 9, known, {A: Span(0, 10), U: Span(0, 5)}))
    strict, lenient = query({}), query({}, failOnDataLoss="false")
    for ours in (strict, lenient):
        ours.member.own({A: StoredOffset(0)}, {"t": Topic((0, 1, 2), TopicIdentity("id", 7)), "u": of_u(90)})
        if joined:
            ours.driver.prepare_available_now()
    stub_broker.hangs_up = not answers
    with pytest.raises(OffsetOutOfRange, match=r"u-0 \[0, 5\)"):
        strict.driver.partitions(strict.offset, end)
    (task,) = lenient.driver.partitions(lenient.offset, end)
    assert [piece.topic_partition for piece in task.ranges] == [A]
    same = query({})
    same.member.own({A: StoredOffset(0)}, {"u": of_u(40)})
    assert {piece.topic_partition for task in same.driver.partitions(same.offset, end) for piece in task.ranges} == {
        A,
        U,
    }


def of_u(czxid):
    return Topic((0,), TopicIdentity(None, czxid))


def test_an_unfinished_batch_is_repeated_as_planned_while_no_broker_answers(query, stub_broker, deletable):
    stub_broker.hangs_up = True
    end = encode_offset(SourceOffset("g", 9, {"u": KnownTopic(1, "u")}, {U: Span(0, 5)}))
    ours = query({A: 0})
    (task,) = ours.driver.partitions(ours.offset, end)
    assert [piece.topic_partition for piece in task.ranges] == [U]


@pytest.mark.parametrize("limit", [2, None])
def test_a_deleted_topic_is_data_loss_unless_it_was_read_to_its_end(query, log, deletable, limit):
    ours = query({})
    ours.own({A: 0, U: 0}, others=["u"])
    ours.trigger(limit=limit)
    assert {A, U} == decode_offset(ours.offset).spans.keys()
    deletable()
    ours.own({A: 10})
    log(A, 0, 20)
    if limit:
        with pytest.raises(OffsetOutOfRange, match="u was deleted, and this query may not have read all of it"):
            ours.trigger()
        return
    assert ours.trigger() == {A: Span(10, 20)}
    planned = decode_offset(ours.offset)
    assert (planned.known.keys(), planned.spans.keys(), planned.stored.keys()) == ({"t"}, {A}, {A})


@pytest.mark.parametrize("exists", [True, False])
def test_at_a_restart_what_was_left_of_a_deleted_topic_is_unknown(query, log, deletable, exists, caplog):
    """A topic that is not subscribed to any more stays in the checkpoint."""
    if not exists:
        deletable()
    known = {"t": KnownTopic(3, "id"), "u": KnownTopic(1, "u")}
    checkpoint = encode_offset(SourceOffset("g", 9, known, {A: Span(0, 5), U: Span(0, 5)}))
    strict, lenient = query({A: 5}), query({A: 5}, failOnDataLoss="false")
    strict.offset = lenient.offset = checkpoint
    if exists:
        assert strict.trigger() == {A: Span(5, 10)}
        assert decode_offset(strict.offset).spans == {A: Span(5, 10), U: Span(5, 5)}
    else:
        with pytest.raises(OffsetOutOfRange, match="u was deleted"):
            strict.trigger()
        assert lenient.trigger() == {A: Span(5, 10)}
        assert decode_offset(lenient.offset).known.keys() == {"t"}
        assert "u was deleted, and this query may not have read all of it" in caplog.text


@pytest.fixture
def open_transaction(stub_broker, log):
    """A has 120 records; a transaction is open from offset 80 on."""
    stub_broker.versions[ListOffsetsRequest.API_KEY] = 2
    log(A, 0, 120)
    stub_broker.log(A).stable = 80
    return stub_broker.log(A)


READ_COMMITTED = {"isolation.level": "read_committed"}


def test_an_offset_after_an_open_transaction_is_in_the_log(open_transaction, query, caplog):
    ours = query({A: 100}, **READ_COMMITTED)
    with caplog.at_level(logging.WARNING):
        assert ours.trigger() == {}
        assert ours.trigger() is None
    assert not caplog.records
    assert ours.driver.report()["topics"] == {"t": {"0": [100, 100]}}
    assert all(80 not in offsets.values() for offsets in ours.member.commits), "the group does not move back"
    open_transaction.stable = None
    assert ours.trigger() == {A: Span(100, 120)}


@pytest.mark.parametrize("stored", [0, 100])
def test_available_now_ends_at_an_open_transaction(open_transaction, query, stored):
    ours = query({A: stored}, **READ_COMMITTED, **{"rebalance.backoff.ms": "10"}).after({})
    ours.driver.prepare_available_now()
    if stored == 0:
        assert ours.trigger() == {A: Span(0, 80)}
    assert ours.trigger() is None


def test_the_end_of_a_log_to_start_at_is_before_an_open_transaction(open_transaction, query):
    ours = query({A: None}, startingOffsets="latest", **READ_COMMITTED)
    assert ours.trigger() == {}
    open_transaction.stable = None
    assert ours.trigger() == {A: Span(80, 120)}
