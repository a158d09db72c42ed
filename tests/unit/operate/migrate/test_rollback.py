"""Rollbacks of migrations between a ZooKeeper and brokers in memory."""

import errno
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.groupsinmemory import log, session_in_memory
from tests.fixtures.migrationsinmemory import OFFSETS, PARTITIONS, TO_KAFKA, TO_ZOOKEEPER, Killed, Servers
from zkconsumer.errors import WriteRefused, ZkConsumerError, ZooKeeperUnavailable
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.migrate import rollback
from zkconsumer.operate.migrate.migrationmark import MarkedWrite
from zkconsumer.operate.offsets import grouphold as hold
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.restoreplan import plan_restore
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import SnapshotFile, partition_of, read_snapshot
from zkconsumer.zookeeper import fencedtransaction

FORMER = {PARTITIONS[0]: 3, PARTITIONS[1]: 5}


def at_target(servers):
    return servers.brokers.stored("g") if servers.plan.target.kind == "kafka" else servers.stored()


def begin(servers, ends, former=FORMER):
    """A plan whose target has offsets of two partitions."""
    if ends == TO_KAFKA:
        servers.brokers.store("g", former)
    else:
        servers.store(former)
    servers.begin(*ends)


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
@pytest.mark.parametrize("former", [FORMER, {}])
def test_a_rollback_restores_the_target(servers, ends, former):
    begin(servers, ends, former)
    znodes = servers.server.nodes.keys() - {"/consumers", "/consumers/g"}
    servers.run()
    assert at_target(servers) == OFFSETS
    assert servers.roll_back().faults == []
    assert at_target(servers) == former
    assert servers.server.nodes.keys() - {"/consumers", "/consumers/g"} == znodes, "parents are gone, too"


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(ends=st.sampled_from([TO_KAFKA, TO_ZOOKEEPER]), kill_at=st.integers(1, 9))
def test_a_run_that_was_killed_anywhere_is_undone(tmp_path_factory, ends, kill_at):
    servers = Servers(tmp_path_factory.mktemp("run"))
    begin(servers, ends)
    servers.run(kill_at)
    assert servers.roll_back().faults == []
    assert at_target(servers) == FORMER


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
def test_a_run_that_was_killed_and_resumed_is_undone(servers, ends, monkeypatch):
    """The second run finds offsets that the first has written, which are not those to restore."""
    monkeypatch.setattr(fencedtransaction, "MOST_OPERATIONS", 2)  # as many as in a commit
    begin(servers, ends)
    servers.run(3)  # after the first of three requests
    assert FORMER != at_target(servers) != OFFSETS
    assert servers.run().faults == []
    assert servers.roll_back().faults == []
    assert at_target(servers) == FORMER


def test_what_a_killed_rollback_has_left_of_its_hold_is_removed(servers):
    begin(servers, TO_ZOOKEEPER, {})
    servers.run()
    servers.write("/consumers/g/owners/t", b"")
    servers.write("/consumers/g/zkconsumer", b"")
    assert servers.roll_back().faults == []
    assert not any(path.startswith("/consumers/g") for path in servers.server.nodes)


def test_a_late_commit_during_a_rollback_is_set_again(servers, monkeypatch):
    """Otherwise each further command would take it for the progress of a consumer."""
    begin(servers, TO_ZOOKEEPER)
    servers.run()
    pending = [lambda: servers.store({PARTITIONS[0]: 50})]
    monkeypatch.setattr(hold.GroupHold, "outlast_attempts", lambda _hold: pending and pending.pop()())
    assert servers.roll_back().faults == []
    assert at_target(servers) == FORMER


