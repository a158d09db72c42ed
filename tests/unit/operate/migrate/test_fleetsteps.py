"""Steps of one group of a fleet, with servers in memory."""

from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.fixtures.groupsinmemory import log, session_in_memory
from tests.fixtures.migrationsinmemory import OFFSETS, PARTITIONS, TO_KAFKA, TO_ZOOKEEPER, Killed
from zkconsumer.errors import WriteRefused, ZkConsumerError, ZooKeeperUnavailable
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate import fleetfiles, fleetsteps, run
from zkconsumer.operate.migrate.fleetfiles import GroupFiles, Job
from zkconsumer.operate.migrate.fleetmirror import FleetMirror, due_step
from zkconsumer.operate.migrate.fleetstatus import read_status
from zkconsumer.operate.migrate.fleetsteps import plan_step, reverse_step, rollback_step, run_step, verify_step
from zkconsumer.operate.migrate.migrationends import MigrationEnds
from zkconsumer.operate.migrate.migrationmark import MarkedWrite, remove_mark, write_mark
from zkconsumer.operate.migrate.mirror import Mirror
from zkconsumer.operate.migrate.rules.fleetfacts import FleetState
from zkconsumer.operate.migrate.rules.fleetfile import FleetFile, FleetGroup
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.offsets.grouphold import GroupHold
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import SnapshotFile
from zkconsumer.operate.offsets.writereport import WriteReport
from zkconsumer.operate.offsets.znodewrites import ZnodeWrites
from zkconsumer.zookeeper.rules.znodes import MigrationMark

DELETED = TopicPartition("u", 0)
GROUP = FleetGroup("g", 1, "", End("kafka", "g"))


@pytest.fixture
def job(servers, tmp_path):
    """A group that was migrated, and whose consumers in Kafka have continued."""
    files = GroupFiles(tmp_path / "c" / "g")
    files.directory.mkdir(parents=True)
    servers.file = files.plan_file
    servers.begin(*TO_KAFKA)
    servers.run()
    servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 40})
    return Job(FleetFile("c", "h:1", "", "", (GROUP,)), GROUP, files)


@pytest.fixture
def do(servers, job):
    """Does a step for ``do.group`` in a process of its own."""

    def do(step, ends):
        servers._ends = ends
        with closing(session_in_memory(servers.server)) as session:
            try:
                return step(servers.ends(session), job._replace(group=do.group))
            finally:
                servers.server.end_session(session.session_id)

    do.group, do.job = GROUP, job
    return do


def killed(*_, **__):
    raise Killed


def kill_way_back(do, monkeypatch, step, of=ZnodeWrites):
    """Begin a way back that is killed in this step of its write."""
    with monkeypatch.context() as patch:
        patch.setattr(of, step, killed)
        with pytest.raises(Killed):
            do(reverse_step(execute=True), TO_ZOOKEEPER)


def test_a_negative_offset_counts_as_none_wherever_it_is_asked(servers, job, do):
    """The JVM writes -1 where it knows no offset."""
    for file in job.files.directory.iterdir():
        file.unlink()
    with closing(session_in_memory(servers.server)) as session:
        remove_mark(session, "g")
    servers.brokers.groups.clear()
    servers.begin(*TO_KAFKA, {**OFFSETS, PARTITIONS[1]: -1}, missing="earliest")
    assert (status(do).state, status(do).reason) == (FleetState.PLANNED, "")
    do(RUN, TO_KAFKA)
    assert (status(do).state, status(do).reason) == (FleetState.WRITTEN, "")


def test_partitions_that_were_added_before_new_consumers_start_are_planned(servers, job, do):
    servers.brokers.store("g", OFFSETS)
    added = TopicPartition("t", 5)
    servers.brokers.logs[added] = log()
    assert "plan it again before they start" in status(do).reason
    do.group = replace(GROUP, missing="earliest")
    do(plan_step, TO_KAFKA)
    do(RUN, TO_KAFKA)
    assert (status(do).state, status(do).reason) == (FleetState.WRITTEN, "")
    assert servers.brokers.stored("g").keys() == {*PARTITIONS, added}


