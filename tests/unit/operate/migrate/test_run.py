"""Runs of migrations between a ZooKeeper and brokers in memory, ended at every point."""

import errno
import fcntl
import json
import os
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.kazooinmemory import Loss
from tests.fixtures.migrationsinmemory import OFFSETS, PARTITIONS, SPOUT, TO_KAFKA, TO_ZOOKEEPER, Servers
from zkconsumer.errors import WriteRefused, ZkConsumerError, ZooKeeperUnavailable
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, topic_id_of
from zkconsumer.operate.migrate import run as migrationrun
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.rules.migrationplan import make_plan
from zkconsumer.operate.migrate.rules.planfile import encode_plan
from zkconsumer.operate.offsets import grouphold as hold
from zkconsumer.operate.offsets import patience, wholefiles
from zkconsumer.operate.offsets.grouphold import GroupHold
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import read_snapshot, snapshot_of_plan
from zkconsumer.operate.offsets.wholefiles import write_whole


@pytest.fixture
def soon_lost(monkeypatch):
    """A session that was lost does not come back, so it is not waited for."""
    monkeypatch.setattr(patience, "_RECONNECT_S", 0.5)


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER, ("storm:/s/id", "kafka:g"), ("storm:/s/id", "zookeeper:g")])
def test_a_run_makes_both_ends_equal(servers, ends):
    servers.begin(*ends)
    assert servers.plan.refusals == ()
    report = servers.run()
    assert (report.faults, sorted(report.written), report.found) == ([], PARTITIONS, [])
    assert servers.verified()
    assert servers.left_over() == []
    assert servers.state() is WriteState.COMPLETE


@pytest.mark.parametrize("between", ["", "./"])
def test_offsets_become_a_file_of_spark(servers, tmp_path, between):
    file = tmp_path / "starting.json"
    servers.begin("zookeeper:g", f"spark-options:{tmp_path}/{between}starting.json")
    report = servers.run()
    assert (report.faults, report.snapshot, report.written) == ([], None, PARTITIONS)
    assert json.loads(file.read_text()) == {"t": {str(p.partition): OFFSETS[p] for p in PARTITIONS}}
    assert servers.left_over() == []


def test_the_snapshot_has_what_was_there_before(servers):
    servers.brokers.store("g", {PARTITIONS[0]: 3})
    servers.begin(*TO_KAFKA)
    (change,) = read_snapshot(servers.run().snapshot).groups
    assert (change.group, change.nodes) == ("g", ())
    assert [(one.before, one.after) for one in change.kafka] == [
        (3, 10),
        (None, 11),
        (None, 12),
        (None, 13),
        (None, 14),
    ]


def test_no_file_is_written_after_a_hold_that_lasted_too_long(servers, tmp_path, monkeypatch):
    file = tmp_path / "starting.json"
    servers.begin("zookeeper:g", f"spark-options:{file}")
    monkeypatch.setattr(hold, "LONGEST_S", -1.0)
    report = servers.run()
    assert "run the plan again with --long-hold" in report.faults[0]
    assert (file.exists(), report.written, servers.state()) == (False, [], None)


@pytest.mark.parametrize("there", [3, 5])
def test_equal_offsets_are_committed_for_the_retention_of_the_plan(servers, there):
    """Kafka has them from an earlier plan or from dual commit, and would keep them for their own retention only."""
    servers.brokers.store("g", {partition: OFFSETS[partition] for partition in PARTITIONS[:there]})
    servers.begin(*TO_KAFKA, retention_ms=1000)
    assert servers.run().faults == []
    each = [(PARTITIONS[:2], 1000), (PARTITIONS[2:4], 1000), (PARTITIONS[4:], 1000)]
    assert servers.brokers.commits == each
    again = servers.run()
    assert (again.found, servers.brokers.commits) == (PARTITIONS, each), "this run has ended, and is not repeated"