def test_a_rollback_without_a_file_of_its_own_undoes_nothing(servers):
    begin(servers, TO_KAFKA)
    servers.run()
    servers.file.with_name("undo1").touch()
    with pytest.raises(FileExistsError):
        servers.roll_back()
    assert (at_target(servers), servers.state()) == (OFFSETS, WriteState.COMPLETE)


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
def test_a_rollback_that_is_killed_before_it_writes_closes_no_way(servers, ends, monkeypatch):
    """It waits for the hold, and the consumers of the target are kept instead."""

    def take(_hold):
        raise Killed

    begin(servers, ends)
    servers.run()
    monkeypatch.setattr(hold.GroupHold, "take", take)
    with pytest.raises(Killed):
        servers.roll_back()
    assert servers.state() is WriteState.COMPLETE


def test_a_rollback_that_may_have_written_is_under_way(servers, monkeypatch):
    def killed(*_arguments, **_options):
        raise Killed

    begin(servers, TO_KAFKA)
    servers.run()
    monkeypatch.setattr(servers.brokers, "commit", killed)
    with pytest.raises(Killed):
        servers.roll_back()
    assert (servers.state(), servers.mark()) == (WriteState.UNDOING, "undoing")


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
@pytest.mark.parametrize("fails", ["mark", "file"])
def test_a_rollback_that_cannot_record_its_end_reports_what_it_has_written(servers, ends, fails, monkeypatch):
    """1. Everything is written back; 2. ZooKeeper does not answer, or the disk is full; 3. it is repeated."""
    begin(servers, ends)
    servers.run()
    former = servers.mark()
    mark = SnapshotFile.mark

    def lost(*_):
        raise ZooKeeperUnavailable("no server answers")

    def full(file, state):
        if state is WriteState.UNDONE:
            raise OSError(errno.ENOSPC, "No space left on device")
        mark(file, state)

    with monkeypatch.context() as patch:
        if fails == "mark":
            patch.setattr(MarkedWrite, "settle", lost)
        else:
            patch.setattr(SnapshotFile, "mark", full)
        report = servers.roll_back()
    (fault,) = report.faults
    assert fault.startswith("all is written, and ")
    assert fault.endswith("; roll back again")
    state = WriteState.UNDONE if fails == "mark" else WriteState.UNDOING
    assert (at_target(servers), servers.state(), report.is_complete) == (FORMER, state, False)
    assert servers.mark() == ("undoing" if ends == TO_KAFKA else former)
    assert servers.roll_back().is_complete
    assert (servers.state(), servers.mark()) == (WriteState.UNDONE, None if ends == TO_KAFKA else former)


def test_offsets_that_a_rollback_commits_do_not_look_like_those_of_the_run(servers):
    """A query of Spark that has read the mark of the run would take them for the offset that it read."""
    begin(servers, TO_KAFKA)
    servers.run()
    mark = servers.brokers.groups["g"][PARTITIONS[0]].mark
    servers.roll_back()
    assert servers.brokers.groups["g"][PARTITIONS[0]].mark not in (mark, "")


def test_the_file_of_a_rollback_names_the_plan(servers):
    """Restored from it, the target would have the migrated offsets, and the plan's file would say undone."""
    begin(servers, TO_ZOOKEEPER)
    run = servers.run()
    servers.roll_back()
    written = read_snapshot(servers.file.with_name("undo0"))
    assert written.plan == read_snapshot(run.snapshot).plan is not None
    assert {change.path for group in written.groups for change in group.nodes} >= {"/consumers/g/offsets/t/0"}


