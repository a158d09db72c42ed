"""Writes of the tools on a real ZooKeeper and broker: guards, hold, compare-and-set, read-back, snapshots."""

import threading
import time

import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.security import make_acl

from tests.fixtures.offsetwrites import is_offset
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import connected
from zkconsumer.errors import WriteRefused, ZkConsumerError, ZooKeeperRefused
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.groups.groupremoval import plan_clean, plan_delete, plan_rename
from zkconsumer.operate.offsets.grouphold import LONGEST_S
from zkconsumer.operate.offsets.offsetfiles import FileRefused, parse_offsets
from zkconsumer.operate.offsets.offsetimport import plan_copy, plan_import
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.resetplan import plan_reset
from zkconsumer.operate.offsets.restoreplan import plan_restore
from zkconsumer.operate.offsets.rules.offsetreset import ResetSpec
from zkconsumer.operate.offsets.snapshot import SnapshotFile, read_snapshot
from zkconsumer.zookeeper.forcedexpiry import expire

pytestmark = pytest.mark.integration

EARLIEST, LATEST = ResetSpec("earliest"), ResetSpec("latest")


@pytest.fixture
def topic(filled_topic):
    """Two partitions with ten records each."""
    return filled_topic(10)


@pytest.fixture
def other_client(sandbox):
    with connected(sandbox.zookeeper_connect) as client:
        yield client


@pytest.fixture
def write(tool_session, cluster, tmp_path):
    """Execute a plan: ``write(plan) -> WriteReport``."""
    numbers = iter(range(100))

    def run(plan, **more):
        return execute(tool_session, cluster, plan, SnapshotFile(tmp_path / f"snapshot-{next(numbers)}"), **more)

    return run


@pytest.fixture
def reset(tool_session, cluster, offset_group):
    """Plan a reset of the group: ``reset(ResetSpec) -> WritePlan``."""

    def plan(spec, topics=None, **more):
        return plan_reset(tool_session, cluster, offset_group.name, topics, spec, **{"store": "zookeeper", **more})

    return plan


# -- what is written --------------------------------------------------------------------------------------------------


def test_a_reset_moves_what_is_stored_and_creates_the_rest(offset_group, topic, reset, write):
    offset_group.store(topic, {0: 4})
    before = offset_group.tree()
    plan = reset(LATEST)
    assert [(row.partition.partition, row.old, row.new, row.skipped) for row in plan.groups[0].rows] == [
        (0, 4, 10, 6),
        (1, None, 10, None),
    ]
    assert offset_group.tree() == before, "a plan writes nothing"
    report = write(plan)
    assert (report.faults, offset_group.offsets(topic)) == ([], {0: 10, 1: 10})
    assert offset_group.tree() == {
        **before,
        offset_group.path("offsets", topic, 0): b"10",
        offset_group.path("offsets", topic, 1): b"10",
    }, "the hold leaves nothing"


def test_only_a_command_that_may_create_a_group_does(offset_group, topic, reset, write):
    for store in ("zookeeper", "kafka", None):
        (refusal,) = reset(EARLIEST, {topic: None}, store=store).refusals
        assert refusal == f"group {offset_group.name} does not exist; check its name and the chroot, or give --create"
    assert write(reset(EARLIEST, {topic: None}, create=True)).faults == []
    parents = [offset_group.path(), offset_group.path("offsets"), offset_group.path("offsets", topic)]
    assert sorted(offset_group.tree()) == [*parents, *(offset_group.path("offsets", topic, p) for p in (0, 1))]


def test_times_come_from_the_brokers(offset_group, topic_factory, produce, reset):
    name = topic_factory(partitions=1)
    produce(name, [{"value": b"v", "partition": 0, "timestamp": 1_000_000 * number} for number in range(1, 6)])
    offset_group.store(name, {0: 5})

    def new(ms):
        (row,) = reset(ResetSpec("time", ms)).groups[0].rows
        return row.new, row.note

    assert new(2_000_001) == (2, "")
    assert new(9_000_000) == (5, "no record so late, so the log end")