def test_the_metadata_of_other_clients_and_the_ids_of_topics_are_kept(servers):
    foreign, ours, without = PARTITIONS[:3]
    marks = {foreign: "theirs", ours: "zkconsumer:12ab:XnPq", without: ""}
    servers.brokers.groups["g"] = {partition: StoredOffset(3, mark) for partition, mark in marks.items()}

    def stored():
        return {p: str(one.mark) for p, one in servers.brokers.groups["g"].items()}

    servers.begin(*TO_KAFKA)
    servers.run()
    assert (stored()[foreign], topic_id_of(stored()[ours])) == ("theirs", "XnPq")
    assert stored()[ours] != marks[ours]
    assert all(stored()[p].startswith("zkconsumer:migrate-") for p in PARTITIONS[1:])
    servers.roll_back()
    assert (stored()[foreign], topic_id_of(stored()[ours])) == ("theirs", "XnPq")


# -- ended anywhere ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
@pytest.mark.parametrize("kill_at", range(10))
def test_a_run_that_is_killed_at_any_line_is_resumed(servers, ends, kill_at):
    servers.begin(*ends)
    first = servers.run(kill_at)
    for found in (servers.stored(), servers.brokers.stored("g")):
        assert found.items() <= OFFSETS.items(), "no partition has another offset than before or planned"
    report = servers.run()
    assert report.faults == []
    assert len(report.written) + len(report.found) == len(PARTITIONS)
    assert servers.verified()
    # What a killed hold had created stays, empty.
    assert servers.left_over() in ([], [f"/consumers/g/{name}" for name in ("owners", "owners/t")])
    assert first is None or kill_at > 5


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(ends=st.sampled_from([TO_KAFKA, TO_ZOOKEEPER]), kills=st.lists(st.integers(0, 9), max_size=4))
def test_a_run_may_be_killed_again_and_again(tmp_path_factory, ends, kills):
    servers = Servers(tmp_path_factory.mktemp("run"))
    servers.begin(*ends)
    for kill_at in kills:
        servers.run(kill_at)
    assert servers.run().faults == []
    assert servers.verified()


def test_a_run_that_was_killed_after_its_last_write_is_completed(servers):
    """Otherwise the way back would be refused: no run of the plan would have ended."""
    servers.begin(*TO_ZOOKEEPER)
    servers.run(4)  # before the file is marked
    assert (servers.verified(), servers.state()) == (True, WriteState.WRITING)
    assert servers.run().found == PARTITIONS
    assert servers.state() is WriteState.COMPLETE


def test_a_run_that_finds_everything_written_is_complete(servers):
    """A way back after a mirror: the znodes have all offsets, and the group came back all the same."""
    servers.store(OFFSETS)
    servers.begin(*TO_ZOOKEEPER)
    assert servers.run().found == PARTITIONS
    assert servers.state() is WriteState.COMPLETE
    assert (servers.run().found, servers.state()) == (PARTITIONS, WriteState.COMPLETE)


def test_a_commit_without_an_answer_is_found_by_the_next_run(servers):
    servers.begin(*TO_KAFKA)
    servers.brokers.loses_answer = True
    report = servers.run()
    assert "run the plan again" in report.faults[0]
    assert report.written == PARTITIONS[:2], "the first request, whose effect is read"
    servers.brokers.loses_answer = False
    again = servers.run()
    assert (again.faults, again.found, again.written) == ([], [], PARTITIONS)


def test_an_equal_offset_shows_nothing_of_a_commit_without_an_answer(servers):
    servers.brokers.store("g", {PARTITIONS[0]: OFFSETS[PARTITIONS[0]]})
    servers.begin(*TO_KAFKA)
    servers.brokers.loses_answer = True
    assert servers.run().written == PARTITIONS[1:2]


@pytest.mark.usefixtures("soon_lost")
@pytest.mark.parametrize("request_lost", [True, False])
@pytest.mark.parametrize("reconnects", [True, False])
def test_a_transaction_without_an_answer_is_found_by_the_next_run(servers, request_lost, reconnects):
    servers.begin(*TO_ZOOKEEPER)
    report = servers.run(loses=Loss(0, request_lost, "/consumers/g/offsets", reconnects))
    assert "run the plan again" in report.faults[0]
    assert report.written == (PARTITIONS if reconnects and not request_lost else [])
    again = servers.run()
    assert (again.faults, again.found) == ([], [] if request_lost else PARTITIONS)
    assert servers.verified()


