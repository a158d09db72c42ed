"""Mirrors of a migrated group between a ZooKeeper and brokers in memory."""

from contextlib import closing, contextmanager

import pytest

from tests.fixtures.groupsinmemory import log, session_in_memory
from tests.fixtures.migrationsinmemory import OFFSETS, PARTITIONS, TO_KAFKA, TO_ZOOKEEPER
from zkconsumer.errors import BrokerUnavailable, WriteRefused
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.migrate.mirror import CopyReport, Mirror, run_mirror
from zkconsumer.operate.migrate.rollback import plan_reverse
from zkconsumer.operate.migrate.rules.planfile import encode_plan
from zkconsumer.operate.offsets import offsetwrites
from zkconsumer.operate.offsets.grouphold import GroupHold
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import SnapshotFile

MOVED = {**OFFSETS, PARTITIONS[0]: 40, PARTITIONS[3]: 41}


class Killed(BaseException):
    """The process ends, and with it its session."""


@pytest.fixture
def migrated(servers):
    """A group that was migrated to Kafka, where consumers have continued."""
    servers.begin(*TO_KAFKA)
    servers.run()
    servers.brokers.store("g", MOVED)
    return servers


@contextmanager
def reversed_ends(servers):
    servers._ends = TO_ZOOKEEPER
    with closing(session_in_memory(servers.server)) as session:
        yield servers.ends(session)


def copy(servers, **how):
    with reversed_ends(servers) as ends:
        return Mirror(servers.plan, servers.file, **how).copy(ends)


def test_a_copy_brings_the_znodes_where_kafka_is(migrated):
    report = copy(migrated)
    assert (report.copied, report.faults) == ({PARTITIONS[0]: 40, PARTITIONS[3]: 41}, [])
    assert migrated.stored() == MOVED
    assert migrated.left_over() == [], "the hold leaves nothing"
    assert copy(migrated).copied == {}


NEW = TopicPartition("new", 0)
"""Of a topic that began after the plan; new consumers have read it to 7."""


def test_topics_that_began_after_the_plan_are_copied(migrated):
    """Old consumers would begin there at ``largest`` otherwise."""
    migrated.brokers.logs[NEW] = log(0, 9)
    migrated.brokers.store("g", {**MOVED, NEW: 7})
    report = copy(migrated)
    assert (report.copied[NEW], report.faults, report.warnings) == (7, [], [])
    assert migrated.stored() == {**MOVED, NEW: 7}
    migrated.brokers.store("g", {**MOVED, NEW: 8})
    assert copy(migrated).copied == {NEW: 8}


def test_an_offset_in_kafka_of_an_earlier_topic_is_not_copied(migrated):
    """New consumers ignore it; its copy would be newer than the topic, so old consumers would begin there."""
    topic = b'{"version":3,"topic_id":"new","partitions":{"0":[0],"1":[0],"2":[0],"3":[0],"4":[0]}}'
    migrated.write("/brokers/topics/t", topic)
    late = {PARTITIONS[1]: StoredOffset(50, "zkconsumer:late:old"), PARTITIONS[2]: StoredOffset(51, "zkconsumer:x:new")}
    migrated.brokers.groups["g"] |= late
    assert copy(migrated).copied == {PARTITIONS[0]: 40, PARTITIONS[2]: 51, PARTITIONS[3]: 41}


def test_an_offset_of_such_a_topic_in_zookeeper_ends_the_mirror(migrated):
    migrated.brokers.logs[NEW] = log(0, 9)
    migrated.brokers.store("g", {**MOVED, NEW: 7})
    migrated.store({NEW: 5})
    with pytest.raises(WriteRefused, match="have moved since the migration: new-0"):
        copy(migrated)


def test_a_partition_that_no_end_has_an_offset_of_is_reported(migrated):
    migrated.brokers.logs[TopicPartition("t", 5)] = log()
    assert "neither end has an offset of t-5" in copy(migrated).warnings[0]


def test_a_reset_in_kafka_is_copied_if_that_is_accepted(migrated):
    copy(migrated)
    migrated.brokers.store("g", OFFSETS)
    with pytest.raises(WriteRefused, match=r"zookeeper:g is ahead of kafka:g: t-0, t-3.*--rewind"):
        copy(migrated)
    assert copy(migrated, rewind=True).faults == []
    assert migrated.stored() == OFFSETS


def way_back(servers):
    with reversed_ends(servers) as ends:
        return plan_reverse(ends, servers.plan, servers.file, missing="fail")