def test_a_way_back_that_cannot_go_on_is_rolled_back_and_planned_again(servers, job, do, monkeypatch):
    """1. It is killed; 2. consumers continue in Kafka, and are stopped; 3. its plan has their former offsets."""
    kill_way_back(do, monkeypatch, "write")
    servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 41})
    with pytest.raises(WriteRefused, match="have moved since the plan was made"):
        do(reverse_step(execute=True), TO_ZOOKEEPER)
    would, done = (do(rollback_step(execute=execute), TO_KAFKA) for execute in (False, True))
    assert "its way back would be rolled back" in would.warnings[0]
    assert "its consumers continue at kafka:g" in done.warnings[0]
    assert (would.offsets, done.offsets) == (0, 0), "nothing had been written"
    assert (servers.stored(), servers.mark(), job.files.back_state()) == (OFFSETS, "migrated", None)
    do(reverse_step(execute=True), TO_ZOOKEEPER)
    assert (servers.stored(), servers.mark()) == ({**OFFSETS, PARTITIONS[0]: 41}, None)
    assert job.files.back_state() is WriteState.COMPLETE


def test_a_rollback_of_a_way_back_that_wrote_a_part_is_repeated(servers, job, do, monkeypatch):
    """1. A way back is killed; 2. another client writes while it is rolled back; 3. that has not come to an end."""
    kill_way_back(do, monkeypatch, "read_back")
    with monkeypatch.context() as patch:
        patch.setattr(GroupHold, "outlast_attempts", lambda _hold: servers.store({PARTITIONS[0]: 40}))
        with pytest.raises(ZkConsumerError, match="another client keeps writing"):
            do(rollback_step(execute=True), TO_KAFKA)
    assert (servers.mark(), job.files.back_state()) == ("migrating", WriteState.UNDOING)
    do(rollback_step(execute=True), TO_KAFKA)
    assert (servers.stored(), servers.mark(), job.files.back_state()) == (OFFSETS, "migrated", None)


def test_a_rollback_counts_the_offsets_that_it_writes(servers, do, monkeypatch):
    kill_way_back(do, monkeypatch, "read_back")
    assert [do(rollback_step(execute=execute), TO_KAFKA).offsets for execute in (False, True)] == [1, 1]


def test_a_run_that_has_not_written_everything_is_no_success(do, monkeypatch):
    """Also if nothing says why."""
    monkeypatch.setattr(run, "execute", lambda *_, **__: WriteReport(unknown=["t-0"]))
    with pytest.raises(ZkConsumerError, match="not everything was written; repeat the step"):
        do(reverse_step(execute=True), TO_ZOOKEEPER)


RUN = run_step(lambda: datetime.now(UTC), execute=True)
STEPS = {
    "plan": (plan_step, TO_KAFKA),
    "run": (RUN, TO_KAFKA),
    "rollback": (rollback_step(execute=True), TO_KAFKA),
    "reverse": (reverse_step(execute=True), TO_ZOOKEEPER),
}


@pytest.mark.parametrize("execute", [True, False])
@pytest.mark.parametrize(
    ("back", "reason"),
    [("rollback", "it was rolled back; to migrate it"), ("reverse", "it was reversed; to migrate it")],
)
def test_a_group_that_was_taken_back_while_it_waited_for_its_turn_is_not_migrated_again(
    servers, do, back, reason, execute
):
    """No offset has moved, so no guard of a run refuses it."""
    servers.brokers.store("g", OFFSETS)
    do(*STEPS[back])
    with pytest.raises(WriteRefused, match=reason):
        do(run_step(lambda: datetime.now(UTC), execute=execute), TO_KAFKA)
    assert servers.mark() is None


@pytest.mark.parametrize("back", ["rollback", "reverse"])
def test_a_group_that_came_back_and_was_marked_by_another_migration_keeps_its_plan(servers, job, do, back):
    """1. `plan` looks at the wave; 2. another operator migrates the group elsewhere; 3. the turn of the group comes."""
    servers.brokers.store("g", OFFSETS)
    do(*STEPS[back])
    with closing(session_in_memory(servers.server)) as session:
        write_mark(session, "g", MigrationMark("migrating", "kafka:h", 1))
    before = job.files.plan_file.read_text()
    with pytest.raises(WriteRefused, match="it has the mark of a migration to kafka:h"):
        do(plan_step, TO_KAFKA)
    assert job.files.plan_file.read_text() == before