@pytest.mark.usefixtures("soon_lost")
@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
def test_a_session_that_expires_in_the_hold_leaves_a_run_to_resume(servers, ends):
    servers.begin(*ends)
    source = dict(servers.stored())
    report = servers.run(expires=True)
    assert report.faults != []
    assert (servers.stored(), servers.brokers.commits) == (source, []), "nothing is written without the hold"
    again = servers.run()
    assert again.faults == []
    assert servers.verified()


def test_another_clients_write_after_a_kill_is_refused(servers):
    servers.begin(*TO_KAFKA)
    servers.run(1)  # before the first commit
    servers.brokers.store("g", {PARTITIONS[3]: 99})
    with pytest.raises(WriteRefused, match="another client has written"):
        servers.run()
    assert servers.brokers.stored("g") == {PARTITIONS[3]: 99}


@pytest.mark.parametrize("ends", [TO_KAFKA, TO_ZOOKEEPER])
def test_a_run_whose_consumers_have_continued_after_a_kill_is_completed(servers, ends):
    """1. It has written everything; 2. it is killed before its file shows that; 3. consumers commit, and end."""
    servers.begin(*ends)
    servers.run(8 if ends == TO_KAFKA else 4)
    later = {**OFFSETS, PARTITIONS[1]: 50}
    servers.brokers.store("g", later) if ends == TO_KAFKA else servers.store(later)
    assert servers.state() is WriteState.WRITING
    report = servers.run()
    assert (report.found, report.faults, report.is_complete) == (PARTITIONS, [], True)
    assert "have committed beyond the plan since: t-1; nothing is written" in report.warnings[0]
    assert (servers.brokers.stored("g") if ends == TO_KAFKA else servers.stored()) == later
    assert (servers.state(), servers.mark()) == (WriteState.COMPLETE, "migrated" if ends == TO_KAFKA else None)


def test_a_source_that_moved_after_a_kill_is_refused(servers):
    servers.begin(*TO_KAFKA)
    servers.run(2)
    with closing(session_in_memory(servers.server)) as session:
        session._client.set("/consumers/g/offsets/t/0", b"11")
    with pytest.raises(WriteRefused, match="have moved"):
        servers.run()


def test_an_offset_names_the_topic_that_it_is_of(servers):
    """Members would ignore what is written with the id of an earlier topic, which Kafka's former offset names."""

    def topic():
        return topic_id_of(servers.brokers.groups["g"][PARTITIONS[0]].mark)

    servers.write("/brokers/topics/t", b'{"version":3,"topic_id":"new","partitions":{"0":[0]}}')
    servers.brokers.groups["g"] = {PARTITIONS[0]: StoredOffset(3, "zkconsumer:x:old")}
    servers.begin(*TO_KAFKA)
    servers.run()
    assert (servers.brokers.stored("g"), topic()) == (OFFSETS, "new")
    servers.roll_back()
    assert (servers.brokers.stored("g"), topic()) == ({PARTITIONS[0]: 3}, "old")


# -- other clients at the target --------------------------------------------------------------------------------------


def test_a_commit_at_the_target_before_the_hold_is_not_overwritten(servers, monkeypatch):
    """A member of the group in ZooKeeper commits after the guards were checked, and ends."""
    servers.store({PARTITIONS[1]: 3})
    servers.begin(*TO_ZOOKEEPER)
    changes = migrationrun._changes

    def late(ends, plan):
        servers.store({PARTITIONS[1]: 15})
        return changes(ends, plan)

    monkeypatch.setattr(migrationrun, "_changes", late)
    with pytest.raises(WriteRefused, match="have moved since they were checked: t-1 in zookeeper:g"):
        servers.run()
    assert (servers.stored(), servers.state()) == ({PARTITIONS[1]: 15}, None)


