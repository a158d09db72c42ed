"""What a migration sees of its ends."""

from contextlib import closing
from typing import cast

import pytest

from tests.fixtures.groupsinmemory import log, session_in_memory
from tests.fixtures.migrationsinmemory import OFFSETS, PARTITIONS, TO_KAFKA, TO_ZOOKEEPER
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.offsets.rules.topicorigins import WrittenFor, that_are
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.migrationmark import write_mark
from zkconsumer.operate.migrate.mirror import Mirror
from zkconsumer.operate.migrate.rollback import plan_reverse, plan_rollback
from zkconsumer.operate.migrate.rules.migrationend import parse_end
from zkconsumer.operate.migrate.rules.planfile import decode_plan, encode_plan
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.offsetimport import plan_copy
from zkconsumer.zookeeper.absentzookeeper import AbsentZooKeeper
from zkconsumer.zookeeper.rules.znodes import MigrationMark


def test_equal_reads_of_a_source_do_not_say_that_its_consumers_are_stopped(servers):
    """They pause between writes, and write nothing if there is nothing to do."""
    servers.begin("storm:/s/id", "kafka:g")
    (guard,) = [guard for guard in servers.plan.guards if guard.name == "source"]
    assert (guard.holds, guard.text) == (True, "two reads of the offsets of storm:/s/id are equal")


@pytest.mark.parametrize(("target", "warned"), [("kafka:g", False), ("kafka:g-test", True)])
def test_a_source_that_was_migrated_elsewhere_is_a_warning(servers, target, warned):
    """Consumers are not where its znodes are; planned again for the same target it is what is meant."""
    with closing(session_in_memory(servers.server)) as session:
        write_mark(session, "g", MigrationMark("migrated", "kafka:g", 1))
    servers.begin("zookeeper:g", target)
    assert servers.plan.refusals == ()
    assert any("was migrated to kafka:g" in warning for warning in servers.plan.warnings) is warned


def test_a_mark_that_cannot_be_read_may_be_that_of_the_plan(servers):
    """The way back removes it, so the way there does not warn of another store."""
    servers.write("/consumers/g/zkconsumer/migrated", b"no JSON")
    servers.begin(*TO_KAFKA)
    assert servers.plan.warnings == ()
    assert servers.run().faults == []


@pytest.fixture
def recreated(servers):
    """1. A member consumes the topic and commits; 2. the topic is deleted and created again."""
    servers.store(OFFSETS)
    servers.create_topic_again()
    return servers


def test_offsets_of_an_earlier_topic_are_refused_as_missing(recreated):
    recreated.begin(*TO_KAFKA, {})
    (refusal,) = recreated.plan.refusals
    assert "(those of t-0, " in refusal
    assert "were stored for earlier topics of that name); plan with --missing earliest" in refusal
    assert {row.new for row in recreated.plan.partitions} == {None}


def test_such_partitions_begin_where_the_operator_decides(recreated):
    """The znodes are as they were, and of the earlier topic, so neither a mirror nor a way back moves them back."""
    recreated.begin(*TO_KAFKA, {}, missing="earliest")
    assert recreated.plan.refusals == ()
    assert decode_plan("plan", recreated.file.read_bytes()) == recreated.plan
    assert [(row.source, row.new, row.replayed, row.skipped) for row in recreated.plan.partitions[:1]] == [
        (10, 0, 0, 0)
    ]
    recreated.run()
    assert set(recreated.brokers.stored("g").values()) == {0}
    assert recreated.verified()
    recreated._ends = TO_ZOOKEEPER
    with closing(session_in_memory(recreated.server)) as session:
        ends = recreated.ends(session)
        assert Mirror(recreated.plan, recreated.file).decide(ends).due == dict.fromkeys(PARTITIONS, 0)
        back = plan_reverse(ends, recreated.plan, recreated.file, missing="fail")
    assert back.refusals == ()
    assert {(row.before, row.new, row.replayed) for row in back.partitions[:1]} == {(10, 0, 0)}
    assert decode_plan("back", encode_plan(back).encode()) == back
    recreated.plan = back
    recreated.file = recreated.file.with_name("back")
    recreated.file.write_text(encode_plan(back))
    assert recreated.run().faults == []
    assert set(recreated.stored().values()) == {0}