def test_nothing_to_write_makes_no_snapshot(offset_group, topic, reset, write, tmp_path):
    offset_group.store(topic, {0: 10, 1: 10})
    assert write(reset(LATEST)).snapshot is None
    assert list(tmp_path.iterdir()) == []


def test_new_nodes_take_the_access_of_their_siblings(offset_group, topic, reset, write, zookeeper):
    acl = [make_acl("world", "anyone", all=True), make_acl("digest", "someone:else", read=True)]
    offset_group.store(topic, {0: 4}, acl=acl)
    assert write(reset(LATEST)).faults == []
    assert set(zookeeper.get_acls(offset_group.path("offsets", topic, 1))[0]) == set(acl)


def test_an_acl_whose_password_is_hidden_is_not_copied(offset_group, topic, reset, tool_session, cluster):
    """To a client that may not change an ACL the servers show "x" in place of the hash of a password."""
    acl = [make_acl("world", "anyone", read=True, write=True, create=True, delete=True)]
    offset_group.store(topic, {0: 4}, acl=[*acl, make_acl("digest", "someone:hash", all=True)])
    with pytest.raises(ZooKeeperRefused, match="hides the ACL"):
        reset(LATEST)
    with pytest.raises(ZooKeeperRefused, match="hides the ACL"):
        plan_delete(tool_session, cluster, [offset_group.name], None)


# -- guards -----------------------------------------------------------------------------------------------------------


def test_live_members_are_named_and_nothing_is_written(offset_group, topic, reset, write, other_client):
    offset_group.store(topic, {0: 4})
    before = offset_group.tree()
    plan = reset(LATEST)
    offset_group.register("g_live-member")
    assert "g_live-member" in reset(LATEST).refusals[0]
    with pytest.raises(WriteRefused, match="g_live-member"):  # it came between plan and write
        write(plan)
    offset_group.client.delete(offset_group.path("ids", "g_live-member"))
    offset_group.client.delete(offset_group.path("ids"))
    assert offset_group.tree() == before


def test_live_members_can_be_accepted_with_a_warning(offset_group, topic, reset, write):
    offset_group.store(topic, {0: 4, 1: 4})
    offset_group.register("g_live-member")
    plan = reset(LATEST, live=True)
    assert plan.refusals == ()
    assert "next commit overwrites what is written: g_live-member" in plan.warnings[0]
    assert write(plan).faults == []
    assert offset_group.offsets(topic) == {0: 10, 1: 10}


def test_an_owner_whose_session_has_not_expired_is_named(offset_group, topic, reset, write):
    offset_group.store(topic, {0: 4})
    plan = reset(LATEST)
    offset_group.client.create(offset_group.path("owners", topic, 1), b"g_dead-0", ephemeral=True, makepath=True)
    assert "g_dead-0" in reset(LATEST).refusals[0]
    before = offset_group.tree()
    with pytest.raises(WriteRefused, match="is owned by g_dead-0"):
        write(plan)
    assert offset_group.tree() == before, "the owner znode of another session is left alone"


def test_two_tools_do_not_write_one_group(offset_group, topic, reset, write):
    offset_group.store(topic, {0: 4})
    plan = reset(LATEST)
    hold = offset_group.path("zkconsumer", "hold@00000000000000ff")
    offset_group.client.create(hold, b"", ephemeral=True, makepath=True)
    assert "another tool is writing" in reset(LATEST).refusals[0]
    with pytest.raises(WriteRefused, match="hold@00000000000000ff"):
        write(plan)
    assert offset_group.offsets(topic) == {0: 4}


def test_offsets_that_were_just_written_are_warned_of(offset_group, topic, reset):
    offset_group.store(topic, {0: 4})
    assert "a SimpleConsumer is at work" in reset(LATEST).warnings[0]


