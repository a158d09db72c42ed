"""The mark of a group around the writes of migrations and of the ways back."""

from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.migrationsinmemory import OFFSETS, PARTITIONS, TO_KAFKA, TO_ZOOKEEPER, Servers
from zkconsumer.errors import SessionExpired, WriteRefused, ZkConsumerError, ZooKeeperUnavailable
from zkconsumer.operate.migrate.migrationmark import MarkedWrite, remove_mark, write_mark
from zkconsumer.operate.migrate.rules.planfile import encode_plan
from zkconsumer.operate.migrate.run import check_plan
from zkconsumer.operate.offsets.groupinuse import read_mark
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.zookeeper.rules.znodes import MigrationMark

WRITTEN_MS = 7
FORMER = {PARTITIONS[0]: 3}


def marked(servers, state, target="kafka:g"):
    with closing(session_in_memory(servers.server)) as session:
        write_mark(session, "g", MigrationMark(state, target, WRITTEN_MS))


def mark_of(servers):
    with closing(session_in_memory(servers.server)) as session:
        return read_mark(session, "g")


def test_a_run_to_kafka_marks_the_group_and_a_rollback_removes_the_mark(servers):
    servers.begin(*TO_KAFKA)
    servers.run()
    mark = mark_of(servers)
    assert (mark.state, mark.target) == ("migrated", "kafka:g")
    assert mark.at_ms > 1_700_000_000_000
    servers.roll_back()
    assert servers.mark() is None


@pytest.mark.parametrize("is_marked", [False, True])
def test_a_group_is_marked_although_another_tool_removes_the_parent(servers, is_marked):
    """Between the request that makes or finds the parent, or the mark, and the one that writes the mark."""
    servers.store(FORMER)
    if is_marked:
        marked(servers, "undoing")
    removes = ["set" if is_marked else "create"]
    with closing(session_in_memory(servers.server)) as session:
        transact = session.transact

        def removing(fence, operations):
            if operations[0].kind in removes:
                removes.clear()
                with closing(session_in_memory(servers.server)) as other:
                    remove_mark(other, "g")
            return transact(fence, operations)

        session.transact = removing
        write_mark(session, "g", MigrationMark("migrating", "kafka:g", WRITTEN_MS))
    assert (removes, servers.mark()) == ([], "migrating")


def test_a_mark_that_cannot_be_written_is_no_mark(servers):
    with closing(session_in_memory(servers.server)) as session:
        session.ensure_path = lambda *_arguments, **_options: None
        with pytest.raises(ZkConsumerError, match="/consumers/g/zkconsumer/migrated cannot be written"):
            write_mark(session, "g", MigrationMark("migrating", "kafka:g", WRITTEN_MS))


def test_a_run_that_finds_everything_written_marks_the_group(servers):
    servers.begin(*TO_KAFKA)
    servers.run()
    with closing(session_in_memory(servers.server)) as session:
        remove_mark(session, "g")
    assert servers.run().written == []
    assert servers.mark() == "migrated"


def test_a_run_that_finds_everything_written_marks_no_group_whose_member_starts_before_its_hold(servers):
    """1. A group is reversed, which removes its mark; 2. its plan is run again; 3. an old consumer starts meanwhile."""
    servers.begin(*TO_KAFKA)
    servers.run()
    with closing(session_in_memory(servers.server)) as session:
        remove_mark(session, "g")
    with pytest.raises(WriteRefused, match="g_member"):
        servers.run(before_hold=servers.register)
    assert (servers.mark(), servers.state()) == (None, WriteState.COMPLETE)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(kills=st.lists(st.integers(0, 9), min_size=1, max_size=3))
def test_members_are_kept_out_from_before_the_first_offset_on(tmp_path_factory, kills):
    servers = Servers(tmp_path_factory.mktemp("run"))
    servers.begin(*TO_KAFKA)
    for kill_at in kills:
        servers.run(kill_at)
        assert servers.mark() in ("migrating", "migrated") or servers.brokers.stored("g") == {}
    assert servers.run().faults == []
    assert servers.mark() == "migrated"


