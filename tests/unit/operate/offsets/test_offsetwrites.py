"""Writes of a group's offsets to a ZooKeeper and brokers in memory, in which something happens in the middle."""

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.protocol.serialization import GetData

from tests.fixtures.groupsinmemory import log, session_in_memory
from tests.fixtures.kazooinmemory import Loss
from tests.fixtures.migrationsinmemory import OFFSETS, PARTITIONS, Killed
from zkconsumer.errors import BrokerUnavailable, GroupAuthorizationFailed
from zkconsumer.group.zookeeper.topicrecords import TopicRecords
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.topicorigins import WrittenFor
from zkconsumer.operate.groups.groupremoval import plan_delete
from zkconsumer.operate.offsets import grouphold as hold
from zkconsumer.operate.offsets import patience
from zkconsumer.operate.offsets.offsetfiles import parse_offsets
from zkconsumer.operate.offsets.offsetimport import plan_import
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.resetplan import plan_reset
from zkconsumer.operate.offsets.rules.offsetreset import ResetSpec
from zkconsumer.operate.offsets.snapshot import SnapshotFile
from zkconsumer.operate.offsets.znodewrites import ZnodeWrites
from zkconsumer.zookeeper.fencedtransaction import Operation

NAMES = [f"{partition} of group g in Kafka" for partition in PARTITIONS]


def after_writing(monkeypatch, action):
    """Call ``action`` between the last write and the reading back."""
    outlast = hold.GroupHold.outlast_attempts
    pending = [action]

    def late(self):
        outlast(self)
        if pending:
            pending.pop()()

    monkeypatch.setattr(hold.GroupHold, "outlast_attempts", late)


def reset_in_kafka(servers, session):
    """Reset a group that has its offsets in Kafka to 0."""
    servers.brokers.store("g", OFFSETS)
    plan = plan_reset(session, servers.brokers, "g", {"t": None}, ResetSpec("earliest"), store="kafka")
    return execute(session, servers.brokers, plan, SnapshotFile(servers.file.with_name("snapshot")))


# -- offsets in Kafka -------------------------------------------------------------------------------------------------


def test_a_commit_to_kafka_is_read_back(servers, session):
    report = reset_in_kafka(servers, session)
    assert (report.faults, report.written) == ([], NAMES)
    assert servers.brokers.stored("g") == dict.fromkeys(PARTITIONS, 0)


def test_a_topic_that_zookeeper_lacks_decides_the_store(servers, session):
    servers.brokers.store("g", OFFSETS)
    servers.write("/consumers/g/offsets/u/0", 5)
    servers.brokers.logs[TopicPartition("u", 0)] = log()
    servers.write("/brokers/topics/u", b'{"version":1,"partitions":{"0":[0]}}')
    for topics in (None, {"u": None}):
        plan = plan_reset(session, servers.brokers, "g", topics, ResetSpec("earliest"))
        assert "has offsets in ZooKeeper and in Kafka" in plan.refusals[0]
    plan = plan_reset(session, servers.brokers, "g", None, ResetSpec("earliest"), store="zookeeper")
    assert [str(row.partition) for row in plan.groups[0].rows] == ["u-0"]


def test_a_client_that_overwrites_a_commit_is_reported(servers, session, monkeypatch):
    after_writing(monkeypatch, lambda: servers.brokers.store("g", {**dict.fromkeys(PARTITIONS, 0), PARTITIONS[2]: 77}))
    (fault,) = reset_in_kafka(servers, session).faults
    assert fault.startswith("another client wrote t-2 of group g in Kafka as 77, right after")


def test_a_group_that_a_coordinator_refuses_is_not_said_to_be_overwritten(servers, session, monkeypatch):
    """Another group of the same plan has offsets of the same partition."""
    brokers = servers.brokers
    commit = type(brokers).commit
    for group in ("g", "h"):
        brokers.store(group, {PARTITIONS[0]: 3})

    def refuse(_brokers, group, offsets, **options):
        return dict.fromkeys(offsets, "refused") if group == "h" else commit(brokers, group, offsets, **options)

    monkeypatch.setattr(type(brokers), "commit", refuse)
    file = parse_offsets("f", b"/consumers/g/offsets/t/0:5\n/consumers/h/offsets/t/0:5\n")
    plan = plan_import(session, brokers, file, store="kafka")
    report = execute(session, brokers, plan, SnapshotFile(servers.file.with_name("snapshot")))
    assert report.faults == ["t-0 of group h in Kafka was not written: refused"]
    assert (report.written, report.not_written) == (NAMES[:1], ["t-0 of group h in Kafka"])


def test_what_a_commit_without_an_answer_has_stored_is_written(servers, session):
    """It is the first request; no other one is sent."""
    servers.brokers.loses_answer = True
    report = reset_in_kafka(servers, session)
    assert (report.written, report.not_written) == (NAMES[:2], NAMES[2:])
    assert "the connection broke" in report.faults[0]


