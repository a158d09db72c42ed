"""Undo and completion of what a command wrote, from its snapshot."""

from dataclasses import replace

import pytest

from tests.fixtures.groupsinmemory import log
from tests.fixtures.migrationsinmemory import OFFSETS
from zkconsumer.errors import WriteRefused, ZkConsumerError
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, topic_id_of
from zkconsumer.offsets.rules.topicorigins import TopicRecord, WrittenFor
from zkconsumer.operate.groups.groupremoval import plan_delete, plan_rename
from zkconsumer.operate.migrate.migrationmark import write_mark
from zkconsumer.operate.offsets import restoreplan
from zkconsumer.operate.offsets.judgedoffsets import judge_stored, topic_identities
from zkconsumer.operate.offsets.offsetfiles import parse_offsets
from zkconsumer.operate.offsets.offsetimport import plan_copy, plan_import
from zkconsumer.operate.offsets.offsetnodes import offset_nodes
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.resetplan import plan_reset
from zkconsumer.operate.offsets.restoreplan import plan_restore
from zkconsumer.operate.offsets.rules.offsetreset import ResetSpec
from zkconsumer.operate.offsets.snapshot import SnapshotFile, read_snapshot
from zkconsumer.zookeeper.absentzookeeper import AbsentZooKeeper
from zkconsumer.zookeeper.rules.znodes import MigrationMark


@pytest.fixture
def servers(servers):
    servers.store(OFFSETS)
    return servers


@pytest.fixture
def write(servers, session):
    """Execute a plan; returns the snapshot."""

    def done(plan):
        file = servers.file.with_name(f"snapshot{len(list(servers.file.parent.glob('snapshot*')))}")
        assert execute(session, servers.brokers, plan, SnapshotFile(file)).faults == []
        return read_snapshot(file)

    return done


def groups_of(plan):
    """Each group in the order of the plan, and whether it is created."""
    return [(one.change.group, one.change.nodes[0].after is not None) for one in plan.groups]


def test_a_rename_is_undone_and_done_again_without_a_moment_in_which_neither_group_exists(servers, session, write):
    renamed = write(plan_rename(session, servers.brokers, "g", "h"))
    undo = plan_restore(session, servers.brokers, renamed)
    assert groups_of(undo) == [("g", True), ("h", False)]
    undone = write(undo)
    assert servers.stored() == OFFSETS
    again = plan_restore(session, servers.brokers, undone)
    assert groups_of(again) == [("h", True), ("g", False)]
    assert groups_of(plan_restore(session, servers.brokers, renamed, complete=True)) == groups_of(again)


def test_a_removal_is_not_completed_if_a_migration_marks_the_group_meanwhile(servers, session, write):
    removed = write(plan_delete(session, servers.brokers, ["g"], None, store="zookeeper"))
    servers.store(OFFSETS)
    plan = plan_restore(session, servers.brokers, removed, complete=True, overwrite=True)
    write_mark(session, "g", MigrationMark("migrated", "kafka:g", 1))
    with pytest.raises(WriteRefused, match="a migration began meanwhile: group g was migrated to kafka:g"):
        write(plan)
    assert servers.stored() == OFFSETS
    again = plan_restore(session, servers.brokers, removed, complete=True, overwrite=True)
    assert [warning for warning in again.warnings if "was migrated to kafka:g" in warning]


MIGRATED = MigrationMark("migrated", "kafka:g", 1)


def test_a_rename_is_not_completed_after_a_migration_of_the_group(servers, session, write):
    """1. The rename is killed; 2. the group is migrated; 3. the rename is completed: there would be no way back."""
    renamed = write(plan_rename(session, servers.brokers, "g", "h"))
    write(plan_restore(session, servers.brokers, renamed))  # as before step 1
    write_mark(session, "g", MIGRATED)
    plan = plan_restore(session, servers.brokers, renamed, complete=True)
    (reason,) = plan.refusals
    assert "/consumers/g/offsets/" in reason
    assert "to which a migration goes back: group g was migrated to kafka:g" in reason
    assert reason.endswith("; give --overwrite to delete them all the same")
    assert plan_restore(session, servers.brokers, renamed, complete=True, overwrite=True).refusals == ()