@pytest.mark.parametrize("moved", [{}, {0: 40}, {4: 40}, {0: 40, 4: 40}, {4: 2}, {0: 2}])
@pytest.mark.parametrize("kill_at", [1, 3, 8])
def test_what_the_status_of_a_killed_run_asks_for_is_not_refused(servers, job, do, kill_at, moved):
    """1. A run is killed before, in or after its commits; 2. consumers in Kafka begin, commit, and end."""
    for file in job.files.directory.iterdir():
        file.unlink()
    servers.brokers.groups.clear()
    servers.begin(*TO_KAFKA)
    servers.run(kill_at)
    servers.brokers.store("g", servers.brokers.stored("g") | {PARTITIONS[p]: offset for p, offset in moved.items()})
    row = status(do)
    assert (row.state, bool(row.judged.only)) == (FleetState.WRONG, True)
    if row.judged.only == {"plan"} and 40 in moved.values():
        with pytest.raises(WriteRefused, match="Give --rewind"):
            do(plan_step, TO_KAFKA)
        return
    for verb in sorted(row.judged.only)[:1]:
        do(*STEPS[verb])
    if row.judged.only == {"plan"}:
        assert do(RUN, TO_KAFKA).offsets == 5
    assert servers.mark() == (None if "rollback" in row.judged.only else "migrated")


def test_a_way_back_is_planned_again_from_where_a_forgotten_consumer_has_come(servers, job, do, monkeypatch):
    do(reverse_step(execute=True), TO_ZOOKEEPER)
    before = job.files.back_file.read_text()
    servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 41})
    with pytest.raises(WriteRefused, match="kafka:g is ahead of zookeeper:g"):
        do(plan_step, TO_KAFKA)
    assert do(reverse_step(execute=False), TO_ZOOKEEPER).offsets == 5
    assert (job.files.back_file.read_text(), job.files.back_state()) == (before, WriteState.COMPLETE)
    kill_way_back(do, monkeypatch, "run_plan", fleetsteps)
    assert job.files.back_state() is None
    do(reverse_step(execute=True), TO_ZOOKEEPER)
    assert (servers.stored()[PARTITIONS[0]], servers.mark()) == (41, None)
    assert job.files.back_state() is WriteState.COMPLETE
    servers.store({PARTITIONS[0]: 42})
    servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 43})
    with pytest.raises(WriteRefused, match="offsets of zookeeper:g have moved"):
        do(reverse_step(execute=True), TO_ZOOKEEPER)


def status(do):
    (row,) = do(lambda ends, job: read_status(ends.session, ends.cluster, [job]), TO_KAFKA)
    return row


def test_a_way_back_whose_source_has_lost_its_offsets_is_planned_again(servers, job, do, monkeypatch):
    """1. It is killed; 2. the offsets in Kafka expire: neither the rest of it nor a rollback is accepted."""
    kill_way_back(do, monkeypatch, "write")
    servers.brokers.store("g", {})
    assert status(do).judged.only == {"plan"}
    for step, ends in ((reverse_step(execute=True), TO_ZOOKEEPER), (rollback_step(execute=True), TO_KAFKA)):
        with pytest.raises(WriteRefused):
            do(step, ends)
    do(plan_step, TO_KAFKA)
    assert do(RUN, TO_KAFKA).offsets == 5
    assert status(do).state is FleetState.WRITTEN


def test_offsets_of_a_topic_that_was_deleted_are_not_lost(servers, do):
    servers.brokers.store("g", {PARTITIONS[0]: 40})
    assert "has lost its offsets" in status(do).reason
    servers.brokers.logs = {PARTITIONS[0]: servers.brokers.logs[PARTITIONS[0]]}
    assert (status(do).state, status(do).reason) == (FleetState.CONSUMED, "")


@pytest.mark.parametrize("moved", [3, 9])
def test_old_consumers_that_have_read_another_topic_alone_forbid_that_a_way_back_is_undone(
    servers, do, monkeypatch, moved
):
    """It knows the offset that was there when it began."""
    other = TopicPartition("other", 0)
    servers.brokers.logs[other] = log()
    servers.store({other: 3})
    kill_way_back(do, monkeypatch, "read_back")
    servers.store({other: moved})
    if moved == 3:
        assert status(do).judged.only == {"reverse", "rollback"}
        do(rollback_step(execute=True), TO_KAFKA)
    else:
        assert status(do).judged.only == {"reverse", "plan"}
        with pytest.raises(WriteRefused, match="have moved since the migration: other-0"):
            do(rollback_step(execute=True), TO_KAFKA)
        do(reverse_step(execute=True), TO_ZOOKEEPER)