def test_a_rollback_that_is_repeated_writes_nothing(servers):
    begin(servers, TO_KAFKA)
    servers.run()
    servers.roll_back()
    report = servers.roll_back()
    assert (report.written, report.faults) == ([], [])


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
def test_a_run_that_has_written_nothing_is_undone_all_the_same(servers, ends):
    """1. The run is killed before its first request; 2. it is rolled back; 3. old consumers continue."""
    begin(servers, ends)
    servers.run(kill_at=1)
    assert (at_target(servers), servers.state()) == (FORMER, WriteState.WRITING)
    assert servers.roll_back().faults == []
    assert servers.state() is WriteState.UNDONE


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
def test_a_former_offset_that_the_log_no_longer_has_is_restored(servers, ends):
    """It is what the target had, and the consumers of the source continue."""
    begin(servers, ends)
    servers.run()
    servers.brokers.logs[PARTITIONS[0]] = log(5, 100)
    assert servers.roll_back().faults == []
    assert at_target(servers) == FORMER


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
def test_a_plan_is_run_again_after_its_rollback(servers, ends):
    begin(servers, ends)
    servers.run()
    servers.roll_back()
    assert servers.state() is WriteState.UNDONE
    assert servers.run().faults == []
    assert servers.verified()


@pytest.mark.parametrize("former", [dict.fromkeys(PARTITIONS, 3), {}])
def test_a_rollback_has_as_many_requests_as_its_run(servers, former, monkeypatch):
    """Coordinators limit what is in one."""
    begin(servers, TO_KAFKA, former)
    servers.run()
    sizes = [len(partitions) for partitions, _ in servers.brokers.commits]
    delete, deleted = servers.brokers.delete, []
    monkeypatch.setattr(servers.brokers, "delete", lambda g, p, **how: deleted.append(len(p)) or delete(g, p, **how))
    assert servers.roll_back().faults == []
    undone = [len(partitions) for partitions, _ in servers.brokers.commits[len(sizes) :]]
    assert (sizes, undone, deleted) == (([2, 2, 1], [2, 2, 1], []) if former else ([2, 2, 1], [], [2, 2, 1]))


def test_a_rollback_holds_the_group_of_the_plan_in_zookeeper(servers):
    """The group in Kafka has another name, which a live group in ZooKeeper has, too."""
    servers.begin("zookeeper:g", "kafka:other")
    servers.run()
    servers.register("other")
    assert servers.roll_back().faults == []
    assert servers.brokers.stored("other") == {}
    assert servers.run().faults == []
    servers.register()
    with pytest.raises(WriteRefused, match="group g has 1 live member: g_member"):
        servers.roll_back()


def test_a_rollback_holds_no_group_if_the_plan_has_none_in_zookeeper(servers):
    """A group of the target's name lives in ZooKeeper, and has nothing to do with the offsets of the spout."""
    servers.begin("storm:/s/id", "kafka:g")
    servers.run()
    servers.register()
    before = servers.server.nodes.keys() | set()
    assert servers.roll_back().faults == []
    assert servers.brokers.stored("g") == {}
    assert servers.server.nodes.keys() == before


def test_a_snapshot_of_offsets_outside_of_zookeeper_is_restored_without_a_hold(servers):
    """As `offsets restore` does it, with the snapshot alone."""
    servers.begin("storm:/s/id", "kafka:g")
    servers.run()
    servers.register()
    snapshot = read_snapshot(servers.file.with_name("plan.snapshot.json"))
    with closing(session_in_memory(servers.server)) as session:
        undo = plan_restore(session, servers.brokers, snapshot)
        assert undo.refusals == ()
        assert execute(session, servers.brokers, undo, SnapshotFile(servers.file.with_name("undo"))).faults == []
        assert servers.brokers.stored("g") == {}
        servers.member.close()  # what it undoes is no migration, whose source the group is not
        again = plan_restore(session, servers.brokers, read_snapshot(servers.file.with_name("undo")))
        assert execute(session, servers.brokers, again, SnapshotFile(servers.file.with_name("redo"))).faults == []
    assert servers.brokers.stored("g") == OFFSETS


def test_members_in_kafka_refuse_offsets_that_no_hold_protects(servers):
    servers.begin("storm:/s/id", "kafka:g")
    servers.run()
    snapshot = read_snapshot(servers.file.with_name("plan.snapshot.json"))
    with closing(session_in_memory(servers.server)) as session:
        undo = plan_restore(session, servers.brokers, snapshot)
        servers.brokers.live.add("g")
        (reason,) = plan_restore(session, servers.brokers, snapshot).refusals
        assert "group g has members at the brokers" in reason
        assert len(execute(session, servers.brokers, undo, SnapshotFile(servers.file.with_name("undo"))).faults) == len(
            OFFSETS
        )
    assert servers.brokers.stored("g") == OFFSETS


