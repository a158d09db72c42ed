"""Migrations of offsets between a real ZooKeeper and a real broker: plan, run, verify."""

import json

import pytest
from click.testing import CliRunner

from tests.fixtures.migrations import is_record
from tests.fixtures.waiting import eventually
from zkconsumer.cli.main import command
from zkconsumer.errors import WriteRefused, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.migrate.rules.migrationrecheck import verify
from zkconsumer.operate.migrate.run import run_plan
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.restoreplan import plan_restore
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import SnapshotFile, beside, read_snapshot

pytestmark = pytest.mark.integration


# -- to Kafka ---------------------------------------------------------------------------------------------------------


def test_offsets_move_to_kafka_and_a_new_consumer_continues(migration, consume):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    before = migration.group.tree()
    plan = migration.plan()
    assert (plan.refusals, migration.in_kafka()) == ((), {})
    report = run_plan(migration.ends(), plan, migration.file)
    assert (report.faults, report.written) == ([], migration.partitions())
    assert migration.in_kafka() == {0: 4, 1: 7}
    ours = f"/consumers/{migration.group.name}/zkconsumer"
    assert migration.group.tree().keys() - before.keys() == {ours, f"{ours}/migrated"}, "the hold leaves nothing"
    assert migration.state() is WriteState.COMPLETE
    rows = verify(plan, migration.ends().observe(migration.partitions()))
    assert [(row.is_equal, row.source_lag, row.target_lag) for row in rows] == [(True, 6, 6), (True, 3, 3)]
    assert consume(migration.group.name, migration.topic, 2) == {0: 4, 1: 7}


def test_a_second_run_finds_everything_written(migration):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    plan = migration.plan()
    run_plan(migration.ends(), plan, migration.file)
    report = run_plan(migration.ends(), plan, migration.file)
    assert (report.faults, report.written, report.found) == ([], [], migration.partitions())
    assert migration.state() is WriteState.COMPLETE


def test_a_migration_to_kafka_is_undone_from_its_snapshot(migration, tool_session, tmp_path):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    migration.commit({0: 2})
    report = run_plan(migration.ends(), migration.plan(), migration.file)
    assert migration.in_kafka() == {0: 4, 1: 7}
    undo = plan_restore(tool_session, migration.cluster, read_snapshot(report.snapshot))
    assert undo.refusals == ()
    assert execute(tool_session, migration.cluster, undo, SnapshotFile(tmp_path / "undo")).faults == []
    assert migration.in_kafka() == {0: 2}


def test_another_name_in_kafka_is_a_group_of_its_own(migration):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    other = f"{migration.group.name}-new"
    target = f"kafka:{other}"
    report = run_plan(migration.ends(target=target), migration.plan(target=target), migration.file)
    assert report.faults == []
    assert migration.in_kafka() == {}
    found = migration.cluster.committed(other, migration.partitions())
    assert [one.offset for one in found.values()] == [4, 7]


def test_partitions_without_an_offset_need_a_decision(migration):
    migration.group.store(migration.topic, {0: 4})
    assert "--missing earliest" in migration.plan().refusals[0]
    with pytest.raises(WriteRefused, match="--missing earliest"):
        run_plan(migration.ends(), migration.plan(), migration.file)
    plan = migration.plan(missing="latest")
    assert [(row.new, row.skipped) for row in plan.partitions] == [(4, 0), (10, 10)]
    assert run_plan(migration.ends(), plan, migration.file).faults == []
    assert migration.in_kafka() == {0: 4, 1: 10}
    assert all(row.is_equal for row in verify(plan, migration.ends().observe()))


def test_offsets_may_be_kept_for_longer_than_the_brokers_do(migration):
    """By the versions of OffsetCommit that have a retention; a broker that refuses it would not accept the commit."""
    migration.group.store(migration.topic, {0: 4, 1: 7})
    plan = migration.plan(retention_ms=30 * 86_400_000)
    assert run_plan(migration.ends(), plan, migration.file).faults == []
    assert migration.in_kafka() == {0: 4, 1: 7}


# -- to ZooKeeper -----------------------------------------------------------------------------------------------------