def test_an_offset_that_expires_after_it_was_copied_stays_on_the_way_back(migrated):
    """Also of a partition without new records, which Kafka and its znode have where they were migrated."""
    copy(migrated)
    migrated.brokers.store("g", {PARTITIONS[3]: 44})
    assert copy(migrated).copied == {PARTITIONS[3]: 44}
    plan = way_back(migrated)
    assert (plan.refusals, plan.warnings) == ((), ())
    assert [row.new for row in plan.partitions] == [40, 11, 12, 44, 14]
    migrated.plan, migrated.file = plan, migrated.file.with_name("back")
    migrated.file.write_text(encode_plan(plan))
    assert (migrated.run().faults, migrated.mark()) == ([], None)
    assert migrated.stored() == {**MOVED, PARTITIONS[3]: 44}


def test_an_offset_that_expired_before_the_first_copy_is_missing_on_the_way_back(migrated):
    """1. Consumers read a partition in Kafka; 2. its offset expires; 3. a mirror begins: the znode's is older."""
    migrated.brokers.store("g", {p: offset for p, offset in MOVED.items() if p != PARTITIONS[1]})
    copy(migrated)
    assert way_back(migrated).refusals[0].startswith("kafka:g has no offset of t-1; plan with --missing earliest")


def test_nothing_is_held_if_nothing_has_moved(servers):
    servers.begin(*TO_KAFKA)
    servers.run()
    before = dict(servers.server.nodes)
    assert copy(servers).copied == {}
    assert servers.server.nodes == before


def test_offsets_of_before_the_migration_are_not_copied_after_a_rollback(servers):
    servers.brokers.store("g", dict.fromkeys(PARTITIONS, 3))
    servers.begin(*TO_KAFKA)
    servers.run()
    assert servers.roll_back().faults == []
    with pytest.raises(WriteRefused, match="the plan was rolled back"):
        copy(servers)
    assert servers.stored() == OFFSETS
    servers._ends = TO_KAFKA
    assert servers.run().faults == []
    assert copy(servers).copied == {}


def test_a_run_that_was_killed_at_its_first_request_is_not_mirrored(servers):
    """1. Kafka has old offsets; 2. a run is killed; 3. old consumers are to continue where they were."""
    servers.brokers.store("g", dict.fromkeys(PARTITIONS, 3))
    servers.begin(*TO_KAFKA)
    servers.run(1)
    assert servers.state() is WriteState.WRITING
    with pytest.raises(WriteRefused, match="no run of the plan has ended"):
        copy(servers)
    assert servers.stored() == OFFSETS
    servers._ends = TO_KAFKA
    assert servers.run().faults == []
    assert copy(servers).copied == {}


def test_a_run_whose_mark_is_not_settled_is_repeated_before_the_mirror(servers):
    servers.begin(*TO_KAFKA)
    servers.run()
    done = servers.server.nodes["/consumers/g/zkconsumer/migrated"].data
    servers.write("/consumers/g/zkconsumer/migrated", done.replace(b'"migrated"', b'"migrating"'))
    with pytest.raises(WriteRefused, match="group g is marked as migrating"):
        copy(servers)
    servers._ends = TO_KAFKA
    assert servers.run().faults == []
    assert copy(servers).faults == []


def test_a_rollback_that_wrote_nothing_leaves_the_mirror(migrated):
    """A member of the source registers after the guards were checked, so the hold is refused."""
    migrated.brokers.store("g", OFFSETS)
    with pytest.raises(WriteRefused, match="g_member"):
        migrated.roll_back(before_hold=migrated.register)
    migrated.member.close()
    migrated.brokers.store("g", MOVED)
    assert copy(migrated).faults == []
    assert migrated.stored() == MOVED


def test_members_end_the_mirror_before_it_writes(migrated):
    migrated.register()
    with pytest.raises(WriteRefused, match="1 live member: g_member"):
        copy(migrated)
    assert migrated.stored() == OFFSETS


def test_a_member_that_registers_during_a_copy_ends_the_mirror(migrated, monkeypatch):
    monkeypatch.setattr(offsetwrites.GroupHold, "outlast_attempts", lambda _self: migrated.register())
    seen = []
    with pytest.raises(WriteRefused, match="live member: g_member"):
        run_mirror(
            Mirror(migrated.plan, migrated.file),
            lambda: reversed_ends(migrated),
            duration=60,
            interval=1,
            pause=lambda _seconds: False,
            show=seen.append,
        )
    assert (len(seen), migrated.stored()) == (1, MOVED)