def test_offsets_in_both_stores_need_a_decision(offset_group, topic, reset, write, cluster):
    offset_group.store(topic, {0: 4, 1: 4})
    in_kafka = {TopicPartition(topic, number): StoredOffset(7, "theirs") for number in range(2)}
    assert cluster.commit(offset_group.name, in_kafka) == {}
    assert "give --store both" in reset(EARLIEST, store=None).refusals[0]
    plan = reset(EARLIEST, store="both")
    assert [row.old for row in plan.groups[0].rows] == [7, 7], "a reader takes the greater"
    report = write(plan)
    assert (report.faults, offset_group.offsets(topic)) == ([], {0: 0, 1: 0})
    stored = cluster.committed(offset_group.name, list(in_kafka))
    assert {partition: one.offset for partition, one in stored.items()} == dict.fromkeys(in_kafka, 0)


def test_offsets_in_kafka_alone_are_reset_there(offset_group, topic, reset, write, cluster):
    partition = TopicPartition(topic, 0)
    assert cluster.commit(offset_group.name, {partition: StoredOffset(7, "theirs")}) == {}
    report = write(reset(ResetSpec("shift", -3), {topic: (0,)}, store=None))
    assert (report.faults, report.written) == ([], [f"{partition} of group {offset_group.name} in Kafka"])
    assert cluster.committed(offset_group.name, [partition])[partition].offset == 4
    assert offset_group.tree() == {}
    report = write(reset(EARLIEST, store=None))
    names = [f"{topic}-{number} of group {offset_group.name} in Kafka" for number in range(2)]
    assert (report.faults, report.written) == ([], names)


@pytest.fixture
def only_in_kafka(topic_factory, produce, offset_group, topic, cluster):
    """A group with offset 4 of one topic in ZooKeeper, and 1 of another one in Kafka; returns that partition."""
    offset_group.store(topic, {0: 4})
    partition = TopicPartition(topic_factory(partitions=1), 0)
    produce(partition.topic, [b"v"] * 3)
    assert cluster.commit(offset_group.name, {partition: StoredOffset(1, "theirs")}) == {}
    return partition


def test_topics_that_only_kafka_has_are_reset(offset_group, topic, only_in_kafka, reset, write, restore, cluster):
    before = offset_group.tree()
    for topics in (None, {topic: None}):
        assert "give --store both" in reset(LATEST, topics, store=None).refusals[0]
    plan = reset(LATEST, store="both")
    assert {row.partition: (row.old, row.new) for row in plan.groups[0].rows} == {
        TopicPartition(topic, 0): (4, 10),
        TopicPartition(topic, 1): (None, 10),
        only_in_kafka: (1, 3),
    }
    done = write(plan)
    assert (done.faults, offset_group.offsets(topic)) == ([], {0: 10, 1: 10})
    assert offset_group.offsets(only_in_kafka.topic) == {0: 3}
    assert {p: one.offset for p, one in cluster.committed_all(offset_group.name).items()} == {
        TopicPartition(topic, 0): 10,
        TopicPartition(topic, 1): 10,
        only_in_kafka: 3,
    }
    assert write(restore(done)).faults == []
    assert offset_group.tree() == before
    assert cluster.committed_all(offset_group.name) == {only_in_kafka: StoredOffset(1, "theirs")}


def test_an_import_is_refused_where_kafka_has_another_topic(offset_group, topic, only_in_kafka, tool_session, cluster):
    file = parse_offsets("f", f"{topic},0,3\n".encode(), offset_group.name)
    assert "give --store both" in plan_import(tool_session, cluster, file).refusals[0]
    assert plan_import(tool_session, cluster, file, store="zookeeper").refusals == ()


def test_a_deletion_finds_topics_that_only_kafka_has(
    offset_group, topic, only_in_kafka, tool_session, cluster, write, restore
):
    name, other, before = offset_group.name, only_in_kafka.topic, offset_group.tree()
    assert "Kafka stores offsets" in plan_delete(tool_session, cluster, [name], None).refusals[0]
    done = write(plan_delete(tool_session, cluster, [], other, store="both"))
    assert (done.faults, done.written) == ([], [f"{only_in_kafka} of group {name} in Kafka"])
    assert write(restore(done)).faults == []
    one = write(plan_delete(tool_session, cluster, [name], topic))
    assert one.faults == []
    assert offset_group.path() in offset_group.tree(), "Kafka has offsets of another topic, so the group stays"
    assert write(restore(one)).faults == []
    assert offset_group.tree() == before
    done = write(plan_delete(tool_session, cluster, [name], None, store="both"))
    assert (done.faults, done.warnings, offset_group.tree(), cluster.committed_all(name)) == ([], [], {}, {})