@pytest.fixture
def deleted(servers, job, monkeypatch):
    """1. A run is killed at the given step; 2. consumers continue at the given offsets; 3. a topic is deleted."""

    def lose(_marked):
        raise ZooKeeperUnavailable("killed")

    def deleted(is_killed_before, moved):
        for file in job.files.directory.iterdir():
            file.unlink()
        servers.brokers.logs[DELETED] = log()
        servers.brokers.store("g", {DELETED: 3})
        servers.begin(*TO_KAFKA, offsets={**OFFSETS, DELETED: 12})
        with monkeypatch.context() as patch:
            if is_killed_before == "its mark":
                patch.setattr(MarkedWrite, "settle", lose)
            with suppress(ZooKeeperUnavailable):
                servers.run(kill_at=8 if is_killed_before == "its file" else None)
        servers.brokers.store("g", {**OFFSETS, **moved})
        del servers.brokers.logs[DELETED]

    return deleted


@pytest.mark.parametrize("is_killed_before", ["its file", "its mark"])
def test_a_killed_run_is_completed_although_one_of_its_topics_was_deleted(servers, job, do, deleted, is_killed_before):
    deleted(is_killed_before, {PARTITIONS[0]: 40})
    assert "run" in status(do).judged.only
    do(RUN, TO_KAFKA)
    assert (servers.mark(), job.files.run_state()) == ("migrated", WriteState.COMPLETE)
    assert (status(do).state, status(do).reason) == (FleetState.CONSUMED, "")


def test_a_run_that_has_a_part_to_write_is_refused_if_one_of_its_topics_was_deleted(servers, do, deleted):
    """It is rolled back then, and planned again."""
    deleted("its file", {})
    with pytest.raises(WriteRefused, match="partitions do not exist any more: u-0"):
        do(RUN, TO_KAFKA)
    warnings = do(rollback_step(execute=True), TO_KAFKA).warnings
    assert "topic u does not exist, so brokers store no offsets of it" in warnings[0]
    assert (servers.brokers.stored("g"), servers.mark()) == ({}, None)
    assert status(do).state is FleetState.ROLLED_BACK
    do(plan_step, TO_KAFKA)
    assert do(RUN, TO_KAFKA).offsets == 5


@pytest.mark.parametrize("moved", [{}, {PARTITIONS[0]: 40}])
def test_a_complete_run_of_which_a_topic_was_deleted_is_rolled_back_unless_consumers_have_continued(
    servers, do, deleted, moved
):
    deleted("nothing", moved)
    if moved:
        with pytest.raises(WriteRefused, match="have moved since the migration: t-0; consumers"):
            do(rollback_step(execute=True), TO_KAFKA)
    else:
        do(rollback_step(execute=True), TO_KAFKA)
    assert servers.brokers.stored("g") == ({**OFFSETS, **moved} if moved else {})


def test_a_way_back_that_is_refused_replaces_no_file(servers, job, do):
    do(reverse_step(execute=True), TO_ZOOKEEPER)
    do(rollback_step(execute=True), TO_KAFKA)
    before = {path.name: path.read_text() for path in job.files.directory.iterdir()}
    servers.register()
    with pytest.raises(WriteRefused, match="g_member"):
        do(reverse_step(execute=True), TO_ZOOKEEPER)
    assert {path.name: path.read_text() for path in job.files.directory.iterdir()} == before


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_dry_way_back_is_refused_for_a_live_member(servers, do, monkeypatch, is_begun):
    if is_begun:
        kill_way_back(do, monkeypatch, "read_back")
    do(reverse_step(execute=False), TO_ZOOKEEPER)
    servers.register()
    with pytest.raises(WriteRefused, match="g_member"):
        do(reverse_step(execute=False), TO_ZOOKEEPER)


@pytest.mark.parametrize("is_back", [False, True])
def test_a_way_back_writes_the_znodes_that_were_deleted(servers, job, do, is_back):
    """Since the migration, or since the group came back."""
    if is_back:
        do(reverse_step(execute=True), TO_ZOOKEEPER)
    for path in sorted((path for path in servers.server.nodes if path.startswith("/consumers/g")), reverse=True):
        del servers.server.nodes[path]
    assert status(do).judged.only == ({"reverse"} if is_back else None)
    do(reverse_step(execute=True), TO_ZOOKEEPER)
    assert (servers.stored(), servers.mark()) == ({**OFFSETS, PARTITIONS[0]: 40}, None)
    assert job.files.back_state() is WriteState.COMPLETE