def test_a_commit_without_an_answer_that_cannot_be_seen_may_be_stored_later(servers, session, monkeypatch):
    """The coordinator has appended it, and its followers are slow."""
    commit = type(servers.brokers).commit
    late = []

    def append(brokers, group, offsets, **options):
        options["before_send"]()
        late.append(lambda: commit(brokers, group, offsets, **options | {"before_send": lambda: None}))
        raise BrokerUnavailable("REQUEST_TIMED_OUT")

    monkeypatch.setattr(type(servers.brokers), "commit", append)
    report = reset_in_kafka(servers, session)
    assert (report.written, report.not_written, report.unknown) == ([], NAMES[2:], NAMES[:2])
    for store in late:
        store()
    assert servers.brokers.stored("g") != OFFSETS


def test_what_a_coordinator_refuses_to_this_client_is_not_written(servers, session, monkeypatch):
    def refuse(_brokers, _group, _offsets, **options):
        options["before_send"]()
        raise GroupAuthorizationFailed("not authorized")

    monkeypatch.setattr(type(servers.brokers), "commit", refuse)
    report = reset_in_kafka(servers, session)
    assert (report.written, report.not_written, report.unknown) == ([], NAMES, [])


def test_what_a_silent_coordinator_may_have_stored_is_unknown(servers, session):
    def break_down(_group):
        servers.brokers.loses_answer = servers.brokers.silent = True

    servers.brokers.before_commit = break_down
    report = reset_in_kafka(servers, session)
    assert (report.written, report.not_written, report.unknown) == ([], [], NAMES)
    assert NAMES[0] in report.faults[-1]
    assert "is unknown" in report.faults[-1]


def test_nothing_is_committed_once_the_hold_has_ended(servers, session, monkeypatch):
    monkeypatch.setattr(patience, "_RECONNECT_S", 0.1)
    servers.brokers.before_commit = lambda _group: servers.server.end_session(session.session_id)
    report = reset_in_kafka(servers, session)
    assert (servers.brokers.stored("g"), report.written) == (OFFSETS, [])
    assert "ZooKeeper did not answer" in report.faults[0]


# -- offsets in ZooKeeper ---------------------------------------------------------------------------------------------


def test_a_transaction_without_an_answer_is_unknown_if_another_client_has_written_since(servers, session):
    """1. It is done, and its answer is lost; 2. a member whose session has expired writes what it knew."""
    servers.store(OFFSETS)
    plan = plan_reset(session, servers.brokers, "g", {"t": None}, ResetSpec("earliest"), store="zookeeper")
    client = session._client
    client.loses = Loss(0, request=False, writes_below="/consumers/g/offsets", reconnects=True)
    ask, late = client._ask, []

    def ask_late(request):
        lost = client.loses is None and not late
        if lost:
            late.append(request)
            servers.store({PARTITIONS[0]: 77})
        return ask(request)

    client._ask = ask_late
    report = execute(session, servers.brokers, plan, SnapshotFile(servers.file.with_name("snapshot")))
    assert late
    assert report.not_written == []
    assert f"/consumers/g/offsets/t/{PARTITIONS[0].partition}" in report.unknown
    assert "another client has written" in report.faults[1]


def test_what_may_not_be_read_after_a_lost_answer_is_unknown_at_once(servers, session, monkeypatch):
    servers.store(OFFSETS)
    plan = plan_reset(session, servers.brokers, "g", {"t": None}, ResetSpec("earliest"), store="zookeeper")
    client, refused = session._client, []
    client.loses = Loss(0, request=False, writes_below="/consumers/g/offsets", reconnects=True)
    ask = client._ask

    def read(request):
        if client.loses is None and isinstance(request, GetData) and not refused:
            refused.append(request.path)
            return NoAuthError()
        return ask(request)

    monkeypatch.setattr(client, "_ask", read)
    report = execute(session, servers.brokers, plan, SnapshotFile(servers.file.with_name("snapshot")))
    assert report.unknown == [f"/consumers/g/offsets/t/{partition.partition}" for partition in PARTITIONS]
    assert refused == report.unknown[:1]
    assert "is unknown" in report.faults[1]


def described(topic_id):
    return b'{"version":1,"partitions":{"0":[0],"1":[0]},"topic_id":"%s"}' % topic_id.encode()


def create_again(servers):
    """A topic that members of the group have consumed is deleted, and another one of its name created."""
    servers.write("/brokers/topics/t", described("old"))
    servers.member_consumes(TopicIdentity("old", None))
    servers.store(OFFSETS)
    servers.write("/brokers/topics/t", described("new"))


def outdated(session):
    """The partitions of which a member that starts now ignores the offset; brokers describe its topics."""
    marks = {p: session.get(f"/consumers/g/offsets/t/{p.partition}").mzxid for p in PARTITIONS[:2]}
    origins = TopicRecords(session, "g", lambda: "/").consume({"t": TopicIdentity("new", None)})
    return {p for p, mark in marks.items() if origins["t"].judge(mark) is WrittenFor.EARLIER}