def test_a_rename_is_not_undone_after_a_migration_of_the_new_group(servers, session, write):
    """Its offsets would be deleted, and the former group would begin again where it was renamed."""
    renamed = write(plan_rename(session, servers.brokers, "g", "h"))
    write_mark(session, "h", MigrationMark("migrated", "kafka:h", 1))
    with pytest.raises(WriteRefused, match="goes back: group h was migrated to kafka:h"):
        write(plan_restore(session, servers.brokers, renamed))


def test_a_reset_of_a_migrated_group_is_undone_with_a_warning(servers, session, write):
    """Offsets that are written are where no consumer reads, and none is deleted."""
    write_mark(session, "g", MIGRATED)
    reset = write(plan_reset(session, servers.brokers, "g", None, ResetSpec("earliest"), store="zookeeper"))
    plan = plan_restore(session, servers.brokers, reset)
    assert plan.refusals == ()
    assert "group g was migrated to kafka:g" in "".join(plan.warnings)


def test_a_deletion_of_a_group_with_its_mark_is_completed(servers, session, write):
    """The command that was killed has shown the mark."""
    write_mark(session, "g", MIGRATED)
    deleted = write(plan_delete(session, servers.brokers, ["g"], None, store="zookeeper"))
    write(plan_restore(session, servers.brokers, deleted))
    write(plan_restore(session, servers.brokers, deleted, complete=True))
    assert servers.stored() == {}


def test_a_group_is_not_reset_if_a_migration_marks_it_meanwhile(servers, session, write):
    """It would be reported as done, though the consumers continue elsewhere."""
    plan = plan_reset(session, servers.brokers, "g", None, ResetSpec("earliest"), store="zookeeper")
    write_mark(session, "g", MigrationMark("migrated", "kafka:g", 1))
    with pytest.raises(WriteRefused, match="a migration began meanwhile: group g was migrated to kafka:g"):
        write(plan)
    assert servers.stored() == OFFSETS


RESET = ResetSpec("latest")
P0 = TopicPartition("t", 0)


def restored(plan):
    """Old and new offset of the first partition, and what is replayed."""
    row = plan.groups[0].rows[0]
    return row.partition, row.old, row.new, row.replayed


@pytest.mark.parametrize("store", ["zookeeper", "kafka"])
def test_an_offset_that_the_log_no_longer_has_is_refused(servers, session, write, store):
    """Retention has moved the log start to 50 since; a consumer would begin at ``auto.offset.reset``."""
    brokers = servers.brokers
    brokers.store("g", OFFSETS)
    reset = write(plan_reset(session, brokers, "g", {"t": [0]}, RESET, store=store))
    brokers.logs[P0] = log(50, 100)
    undo = plan_restore(session, brokers, reset)
    assert "offsets of t-0 are outside their logs" in undo.refusals[0]
    assert restored(undo) == (P0, 100, 10, 50)
    clamped = plan_restore(session, brokers, reset, outside="clamp")
    assert (clamped.refusals, restored(clamped)) == ((), (P0, 100, 50, 50))
    write(clamped)
    now = servers.stored() if store == "zookeeper" else brokers.stored("g")
    assert now == {**OFFSETS, P0: 50}
    assert plan_restore(session, brokers, reset, outside="clamp").refusals == (), "it is done, and no foreign write"


@pytest.mark.parametrize("store", ["zookeeper", "kafka"])
def test_offsets_of_a_topic_that_was_created_again_are_refused(servers, session, write, store):
    """They are in the log of the new topic, and of other records."""
    brokers = servers.brokers
    brokers.store("g", OFFSETS)
    reset = write(plan_reset(session, brokers, "g", {"t": [0]}, RESET, store=store))
    assert plan_restore(session, brokers, reset).refusals == ()
    node = session.get("/brokers/topics/t")
    session._client.delete("/brokers/topics/t")
    servers.write("/brokers/topics/t", node.data)
    assert "offsets of t-0 are those of earlier topics" in plan_restore(session, brokers, reset).refusals[0]
    clamped = plan_restore(session, brokers, reset, outside="clamp")
    assert (clamped.refusals, restored(clamped)) == ((), (P0, 100, 0, 100))
    write(clamped)
    assert (servers.stored() if store == "zookeeper" else brokers.stored("g")) == {**OFFSETS, P0: 0}