def test_offsets_in_kafka_of_a_running_group_can_be_deleted(
    offset_group, topic, only_in_kafka, tool_session, cluster, write
):
    """Before a group in ZooKeeper begins to commit to both: the greater offset would count there."""
    name = offset_group.name
    offset_group.register("g_live-member")
    owner = offset_group.path("owners", topic, 0)
    offset_group.client.create(owner, b"g_live-member-0", ephemeral=True, makepath=True)
    before = offset_group.tree()
    assert "g_live-member" in plan_delete(tool_session, cluster, [name], None, store="kafka").refusals[0]
    report = write(plan_delete(tool_session, cluster, [name], None, store="kafka", live=True))
    assert (report.faults, report.written) == ([], [f"{only_in_kafka} of group {name} in Kafka"])
    assert (offset_group.tree(), cluster.committed_all(name)) == (before, {})


# -- compare and set --------------------------------------------------------------------------------------------------


def test_a_foreign_write_stops_the_transaction_and_is_named(offset_group, topic, reset, write):
    offset_group.store(topic, {0: 4, 1: 4})
    plan = reset(LATEST)
    offset_group.client.set(offset_group.path("offsets", topic, 1), b"5")
    report = write(plan)
    assert offset_group.offsets(topic) == {0: 4, 1: 5}
    assert (
        f"{offset_group.path('offsets', topic, 1)} was not written: another client has written it" in report.faults[0]
    )
    assert (report.written, len(report.not_written)) == ([], 2)


def test_a_write_right_after_ours_is_found_before_release(
    offset_group, topic, reset, write, tool_session, other_client
):
    offset_group.store(topic, {0: 4, 1: 4})
    path = offset_group.path("offsets", topic, 0)

    def commit_of_a_member_whose_session_has_expired(changes):
        if any(map(is_offset, changes)):
            other_client.set(path, b"3")
            tool_session.after = lambda _: None

    tool_session.after = commit_of_a_member_whose_session_has_expired
    report = write(reset(LATEST))
    assert (report.faults, offset_group.offsets(topic)) == ([], {0: 10, 1: 10})
    assert f"{path} was written by another client right after" in report.warnings[-1]


def test_an_attempt_that_read_an_overwritten_offset_fails(
    offset_group, topic, reset, write, tool_session, other_client
):
    """A JVM member reads offsets, and claims within a second; here it reads those that it has written itself."""
    offset_group.store(topic, {0: 4, 1: 4})
    path, owner = offset_group.path("offsets", topic, 0), offset_group.path("owners", topic, 0)
    offset_group.client.ensure_path(offset_group.path("owners", topic))
    outcomes, attempts = [], []

    def attempt(deadline):
        while time.monotonic() < deadline:
            try:
                other_client.create(owner, b"g_member-0", ephemeral=True)
                outcomes.append("claimed")
                return
            except (NodeExistsError, NoNodeError):
                time.sleep(0.005)  # there is no event to wait for: it must not come
        outcomes.append("failed")

    def member_commits_and_reads(changes):
        if any(map(is_offset, changes)):
            offset_group.register("g_member")
            other_client.set(path, b"3")
            tool_session.after, tool_session.before = (lambda _: None), member_begins_an_attempt

    def member_begins_an_attempt(changes):
        if any(map(is_offset, changes)):
            assert other_client.get(path)[0] == b"3"
            # From here on: a thread that the machine runs late would try after the hold.
            attempts.append(threading.Thread(target=attempt, args=[time.monotonic() + 0.5]))
            attempts[0].start()
            tool_session.before = lambda _: None

    tool_session.after = member_commits_and_reads
    report = write(reset(LATEST))
    attempts[0].join()
    assert (report.faults, outcomes) == ([], ["failed"])
    assert offset_group.offsets(topic) == {0: 10, 1: 10}