def test_consumers_that_continued_refuse_the_rollback(servers):
    begin(servers, TO_KAFKA)
    servers.run()
    servers.brokers.store("g", {**OFFSETS, PARTITIONS[2]: 50})
    with pytest.raises(WriteRefused, match=r"t-2; consumers have continued .*migrate reverse"):
        servers.roll_back()
    assert servers.brokers.stored("g") == {**OFFSETS, PARTITIONS[2]: 50}


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
def test_consumers_that_continued_refuse_the_rollback_although_brokers_deny_the_topic(servers, ends):
    """Brokers delete the offsets of a topic with it; those that are there would be restored to what they were."""
    begin(servers, ends)
    servers.run()
    moved = {**OFFSETS, PARTITIONS[0]: 60}
    servers.brokers.store("g", moved) if ends == TO_KAFKA else servers.store(moved)
    logs, servers.brokers.logs = servers.brokers.logs, {}
    with pytest.raises(WriteRefused, match="have moved since the migration: t-0;"):
        servers.roll_back()
    servers.brokers.logs = logs
    assert at_target(servers) == moved


def test_a_deleted_topic_does_not_keep_a_way_back_from_being_rolled_back(servers):
    """Its znodes stay where its offsets in Kafka have gone."""
    begin(servers, TO_ZOOKEEPER)
    servers.run()
    logs, servers.brokers.logs = servers.brokers.logs, {}
    servers.brokers.store("g", {})
    servers.roll_back()
    servers.brokers.logs = logs
    assert at_target(servers) == FORMER


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
def test_consumers_that_continued_on_a_new_topic_refuse_the_rollback(servers, ends):
    """The source does not have its offset, so old consumers would begin there at ``largest``."""
    new = TopicPartition("new", 0)
    servers.brokers.logs[new] = log()
    begin(servers, ends)

    def store(offset):
        if ends == TO_ZOOKEEPER:
            servers.store({new: offset})
        else:
            servers.brokers.groups["g"][new] = StoredOffset(offset)

    store(7)
    servers.run()
    assert servers.roll_back().faults == [], "it was there before"
    assert servers.run().faults == []
    store(8)
    with pytest.raises(WriteRefused, match="have moved since the migration: new-0"):
        servers.roll_back()


def test_an_offset_that_is_written_in_another_way_has_not_moved(servers):
    begin(servers, TO_ZOOKEEPER)
    servers.run()
    servers.write("/consumers/g/offsets/t/0", b"%d\n" % OFFSETS[PARTITIONS[0]])
    assert servers.roll_back().faults == []
    assert at_target(servers) == FORMER


def test_members_at_the_target_refuse_the_rollback(servers):
    begin(servers, TO_KAFKA)
    servers.run()
    servers.brokers.live.add("g")
    with pytest.raises(WriteRefused, match="lives in Kafka"):
        servers.roll_back()
    assert servers.brokers.stored("g") == OFFSETS


def test_no_refusal_names_an_option_that_is_missing(servers):
    """Neither ``migrate run`` nor ``migrate rollback`` has ``--force-live``."""
    begin(servers, TO_ZOOKEEPER)
    for attempt in (lambda: servers.run(before_hold=servers.register), servers.run, servers.roll_back):
        with pytest.raises(WriteRefused, match="g_member") as refused:
            attempt()
        assert "--force-live" not in str(refused.value)


def test_a_plan_that_was_not_run_cannot_be_rolled_back(servers):
    begin(servers, TO_KAFKA)
    with pytest.raises(WriteRefused, match="was not run"):
        servers.roll_back()