@pytest.mark.parametrize("created_again", [True, False])
def test_offsets_that_brokers_have_deleted_with_their_topic_are_no_writes_of_others(
    servers, session, write, created_again
):
    brokers = servers.brokers
    brokers.store("g", OFFSETS)
    reset = write(plan_reset(session, brokers, "g", {"t": [0]}, RESET, store="kafka"))
    node = session.get("/brokers/topics/t")
    session._client.delete("/brokers/topics/t")
    if created_again:
        servers.write("/brokers/topics/t", node.data)
    else:
        brokers.logs.clear()
    brokers.store("g", {})
    undo = plan_restore(session, brokers, reset)
    if created_again:
        (refusal,) = undo.refusals
        assert "offsets of t-0 are those of earlier topics" in refusal
        assert plan_restore(session, brokers, reset, outside="clamp").refusals == ()
    else:
        assert undo.refusals == ("topic t does not exist, so brokers store no offsets of it",)
        assert plan_restore(session, brokers, reset, overwrite=True).refusals == undo.refusals


def test_offsets_of_topics_that_exist_are_restored_without_those_that_do_not(servers, session, write):
    brokers, other = servers.brokers, TopicPartition("u", 0)
    servers.write("/brokers/topics/u", b'{"version":1,"partitions":{"0":[0]}}')
    brokers.logs[other] = log(0, 100)
    brokers.store("g", {P0: 10, other: 20})
    reset = write(plan_reset(session, brokers, "g", {"t": [0], "u": [0]}, RESET, store="kafka"))
    session._client.delete("/brokers/topics/u")
    del brokers.logs[other]
    brokers.store("g", {P0: 100})
    undo = plan_restore(session, brokers, reset)
    assert undo.refusals == ()
    reason = "topic u does not exist, so brokers store no offsets of it"
    assert undo.warnings == (f"{reason}; what else there is to write is written",)
    write(undo)
    assert brokers.stored("g") == {P0: 10}


@pytest.mark.parametrize("how", ["reset", "delete"])
@pytest.mark.parametrize("described_by", ["zookeeper", "brokers"])
def test_an_offset_that_was_of_an_earlier_topic_before_the_write_is_refused(
    servers, session, write, how, described_by, monkeypatch
):
    """It would be newer than the topic, so members would use it."""
    new = TopicIdentity("new", None)
    if described_by == "brokers":
        servers.member_consumes(TopicIdentity("old", None))
    else:
        servers.create_topic_again()
        new = topic_identities(session, servers.brokers, ["t"])["t"]
    monkeypatch.setattr(restoreplan, "known_identities", lambda *_: {"t": new})
    servers.member_consumes(new)
    servers.store({TopicPartition("t", 1): 20})
    if how == "reset":
        done = write(plan_reset(session, servers.brokers, "g", {"t": [0, 1]}, RESET, store="zookeeper"))
    else:
        done = write(plan_delete(session, servers.brokers, ["g"], None, store="zookeeper"))
    undo = plan_restore(session, servers.brokers, done)
    assert "offsets of t-0" in undo.refusals[0]
    assert "t-1" not in undo.refusals[0]
    assert "are those of earlier topics" in undo.refusals[0]
    write(plan_restore(session, servers.brokers, done, outside="clamp"))
    assert [servers.stored()[TopicPartition("t", number)] for number in (0, 1)] == [0, 20]