@pytest.mark.parametrize(("live", "has_member"), [(False, False), (True, False), (True, True)])
def test_what_is_written_is_of_the_topic_that_exists(servers, session, live, has_member):
    """Members that run write the record themselves."""
    create_again(servers)
    if has_member:
        servers.write(
            "/consumers/g/ids/g_a", b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}'
        )
    plan = plan_reset(session, servers.brokers, "g", {"t": [0]}, ResetSpec("offset", 50), store="zookeeper", live=live)
    report = execute(session, servers.brokers, plan, SnapshotFile(servers.file.with_name("snapshot")))
    assert report.faults == []
    assert outdated(session) == {*PARTITIONS[:2]} - (set() if has_member else {PARTITIONS[0]})


def test_a_record_that_may_not_be_written_is_reported(servers, session):
    create_again(servers)
    servers.server.guarded.add("/consumers/g/zkconsumer/topics/t")
    plan = plan_reset(session, servers.brokers, "g", {"t": [0]}, ResetSpec("offset", 50), store="zookeeper")
    report = execute(session, servers.brokers, plan, SnapshotFile(servers.file.with_name("snapshot")))
    assert (report.faults, report.written) == ([], ["/consumers/g/offsets/t/0"])
    assert "members may take what is written for offsets of earlier topics" in report.warnings[0]


def test_a_run_that_is_killed_after_the_record_leaves_the_offsets_of_the_former_topic(servers, session, monkeypatch):
    create_again(servers)
    plan = plan_reset(session, servers.brokers, "g", {"t": [0]}, ResetSpec("offset", 50), store="zookeeper")
    monkeypatch.setattr(ZnodeWrites, "write", lambda _: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        execute(session, servers.brokers, plan, SnapshotFile(servers.file.with_name("snapshot")))
    assert outdated(session) == set(PARTITIONS[:2])


# -- deletions --------------------------------------------------------------------------------------------------------

GROUP = ["/consumers/g", "/consumers/g/owners", "/consumers/g/owners/t"]


def delete(servers, session, topic=None, *, live=False):
    plan = plan_delete(session, servers.brokers, ["g"], topic, live=live)
    assert plan.refusals == ()
    return execute(session, servers.brokers, plan, SnapshotFile(servers.file.with_name("snapshot")))


@pytest.fixture
def group(servers):
    """A group with offsets, and with the parents that members leave."""
    servers.store(OFFSETS)
    for path in ("ids", "owners/t"):
        servers.write(f"/consumers/g/{path}", b"")
    return servers


def left(servers):
    return sorted(path for path in servers.server.nodes if path.startswith("/consumers/g"))


def test_a_group_is_deleted(group, session):
    report = delete(group, session)
    assert (report.faults, report.warnings, report.not_written, left(group)) == ([], [], [], [])
    assert set(GROUP) < set(report.written)


def test_what_a_member_that_registers_keeps_from_being_deleted_is_a_fault(group, session, monkeypatch):
    after_writing(monkeypatch, group.register)
    report = delete(group, session)
    (fault,) = report.faults
    assert fault.startswith("/consumers/g/owners/t, /consumers/g/owners, /consumers/g could not be deleted")
    assert sorted(report.not_written) == GROUP


def test_a_lost_owner_znode_of_the_hold_does_not_prevent_the_last_deletions(group, session, monkeypatch):
    other = session_in_memory(group.server)
    after_writing(monkeypatch, lambda: other.commit_changes("/", [Operation("delete", "/consumers/g/owners/t/0")]))
    report = delete(group, session)
    assert (report.faults, report.not_written, left(group)) == ([], [], [])
    assert "owners/t/0 was deleted by another client" in report.warnings[0]


def test_an_offset_that_comes_back_is_deleted_again(group, session, monkeypatch):
    group.write("/consumers/g/offsets/u/0", b"5")
    after_writing(monkeypatch, lambda: group.write("/consumers/g/offsets/t/0", b"7"))
    report = delete(group, session, "t")
    assert (report.faults, report.not_written) == ([], [])
    assert [path for path in left(group) if path.startswith("/consumers/g/offsets/t")] == []
    assert any("offsets/t/0 was written by another client right after it was deleted" in w for w in report.warnings)


def test_owners_of_live_members_stay(group, session):
    group.write("/consumers/g/offsets/u/0", b"5")
    group.register()
    assert session_in_memory(group.server).create_ephemerals([("/consumers/g/owners/t/0", b"g_member-0")])
    report = delete(group, session, "t", live=True)
    assert (report.faults, report.not_written) == ([], ["/consumers/g/owners/t"])
    assert not any("registered meanwhile" in warning and "stays" in warning for warning in report.warnings)