def test_ways_back_of_one_group_do_not_replace_each_others_plans(servers, job, do, monkeypatch):
    """The second one begins when the first has made its plan, and not begun to run it."""
    run = fleetsteps._run

    def meanwhile(*arguments, **options):
        monkeypatch.undo()
        with pytest.raises(WriteRefused, match=r"another run of .*for all groups of its wave.*`fuser "):
            do(reverse_step(execute=True), TO_ZOOKEEPER)
        return run(*arguments, **options)

    monkeypatch.setattr(fleetsteps, "_run", meanwhile)
    do(reverse_step(execute=True), TO_ZOOKEEPER)
    assert job.files.back_state() is WriteState.COMPLETE


def mirror_step(ends, job):
    return Mirror(job.files.required_plan(), job.files.plan_file).copy(ends)


def test_a_mirror_that_copies_after_a_way_back_was_planned_does_not_close_it(servers, do):
    servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 41})
    do(mirror_step, TO_ZOOKEEPER)
    servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 42})
    do(reverse_step(execute=False), TO_ZOOKEEPER)
    do(mirror_step, TO_ZOOKEEPER)
    assert status(do).state is FleetState.MIRRORED
    do(reverse_step(execute=True), TO_ZOOKEEPER)
    assert servers.stored()[PARTITIONS[0]] == 42


@pytest.mark.parametrize("is_rolled_back", [True, False])
def test_a_second_way_back_that_was_killed_does_not_close_the_first(servers, job, do, monkeypatch, is_rolled_back):
    """1. It was planned, or is rolled back; 2. the znodes have what the first one wrote."""
    do(reverse_step(execute=True), TO_ZOOKEEPER)
    servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 41})
    if is_rolled_back:
        kill_way_back(do, monkeypatch, "read_back")
        servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 42})
        assert status(do).judged.only == {"rollback"}
        do(rollback_step(execute=True), TO_KAFKA)
    else:
        kill_way_back(do, monkeypatch, "write_whole", fleetfiles)
    assert (servers.stored()[PARTITIONS[0]], job.files.back_state()) == (40, None)
    assert status(do).state is FleetState.CONSUMED
    do(reverse_step(execute=True), TO_ZOOKEEPER)
    assert servers.stored()[PARTITIONS[0]] == (42 if is_rolled_back else 41)


@pytest.mark.parametrize("is_dry", [True, False])
def test_a_mirror_knows_what_the_way_back_wrote_whose_repetition_was_killed(servers, do, monkeypatch, is_dry):
    """The group is consumed, as its status shows."""
    do(reverse_step(execute=True), TO_ZOOKEEPER)
    servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 41})
    kill_way_back(do, monkeypatch, "write_whole", fleetfiles)
    assert (status(do).state, status(do).judged.only) == (FleetState.CONSUMED, None)
    if is_dry:
        assert do(due_step(), TO_ZOOKEEPER).offsets == 1
        return
    with closing(FleetMirror([do.job])) as mirror:
        assert do(mirror.copy, TO_ZOOKEEPER).offsets == 1
    assert servers.stored()[PARTITIONS[0]] == 41


def test_a_fleet_is_verified_although_a_topic_was_deleted(servers, do, deleted):
    deleted("nothing", {})
    verified = do(verify_step, TO_KAFKA)
    assert (verified.offsets, verified.warnings) == (5, ("u-0 does not exist any more, and is not compared",))
    servers.brokers.logs.clear()
    with pytest.raises(WriteRefused, match="no partition of its plan exists"):
        do(verify_step, TO_KAFKA)


def test_a_killed_way_back_is_completed_although_a_topic_was_deleted_before_it(servers, do, deleted, monkeypatch):
    deleted("nothing", {PARTITIONS[0]: 40})
    kill_way_back(do, monkeypatch, "read_back")
    assert "reverse" in status(do).judged.only
    do(reverse_step(execute=True), TO_ZOOKEEPER)
    assert servers.mark() is None