def test_offsets_move_back_to_znodes(migration):
    migration.commit({0: 5, 1: 8})
    plan = migration.plan(*reversed(migration.forward))
    assert plan.refusals == ()
    report = run_plan(migration.ends(*reversed(migration.forward)), plan, migration.file)
    assert (report.faults, migration.group.offsets(migration.topic)) == ([], {0: 5, 1: 8})
    assert migration.state() is WriteState.COMPLETE
    assert sorted(migration.group.children()) == ["offsets"], "the hold leaves nothing"


def test_existing_znodes_are_set_and_can_be_restored(migration, tool_session, tmp_path):
    migration.commit({0: 5, 1: 8})
    migration.group.store(migration.topic, {0: 3, 1: 8})
    ends = migration.ends(*reversed(migration.forward))
    report = run_plan(ends, migration.plan(*reversed(migration.forward)), migration.file)
    assert [*report.written, *report.found] == migration.partitions()
    undo = plan_restore(tool_session, migration.cluster, read_snapshot(report.snapshot))
    assert execute(tool_session, migration.cluster, undo, SnapshotFile(tmp_path / "undo")).faults == []
    assert migration.group.offsets(migration.topic) == {0: 3, 1: 8}


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [("offsets", 0), ("offsets", 1)])
def test_a_source_that_moved_is_refused(migration, path):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    plan = migration.plan()
    migration.group.client.set(migration.group.path(path[0], migration.topic, path[1]), b"9")
    with pytest.raises(WriteRefused, match="have moved"):
        run_plan(migration.ends(), plan, migration.file)
    assert (migration.in_kafka(), migration.state()) == ({}, None)


def test_a_target_that_was_written_since_is_refused(migration):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    plan = migration.plan()
    migration.commit({1: 6})
    with pytest.raises(WriteRefused, match="another client has written"):
        run_plan(migration.ends(), plan, migration.file)
    assert migration.in_kafka() == {1: 6}


def test_members_that_live_are_refused(migration):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    plan = migration.plan()
    migration.group.register("g_member")
    assert any("g_member" in reason for reason in migration.plan().refusals)
    migration.file = migration.file.with_name("plan-0")
    with pytest.raises(WriteRefused, match="g_member"):
        run_plan(migration.ends(), plan, migration.file)
    assert migration.in_kafka() == {}


def test_a_member_that_commits_between_check_and_hold_is_noticed(migration, tool_session):
    """The last member commits and ends after the guards were checked."""
    migration.group.store(migration.topic, {0: 4, 1: 7})
    plan = migration.plan()
    path = migration.group.path("offsets", migration.topic, 0)
    tool_session.after = lambda changes: (
        migration.group.client.set(path, b"5") if any("/owners/" in change.path for change in changes) else None
    )
    with pytest.raises(WriteRefused, match="since they were checked"):
        run_plan(migration.ends(), plan, migration.file)
    assert (migration.in_kafka(), migration.state()) == ({}, None)