def test_an_offset_in_kafka_names_the_topic_that_it_is_of(servers, session, write):
    """Members would ignore what is written with the id of an earlier topic."""

    def create(topic_id):
        servers.write("/brokers/topics/t", b'{"version":3,"topic_id":"%s","partitions":{"0":[0]}}' % topic_id)

    def stored():
        one = servers.brokers.groups["g"][P0]
        return one.offset, topic_id_of(one.mark)

    servers.brokers.groups["g"] = {P0: StoredOffset(50, "zkconsumer:x:old")}
    create(b"new")
    reset = write(plan_reset(session, servers.brokers, "g", {"t": [0]}, RESET, store="kafka"))
    assert stored() == (100, "new")
    write(plan_restore(session, servers.brokers, reset))
    assert stored() == (50, "old")
    create(b"newer")
    write(plan_restore(session, servers.brokers, reset, complete=True, outside="clamp"))
    assert stored() == (0, "newer")


def test_an_offset_in_kafka_that_equals_one_of_an_earlier_topic_is_written(servers, session, write):
    """1. A tool has written its snapshot; 2. it is killed; 3. what it would have written is completed."""
    former = {P0: StoredOffset(100, "zkconsumer:x:old")}
    servers.brokers.groups["g"] = dict(former)
    servers.write("/brokers/topics/t", b'{"version":3,"topic_id":"new","partitions":{"0":[0]}}')
    reset = write(plan_reset(session, servers.brokers, "g", {"t": [0]}, RESET, store="kafka"))
    servers.brokers.groups["g"] = dict(former)
    write(plan_restore(session, servers.brokers, reset, complete=True))
    one = servers.brokers.groups["g"][P0]
    assert (one.offset, topic_id_of(one.mark)) == (100, "new")
    assert plan_restore(session, servers.brokers, reset, complete=True).groups[0].is_empty


def test_a_group_with_a_deleted_topic_is_restored(servers, session, write):
    deleted = write(plan_delete(session, servers.brokers, ["g"], None))
    servers.brokers.logs.clear()
    assert write(plan_restore(session, servers.brokers, deleted)).groups[0].group == "g"
    assert len([path for path in servers.server.nodes if path.startswith("/consumers/g/offsets/t/")]) == len(OFFSETS)


@pytest.mark.parametrize("name", ["\N{SUPERSCRIPT TWO}", "007"])
def test_a_group_is_restored_with_a_znode_that_is_no_partitions(servers, session, write, name):
    foreign = f"/consumers/g/offsets/t/{name}"
    servers.write(foreign, b"-1")
    deleted = write(plan_delete(session, servers.brokers, ["g"], None))
    assert foreign not in servers.server.nodes
    restored = plan_restore(session, servers.brokers, deleted)
    assert restored.refusals == ()
    write(restored)
    assert servers.server.nodes[foreign].data == b"-1"


def test_offsets_are_restored_with_a_warning_while_no_log_can_be_asked(servers, session, write):
    reset = write(plan_reset(session, servers.brokers, "g", {"t": [0]}, RESET, store="zookeeper"))
    servers.brokers.silent = True
    undo = plan_restore(session, servers.brokers, reset)
    assert (undo.refusals, undo.warnings) == (
        (),
        ("whether offsets are outside their logs is unknown: the connection broke",),
    )


def test_offsets_outside_their_log_are_not_copied_to_another_group(servers, session):
    servers.brokers.logs[P0] = log(50, 100)
    with pytest.raises(ZkConsumerError, match="outside their logs, so nothing is copied: t-0"):
        plan_copy(session, servers.brokers, "g", "h")


@pytest.mark.parametrize("made_at", ["h:2181", "h1:2181,h:2181", "h:2181/", "H"])
def test_a_snapshot_of_this_ensemble_is_restored(servers, session, write, made_at):
    deleted = write(plan_delete(session, servers.brokers, ["g"], None))
    undo = plan_restore(session, servers.brokers, replace(deleted, zookeeper=made_at))
    assert (undo.refusals, undo.warnings) == ((), ())


def test_a_snapshot_of_another_chroot_is_refused(servers, session, write):
    deleted = write(plan_delete(session, servers.brokers, ["g"], None))
    undo = plan_restore(session, servers.brokers, replace(deleted, zookeeper="h:2181/kafka"))
    assert undo.refusals == ("the snapshot was made for chroot /kafka, not /; check --zookeeper",)