def test_a_run_whose_rest_a_mirror_writes_meanwhile_is_recorded_as_complete(servers, monkeypatch):
    """1. A run finds what is left; 2. the mirror of the way there copies just that; 3. the run has nothing to write."""
    servers.store({p: OFFSETS[p] for p in PARTITIONS[1:]})
    servers.begin(*TO_ZOOKEEPER)
    recheck = migrationrun._recheck

    def late(*arguments):
        check = recheck(*arguments)
        assert check.todo
        servers.store(OFFSETS)
        return check

    monkeypatch.setattr(migrationrun, "_recheck", late)
    report = servers.run()
    assert (report.is_complete, report.faults, report.found, servers.state()) == (
        True,
        [],
        PARTITIONS,
        WriteState.COMPLETE,
    )
    monkeypatch.undo()
    assert servers.run().is_complete, "it can be repeated"


@pytest.mark.parametrize("moves", ["target", "source", "member", "consumer"])
def test_a_run_that_has_nothing_to_write_holds_the_group(servers, moves):
    """A way back after a mirror: all znodes have the offsets, and a client begins after the guards were checked."""
    servers.store(OFFSETS)
    servers.begin(*TO_ZOOKEEPER)
    later = {**OFFSETS, PARTITIONS[0]: 11}
    move, reason = {
        "target": (lambda: servers.store(later), "have moved since they were checked: t-0 in zookeeper:g"),
        "source": (lambda: servers.brokers.store("g", later), "have moved since they were checked: t-0 in kafka:g"),
        "member": (servers.register, "g_member"),
        "consumer": (lambda: servers.brokers.live.add("g"), "consumers of kafka:g were started"),
    }[moves]
    with pytest.raises(WriteRefused, match=reason):
        servers.run(before_hold=move)
    assert servers.state() is None


def test_a_member_that_registers_while_nothing_is_written_is_reported(servers, monkeypatch):
    """It has read the records of a file of Spark that has the offsets already."""
    file = servers.file.with_name("starting.json")
    file.write_text(json.dumps({"t": {str(p.partition): OFFSETS[p] for p in PARTITIONS}}))
    servers.begin("zookeeper:g", f"spark-options:{file}")
    refused = hold.GroupHold.refuse_members

    def late(taken):
        refused(taken)
        servers.register()

    monkeypatch.setattr(hold.GroupHold, "refuse_members", late)
    report = servers.run()
    assert "consumers of zookeeper:g were started during the migration (g_member)" in report.faults[0]
    assert (report.is_complete, servers.state()) == (False, None)


def test_a_partition_that_need_not_be_written_is_looked_at_under_the_hold(servers):
    servers.store({PARTITIONS[0]: OFFSETS[PARTITIONS[0]]})
    servers.begin(*TO_ZOOKEEPER)
    with pytest.raises(WriteRefused, match="t-0 in zookeeper:g"):
        servers.run(before_hold=lambda: servers.store({PARTITIONS[0]: 11}))
    assert (servers.stored(), servers.state()) == ({PARTITIONS[0]: 11}, None)


def test_a_partition_that_was_not_written_is_read_back(servers, monkeypatch):
    servers.store({PARTITIONS[0]: OFFSETS[PARTITIONS[0]]})
    servers.begin(*TO_ZOOKEEPER)
    monkeypatch.setattr(hold.GroupHold, "outlast_attempts", lambda _hold: servers.store({PARTITIONS[0]: 11}))
    (fault,) = servers.run().faults
    assert fault.startswith("another client wrote during the migration: t-0 in zookeeper:g")
    assert servers.state() is WriteState.WRITING


def test_a_group_node_that_a_member_created_does_not_refuse_a_repetition(servers):
    servers.begin(*TO_ZOOKEEPER)
    servers.run()
    servers.roll_back()
    servers.write("/consumers/g", b"")
    assert servers.run().faults == []
    assert servers.verified()