def test_a_hold_that_lasts_too_long_ends_the_write(offset_group, topic, reset, write, tool_session, monkeypatch):
    monkeypatch.setattr("zkconsumer.operate.offsets.grouphold.LONGEST_S", LONGEST_S)
    offset_group.store(topic, {0: 4, 1: 4})
    now = [0.0]
    tool_session.after = lambda changes: now.__setitem__(0, now[0] + 5)  # the claims took five seconds
    report = write(reset(LATEST), clock=lambda: now[0])
    assert "lasted 4 s" in report.faults[0]
    assert offset_group.offsets(topic) == {0: 4, 1: 4}
    now[0] = 0.0
    assert write(reset(LATEST), long_hold=True, clock=lambda: now[0]).faults == []


def test_a_session_that_ends_in_the_hold_writes_nothing(offset_group, topic, reset, write, tool_session):
    offset_group.store(topic, {0: 4, 1: 4})

    def end_session(changes):
        if any(map(is_offset, changes)):
            tool_session.before = lambda _: None
            (hold,) = offset_group.client.get_children(offset_group.path("zkconsumer"))
            expire(tool_session)
            eventually(lambda: hold not in offset_group.client.get_children(offset_group.path("zkconsumer")))
            eventually(lambda: tool_session.connected)

    tool_session.before = end_session
    report = write(reset(LATEST))
    assert len(report.faults) >= 1
    assert offset_group.offsets(topic) == {0: 4, 1: 4}


# -- restore ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def restore(tool_session, cluster):
    def plan(report, **more):
        return plan_restore(tool_session, cluster, read_snapshot(report.snapshot), **more)

    return plan


def test_a_write_is_undone(offset_group, topic, reset, write, restore):
    offset_group.store(topic, {0: 4})
    before = offset_group.tree()
    done = write(reset(LATEST))
    undone = write(restore(done))
    assert (undone.faults, offset_group.tree()) == ([], before)
    assert write(restore(done)).snapshot is None, "undoing is idempotent"
    assert write(restore(undone)).faults == []
    assert offset_group.offsets(topic) == {0: 10, 1: 10}, "what was undone can be done again"


def test_what_others_wrote_since_is_not_overwritten_silently(offset_group, topic, reset, write, restore):
    offset_group.store(topic, {0: 4, 1: 4})
    done = write(reset(LATEST))
    offset_group.client.set(offset_group.path("offsets", topic, 0), b"12")
    assert offset_group.path("offsets", topic, 0) in restore(done).refusals[0]
    assert write(restore(done, overwrite=True)).faults == []
    assert offset_group.offsets(topic) == {0: 4, 1: 4}


def test_a_deleted_group_comes_back_with_its_access(offset_group, topic, write, restore, tool_session, cluster):
    acl = [make_acl("world", "anyone", all=True), make_acl("digest", "someone:else", read=True)]
    offset_group.store(topic, {0: 4, 1: 5}, acl=acl)
    offset_group.client.ensure_path(offset_group.path("owners", topic))
    offset_group.client.ensure_path(offset_group.path("ids"))
    before = offset_group.tree()
    deleted = write(plan_delete(tool_session, cluster, [offset_group.name], None))
    assert (deleted.faults, deleted.warnings, offset_group.tree()) == ([], [], {})
    assert write(restore(deleted)).faults == []
    assert offset_group.tree() == before
    assert set(offset_group.client.get_acls(offset_group.path("offsets", topic, 0))[0]) == set(acl)


# -- import and copy --------------------------------------------------------------------------------------------------


def test_an_import_stores_what_a_file_has(offset_group, topic, tool_session, cluster, write):
    text = "".join(f"{offset_group.path('offsets', topic, number)}:{number + 3}\n" for number in range(2))
    plan = plan_import(tool_session, cluster, parse_offsets("f", text.encode()))
    assert write(plan).faults == []
    assert offset_group.offsets(topic) == {0: 3, 1: 4}