def test_a_snapshot_of_other_servers_is_a_warning(servers, session, write):
    deleted = write(plan_delete(session, servers.brokers, ["g"], None))
    undo = plan_restore(session, servers.brokers, replace(deleted, zookeeper="h1:2181,h2:2181"))
    assert undo.refusals == ()
    assert undo.warnings == ("the snapshot was made at h1:2181,h2:2181, not h:2181; check that both are one ensemble",)


BROKERS = AbsentZooKeeper("h:9092")


def test_a_reset_in_kafka_is_undone_by_the_brokers_alone_after_zookeeper_is_gone(servers, session, write, tmp_path):
    servers.brokers.store("g", OFFSETS)
    reset = write(plan_reset(session, servers.brokers, "g", {"t": [0]}, RESET, store="kafka"))
    undo = plan_restore(BROKERS, servers.brokers, replace(reset, zookeeper="zk:2181/chroot"))
    assert (undo.refusals, undo.warnings) == ((), ())
    assert execute(BROKERS, servers.brokers, undo, SnapshotFile(tmp_path / "undo")).faults == []
    assert servers.brokers.stored("g") == OFFSETS


def test_members_in_zookeeper_refuse_the_undo_of_what_brokers_alone_have_written(servers, session, tmp_path):
    """The command did not see them; they store their offsets in Kafka, and their next commit would overwrite it."""
    brokers, file = servers.brokers, SnapshotFile(tmp_path / "reset")
    brokers.store("g", OFFSETS)
    execute(BROKERS, brokers, plan_reset(BROKERS, brokers, "g", {"t": [0]}, RESET, store="kafka"), file)
    reset = read_snapshot(file.path)
    other = plan_restore(AbsentZooKeeper("b:9092"), brokers, reset)
    assert "the snapshot was made at h:9092, not b:9092" in other.warnings[0]
    undo = plan_restore(session, brokers, replace(reset, zookeeper="b:9092"))
    assert undo.warnings == ()
    assert (undo.refusals, undo.groups[0].change.held_group, len(undo.groups[0].hold)) == ((), "g", 5)
    servers.register()
    assert "group g has 1 live member" in plan_restore(session, brokers, reset).refusals[0]


def test_a_znode_that_holds_no_offset_is_another_clients(servers, session, write):
    reset = write(plan_reset(session, servers.brokers, "g", {"t": [0]}, RESET, store="zookeeper"))
    servers.write("/consumers/g/offsets/t/0", b"100\n")
    assert plan_restore(session, servers.brokers, reset).refusals == ()
    for data in (b"99", b"junk"):
        servers.write("/consumers/g/offsets/t/0", data)
        assert "other clients wrote since" in plan_restore(session, servers.brokers, reset).refusals[0]


def test_members_of_a_group_of_which_nothing_is_written_refuse_nothing(servers, session, tmp_path):
    """1. Two groups are to be deleted; 2. a member of the second one starts: the first one alone is deleted."""
    for partition, offset in OFFSETS.items():
        servers.write(f"/consumers/h/offsets/t/{partition.partition}", offset)
    deletion = plan_delete(session, servers.brokers, ["g", "h"], None)
    servers.register("h")
    report = execute(session, servers.brokers, deletion, SnapshotFile(tmp_path / "deletion"))
    assert (servers.stored(), len(report.faults)) == ({}, 1)
    undo = plan_restore(session, servers.brokers, read_snapshot(tmp_path / "deletion"))
    assert (undo.refusals, [group.is_empty for group in undo.groups]) == ((), [True, False])
    execute(session, servers.brokers, undo, SnapshotFile(tmp_path / "undo"))
    assert servers.stored() == OFFSETS