def test_a_commit_between_reading_and_writing_is_kept(migrated, monkeypatch):
    """An old consumer, whose session has expired, commits after the znodes were read."""
    take = offsetwrites.GroupHold.take

    def late(hold):
        with closing(session_in_memory(migrated.server)) as other:
            other._client.set("/consumers/g/offsets/t/0", b"11")
        take(hold)

    monkeypatch.setattr(offsetwrites.GroupHold, "take", late)
    report = copy(migrated)
    assert (report.copied, len(report.faults)) == ({}, 1)
    assert "/consumers/g/offsets/t/0 was not written" in report.faults[0]
    monkeypatch.undo()
    with pytest.raises(WriteRefused, match="have moved since the last copy: t-0"):
        copy(migrated)
    assert migrated.stored()[PARTITIONS[0]] == 11


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("point", range(4))
def test_a_copy_that_was_killed_is_repeated(migrated, monkeypatch, point, after):
    """Killed before or after each file, and before or after its transaction."""
    count = 0

    def killing(function):
        def call(*arguments, **options):
            nonlocal count
            count += 1
            if count - 1 == point and not after:
                raise Killed
            answer = function(*arguments, **options)
            if count - 1 == point:
                raise Killed
            return answer

        return call

    with monkeypatch.context() as patch, reversed_ends(migrated) as ends:
        patch.setattr(SnapshotFile, "_put", killing(SnapshotFile._put))
        patch.setattr(offsetwrites.GroupHold, "take", killing(offsetwrites.GroupHold.take))
        patch.setattr(offsetwrites.GroupHold, "outlast_attempts", killing(lambda _hold: None))
        with pytest.raises(Killed):
            Mirror(migrated.plan, migrated.file).copy(ends)
    migrated.brokers.store("g", {**MOVED, PARTITIONS[0]: 45})
    assert copy(migrated).faults == []
    assert migrated.stored() == {**MOVED, PARTITIONS[0]: 45}
    assert not any(node.owner for node in migrated.server.nodes.values()), "no hold"


class Course:
    """A mirror whose servers fail in a given order, and whose clock moves by what it waits for."""

    def __init__(self, servers, failures, moves=lambda: None) -> None:
        self._servers = servers
        self._failures = iter(failures)
        self._moves = moves
        self.now = 0.0
        self.seen: list = []
        self.waits: list[float] = []

    @contextmanager
    def connect(self):
        error = next(self._failures, None)
        if error is not None:
            raise error
        with reversed_ends(self._servers) as ends:
            yield ends

    def pause(self, seconds):
        self.waits.append(seconds)
        self.now += seconds
        self._moves()
        return False

    def run(self, duration=100, interval=30):
        mirror = Mirror(self._servers.plan, self._servers.file)
        return run_mirror(
            mirror,
            self.connect,
            duration=duration,
            interval=interval,
            pause=self.pause,
            show=self.seen.append,
            clock=lambda: self.now,
        )


def test_the_last_copy_is_at_the_end(migrated):
    later = iter(range(50, 60))
    course = Course(migrated, [], lambda: migrated.brokers.store("g", {**MOVED, PARTITIONS[1]: next(later)}))
    assert course.run() == ""
    assert (course.waits, [len(report.copied) for report in course.seen]) == ([30, 30, 30, 10], [2, 1, 1, 1, 1])
    assert migrated.stored() == {**MOVED, PARTITIONS[1]: 53}


def test_a_copy_that_failed_is_followed_by_the_next(migrated):
    course = Course(migrated, [BrokerUnavailable("no broker")] * 4)
    assert course.run() == ""
    assert [type(report) for report in course.seen] == [BrokerUnavailable] * 4 + [CopyReport]
    assert migrated.stored() == MOVED


def test_a_file_that_cannot_be_written_ends_it_after_a_few_copies(migrated):
    full = OSError(28, "No space left on device")
    course = Course(migrated, [full, None, full, full, full])
    with pytest.raises(OSError, match="No space left"):
        course.run(duration=1000)
    assert [type(report) for report in course.seen] == [OSError, CopyReport, OSError, OSError]


def test_a_hold_of_a_copy_whose_servers_were_away_is_waited_for(migrated):
    """1. ZooKeeper is away while a copy holds the group; 2. it returns, and gives sessions their time again."""
    dead = session_in_memory(migrated.server)
    GroupHold(dead, "g", PARTITIONS).take()
    course = Course(migrated, [], dead.close)
    assert course.run() == ""
    refused, copied, *_ = course.seen
    assert "another tool is writing offsets of group g" in str(refused)
    assert "when its session has expired" in str(refused)
    assert len(refused.reasons) == 1, "its owner znodes end with it"
    assert (copied.faults, migrated.stored()) == ([], MOVED)


def test_a_failure_of_the_last_copy_is_the_result(migrated):
    assert Course(migrated, [None, BrokerUnavailable("no broker")]).run(duration=20) == "no broker"