def test_an_import_is_refused_with_every_line_that_cannot_be(offset_group, topic, tool_session, cluster):
    text = f"{topic},0,3\n{topic},1,11\n{topic},2,1\nno-such-topic,0,1\n"
    with pytest.raises(FileRefused) as refused:
        plan_import(tool_session, cluster, parse_offsets("f", text.encode(), offset_group.name))
    assert [fault.line for fault in refused.value.faults] == [2, 3, 4]
    assert "outside its log, which has 0 to 10" in refused.value.faults[0].text


def test_an_import_skips_and_clamps_what_it_is_allowed_to(offset_group, topic, tool_session, cluster, write):
    other = f"{offset_group.name}-idle"
    rows = [(offset_group.name, topic, 0, 3), (offset_group.name, topic, 1, 11), (other, "no-such-topic", 0, 1)]
    file = parse_offsets("f", "".join(f"{g},{t},{p},{o}\n" for g, t, p, o in rows).encode())
    for allowed, refused in (({"skip_missing": True}, 2), ({"clamp": True}, 3)):
        with pytest.raises(FileRefused) as raised:
            plan_import(tool_session, cluster, file, **allowed)
        assert [fault.line for fault in raised.value.faults] == [refused]
    plan = plan_import(tool_session, cluster, file, skip_missing=True, clamp=True)
    assert plan.warnings == (
        f"line 2: offset 11 of {topic}-1 is outside its log, which has 0 to 10: 10 is stored instead",
        "line 3: topic no-such-topic does not exist: skipped",
        f"group {offset_group.name} does not exist, and is created",
    )
    assert write(plan).faults == []
    assert offset_group.offsets(topic) == {0: 3, 1: 10}
    assert offset_group.client.exists(f"/consumers/{other}") is None


def test_an_import_of_which_nothing_exists_is_refused(tool_session, cluster):
    file = parse_offsets("f", b"g,no-such-topic,0,1\n")
    with pytest.raises(FileRefused):
        plan_import(tool_session, cluster, file, skip_missing=True, clamp=True)


def test_a_copy_takes_the_partitions_that_are_named(offset_group, topic, tool_session, cluster, write):
    offset_group.store(topic, {0: 4, 1: 5})
    other = type(offset_group)(f"{offset_group.name}-b", offset_group.client)
    plan = plan_copy(tool_session, cluster, offset_group.name, other.name, {topic: (1,)})
    assert write(plan).faults == []
    assert other.offsets(topic) == {1: 5}
    with pytest.raises(ZkConsumerError, match="has no offset of"):
        plan_copy(tool_session, cluster, offset_group.name, other.name, {topic: (7,)})


# -- groups -----------------------------------------------------------------------------------------------------------


def test_one_topic_of_a_group_is_deleted(offset_group, topic, tool_session, cluster, write):
    offset_group.store(topic, {0: 4, 1: 5})
    offset_group.store("gone", {0: 1})
    offset_group.client.ensure_path(offset_group.path("owners", "gone"))
    assert write(plan_delete(tool_session, cluster, [offset_group.name], "gone")).faults == []
    assert offset_group.client.get_children(offset_group.path("offsets")) == [topic]
    assert offset_group.client.get_children(offset_group.path("owners")) == []
    assert write(plan_delete(tool_session, cluster, [], topic)).faults == []
    assert offset_group.tree() == {}, "the last topic goes with the group"


@pytest.fixture
def in_both_stores(offset_group, topic, cluster):
    """A group with offsets 4 and 5 in ZooKeeper, and 7 of the first partition in Kafka; returns that partition."""
    offset_group.store(topic, {0: 4, 1: 5})
    partition = TopicPartition(topic, 0)
    assert cluster.commit(offset_group.name, {partition: StoredOffset(7, "theirs")}) == {}
    return partition


