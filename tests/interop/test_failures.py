"""Members of mixed groups that are killed, frozen, expelled, or give up."""

import signal
import threading

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from tests.fixtures.jvm import CRASHES, SETTINGS, offsets_of, offsets_received, spread
from tests.fixtures.offsetwrites import OffsetGroup
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import expire
from zkconsumer import TopicPartition
from zkconsumer.errors import ConsumerIdInUse, SandboxError
from zkconsumer.testing.proxy import TcpProxy


def test_ours_takes_over_from_a_killed_jvm(group, private_jvm, topic_factory, produce):
    topic = topic_factory(partitions=4)
    victim = group.join_jvm("a", {topic: 1}, jvm=private_jvm, auto_commit_interval_ms=3_600_000, **CRASHES)
    survivor = group.join("b", {topic: 1})
    group.settle()
    produce(topic, spread(values(400), 4))
    group.expect_all(values(400))
    group.commit_until(victim, topic, {0: 100, 1: 100})
    produce(topic, spread(values(400, start=400), 4))
    group.expect_all(values(800))
    group.kill(victim)
    assert set(group.settle().values()) == {f"{survivor.consumer_id}-0"}
    # What the dead member had not committed comes again, and nothing else.
    again = {(topic, p, offset) for p in (0, 1) for offset in range(100, 200)}
    eventually(lambda: {record[:3] for record in survivor.received() if record[1] < 2} == again)
    assert group.repeated_by_ours() == set()


def test_jvm_takes_over_from_a_killed_process_of_ours(group, topic_factory, produce):
    topic = topic_factory(partitions=4)
    survivor = group.join_jvm("b", {topic: 1})
    victim = group.join_process("a", {topic: 1}, auto_commit_interval_ms=100, **CRASHES)
    group.settle()
    produce(topic, spread(values(400), 4))
    group.expect_all(values(400))

    def committed_by_victim():
        offsets = group.offsets(topic)  # also the survivor's, which commits when it rebalances
        return sum(offsets.get(partition, 0) for partition in (0, 1))

    # The last one handed out is not committed before the next is asked for.
    eventually(lambda: committed_by_victim() >= 199)
    group.kill(victim)
    assert set(group.settle().values()) == {f"{survivor.consumer_id}-0"}
    produce(topic, spread(values(400, start=400), 4))
    group.expect_all(values(800))
    assert len({*map(tuple, survivor.received())} & {*map(tuple, victim.received())}) <= 1


@pytest.mark.parametrize("frozen", ["jvm", "ours"])
def test_a_frozen_member_loses_its_share_and_gets_it_back(group, private_jvm, topic_factory, feed, zookeeper, frozen):
    """Longer than its session: the other takes over; when it wakes up, offsets must not go back.

    See jvm-consumer.md#defects.
    """
    topic = topic_factory(partitions=2)
    if frozen == "jvm":
        sleeper = group.join_jvm("a", {topic: 1}, jvm=private_jvm, auto_commit_interval_ms=100, **CRASHES)
        other = group.join("b", {topic: 1}, auto_commit_interval_ms=100)
        freeze, thaw = private_jvm.pause, private_jvm.resume
    else:
        sleeper = group.join_process("a", {topic: 1}, auto_commit_interval_ms=100, **CRASHES)
        other = group.join_jvm("b", {topic: 1}, auto_commit_interval_ms=100)
        freeze, thaw = (lambda: sleeper.signal(signal.SIGSTOP)), (lambda: sleeper.signal(signal.SIGCONT))
    group.settle()
    flowing = feed(topic)
    eventually(lambda: set(group.offsets(topic)) == {0, 1})
    commits = []
    zookeeper.DataWatch(group.path("offsets", topic, 0))(lambda data, _: commits.append(int(data)))
    freeze()
    whole = {TopicPartition(topic, p): f"{other.consumer_id}-0" for p in (0, 1)}
    eventually(lambda: group.owners() == whole)
    before = group.offsets(topic)[0]
    eventually(lambda: group.offsets(topic)[0] > before)
    thaw()
    group.settle()
    group.expect_all(flowing.stop())
    if frozen == "ours":
        assert commits == sorted(commits)


def test_a_jvm_hands_out_what_was_committed_between_its_read_and_its_claim(
    group, zookeeper, sandbox, topic_factory, produce
):
    """1. It reads the offset of a partition that another member owns; 2. the owner commits, and releases; 3. it claims.

    See jvm-consumer.md#defects.
    """
    topic = topic_factory()
    produce(topic, values(50))
    znodes = OffsetGroup(group.name, zookeeper)
    znodes.store(topic, {0: 0})
    offset, owner = znodes.path("offsets", topic, 0), znodes.path("owners", topic, 0)

    def received(name):
        zookeeper.set(offset, b"0")
        zookeeper.create(owner, b"former-0", ephemeral=True, makepath=True)
        with TcpProxy(sandbox.zookeeper_connect) as proxy:
            was_read = proxy.cut_at(offset.encode())
            joining = threading.Thread(
                target=group.join_jvm, args=(name, {topic: 1}), kwargs={"zookeeper_connect": proxy.address}
            )
            joining.start()
            assert was_read.wait(60)
            zookeeper.set(offset, b"25")
            zookeeper.delete(owner)
            proxy.heal()
            joining.join()
            (member,) = group.members
            eventually(lambda: (0, 49) in offsets_received(member))
            group.leave(member)
        return offsets_received(member)

    # One that rebalances again before it has handed out a record reads 25, too: then the sequence is tried again.
    attempts = (received(f"c{number}") for number in range(5))
    assert offsets_of([0], range(50)) in attempts