def test_a_missing_snapshot_is_reported(servers):
    begin(servers, TO_KAFKA)
    servers.run()
    servers.file.with_name("plan.snapshot.json").unlink()
    with pytest.raises(WriteRefused, match="the file of its runs is missing"):
        servers.roll_back()


def test_the_snapshot_of_another_plan_is_refused(servers, tmp_path):
    begin(servers, TO_KAFKA)
    servers.run()
    (tmp_path / "other").mkdir()
    other = Servers(tmp_path / "other")
    other.begin(*TO_KAFKA, offsets=dict.fromkeys(PARTITIONS, 1))
    other.run()
    other.file.with_name("plan.snapshot.json").replace(servers.file.with_name("plan.snapshot.json"))
    with pytest.raises(ZkConsumerError, match="is of another plan"):
        servers.roll_back()
    assert servers.brokers.stored("g") == OFFSETS


def test_a_file_of_spark_cannot_be_rolled_back(servers, tmp_path):
    servers.begin("zookeeper:g", f"spark-options:{tmp_path / 'starting.json'}")
    servers.run()
    with pytest.raises(WriteRefused, match="former content is not kept"):
        servers.roll_back()


@pytest.mark.parametrize("kill_at", [None, 2, 4])
def test_a_rollback_removes_offsets_of_earlier_topics(servers, kill_at):
    """Written again, they would be newer than the topic that exists, and members would use them."""
    servers.store(FORMER)
    servers.create_topic_again()
    servers.begin(*TO_ZOOKEEPER)
    servers.run(kill_at)
    assert servers.roll_back().faults == []
    assert at_target(servers) == (FORMER if kill_at == 2 else {}), "what the run has not written stays"
    assert servers.roll_back().faults == [], "as after a rollback whose file was not written"
    assert servers.run().faults == []
    assert at_target(servers) == OFFSETS
    (change,) = read_snapshot(servers.file.with_name("plan.snapshot.json")).groups
    offsets = [node for node in change.nodes if partition_of(node.path)]
    assert [node.path for node in offsets if node.after.access is None] == [], "members would be locked out"


def test_a_rollback_is_repeated_after_the_topic_was_created_again(servers):
    """Since the run: the rollback then removes what the plan knows as offsets of the topic that existed."""
    begin(servers, TO_ZOOKEEPER)
    servers.run()
    servers.create_topic_again()
    assert servers.roll_back().faults == []
    assert servers.roll_back().faults == []
    assert at_target(servers) == {}


def test_a_run_that_follows_a_rollback_of_such_offsets_and_is_killed_is_undone(servers):
    """It was killed before its first write, so the znodes are still missing."""
    servers.store(FORMER)
    servers.create_topic_again()
    servers.begin(*TO_ZOOKEEPER)
    servers.run()
    servers.roll_back()
    servers.run(kill_at=2)
    assert servers.roll_back().faults == []
    assert at_target(servers) == {}