@pytest.mark.parametrize("read_again", [3, 10])
def test_what_a_migration_left_of_a_topic_that_was_created_again_is_no_progress(servers, read_again):
    """1. The group is migrated; 2. the topic is created again; 3. its consumers commit, perhaps the former offset."""
    servers.begin(*TO_KAFKA)
    servers.run()
    servers.create_topic_again()
    servers.brokers.store("g", dict.fromkeys(PARTITIONS, read_again))
    servers._ends = TO_ZOOKEEPER
    with closing(session_in_memory(servers.server)) as session:
        ends = servers.ends(session)
        due = Mirror(servers.plan, servers.file).decide(ends).due
        back = plan_reverse(ends, servers.plan, servers.file, missing="fail")
    assert (due, back.refusals) == (dict.fromkeys(PARTITIONS, read_again), ())
    servers.plan, servers.file = back, servers.file.with_name("back")
    servers.file.write_text(encode_plan(back))
    assert servers.run().written == PARTITIONS
    assert servers.run().found == PARTITIONS
    assert servers.verified()
    with closing(session_in_memory(servers.server)) as session:
        assert that_are(servers.ends(session).observe().target, WrittenFor.EARLIER) == []


def test_a_copy_of_an_offset_is_written_again_by_a_run_that_is_resumed(recreated):
    recreated.brokers.store("g", OFFSETS)
    recreated.begin("kafka:g", "zookeeper:g", OFFSETS)
    assert recreated.run(2) is None
    assert recreated.run().written == PARTITIONS
    assert recreated.verified()


def test_offsets_before_their_topic_are_reported_where_no_record_proves_it(servers):
    """1. JVM members commit; 2. the topic is created again: no record of the group shows it."""
    servers.store(OFFSETS)
    servers.create_topic_again(is_recorded=False)
    servers.begin(*TO_KAFKA, {PARTITIONS[0]: 10})
    (warning,) = servers.plan.warnings
    assert warning.startswith("offsets of t-1, t-2, t-3, t-4 were stored before the topic was created")
    assert servers.plan.refusals == ()


def test_a_late_commit_to_kafka_of_an_earlier_topic_is_not_kept(servers):
    """ZooKeeper has no offset of it."""
    servers.write("/brokers/topics/t", b'{"version":3,"topic_id":"new","partitions":{"0":[0],"1":[0]}}')
    servers.brokers.groups["g"] = {PARTITIONS[1]: StoredOffset(50, "zkconsumer:x:old")}
    servers.begin(*TO_KAFKA, {PARTITIONS[0]: 10}, missing="earliest")
    row = servers.plan.partitions[1]
    assert (row.before, row.new, row.is_before_outdated) == (50, 0, True)
    assert "offsets of kafka:g are of earlier topics of that name, and not used: t-1" in servers.plan.warnings


def test_nor_does_a_copy_of_them_in_kafka_count(recreated):
    """Of a group with dual commit."""
    recreated.brokers.store("g", OFFSETS)
    recreated.begin(*TO_KAFKA, {})
    assert "plan with --missing earliest" in recreated.plan.refusals[0]
    recreated.begin(*TO_KAFKA, {}, missing="earliest")
    assert {(row.new, row.replayed, row.skipped) for row in recreated.plan.partitions} == {(0, 0, 0)}
    assert decode_plan("plan", recreated.file.read_bytes()) == recreated.plan
    recreated.run()
    assert set(recreated.brokers.stored("g").values()) == {0}