def test_offsets_in_kafka_are_never_committed_by_a_deletion(offset_group, in_both_stores, tool_session, cluster, write):
    assert "Kafka stores offsets" in plan_delete(tool_session, cluster, [offset_group.name], None).refusals[0]
    assert write(plan_delete(tool_session, cluster, [offset_group.name], None, store="zookeeper")).faults == []
    assert offset_group.tree() == {}
    stored = cluster.committed(offset_group.name, [in_both_stores])
    assert stored == {in_both_stores: StoredOffset(7, "theirs")}


@pytest.mark.parametrize("store", ["kafka", "both"])
def test_offsets_in_kafka_are_deleted_and_restored(
    offset_group, in_both_stores, tool_session, cluster, write, restore, store
):
    name, before = offset_group.name, offset_group.tree()
    done = write(plan_delete(tool_session, cluster, [name], None, store=store))
    assert (done.faults, f"{in_both_stores} of group {name} in Kafka" in done.written) == ([], True)
    assert cluster.committed(name, [in_both_stores]) == {}, "no offset, which is not offset 0"
    assert offset_group.tree() == ({} if store == "both" else before)
    assert write(restore(done)).faults == []
    assert (offset_group.tree(), cluster.committed(name, [in_both_stores])[in_both_stores].offset) == (before, 7)
    assert write(restore(done, complete=True)).faults == []
    assert cluster.committed(name, [in_both_stores]) == {}


def test_a_first_commit_to_kafka_is_undone(offset_group, topic, reset, write, restore, cluster):
    partition = TopicPartition(topic, 0)
    done = write(reset(LATEST, {topic: (0,)}, store="kafka", create=True))
    assert cluster.committed(offset_group.name, [partition])[partition].offset == 10
    assert write(restore(done)).faults == []
    assert cluster.committed(offset_group.name, [partition]) == {}
    assert write(restore(done)).snapshot is None, "undoing is idempotent"


def test_a_rename_keeps_offsets_and_access(offset_group, topic, tool_session, cluster, write):
    acl = [make_acl("world", "anyone", all=True), make_acl("digest", "someone:else", read=True)]
    offset_group.store(topic, {0: 4, 1: 5}, acl=acl)
    other = type(offset_group)(f"{offset_group.name}-b", offset_group.client)
    report = write(plan_rename(tool_session, cluster, offset_group.name, other.name))
    assert (report.faults, offset_group.tree(), other.offsets(topic)) == ([], {}, {0: 4, 1: 5})
    assert set(other.client.get_acls(other.path("offsets", topic, 0))[0]) == set(acl)
    with pytest.raises(ZkConsumerError, match="does not exist"):
        plan_rename(tool_session, cluster, offset_group.name, other.name)


def test_only_groups_that_rest_are_cleaned(offset_group, topic, tool_session, write):
    offset_group.store(topic, {0: 4})
    live = type(offset_group)(f"{offset_group.name}-live", offset_group.client)
    live.store(topic, {0: 4})
    live.register("m")
    left = type(offset_group)(f"{offset_group.name}-left", offset_group.client)
    left.store(topic, {0: 4})
    left.register("m")
    left.client.delete(left.path("ids", "m"))
    match = f"{offset_group.name}.*"
    assert plan_clean(tool_session, 60_000, match).groups == ()
    later = int(time.time() * 1000) + 120_000
    plan = plan_clean(tool_session, 60_000, match, now_ms=lambda: later)
    assert [group.change.group for group in plan.groups if group.change.nodes] == [offset_group.name]
    (warning,) = [warning for warning in plan.warnings if "is kept" in warning]
    assert f"group {left.name} is kept: nothing was written for so long, but whether members came" in warning
    assert write(plan).faults == []
    assert (offset_group.tree(), live.offsets(topic)) == ({}, {0: 4})
    offset_group.store(topic, {0: 4})  # a later write of any group dates what happened before it
    plan = plan_clean(tool_session, 60_000, match, now_ms=lambda: later)
    assert {group.change.group for group in plan.groups if group.change.nodes} == {offset_group.name, left.name}