def test_our_session_expires(group, topic_factory, feed):
    topic = topic_factory(partitions=4)
    group.join_jvm("a", {topic: 1})
    ours = group.join("b", {topic: 1})
    group.settle()
    flowing = feed(topic)
    first = {TopicPartition(topic, p): group.node("owners", topic, p)[1].ephemeralOwner for p in (2, 3)}
    expire(ours.connector)

    def owned_by_new_session():
        stats = [(p, group.node("owners", *p)[1]) for p in first]
        return all(stat is not None and stat.ephemeralOwner != first[p] for p, stat in stats)

    eventually(owned_by_new_session)
    group.settle()
    group.expect_all(flowing.stop())


def test_an_id_belongs_to_one_live_consumer(group, topic_factory):
    topic = topic_factory()
    ours = group.join("c", {topic: 1})
    with pytest.raises(SandboxError, match="NodeExists"):
        group.join_jvm("c", {topic: 1})
    group.leave(group.members[-1])
    group.settle()
    group.leave(ours)
    group.join_jvm("c", {topic: 1})
    with pytest.raises(ConsumerIdInUse):
        group.join("c", {topic: 1}, zookeeper_session_timeout_ms=2000)
    group.members.pop()
    group.settle()


class LateMember:
    """A scripted member, the first in the order of ids, that leaves without releasing its partitions."""

    def __init__(self, sandbox, group, topic):
        self._client = KazooClient(sandbox.zookeeper_connect, timeout=60)
        self._client.start()
        self._group, self._topic = group, topic
        self.consumer_id = f"{group.name}_0"

    def join(self, *partitions):
        """Register, and claim partitions as the others release them."""
        registration = b'{"version":1,"subscription":{"%s":1},"pattern":"static","timestamp":"1"}'
        self._client.create(
            self._group.path("ids", self.consumer_id), registration % self._topic.encode(), ephemeral=True
        )
        self._group.members.append(self)
        for partition in partitions:
            eventually(lambda partition=partition: self._claim(partition))

    def _claim(self, partition):
        path = self._group.path("owners", self._topic, partition)
        try:
            self._client.create(path, f"{self.consumer_id}-0".encode(), ephemeral=True)
        except NodeExistsError:
            return False
        return True

    def leave(self):
        """Leave the group, but not the partitions."""
        self._group.members.remove(self)
        self._client.delete(self._group.path("ids", self.consumer_id))

    def let_go(self):
        self._client.stop()
        self._client.close()


@pytest.fixture
def late_member(sandbox, group, topic_factory):
    """A member that can leave without releasing, and its topic of four partitions."""
    topic = topic_factory(partitions=4)
    member = LateMember(sandbox, group, topic)
    yield member, topic
    member.let_go()


GAVE_UP = "can't rebalance after 3 retries"
GIVES_UP_SOON = {"rebalance_max_retries": 3}


def give_up(jvm, late):
    """Let a JVM member try to claim what a member that left still holds, until it gives up; then release that."""
    before = jvm.log.read_text().count(GAVE_UP)
    late.leave()
    eventually(lambda: jvm.log.read_text().count(GAVE_UP) > before)
    late.let_go()


def test_a_jvm_member_that_gave_up_alone_waits_for_the_group_to_change(group, private_jvm, late_member):
    """jvm-consumer.md#exhausted-retries: it stays a member, owns nothing, and no JVM member makes it try again."""
    late, topic = late_member
    group.join_jvm("a", {topic: 1}, jvm=private_jvm, **GIVES_UP_SOON)
    late.join(0, 1)
    group.settle()
    give_up(private_jvm, late)
    eventually(lambda: not group.owners())
    with pytest.raises(AssertionError):  # there is nothing to wait for: the test is that nothing happens
        eventually(group.owners, 1.5)
    group.join("b", {topic: 1})
    assert len(group.settle()) == 4


@pytest.mark.parametrize("backoff_ms", [100, 400])
def test_a_jvm_member_that_gave_up_is_nudged_by_ours(group, private_jvm, late_member, backoff_ms):
    """architecture.md#nudging; a third member releases late: when ours first checks (after 600 ms), or only after
    that.
    """
    late, topic = late_member
    group.join_jvm("a", {topic: 1}, jvm=private_jvm, rebalance_max_retries=3, rebalance_backoff_ms=backoff_ms)
    group.join("b", {topic: 1})
    late.join(0, 1)
    group.settle()
    give_up(private_jvm, late)
    assert len(group.settle()) == 4


def test_an_unreadable_registration_stops_jvm_members_only(group, private_jvm, topic_factory, zookeeper):
    """jvm-consumer.md#registration: JVM members fail every attempt; ours exclude such a member, and JVM members
    succeed when it is gone.
    """
    topic = topic_factory(partitions=4)
    group.join_jvm("a", {topic: 1}, jvm=private_jvm, **GIVES_UP_SOON)
    ours = group.join("b", {topic: 1})
    group.settle()
    zookeeper.create(group.path("ids", "garbage"), b"xx", ephemeral=True)
    eventually(lambda: GAVE_UP in private_jvm.log.read_text())
    only_ours = {TopicPartition(topic, p): f"{ours.consumer_id}-0" for p in (2, 3)}
    eventually(lambda: group.owners() == only_ours)
    zookeeper.delete(group.path("ids", "garbage"))
    assert len(group.settle()) == 4


def test_settings_are_honest():
    """The attempts of these tests outlast a session, as they have to in production (jvm-consumer.md#attempt)."""
    total = int(SETTINGS["rebalance.max.retries"]) * int(SETTINGS["rebalance.backoff.ms"])
    assert total > int(SETTINGS["zookeeper.session.timeout.ms"])