@pytest.mark.parametrize("is_named", [False, True], ids=["may be a copy of the source's", "its mark names the topic"])
@pytest.mark.parametrize(
    ("was_killed", "undo"), [(False, False), (True, False), (True, True)], ids=["run", "killed, run", "killed, undone"]
)
def test_an_offset_in_kafka_of_an_earlier_topic_that_has_expired_is_none_of_others(servers, was_killed, is_named, undo):
    """1. A migration is planned; 2. a run of it is killed before its first write; 3. the former offset expires."""
    servers.brokers.groups["g"] = {PARTITIONS[0]: StoredOffset(3, "zkconsumer:x:old" if is_named else "")}
    if is_named:
        servers.write("/brokers/topics/t", b'{"version":3,"topic_id":"new","partitions":{"0":[0]}}')
    else:
        servers.store(OFFSETS)
        servers.create_topic_again()
    servers.begin(*TO_KAFKA, OFFSETS if is_named else {}, missing="earliest")
    if was_killed:
        servers.run(kill_at=2)
    servers.brokers.groups["g"].clear()
    if undo:
        assert servers.roll_back().faults == []
        assert at_target(servers) == {PARTITIONS[0]: 3}
    else:
        assert servers.run().faults == []
        assert at_target(servers) == (OFFSETS if is_named else dict.fromkeys(OFFSETS, 0))


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
def test_what_a_consumer_commits_while_a_rollback_is_planned_is_not_undone(servers, ends, monkeypatch):
    begin(servers, ends)
    servers.run()
    plan = rollback.plan_restore

    def plan_late(*arguments, **options):
        if ends == TO_KAFKA:
            servers.brokers.groups["g"][PARTITIONS[0]] = StoredOffset(50, "")
        else:
            servers.store({PARTITIONS[0]: 50})
        return plan(*arguments, **options)

    monkeypatch.setattr(rollback, "plan_restore", plan_late)
    with pytest.raises(WriteRefused, match="have moved since the migration: t-0"):
        servers.roll_back()


# -- under the hold ---------------------------------------------------------------------------------------------------


def commit(servers, offsets):
    """Consumers of the target have come to these offsets."""
    now = {**at_target(servers), **offsets}
    servers.brokers.store("g", now) if servers.plan.target.kind == "kafka" else servers.store(now)


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
@pytest.mark.parametrize("former", [{**OFFSETS, PARTITIONS[0]: 3}, OFFSETS], ids=["one to write", "nothing to write"])
def test_a_commit_before_the_hold_refuses_the_rollback_as_a_whole(servers, ends, former):
    """A consumer commits a partition that is not written, and ends; it may have read records of others, too."""
    begin(servers, ends, former)
    servers.run()
    before = (servers.mark(), WriteState.COMPLETE)
    with pytest.raises(WriteRefused, match="have moved since the migration: t-1; consumers have continued"):
        servers.roll_back(before_hold=lambda: commit(servers, {PARTITIONS[1]: 60}))
    assert at_target(servers) == {**OFFSETS, PARTITIONS[1]: 60}
    assert (servers.mark(), servers.state()) == before


@pytest.mark.parametrize("former", [FORMER, OFFSETS], ids=["some to write", "nothing to write"])
def test_consumers_in_kafka_that_join_before_the_hold_refuse_the_rollback(servers, former):
    """Old consumers are started after it, and both would read the same records."""
    begin(servers, TO_KAFKA, former)
    servers.run()
    with pytest.raises(WriteRefused, match="group g lives in Kafka"):
        servers.roll_back(before_hold=lambda: servers.brokers.live.add("g"))
    assert (servers.brokers.stored("g"), servers.mark(), servers.state()) == (OFFSETS, "migrated", WriteState.COMPLETE)


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
def test_a_rollback_that_has_nothing_to_write_holds_the_group(servers, ends):
    begin(servers, ends, OFFSETS)
    servers.run()
    with pytest.raises(WriteRefused, match="g_member"):
        servers.roll_back(before_hold=servers.register)
    assert servers.state() is WriteState.COMPLETE
    servers.member.close()
    report = servers.roll_back()
    assert (report.written, report.faults, report.is_complete) == ([], [], True)
    assert (servers.mark(), servers.state(), servers.left_over()) == (None, WriteState.UNDONE, ["/consumers/g/ids"])


def test_a_commit_during_a_rollback_is_reported(servers):
    """Of a partition that the rollback does not write, after the offsets were read under the hold."""
    begin(servers, TO_KAFKA, {**OFFSETS, PARTITIONS[0]: 3})
    servers.run()
    servers.brokers.before_commit = lambda _group: commit(servers, {PARTITIONS[1]: 60})
    (fault,) = servers.roll_back().faults
    assert "have moved since the migration: t-1" in fault
    assert (servers.mark(), servers.state()) == ("undoing", WriteState.UNDOING)