def test_a_run_completes_what_a_killed_rollback_left_as_it_was(servers):
    """1. A rollback is killed; 2. another one is refused under the hold, and knows no more; 3. the plan is run."""
    servers.begin(*TO_ZOOKEEPER)
    servers.run()
    snapshot_of_plan(servers.plan, servers.file).mark(WriteState.UNDOING)
    with pytest.raises(WriteRefused, match="g_member"):
        servers.roll_back(before_hold=servers.register)
    servers.member.close()
    assert servers.state() is WriteState.UNDOING
    assert servers.run().found == PARTITIONS
    assert servers.state() is WriteState.COMPLETE


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_group_with_members_in_kafka_is_refused(servers):
    servers.begin(*TO_KAFKA)
    servers.brokers.live.add("g")
    with pytest.raises(WriteRefused, match="lives in Kafka"):
        servers.run()
    assert servers.state() is None


def test_a_coordinator_that_refuses_a_commit_is_reported(servers):
    """New consumers start after the guards were checked."""
    servers.begin(*TO_KAFKA)
    servers.brokers.before_commit = servers.brokers.live.add
    report = servers.run()
    assert "UNKNOWN_MEMBER_ID" in report.faults[0]
    assert (report.written, servers.brokers.groups) == ([], {})
    assert (report.snapshot, servers.state(), servers.left_over()) == (None, None, [])


def test_consumers_that_began_before_a_run_that_wrote_nothing_are_not_taken_for_migrated_ones(servers):
    """1. A consumer joins, so all commits are refused; 2. it begins at the end of the logs, and is stopped as asked."""
    servers.begin(*TO_KAFKA)
    servers.brokers.before_commit = servers.brokers.live.add
    servers.run()
    servers.brokers.before_commit = lambda _group: None
    servers.brokers.live.clear()
    servers.brokers.store("g", dict.fromkeys(PARTITIONS, 100))
    with pytest.raises(WriteRefused, match="another client has written offsets of kafka:g"):
        servers.run()


def test_consumers_that_began_before_a_run_whose_file_failed_are_not_taken_for_migrated_ones(servers, monkeypatch):
    """1. The disk fails when the file has been replaced, so nothing is written; 2. a consumer begins at the end."""

    def fail(_directory):
        raise OSError(errno.EIO, "the disk fails")

    servers.begin(*TO_KAFKA)
    with monkeypatch.context() as patch:
        patch.setattr(wholefiles, "sync", fail)
        with pytest.raises(OSError, match="the disk fails"):
            servers.run()
    assert (servers.state(), servers.mark(), servers.brokers.commits) == (None, None, [])
    servers.brokers.store("g", dict.fromkeys(PARTITIONS, 100))
    with pytest.raises(WriteRefused, match="another client has written offsets of kafka:g"):
        servers.run()


def test_a_missing_permission_is_refused(servers):
    servers.begin(*TO_KAFKA)
    servers.brokers.denied = ["topic t"]
    with pytest.raises(WriteRefused, match="commits need Read on topic t"):
        servers.run()


def test_a_consumer_that_commits_to_the_source_is_reported(servers):
    """Of a source that cannot be held."""
    servers.begin("storm:/s/id", "kafka:g")

    def move(_group):
        with closing(session_in_memory(servers.server)) as session:
            session._client.set("/s/id/partition_4", (SPOUT % (50, 4)).encode())

    servers.brokers.before_commit = move
    assert "another client wrote during the migration: t-4 in storm:/s/id" in servers.run().faults[0]


def test_a_znode_of_a_spout_that_cannot_be_read_is_a_reason_to_refuse(servers):
    servers.begin("storm:/s/id", "kafka:g")
    servers.write("/s/id/partition_4", b"not JSON")
    with pytest.raises(WriteRefused, match="znode /s/id/partition_4"):
        servers.run()


def test_a_member_of_the_source_that_starts_during_a_run_is_reported(servers):
    """It continues where the new consumers do, so each record would be consumed twice."""
    servers.begin(*TO_KAFKA)
    pending = [servers.register]
    servers.brokers.before_commit = lambda _group: pending and pending.pop()()
    report = servers.run()
    assert report.faults == [
        "consumers of zookeeper:g were started during the migration (g_member); stop them, and plan again"
    ]
    assert (report.warnings, servers.state()) == ([], WriteState.WRITING)