def test_an_import_is_not_refused_by_members_of_a_group_that_has_the_offsets_already(servers, session):
    servers.write("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0]}}')
    servers.register("g")
    file = parse_offsets("f", b"/consumers/g/offsets/t/0:10\n/consumers/h/offsets/t/0:7\n")
    assert plan_import(session, servers.brokers, file).refusals == ()


def test_undoing_an_equal_offset_of_an_earlier_topic_is_refused(servers, session, write):
    """The reset has changed nothing but whom it counts for; left as it is, members would use it."""
    servers.create_topic_again()
    equal = ResetSpec("offset", servers.stored()[P0])
    done = write(plan_reset(session, servers.brokers, "g", {"t": [0]}, equal, store="zookeeper"))
    assert "are those of earlier topics" in plan_restore(session, servers.brokers, done).refusals[0]
    write(plan_restore(session, servers.brokers, done, outside="clamp"))
    assert servers.stored()[P0] == 0


def test_deleted_records_of_a_copied_ensemble_prove_nothing(servers, session, write):
    """There topics, records and offsets have the times of the copy, in any order."""
    servers.create_topic_again()
    record = TopicRecord("old", ensemble=1, replaced=True)
    servers.write("/consumers/g/zkconsumer/topics/t", record.encode())
    done = write(plan_delete(session, servers.brokers, ["g"], None, store="zookeeper"))
    former = servers.stored()
    write(plan_restore(session, servers.brokers, done))
    assert former == {}
    assert servers.stored() == OFFSETS


@pytest.mark.parametrize("unknown", ["may not be described", "has a damaged znode", "is not of ZooKeeper's brokers"])
def test_a_topic_that_could_not_be_described_is_not_one_that_was_created_since(servers, session, write, unknown):
    """1. A group is deleted, of whose topic nothing is known; 2. the topic is described again; 3. it is restored."""
    description = servers.server.nodes["/brokers/topics/t"].data
    if unknown == "may not be described":
        servers.brokers.undescribed = {"t"}
    elif unknown == "has a damaged znode":
        servers.write("/brokers/topics/t", b"{")
    else:
        session._client.delete("/brokers/topics/t")
        session._client.delete("/brokers/ids/0")
    deleted = write(plan_delete(session, servers.brokers, ["g"], None, store="zookeeper"))
    servers.brokers.undescribed.clear()
    servers.write("/brokers/topics/t", description)
    assert servers.stored() == deleted.identities == {}
    write(plan_restore(session, servers.brokers, deleted))
    assert servers.stored() == OFFSETS


DESCRIPTION = b'{"version":1,"partitions":{"0":[0],"1":[0],"2":[0],"3":[0],"4":[0]}}'


def judged_now(servers, session, identity=None):
    """Which topic the offsets of the group were written for, as far as members find out."""
    identity = identity or topic_identities(session, servers.brokers, ["t"])["t"]
    return {
        one.written_for
        for one in judge_stored(session, "g", {"t": identity}, offset_nodes(session, "g").stored()).values()
    }


def delete_and_restore(servers, session, write):
    """The group is deleted and restored; returns both snapshots."""
    deleted = write(plan_delete(session, servers.brokers, ["g"], None, store="zookeeper"))
    return deleted, write(plan_restore(session, servers.brokers, deleted))


def test_a_restored_group_recognises_a_topic_that_is_created_again(servers, session, write):
    """1. A group is deleted and restored; 2. its topic is created again; 3. members start."""
    servers.member_consumes(topic_identities(session, servers.brokers, ["t"])["t"])
    delete_and_restore(servers, session, write)
    assert judged_now(servers, session) == {WrittenFor.UNKNOWN}
    session._client.delete("/brokers/topics/t")
    servers.write("/brokers/topics/t", DESCRIPTION)
    assert judged_now(servers, session) == {WrittenFor.EARLIER}


def test_restored_offsets_of_a_topic_that_was_created_again_are_of_the_present_one(servers, session, write):
    """Where brokers describe topics, the offsets count that are newer than the record."""
    old, new = TopicIdentity("old", None), TopicIdentity("new", None)
    for identity in (old, new):
        servers.member_consumes(identity)
    servers.store(OFFSETS)
    delete_and_restore(servers, session, write)
    assert judged_now(servers, session, new) == {WrittenFor.PRESENT}


def test_records_that_were_restored_are_deleted_and_restored_again(servers, session, write):
    """They name another parent than in the snapshots."""
    servers.member_consumes(topic_identities(session, servers.brokers, ["t"])["t"])
    deleted, created = delete_and_restore(servers, session, write)
    record = "/consumers/g/zkconsumer/topics/t"
    for snapshot in (deleted, created):
        assert plan_restore(session, servers.brokers, snapshot, complete=snapshot is created).is_empty
    for delete in ({"snapshot": created}, {"snapshot": deleted, "complete": True}):
        write(plan_restore(session, servers.brokers, **delete))
        assert record not in servers.server.nodes
        write(plan_restore(session, servers.brokers, deleted))
        assert not judged_now(servers, session) & {WrittenFor.EARLIER, WrittenFor.BEFORE}
    session._client.delete(record)  # as if it had been killed before the record
    write(plan_restore(session, servers.brokers, deleted))
    session._client.delete("/brokers/topics/t")
    servers.write("/brokers/topics/t", DESCRIPTION)
    assert judged_now(servers, session) == {WrittenFor.EARLIER}


def test_a_topic_that_is_created_between_a_deletion_and_its_restore_is_noticed(servers, session, write):
    description = servers.server.nodes["/brokers/topics/t"].data
    session._client.delete("/brokers/topics/t")
    deleted = write(plan_delete(session, servers.brokers, ["g"], None, store="zookeeper"))
    servers.write("/brokers/topics/t", description)
    assert deleted.identities == {"t": None}
    assert "are those of earlier topics" in plan_restore(session, servers.brokers, deleted).refusals[0]


@pytest.fixture
def topic_u(servers):
    """A topic beside t."""
    servers.write("/brokers/topics/u", b'{"version":1,"partitions":{"0":[0]}}')
    servers.brokers.logs[TopicPartition("u", 0)] = log()


def create_by_reset(session, servers, topic):
    return plan_reset(session, servers.brokers, "n", {topic: None}, RESET, store="zookeeper", create=True)


def nodes_of_n(servers):
    return sorted(path.removeprefix("/consumers/n") for path in servers.server.nodes if path.startswith("/consumers/n"))


def test_an_undo_leaves_the_parents_that_others_use(servers, session, write, topic_u):
    """1. A reset creates a group; 2. another one adds a topic to it; 3. the first one is undone."""
    created = write(create_by_reset(session, servers, "t"))
    added = write(create_by_reset(session, servers, "u"))
    undo = plan_restore(session, servers.brokers, created)
    (warning,) = undo.warnings
    assert warning.endswith("have created znodes below: /consumers/n, /consumers/n/offsets")
    write(undo)
    assert nodes_of_n(servers) == ["", "/offsets", "/offsets/u", "/offsets/u/0"]
    assert plan_restore(session, servers.brokers, created).is_empty
    write(plan_restore(session, servers.brokers, added))
    write(plan_restore(session, servers.brokers, created))
    assert nodes_of_n(servers) == []


def test_an_undo_deletes_the_parents_that_a_killed_hold_has_left(servers, session, write):
    created = write(create_by_reset(session, servers, "t"))
    for path in ("zkconsumer", "owners/t"):
        session.ensure_path(f"/consumers/n/{path}", None)
    write(plan_restore(session, servers.brokers, created))
    assert nodes_of_n(servers) == []


def test_an_undo_is_refused_as_a_whole_by_a_member_whose_registration_is_to_be_deleted(
    servers, session, write, tmp_path
):
    """The parent of the registrations is in the transaction of the offsets, so that it cannot be deleted with them."""
    session.ensure_path("/consumers/g/ids", None)
    restored_group = write(
        plan_restore(session, servers.brokers, write(plan_delete(session, servers.brokers, ["g"], None)))
    )
    servers.register()
    undo = plan_restore(session, servers.brokers, restored_group, live=True)
    report = execute(session, servers.brokers, undo, SnapshotFile(tmp_path / "undo"))
    assert "/consumers/g/ids was not written" in report.faults[0]
    assert servers.stored() == OFFSETS