@pytest.fixture
def not_run(servers, job, do):
    """The plan was made, and not run; the group in Kafka has offsets of its own."""

    def not_run(**settings):
        for file in job.files.directory.iterdir():
            file.unlink()
        with closing(session_in_memory(servers.server)) as session:
            remove_mark(session, "g")
        servers.store(OFFSETS)
        servers.brokers.store("g", FORMER)
        do.group = replace(GROUP, **settings)
        do(plan_step, TO_KAFKA)

    return not_run


FORMER = {partition: offset + 30 for partition, offset in OFFSETS.items()}


def test_a_plan_that_was_made_and_run_while_it_was_planned_is_not_replaced(servers, job, do, not_run, monkeypatch):
    not_run(rewind=True)
    job.files.plan_file.unlink()
    plan = MigrationEnds.plan

    def meanwhile(ends, **options):
        monkeypatch.undo()
        made = plan(ends, **options)
        do(plan_step, TO_KAFKA)
        do(RUN, TO_KAFKA)
        return made

    monkeypatch.setattr(MigrationEnds, "plan", meanwhile)
    with pytest.raises(WriteRefused, match="was written by another command meanwhile"):
        do(plan_step, TO_KAFKA)
    assert job.files.run_state() is WriteState.COMPLETE


def test_consumers_at_the_former_offsets_have_continued_after_a_complete_run(servers, do, not_run):
    """It has taken them back."""
    not_run(rewind=True)
    do(RUN, TO_KAFKA)
    servers.brokers.store("g", FORMER)
    assert status(do).state is FleetState.CONSUMED
    for step in (rollback_step(execute=True), RUN):
        with pytest.raises(WriteRefused, match=r"moved since the migration|another client has written"):
            do(step, TO_KAFKA)


def test_a_rollback_does_not_count_what_a_way_back_that_never_ran_had_read(do, not_run):
    not_run(rewind=True)
    do(RUN, TO_KAFKA)
    do(reverse_step(execute=False), TO_ZOOKEEPER)
    do(rollback_step(execute=True), TO_KAFKA)
    assert status(do).state is FleetState.ROLLED_BACK


def test_a_run_that_is_killed_between_its_mark_and_its_file_is_repeated(servers, do, not_run, monkeypatch):
    not_run(rewind=True)
    monkeypatch.setattr(SnapshotFile, "_put", killed)
    with pytest.raises(Killed):
        do(RUN, TO_KAFKA)
    monkeypatch.undo()
    assert (servers.mark(), status(do).judged.only) == ("migrating", {"run", "plan"})
    do(RUN, TO_KAFKA)
    assert servers.mark() == "migrated"


def test_a_mark_of_a_migration_to_another_group_is_not_planned_again(do):
    do.group = replace(GROUP, target=End("kafka", "h"))
    assert "which was run: set the file back" in status(do).reason
    for file in do.job.files.directory.iterdir():
        file.unlink()
    row = status(do)
    assert "the mark of a migration to kafka:g, and the fleet migrates it to kafka:h: correct `target`" in row.reason
    assert row.judged.only == set()


def test_a_killed_run_to_which_a_partition_was_added_is_rolled_back(servers, job, do, not_run):
    not_run(rewind=True)
    servers.plan = job.files.plan()
    servers.run(3)
    servers.brokers.logs[TopicPartition("t", 5)] = log()
    assert "run it again; if that is refused, roll it back, and plan it then" in status(do).reason
    with pytest.raises(WriteRefused, match="partitions were added"):
        do(RUN, TO_KAFKA)
    do(rollback_step(execute=True), TO_KAFKA)
    assert status(do).state is FleetState.ROLLED_BACK


def test_a_rollback_that_is_killed_between_its_mark_and_its_file_leaves_the_run_complete(servers, do, monkeypatch):
    """Consumers continue in Kafka, so that it cannot be rolled back."""
    servers.brokers.store("g", OFFSETS)
    monkeypatch.setattr(SnapshotFile, "mark", killed)
    with pytest.raises(Killed):
        do(rollback_step(execute=True), TO_KAFKA)
    monkeypatch.undo()
    servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 40})
    assert (servers.mark(), "run" in status(do).judged.only) == ("undoing", True)
    do(RUN, TO_KAFKA)
    assert (servers.mark(), status(do).state) == ("migrated", FleetState.CONSUMED)