@pytest.fixture
def losing_release(monkeypatch):
    """A function: the first request of each release is lost, and the connection comes back, or does not."""
    release = GroupHold.release

    def lose(*, reconnects):
        def releasing(hold, *arguments):
            hold._session._client.loses = Loss(0, request=True, reconnects=reconnects)
            return release(hold, *arguments)

        monkeypatch.setattr(GroupHold, "release", releasing)

    return lose


def test_a_member_of_the_source_is_reported_although_an_answer_was_lost(servers, losing_release):
    losing_release(reconnects=True)
    servers.begin(*TO_KAFKA)
    pending = [servers.register]
    servers.brokers.before_commit = lambda _group: pending and pending.pop()()
    assert "consumers of zookeeper:g were started during the migration (g_member)" in servers.run().faults[0]
    assert (servers.state(), servers.mark()) == (WriteState.WRITING, "migrating")


@pytest.mark.usefixtures("soon_lost")
def test_a_run_is_not_complete_while_it_is_unknown_whether_consumers_were_started(servers, losing_release, monkeypatch):
    losing_release(reconnects=False)
    servers.begin(*TO_KAFKA)
    with suppress(ZooKeeperUnavailable):  # which the mark meets, too
        report = servers.run()
        assert "whether consumers of zookeeper:g were started during the migration is unknown" in report.faults[0]
    assert (servers.state(), servers.mark()) == (WriteState.WRITING, "migrating")
    monkeypatch.undo()
    servers.register()
    with pytest.raises(WriteRefused, match="live member: g_member"):
        servers.run()
    servers.member.close()
    assert servers.run().faults == []
    assert (servers.state(), servers.mark()) == (WriteState.COMPLETE, "migrated")


def test_two_runs_of_one_plan_are_kept_apart(servers):
    servers.begin("storm:/s/id", "kafka:g")
    with servers.file.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(WriteRefused, match="another run"):
            servers.run()
    assert servers.run().faults == []


@pytest.mark.parametrize("when", ["before the lock", "while it is taken"])
def test_a_plan_that_was_replaced_is_not_run(servers, monkeypatch, when):
    """What a run keeps beside the file would be of another plan than the file, so that no way back would be left."""
    flock = fcntl.flock

    def replace_plan():
        write_whole(servers.file, encode_plan(replace(servers.plan, created_ms=2)))

    def after_replacing(file, operation):
        replace_plan()
        flock(file, operation)

    servers.begin(*TO_KAFKA)
    if when == "before the lock":
        replace_plan()
    else:
        monkeypatch.setattr(fcntl, "flock", after_replacing)
    with pytest.raises(WriteRefused, match="was replaced by another plan meanwhile"):
        servers.run()
    assert (servers.state(), servers.brokers.stored("g")) == (None, {})


def test_a_plan_on_nfs_is_locked(servers, monkeypatch):
    """NFS emulates the lock by one of a range of bytes, which needs a file that is open for writing."""
    flock = fcntl.flock

    def as_nfs(file, operation):
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", as_nfs)
    servers.begin(*TO_KAFKA)
    assert servers.run().faults == []


def test_the_file_of_another_plan_is_refused(servers):
    servers.begin(*TO_KAFKA)
    servers.run()
    servers.brokers.groups.clear()
    servers.begin(*TO_KAFKA, offsets={**OFFSETS, TopicPartition("t", 0): 10})
    servers.plan = make_plan(
        servers.plan.source,
        servers.plan.target,
        "h:2181",
        MigrationEnds(
            session_in_memory(servers.server), servers.brokers, servers.plan.source, servers.plan.target
        ).observe(),
        missing="fail",
        retention_ms=1,
        now_ms=2,
    )
    servers.file.write_text(encode_plan(servers.plan))
    with pytest.raises(ZkConsumerError, match="is of another plan"):
        servers.run()