def test_what_was_reset_after_that_counts(recreated):
    recreated.begin(*TO_KAFKA, dict.fromkeys(PARTITIONS, 5))
    assert recreated.plan.refusals == ()
    assert {row.new for row in recreated.plan.partitions} == {5}


def test_a_plan_that_does_not_know_it_is_not_run(servers):
    """Such as the plan of a former release, which did not ask for it."""
    servers.begin(*TO_KAFKA)
    servers.create_topic_again()
    with pytest.raises(Exception, match="were stored for earlier topics of that name; plan again"):
        servers.run()


def test_offsets_in_kafka_name_their_topic(servers):
    servers.write("/brokers/topics/t", b'{"version":3,"topic_id":"new","partitions":{"0":[0]}}')
    servers.brokers.groups["g"] = {PARTITIONS[0]: StoredOffset(10, "zkconsumer:x:old")}
    servers._ends = TO_ZOOKEEPER
    with closing(session_in_memory(servers.server)) as session:
        assert that_are(servers.ends(session).observe().source, WrittenFor.EARLIER) == [PARTITIONS[0]]


@pytest.mark.parametrize("missing", ["fail", "earliest", "latest"])
def test_progress_of_the_new_topic_in_kafka_is_kept(recreated, missing):
    """1. The group is migrated; 2. the topic is created again; 3. its new consumers commit; 4. it is planned again."""
    recreated.write("/brokers/topics/t", b'{"version":3,"topic_id":"new","partitions":{"0":[0],"1":[0]}}')
    first, second = PARTITIONS[:2]
    recreated.brokers.groups["g"] = {
        first: StoredOffset(5, "zkconsumer:x:new"),
        second: StoredOffset(11, "zkconsumer:x:old"),
    }
    recreated.begin(*TO_KAFKA, {}, missing=missing)
    rows = {row.partition: row for row in recreated.plan.partitions}
    assert (rows[first].source, rows[first].before, rows[first].new) == (10, 5, 5)
    assert rows[second].new == {"fail": None, "earliest": 0, "latest": 100}[missing]
    assert "offsets of kafka:g may be copies of such offsets, and are not used either: t-1" in recreated.plan.warnings
    if missing != "fail":
        recreated.run()
        assert recreated.brokers.stored("g")[first] == 5
        assert recreated.verified()


U = TopicPartition("u", 0)


@pytest.fixture
def hidden(servers):
    """A migrated group, whose consumers have continued in Kafka in two topics; one may not be described any more."""
    servers.brokers.logs[U] = log()
    servers.begin(*TO_KAFKA, offsets={**OFFSETS, U: 10})
    servers.run()
    servers.brokers.store("g", {p: 50 for p in (*OFFSETS, U)})
    servers.brokers.undescribed.add("u")
    return servers


def test_a_way_back_does_not_leave_out_a_topic_that_brokers_do_not_list(hidden):
    """They list no topic that may not be described; the znodes of the group show that it has offsets there."""
    why = "the offset of u-0 in Kafka cannot be read: TOPIC_AUTHORIZATION_FAILED"
    with closing(session_in_memory(hidden.server)) as session:
        back = MigrationEnds(session, cast(Cluster, hidden.brokers), *map(parse_end, TO_ZOOKEEPER))
        for way in (
            lambda: back.plan(missing="fail"),
            lambda: plan_reverse(back, hidden.plan, hidden.file, missing="fail"),
            lambda: Mirror(hidden.plan, hidden.file).decide(back),
            lambda: plan_rollback(hidden.ends(session), hidden.plan, hidden.file),
        ):
            with pytest.raises(ZkConsumerError, match=why):
                way()


def test_a_copy_between_groups_of_brokers_reads_topics_that_it_names(hidden):
    with pytest.raises(ZkConsumerError, match="do not describe topics: u "):
        plan_copy(AbsentZooKeeper("h:1"), cast(Cluster, hidden.brokers), "g", "h", {"u": None}, store="kafka")