def test_a_group_that_lives_in_kafka_is_refused(migration, sandbox):
    from confluent_kafka import Consumer

    migration.group.store(migration.topic, {0: 4, 1: 7})
    plan = migration.plan()
    consumer = Consumer(
        {
            "bootstrap.servers": sandbox.bootstrap_servers,
            "group.id": migration.group.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([migration.topic])
    try:
        eventually(lambda: is_record(consumer.poll(0.5)))
        with pytest.raises(WriteRefused, match=r"lives in Kafka \(Stable\)"):
            run_plan(migration.ends(), plan, migration.file)
        refused = migration.cluster.commit(migration.group.name, {migration.partitions()[0]: StoredOffset(4)})
        assert list(refused) == migration.partitions()[:1], "the coordinator itself refuses, too"
        assert migration.plan(*reversed(migration.forward)).refusals != ()
    finally:
        consumer.close()
    assert migration.in_kafka() == {}


def test_a_topic_that_has_grown_is_refused(migration, topics):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    plan = migration.plan()
    topics.grow(migration.topic, 3)
    with pytest.raises(WriteRefused, match="partitions were added"):
        run_plan(migration.ends(), plan, migration.file)


def test_a_topic_that_was_created_again_is_refused(migration, topics, produce):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    plan = migration.plan()
    topics.delete(migration.topic)
    topics.create(migration.topic, 2)
    produce(migration.topic, [{"value": b"v", "partition": number % 2} for number in range(20)])
    with pytest.raises(WriteRefused, match="deleted and created again"):
        run_plan(migration.ends(), plan, migration.file)
    assert migration.in_kafka() == {}


def test_a_group_without_offsets_cannot_be_planned(migration):
    with pytest.raises(ZkConsumerError, match="does not exist"):
        migration.plan()
    assert "has no offsets" in migration.plan(*reversed(migration.forward)).refusals[0]


# -- the commands -----------------------------------------------------------------------------------------------------


def test_the_commands_plan_run_and_verify(migration, migrate, tmp_path):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    source, target = migration.forward
    file = tmp_path / "g.plan.json"
    code, document = migrate("plan", "--from", source, "--to", target, "--output", file, "--retention", "30d")
    assert (code, document["retention_ms"], document) == (0, 30 * 86_400_000, json.loads(file.read_text()))
    assert migrate("run", file, servers=False)[1]["executed"] is False
    assert migration.in_kafka() == {}
    assert migrate("verify", file)[0] == 3
    code, document = migrate("run", file, "--execute")
    assert (code, len(document["written"]), document["faults"]) == (0, 2, [])
    code, document = migrate("verify", file)
    assert (code, document["equal"], [row["target_lag"] for row in document["partitions"]]) == (0, True, [6, 3])


def test_only_a_plan_that_was_not_run_is_replaced(migration, migrate, tmp_path):
    migration.group.store(migration.topic, {0: 4})
    file = tmp_path / "g.plan.json"
    arguments = ("plan", "--from", migration.forward[0], "--to", migration.forward[1], "--output", file)
    assert migrate(*arguments)[0] == 3
    assert migrate(*arguments, "--missing", "earliest")[0] == 0
    assert migrate("run", file, "--execute")[0] == 0
    where = ("--zookeeper", migration.session_address)
    ended = CliRunner().invoke(command, ["migrate", *map(str, arguments), *where])
    assert (ended.exit_code, "this plan was run" in ended.output) == (2, True)
    file.write_text("{}")
    ended = CliRunner().invoke(command, ["migrate", *map(str, arguments), *where])
    assert (ended.exit_code, "is no plan" in ended.output) == (2, True)


def test_an_edited_plan_is_refused(migration, sandbox):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    migration.plan()
    migration.file.write_text(migration.file.read_text().replace('"new_offset": 4', '"new_offset": 5'))
    ended = CliRunner().invoke(command, ["migrate", "run", str(migration.file), "--execute"])
    assert "edited" in str(ended.exception)
    assert migration.in_kafka() == {}


def test_a_plan_of_another_chroot_is_refused(migration, migrate, sandbox):
    """The same group with the same offsets is below both chroots."""
    migration.group.store(migration.topic, {0: 4, 1: 7})
    migration.plan()
    for number, offset in ((0, b"4"), (1, b"7")):
        path = migration.group.path("offsets", migration.topic, number)
        migration.group.client.create(f"/elsewhere{path}", offset, makepath=True)
    arguments = ["--zookeeper", f"{sandbox.zookeeper_connect}/elsewhere", "--bootstrap-server"]
    code, document = migrate("run", migration.file, "--execute", *arguments, sandbox.bootstrap_servers, servers=False)
    assert (code, migration.in_kafka()) == (3, {})
    assert any("made for chroot /, not /elsewhere" in reason for reason in document["refusals"])


def test_the_file_of_another_plan_is_refused(migration):
    migration.group.store(migration.topic, {0: 4, 1: 7})
    run_plan(migration.ends(), migration.plan(), migration.file)
    former = beside(migration.file, "snapshot.json")
    migration.group.client.set(migration.group.path("offsets", migration.topic, 0), b"6")
    plan = migration.plan()
    former.rename(beside(migration.file, "snapshot.json"))
    with pytest.raises(ZkConsumerError, match="of another plan"):
        run_plan(migration.ends(), plan, migration.file)
    assert migration.in_kafka() == {0: 4, 1: 7}
    assert TopicPartition(migration.topic, 0) in {row.partition for row in plan.partitions}