def test_a_run_that_is_refused_leaves_the_mark_as_it_was(servers):
    servers.begin(*TO_KAFKA)
    with pytest.raises(WriteRefused):
        servers.run(before_hold=servers.register)
    assert servers.mark() is None
    marked(servers, "migrating")
    with pytest.raises(WriteRefused):
        servers.run()
    assert mark_of(servers) == MigrationMark("migrating", "kafka:g", WRITTEN_MS)


def test_a_run_marks_the_group_once_no_guard_can_refuse_it(servers):
    """A member that registers again meanwhile would end for good, though the run is refused."""
    seen = []

    def register():
        seen.append(servers.mark())
        servers.register()

    servers.begin(*TO_KAFKA)
    with pytest.raises(WriteRefused):
        servers.run(before_hold=register)
    assert seen == [None]


@pytest.mark.parametrize("is_marked_by_another", [False, True])
def test_a_run_whose_hold_has_ended_marks_no_group(servers, monkeypatch, is_marked_by_another):
    """1. The run is stopped under its hold; 2. its session ends; 3. another tool may mark the group; 4. it runs."""
    begin = MarkedWrite.begin

    def begin_late(write, fence):
        servers.server.end_session(write._session.session_id)
        for _ in ("it has expired", "the next one"):
            write._session._client.connect()
        if is_marked_by_another:
            marked(servers, "migrating", "kafka:h")
        begin(write, fence)

    monkeypatch.setattr(MarkedWrite, "begin", begin_late)
    servers.begin(*TO_KAFKA)
    with pytest.raises(SessionExpired):
        servers.run()
    assert mark_of(servers) == (MigrationMark("migrating", "kafka:h", WRITTEN_MS) if is_marked_by_another else None)
    assert servers.brokers.stored("g") == {}


def test_a_write_that_fails_at_once_restores_the_mark_with_its_time(servers):
    servers.store(FORMER)
    servers.begin(*TO_ZOOKEEPER)
    marked(servers, "migrated")
    with pytest.raises(WriteRefused):
        servers.run(before_hold=servers.register)
    assert mark_of(servers) == MigrationMark("migrated", "kafka:g", WRITTEN_MS)


def test_a_way_back_removes_the_mark_and_its_rollback_sets_it_again(servers):
    servers.store(FORMER)
    servers.begin(*TO_ZOOKEEPER)
    marked(servers, "migrated")
    servers.run(4)
    assert servers.mark() == "undoing"
    servers.run()
    assert servers.mark() is None
    marked(servers, "undoing")  # another way back has begun
    servers.roll_back()
    assert servers.mark() == "migrated"


def test_a_rollback_of_a_complete_way_back_sets_no_mark(servers):
    servers.store(FORMER)
    servers.begin(*TO_ZOOKEEPER)
    marked(servers, "migrated")
    servers.run()
    servers.roll_back()
    assert (servers.stored(), servers.mark()) == (FORMER, None)


def test_a_group_without_a_mark_gets_none_from_a_way_back(servers):
    servers.store(FORMER)
    servers.begin(*TO_ZOOKEEPER)
    servers.run()
    assert servers.mark() is None
    servers.roll_back()
    assert servers.mark() is None


@pytest.fixture
def unsettled(monkeypatch):
    """Each run writes everything, and loses ZooKeeper before the mark shows that; returns what ends this."""

    def settle(_marked):
        raise ZooKeeperUnavailable("no server answers")

    monkeypatch.setattr(MarkedWrite, "settle", settle)
    return monkeypatch.undo


