"""JVM members whose session expires, or that give up, while a tool holds their group."""

import threading

import pytest

from tests.fixtures.jvm import CRASHES, offsets_of, offsets_received, spread
from tests.fixtures.offsetwrites import OffsetGroup, is_offset
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually
from zkconsumer.errors import SandboxError
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.resetplan import plan_reset
from zkconsumer.operate.offsets.rules.offsetreset import ResetSpec
from zkconsumer.operate.offsets.snapshot import SnapshotFile
from zkconsumer.testing.proxy import TcpProxy

FORMER, RECORDS, WANTED = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 50), dict.fromkeys(range(4), 30)


@pytest.fixture
def topic(topic_factory, produce):
    """Four partitions with 50 records each."""
    name = topic_factory(partitions=4)
    produce(name, spread(values(200), 4))
    return name


@pytest.fixture
def proxy(sandbox):
    """Stands between a member and ZooKeeper."""
    with TcpProxy(sandbox.zookeeper_connect) as made:
        yield made


class Reset:
    """A reset of a group to offset 30, in which things can be made to happen."""

    def __init__(self, session, cluster, group, topic, directory) -> None:
        self._session, self._cluster, self._group, self._topic = session, cluster, group, topic
        self._snapshot = directory / "snapshot"

    def during(self, moment, call, **options):
        """Write, and call something once ``before`` or ``after`` the offsets are written; returns the report."""
        spec = ResetSpec("offset", 30)
        plan = plan_reset(self._session, self._cluster, self._group, {self._topic: None}, spec, store="zookeeper")

        def once(changes):
            if any(map(is_offset, changes)):
                setattr(self._session, moment, lambda _: None)
                call()

        setattr(self._session, moment, once)
        return execute(self._session, self._cluster, plan, SnapshotFile(self._snapshot), **options)


@pytest.fixture
def reset(group, topic, tool_session, cluster, tmp_path):
    return Reset(tool_session, cluster, group.name, topic, tmp_path)


def gave_up(jvm, member, attempts):
    return f"{member.consumer_id} can't rebalance after {attempts} retries" in jvm.log.read_text(errors="replace")


@pytest.mark.parametrize("attempts", [30, 2])
def test_a_commit_of_an_expired_member_is_overwritten(proxy, group, jvm, topic, zookeeper, reset, attempts):
    """1. The member loses ZooKeeper, and commits; 2. its session expires; 3. offsets are written; 4. it is connected
    again, and the commit arrives in a new session; 5. it rebalances, with few attempts or with many."""
    znodes = OffsetGroup(group.name, zookeeper)
    znodes.store(topic, FORMER)
    settings = {**CRASHES, "auto_commit_enable": "false", "rebalance_backoff_ms": 100}
    member = group.join_jvm(
        "j", {topic: 1}, zookeeper_connect=proxy.address, rebalance_max_retries=attempts, **settings
    )

    def is_at_the_end():
        """Received everything, and does not receive it again, as when a JVM consumer rebalances once more."""
        last = {partition: offset for _, partition, offset, _ in member.received()}
        return last == dict.fromkeys(range(4), 49) and offsets_received(member) == offsets_of(FORMER, range(50))

    eventually(is_at_the_end)
    proxy.refuse()
    committing = threading.Thread(target=member.commit)
    committing.start()
    eventually(lambda: group.children("ids") == [] and group.owners() == {})
    assert committing.is_alive()
    before = len(member.received())

    def connect_again():
        proxy.heal()
        eventually(lambda: znodes.offsets(topic) == RECORDS)
        eventually(lambda: group.children("ids") == [member.consumer_id])
        if attempts == 2:
            eventually(lambda: gave_up(jvm, member, attempts))
        assert [owner for owner in group.owners().values() if "zkconsumer-hold" not in owner] == []

    report = reset.during("after", connect_again)
    committing.join()
    assert report.faults == []
    assert len([warning for warning in report.warnings if "by another client right after it was" in warning]) == 4
    assert f"members registered meanwhile, and continue now: {member.consumer_id}" in report.warnings
    group.settle()
    eventually(lambda: {record[1:3] for record in member.received()[before:]} == offsets_of(WANTED, range(30, 50)))


def test_a_member_that_gave_up_in_a_long_hold_is_named(group, topic, zookeeper, reset):
    """A JVM consumer that has no partition after 0, 2, 4 and 6 s returns no streams, so nothing makes it own any."""
    znodes = OffsetGroup(group.name, zookeeper)
    znodes.store(topic, FORMER)
    refused = []

    def start_member():
        with pytest.raises(SandboxError) as error:
            group.join_jvm("j", {topic: 1}, rebalance_max_retries=4, rebalance_backoff_ms=2000)
        refused.append(str(error.value))

    report = reset.during("before", start_member, long_hold=True)
    (member,) = group.members
    assert "can't rebalance after 4 retries" in refused[0]
    assert (report.faults, znodes.offsets(topic)) == ([], WANTED)
    assert [warning for warning in report.warnings if "may have given up" in warning and member.consumer_id in warning]
    assert not [warning for warning in report.warnings if "continue now" in warning]
    group.leave(member)
    restarted = group.join_jvm("k", {topic: 1})
    group.settle()
    eventually(lambda: offsets_received(restarted) == offsets_of(WANTED, range(30, 50)))