@pytest.mark.parametrize(
    ("ends", "before", "after"), [(TO_KAFKA, "migrating", "migrated"), (TO_ZOOKEEPER, "undoing", None)]
)
def test_a_mark_is_completed_although_consumers_have_continued(servers, unsettled, ends, before, after):
    marked(servers, "migrated")
    servers.begin(*ends)
    assert "the mark of group g does not show it: no server answers; run the plan again" in servers.run().faults[0]
    unsettled()
    assert servers.mark() == before
    continued = {**OFFSETS, PARTITIONS[0]: 40}
    servers.store(continued) if ends == TO_ZOOKEEPER else servers.brokers.store("g", continued)
    with closing(session_in_memory(servers.server)) as session:
        assert len(check_plan(servers.ends(session), servers.plan, servers.file).found) == len(PARTITIONS)
    assert "was killed before the mark of group g showed it" in servers.run().warnings[0]
    assert servers.mark() == after
    assert continued in (servers.stored(), servers.brokers.stored("g"))


@pytest.mark.parametrize("commits", [True, False], ids=["they commit", "they have not committed yet"])
@pytest.mark.parametrize(("ends", "mark"), [(TO_KAFKA, "migrating"), (TO_ZOOKEEPER, "undoing")])
def test_a_mark_is_not_completed_if_consumers_of_the_source_have_continued(servers, unsettled, commits, ends, mark):
    """1. All is written; 2. the run is killed before the mark shows that; 3. consumers that know no mark start."""
    marked(servers, "migrated")
    servers.begin(*ends)
    assert "the mark of group g does not show it: no server answers; run the plan again" in servers.run().faults[0]
    unsettled()
    match ends, commits:
        case (("zookeeper:g", _), True):
            servers.store({PARTITIONS[0]: 40})
        case (("zookeeper:g", _), False):
            servers.register()
        case (_, True):
            servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 40})
        case (_, False):
            servers.brokers.live.add("g")
    with pytest.raises(WriteRefused):
        servers.run()
    assert servers.mark() == mark


def test_a_mark_is_not_completed_before_offsets_that_were_lost_are_written(servers, unsettled):
    """1. All is written; 2. the run is killed before the mark shows that; 3. an offset expires in Kafka."""
    servers.begin(*TO_KAFKA)
    assert "the mark of group g does not show it: no server answers; run the plan again" in servers.run().faults[0]
    unsettled()
    del servers.brokers.groups["g"][PARTITIONS[0]]
    assert "kafka:g had lost its offsets of t-0" in servers.run().warnings[0]
    assert (servers.brokers.stored("g"), servers.mark()) == (OFFSETS, "migrated")


@pytest.mark.parametrize("state", ["undoing", "migrating"])
def test_a_run_does_not_complete_the_mark_of_another_write(servers, state):
    servers.begin(*TO_KAFKA)
    servers.run()
    marked(servers, state)  # a way back has begun, or the run of another plan was killed
    servers.brokers.store("g", {**OFFSETS, PARTITIONS[0]: 40})
    with pytest.raises(WriteRefused):
        servers.run()
    assert servers.mark() == state


@pytest.mark.parametrize("way_back", ["rollback", "reverse"])
def test_a_way_back_leaves_the_mark_of_a_migration_to_another_group(servers, way_back):
    """1. A plan has a wrong group; 2. another one is run; 3. consumers continue there; 4. the first one is undone."""
    servers.begin(*TO_KAFKA)
    servers.run()
    if way_back == "reverse":
        servers.begin(*TO_ZOOKEEPER)
        servers.file = servers.file.with_name("back")
    marked(servers, "migrated", "kafka:h")
    if way_back == "reverse":
        servers.file.write_text(encode_plan(servers.plan))
        servers.run()
    servers.roll_back()
    assert mark_of(servers) == MigrationMark("migrated", "kafka:h", WRITTEN_MS)


def test_a_repeated_run_that_has_written_nothing_leaves_the_migration_complete(servers):
    """Otherwise neither a mirror nor a way back would be accepted."""
    servers.begin(*TO_KAFKA)
    servers.run()
    del servers.brokers.groups["g"][PARTITIONS[0]]
    servers.brokers.before_commit = servers.brokers.live.add
    report = servers.run()
    assert (report.is_complete, report.written) == (False, [])
    assert (servers.mark(), servers.state()) == ("migrated", WriteState.COMPLETE)
