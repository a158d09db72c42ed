"""The control plane alone, on a real ZooKeeper: who owns what, and what remains in ZooKeeper."""

import json
import threading
import time
from itertools import pairwise

import pytest
from kazoo.security import make_acl

from tests.fixtures.members import RecordingFetch, open_member
from tests.fixtures.sandbox import PATIENT, Topics
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import expire
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    ChrootMissing,
    ConsumerIdInUse,
    GenerationEnded,
    NotOwner,
    OffsetsNotStored,
    OwnershipAwaited,
    RebalanceFailed,
    SessionExpired,
    ZooKeeperUnavailable,
)
from zkconsumer.group.member import GroupMember
from zkconsumer.group.rebalancelistener import ConsumerRebalanceListener
from zkconsumer.group.rules import rebalancetimes
from zkconsumer.group.rules.memberstate import MemberState, illegal_transitions
from zkconsumer.group.rules.rebalancetimes import RebalanceCause, orphan_delay_seconds
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.model import TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def group(sandbox, unique_name):
    """Make members of one group; all leave at the end."""
    members: list[GroupMember] = []

    def member(
        consumer_id: str, before_commit=None, fetch=None, wrap_store=lambda store: store, **values
    ) -> tuple[GroupMember, RecordingFetch]:
        config = ConsumerConfig(
            **{
                "zookeeper_connect": sandbox.zookeeper_connect,
                "group_id": unique_name,
                "consumer_id": consumer_id,
                "zookeeper_session_timeout_ms": 30_000,
                "zookeeper_connection_timeout_ms": 20_000,
                "rebalance_backoff_ms": 700,
                "rebalance_max_retries": 20,
                **values,
            }
        )
        fetch = fetch or RecordingFetch()
        members.append(open_member(config, fetch, wrap_store, before_commit=before_commit))
        return members[-1], fetch

    member.name = unique_name
    yield member
    for one in members:
        one.leave()
        assert illegal_transitions(one.describe().states) == []


def numbers(member):
    return sorted(partition.partition for partition in member.ownership())


def test_registration_and_owner_have_the_jvms_bytes(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=2)
    member, fetch = group("a")
    member.join(Subscription.static({topic: 1}))
    registered, stat = zookeeper.get(f"/consumers/{group.name}/ids/{group.name}_a")
    document = json.loads(registered)
    assert list(document) == ["version", "subscription", "pattern", "timestamp"]
    assert document | {"timestamp": ""} == {
        "version": 1,
        "subscription": {topic: 1},
        "pattern": "static",
        "timestamp": "",
    }
    assert document["timestamp"].isdigit()
    assert stat.ephemeralOwner == zookeeper.get(f"/consumers/{group.name}/owners/{topic}/0")[1].ephemeralOwner
    assert zookeeper.get(f"/consumers/{group.name}/owners/{topic}/1")[0] == f"{group.name}_a-0".encode()
    assert zookeeper.get(f"/consumers/{group.name}/ids")[0] == b""
    assert fetch.calls == ["stop", "start"]
    assert fetch.offsets == {TopicPartition(topic, 0): None, TopicPartition(topic, 1): None}


def test_members_share_and_inherit(group, topic_factory):
    topic = topic_factory(partitions=5)
    first, _ = group("a")
    second, _ = group("b")
    first.join(Subscription.static({topic: 1}))
    assert numbers(first) == [0, 1, 2, 3, 4]
    second.join(Subscription.static({topic: 1}))
    eventually(lambda: (numbers(first), numbers(second)) == ([0, 1, 2], [3, 4]))
    first.leave()
    eventually(lambda: numbers(second) == [0, 1, 2, 3, 4])


def test_leaving_removes_everything_ephemeral_and_commits(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=1)
    member, fetch = group("a")
    member.join(Subscription.static({topic: 1}))
    fetch.position = {TopicPartition(topic, 0): 42}
    member.leave()
    member.leave()
    assert zookeeper.get_children(f"/consumers/{group.name}/ids") == []
    assert zookeeper.get_children(f"/consumers/{group.name}/owners/{topic}") == []
    assert zookeeper.get_children(f"/consumers/{group.name}/zkconsumer/members") == []
    assert zookeeper.get(f"/consumers/{group.name}/offsets/{topic}/0")[0] == b"42"


def test_an_expired_session_registers_again_and_keeps_positions(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=2)
    partition = TopicPartition(topic, 0)
    member, fetch = group("a")
    member.join(Subscription.static({topic: 1}))
    fetch.position = {partition: 7}
    path = f"/consumers/{group.name}/ids/{group.name}_a"
    victim = zookeeper.get(path)[1].ephemeralOwner
    expire(member)
    eventually(lambda: zookeeper.exists(path) and zookeeper.get(path)[1].ephemeralOwner != victim)
    eventually(lambda: fetch.assignment.generation == 2)
    assert fetch.offsets[partition] == 7
    assert numbers(member) == [0, 1]
    member.commit()
    assert zookeeper.get(f"/consumers/{group.name}/offsets/{topic}/0")[0] == b"7"


def test_growth_and_new_topics_are_noticed(group, topics, topic_factory, unique_name):
    topic = topic_factory(partitions=1)
    member, fetch = group("a")
    member.join(Subscription.by_filter(Whitelist(f"{topic}.*"), 1))
    assert numbers(member) == [0]
    topics.grow(topic, 3)
    eventually(lambda: numbers(member) == [0, 1, 2])
    topics.create(f"{topic}-more", 1)
    eventually(lambda: TopicPartition(f"{topic}-more", 0) in member.ownership())
    eventually(lambda: fetch.assignment.generation == 3)


def test_unchanged_share_keeps_the_fetchers_running(group, zookeeper, topic_factory):
    ghost = {"version": 1, "subscription": {}, "pattern": "static", "timestamp": "1"}
    zookeeper.create(f"/consumers/{group.name}/ids/{group.name}_ghost", json.dumps(ghost).encode(), makepath=True)
    topic, other = topic_factory(partitions=2), topic_factory(partitions=1)
    first, fetch = group("a")
    first.join(Subscription.static({topic: 1}))
    second, elsewhere = group("b")
    second.join(Subscription.static({other: 1}))
    second.leave()
    eventually(lambda: elsewhere.calls[-1] == "stop")
    seen = first.describe().views
    zookeeper.delete(f"/consumers/{group.name}/ids/{group.name}_ghost")
    eventually(lambda: first.describe().views > seen)  # it has read the group after all these changes
    first.commit()  # served after that read
    assert fetch.calls == ["stop", "start"]


def put_stranger(zookeeper, group, name, topic):
    """Register a member that never claims anything."""
    registration = {"version": 1, "subscription": {topic: 1}, "pattern": "static", "timestamp": "1"}
    zookeeper.create(f"/consumers/{group.name}/ids/{group.name}_{name}", json.dumps(registration).encode())


@pytest.mark.slow
def test_members_that_join_one_after_another_cause_one_rebalance(group, zookeeper, topic_factory, monkeypatch):
    """Three seconds without a change end the wait here, so that a busy machine is not taken for a quiet group."""
    monkeypatch.setattr("zkconsumer.group.zookeeper.zookeepergroup.settle_seconds", lambda backoff_ms: 3.0)
    topic = topic_factory(partitions=12)
    member, _ = group("a", rebalance_backoff_ms=60_000)
    member.join(Subscription.static({topic: 1}))
    assert numbers(member) == list(range(12))

    def strangers_join():
        """Return the longest time between two of them, in seconds."""
        at = [time.monotonic()]
        for number in range(11):
            put_stranger(zookeeper, group, f"b{number:02d}", topic)
            time.sleep(0.1)
            at.append(time.monotonic())
        return max(later - earlier for earlier, later in pairwise(at))

    before = member.describe().attempts
    while strangers_join() > 1.5:  # the machine stood still
        for number in range(11):
            zookeeper.delete(f"/consumers/{group.name}/ids/{group.name}_b{number:02d}")
        eventually(lambda: numbers(member) == list(range(12)))
        before = member.describe().attempts
    eventually(lambda: numbers(member) == [0])
    assert member.describe().attempts == before + 1


def test_a_view_is_read_again_only_after_a_change(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=4)
    member, _ = group("z")

    class Disturbing(ConsumerRebalanceListener):
        def before_releasing_partitions(self, owned):
            if owned:
                put_stranger(zookeeper, group, "b", topic)
                eventually(lambda: member._signal.raised)

    member.set_listener(Disturbing())
    member.join(Subscription.static({topic: 1}))
    assert member.describe().views == 1
    put_stranger(zookeeper, group, "a", topic)
    # With one stranger two partitions would be ours: the other is included, without another rebalance for it.
    eventually(lambda: numbers(member) == [3])
    assert member.describe().attempts == 2


def test_commit_names_only_owned_partitions_unless_forced(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=1)
    member, _ = group("a")
    member.join(Subscription.static({topic: 1}))
    with pytest.raises(NotOwner):
        member.commit({TopicPartition("elsewhere", 0): 3})
    member.commit({TopicPartition("elsewhere", 0): 3, TopicPartition(topic, 0): 0}, force=True)
    assert zookeeper.get(f"/consumers/{group.name}/offsets/elsewhere/0")[0] == b"3"
    assert zookeeper.get(f"/consumers/{group.name}/offsets/{topic}/0")[0] == b"0"


class Story(ConsumerRebalanceListener):
    def __init__(self, fetch):
        self.fetch = fetch
        self.calls = []

    def before_releasing_partitions(self, owned):
        self.calls.append(("release", set(owned)))

    def before_starting_fetchers(self, consumer_id, assignment):
        self.calls.append(("start", dict(assignment)))
        return dict.fromkeys(assignment, 11)


def test_a_commit_of_an_older_generation_is_refused(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=1)
    first, fetch = group("a")
    first.join(Subscription.static({topic: 1}))
    read_in, partition = fetch.assignment.generation, TopicPartition(topic, 0)
    zookeeper.delete(f"/consumers/{group.name}/ids/{first.consumer_id}")  # takes the partition away and back
    eventually(lambda: fetch.assignment.generation > read_in and numbers(first) == [0])
    with pytest.raises(GenerationEnded, match=f"generation {read_in}"):
        first.commit({partition: 5}, generation=read_in)
    with pytest.raises(GenerationEnded):
        first.stored([partition], read_in)
    assert zookeeper.exists(f"/consumers/{group.name}/offsets/{topic}/0") is None
    first.commit({partition: 5}, generation=fetch.assignment.generation)
    assert zookeeper.get(f"/consumers/{group.name}/offsets/{topic}/0")[0] == b"5"


def test_a_topic_that_is_created_again_begins_a_generation(group, topics, topic_factory):
    topic = topic_factory(partitions=2)
    member, fetch = group("a")
    member.join(Subscription.static({topic: 1}))
    before = fetch.assignment
    assert {name: described.partitions for name, described in before.topics.items()} == {topic: (0, 1)}
    topics.delete(topic)
    topics.create(topic, 2)
    eventually(
        lambda: (
            topic in fetch.assignment.topics
            and not fetch.assignment.topics[topic].identity.is_same_topic(before.topics[topic].identity)
        )
    )
    assert numbers(member) == [0, 1]


def test_listener_is_called_in_order_and_may_set_start_offsets(group, topic_factory):
    topic = topic_factory(partitions=1)
    partition = TopicPartition(topic, 0)
    member, fetch = group("a")
    story = Story(fetch)
    member.set_listener(story)
    member.join(Subscription.static({topic: 1}))
    thread = member.ownership()[partition]
    assert story.calls == [("release", set()), ("start", {partition: thread})]
    assert fetch.offsets == {partition: 11}


def test_a_failed_claim_names_the_owners_and_leaves_nothing(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=2)
    zookeeper.create(f"/consumers/{group.name}/owners/{topic}/1", b"ghost-0", makepath=True)
    member, _ = group("a", rebalance_max_retries=2, rebalance_backoff_ms=100)
    with pytest.raises(RebalanceFailed, match=f"{topic}-1 by ghost-0") as caught:
        member.join(Subscription.static({topic: 1}))
    assert len(caught.value.attempts) == 2
    assert zookeeper.get_children(f"/consumers/{group.name}/ids") == []
    assert zookeeper.get_children(f"/consumers/{group.name}/owners/{topic}") == ["1"]


def test_a_claim_waits_for_the_owner_to_release(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=1)
    path = f"/consumers/{group.name}/owners/{topic}/0"
    zookeeper.create(path, b"ghost-0", makepath=True)
    member, _ = group("a", rebalance_backoff_ms=20_000)
    joining = threading.Thread(target=member.join, args=(Subscription.static({topic: 1}),))
    joining.start()
    eventually(lambda: member.describe().attempts == 1)
    zookeeper.delete(path)
    joining.join(30)
    assert not joining.is_alive()
    assert numbers(member) == [0]


def test_a_corrupt_registration_costs_that_member_only(group, zookeeper, topic_factory, caplog):
    topic = topic_factory(partitions=1)
    zookeeper.create(f"/consumers/{group.name}/ids/{group.name}_bad", b"xx", makepath=True)
    member, _ = group("a")
    member.join(Subscription.static({topic: 1}))
    assert numbers(member) == [0]
    assert f"/consumers/{group.name}/ids/{group.name}_bad: not JSON" in caplog.text


def test_a_registration_that_may_not_be_read_costs_that_member_only(group, zookeeper, topic_factory, caplog):
    topic = topic_factory(partitions=1)
    path = f"/consumers/{group.name}/ids/{group.name}_bad"
    zookeeper.ensure_path(f"/consumers/{group.name}/ids")
    zookeeper.create(path, b"{}", acl=[make_acl("world", "anyone", write=True, delete=True)])
    member, _ = group("a")
    member.join(Subscription.static({topic: 1}))
    assert numbers(member) == [0]
    assert f"ZooKeeper refused get {path}: no permission" in caplog.text


def test_a_consumer_id_that_is_alive_is_refused(group, topic_factory, monkeypatch):
    monkeypatch.setattr(rebalancetimes, "_KILLED_SESSIONS", 0.1)  # of the 30 s of the first one
    topic = topic_factory(partitions=1)
    first, _ = group("same")
    first.join(Subscription.static({topic: 1}))
    second, _ = group("same", zookeeper_session_timeout_ms=2000)
    with pytest.raises(ConsumerIdInUse, match="registered by another live session"):
        second.join(Subscription.static({topic: 1}))
    assert numbers(first) == [0]


def test_members_that_disagree_on_the_assignor_are_named(group, topic_factory):
    topic = topic_factory(partitions=2)
    first, _ = group("a")
    first.join(Subscription.static({topic: 1}))
    second, _ = group("b", partition_assignment_strategy="roundrobin", rebalance_max_retries=1, rebalance_backoff_ms=10)
    with pytest.raises(RebalanceFailed, match=rf"{group.name}_a \(range\)"):
        second.join(Subscription.static({topic: 1}))
    eventually(lambda: numbers(first) == [0, 1])


def test_a_jvm_member_that_gave_up_is_nudged_once(group, zookeeper, topic_factory):
    """Its registration is there, its owner znodes never appear (jvm-consumer.md#exhausted-retries)."""
    topic = topic_factory(partitions=2)
    jvm = {"version": 1, "subscription": {topic: 1}, "pattern": "static", "timestamp": "1"}
    ids = f"/consumers/{group.name}/ids"
    zookeeper.create(f"{ids}/{group.name}_a-jvm", json.dumps(jvm).encode(), ephemeral=True, makepath=True)
    joined = zookeeper.get(ids)[1].cversion + 1
    member, fetch = group("z", rebalance_backoff_ms=100)
    member.join(Subscription.static({topic: 1}))
    # A visitor came and went, too quickly to be seen itself; our share is the same, and there is no second one.
    eventually(lambda: zookeeper.get(ids)[1].cversion == joined + 2)
    seen = member.describe().views
    zookeeper.create(f"{ids}/{group.name}_x", json.dumps(jvm | {"subscription": {}}).encode())
    eventually(lambda: member.describe().views > seen)
    member.commit()
    assert zookeeper.get(ids)[1].cversion == joined + 3
    assert fetch.calls == ["stop", "start"]


def test_one_of_several_members_nudges(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=1)  # the JVM member's, however many others there are
    jvm = {"version": 1, "subscription": {topic: 1}, "pattern": "static", "timestamp": "1"}
    ids = f"/consumers/{group.name}/ids"
    zookeeper.create(f"{ids}/{group.name}_a-jvm", json.dumps(jvm).encode(), ephemeral=True, makepath=True)
    members = [group(name, rebalance_backoff_ms=100)[0] for name in ("b", "c", "d")]
    for member in members:
        member.join(Subscription.static({topic: 1}))
    joined = 4
    eventually(lambda: zookeeper.get(ids)[1].cversion >= joined + 2)
    # Each has looked for orphans by now, or will before the second of these.
    looked = [threading.Event() for _ in members]
    for member, event in zip(members, looked, strict=True):
        member.repeat(2.1 * orphan_delay_seconds(100), event.set)
    assert all(event.wait(60) for event in looked)
    assert zookeeper.get(ids)[1].cversion == joined + 2


def test_a_deleted_registration_is_made_again(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=2)
    member, _ = group("a")
    member.join(Subscription.static({topic: 1}))
    path = f"/consumers/{group.name}/ids/{group.name}_a"
    zookeeper.delete(path)
    eventually(lambda: zookeeper.exists(path) and numbers(member) == [0, 1])
    owners = zookeeper.get_children(f"/consumers/{group.name}/owners/{topic}")
    assert sorted(owners) == ["0", "1"]


def delete_at_once(zookeeper, path):
    """Node by node would be too slow: the member makes its registration again meanwhile."""

    def below(parent):
        for name in zookeeper.get_children(parent):
            yield from below(f"{parent}/{name}")
        yield parent

    transaction = zookeeper.transaction()
    for one in below(path):
        transaction.delete(one)
    assert all(result is True for result in transaction.commit())


def test_a_group_that_was_deleted_under_a_member_is_made_again(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=2)
    member, _ = group("a")
    member.join(Subscription.static({topic: 1}))
    delete_at_once(zookeeper, f"/consumers/{group.name}")
    path = f"/consumers/{group.name}/ids/{group.name}_a"
    eventually(lambda: zookeeper.exists(path) is not None and numbers(member) == [0, 1])
    member.commit({TopicPartition(topic, 0): 3})
    assert zookeeper.get(f"/consumers/{group.name}/offsets/{topic}/0")[0] == b"3"


@pytest.mark.parametrize("joins", [False, True])
def test_a_deleted_session_node_is_made_again(group, zookeeper, topic_factory, joins):
    """Without it nothing can be claimed or committed; and claims must not be forgotten if it is missing."""
    topic = topic_factory(partitions=2)
    member, fetch = group("a", auto_commit_interval_ms=300)
    member.join(Subscription.static({topic: 1}))
    (name,) = zookeeper.get_children(f"/consumers/{group.name}/zkconsumer/members")
    zookeeper.delete(f"/consumers/{group.name}/zkconsumer/members/{name}")
    if joins:
        put_stranger(zookeeper, group, "b", topic)
    fetch.position = {TopicPartition(topic, 0): 5}
    eventually(lambda: fetch.assignment.generation > 1 and numbers(member) == ([0] if joins else [0, 1]))
    assert zookeeper.get_children(f"/consumers/{group.name}/zkconsumer/members") == [name]
    assert (zookeeper.exists(f"/consumers/{group.name}/owners/{topic}/1") is None) == joins
    fetch.position = {TopicPartition(topic, 0): 6}  # or the next automatic commit takes it back
    member.commit({TopicPartition(topic, 0): 6})
    assert zookeeper.get(f"/consumers/{group.name}/offsets/{topic}/0")[0] == b"6"


def test_a_registration_that_was_overwritten_is_made_again(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=2)
    member, _ = group("a")
    member.join(Subscription.static({topic: 1}))
    path = f"/consumers/{group.name}/ids/{group.name}_a"
    written = json.loads(zookeeper.get(path)[0])
    zookeeper.set(path, b"not json")
    put_stranger(zookeeper, group, "b", topic)  # the data is not watched; the next read finds it
    eventually(lambda: numbers(member) == [0])
    assert json.loads(zookeeper.get(path)[0]) | {"timestamp": ""} == written | {"timestamp": ""}


def test_an_unreadable_offset_costs_its_partition_until_it_is_repaired(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=2)
    path = f"/consumers/{group.name}/offsets/{topic}/0"
    zookeeper.create(path, b"abc", makepath=True)
    member, fetch = group("a", auto_commit_interval_ms=50)
    member.join(Subscription.static({topic: 1}))
    assert list(fetch.assignment.threads) == [TopicPartition(topic, 1)]
    zookeeper.set(path, b"7")
    eventually(lambda: fetch.offsets.get(TopicPartition(topic, 0)) == 7)


def test_what_a_thief_committed_is_not_taken_back(group, zookeeper, topic_factory):
    """A JVM member deletes our owner znode without a check, claims the partition, and commits.

    See jvm-consumer.md#conflicts.
    """
    topic = topic_factory()
    partition = TopicPartition(topic, 0)
    member, fetch = group("a", auto_commit_interval_ms=3_600_000)
    member.join(Subscription.static({topic: 1}))
    fetch.position = {partition: 480}
    member.commit()
    zookeeper.set(f"/consumers/{group.name}/offsets/{topic}/0", b"500")
    zookeeper.delete(f"/consumers/{group.name}/owners/{topic}/0")
    zookeeper.create(f"/consumers/{group.name}/owners/{topic}/0", b"thief-0", ephemeral=True)
    fetch.position = {partition: 490}
    member.leave()
    assert zookeeper.get(f"/consumers/{group.name}/offsets/{topic}/0")[0] == b"500"


def test_an_explicit_commit_is_kept_but_never_beyond_the_position(group, zookeeper, topic_factory):
    topic = topic_factory()
    partition, path = TopicPartition(topic, 0), f"/consumers/{group.name}/offsets/{topic}/0"
    member, fetch = group("a", auto_commit_interval_ms=50)
    member.join(Subscription.static({topic: 1}))
    fetch.released = {partition: 99}  # first: the timer commits what is handed out where nothing else is released
    fetch.position = {partition: 100}
    member.commit({partition: 100})
    fetch.released = {partition: 98}
    eventually(lambda: zookeeper.get(path)[0] == b"100")
    fetch.position = fetch.released = {partition: 5}  # the log was truncated and the position reset
    eventually(lambda: zookeeper.get(path)[0] == b"5")
    fetch.position = {partition: 6}
    member.commit()
    assert zookeeper.get(path)[0] == b"6"


def test_what_was_stored_of_a_commit_stays_although_the_rest_was_refused(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=2)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    path = f"/consumers/{group.name}/offsets/{topic}"
    member, fetch = group("a", auto_commit_interval_ms=50)
    member.join(Subscription.static({topic: 1}))
    fetch.released = dict.fromkeys(partitions, 10)
    fetch.position = dict.fromkeys(partitions, 100)
    eventually(lambda: zookeeper.exists(f"{path}/1") is not None)
    zookeeper.set_acls(f"{path}/0", [make_acl("world", "anyone", read=True, admin=True)])
    with pytest.raises(OffsetsNotStored, match=f"not stored: {topic}-0; the log has the reason. Any others are stored"):
        member.commit(dict.fromkeys(partitions, 100))
    zookeeper.set_acls(f"{path}/0", [make_acl("world", "anyone", all=True)])
    fetch.released = {partitions[0]: 20, partitions[1]: 20}
    eventually(lambda: zookeeper.get(f"{path}/0")[0] == b"20")
    assert zookeeper.get(f"{path}/1")[0] == b"100"


def test_a_commit_made_while_another_is_made_durable_is_not_taken_back(group, zookeeper, topic_factory):
    topic = topic_factory()
    partition, path = TopicPartition(topic, 0), f"/consumers/{group.name}/offsets/{topic}/0"
    calls: list[str] = []

    def before_commit():
        calls.append(threading.current_thread().name)
        if len(calls) == 1:
            worker = threading.Thread(target=lambda: member.commit({partition: 15}), name="worker")
            worker.start()
            worker.join()

    member, fetch = group("a", before_commit, auto_commit_interval_ms=100)
    member.join(Subscription.static({topic: 1}))
    fetch.released = {partition: 10}
    fetch.position = {partition: 15}
    eventually(lambda: len(calls) > 3)
    assert calls[1].endswith("stand-in")
    data, stat = zookeeper.get(path)
    assert (data, stat.version) == (b"15", 0)


def test_old_positions_are_not_committed_after_claiming_again(group, zookeeper, topics, topic_factory):
    """1. A partition is released, and the next claim fails; 2. another member commits it; 3. it is claimed again."""
    topic = topic_factory(partitions=1)
    partition, path = TopicPartition(topic, 0), f"/consumers/{group.name}/offsets/{topic}/0"
    ghost = f"/consumers/{group.name}/owners/{topic}/1"
    member, fetch = group("a", rebalance_backoff_ms=20_000, auto_commit_interval_ms=3_600_000)
    refused = []

    class Committing(ConsumerRebalanceListener):
        def before_starting_fetchers(self, consumer_id, assignment):
            if len(assignment) == 2:
                for arguments in ({}, {"offsets": {partition: 300}, "generation": 1}):
                    try:
                        member.commit(**arguments)
                    except (OwnershipAwaited, GenerationEnded) as error:
                        refused.append(type(error))

    member.set_listener(Committing())
    member.join(Subscription.static({topic: 1}))
    fetch.position = {partition: 300}
    member.commit()
    zookeeper.create(ghost, b"ghost-0")
    topics.grow(topic, 2)
    eventually(lambda: member.stats().rebalances.failures.get("4 claim ownership"))
    zookeeper.set(path, b"313")
    zookeeper.delete(ghost)
    eventually(lambda: numbers(member) == [0, 1] and fetch.assignment.generation == 2)
    assert zookeeper.get(path)[0] == b"313"
    assert fetch.offsets[partition] == 313
    assert refused[-1] is GenerationEnded


def test_a_slow_commit_does_not_take_back_a_later_one(group, zookeeper, topic_factory):
    """1. A stand-in commits 10 and is in before_commit; 2. the timer commits 15; 3. the stand-in continues."""
    topic = topic_factory()
    partition, path = TopicPartition(topic, 0), f"/consumers/{group.name}/offsets/{topic}/0"
    entered, leave = threading.Event(), threading.Event()
    worker = threading.Thread(target=lambda: member.commit({partition: 10}))

    def before_commit():
        if threading.current_thread().name.endswith("stand-in"):
            entered.set()
            assert leave.wait(60)
        elif not entered.is_set():
            worker.start()
            assert entered.wait(60)

    member, fetch = group("a", before_commit, auto_commit_interval_ms=50)
    member.join(Subscription.static({topic: 1}))
    fetch.position = {partition: 10}
    assert entered.wait(60)
    fetch.position = {partition: 15}
    eventually(lambda: zookeeper.exists(path) and zookeeper.get(path)[0] == b"15")
    leave.set()
    worker.join(60)
    assert zookeeper.get(path)[0] == b"15"


def test_a_listener_may_wait_for_a_worker_that_commits(group, zookeeper, topic_factory):
    """MirrorMaker's pattern: the worker's commit must not wait for the listener that waits for it.

    See jvm-consumer.md#tools.
    """
    topic = topic_factory(partitions=2)
    partition = TopicPartition(topic, 0)
    member, _ = group("a")

    class Flushing(ConsumerRebalanceListener):
        def before_releasing_partitions(self, owned):
            if owned:
                worker = threading.Thread(target=member.commit, args=({partition: 33},))
                worker.start()
                worker.join(30)
                assert not worker.is_alive()

    member.set_listener(Flushing())
    member.join(Subscription.static({topic: 1}))
    second, _ = group("b")
    second.join(Subscription.static({topic: 1}))
    eventually(lambda: (numbers(member), numbers(second)) == ([0], [1]))
    assert zookeeper.get(f"/consumers/{group.name}/offsets/{topic}/0")[0] == b"33"


class AtStop(RecordingFetch):
    """Calls something when it is stopped, which is in step 1 of a rebalance."""

    def __init__(self) -> None:
        super().__init__()
        self.at_stop = lambda: None

    def stop(self, *, drain: bool = True) -> None:
        super().stop(drain=drain)
        self.at_stop()


@pytest.mark.parametrize("waits_in", ["listener", "before_commit"])
def test_a_commit_posted_before_user_code_does_not_block_it(group, zookeeper, topic_factory, waits_in):
    """1. A worker posts a commit in step 1; 2. user code waits for that worker (jvm-consumer.md#tools, MirrorMaker)."""
    topic = topic_factory(partitions=2)
    partition = TopicPartition(topic, 0)
    workers: list[threading.Thread] = []

    def wait_for_workers():
        if threading.current_thread().name.endswith("stand-in"):
            return  # the worker's own commit
        for worker in workers:
            worker.join(30)
            assert not worker.is_alive()

    member, fetch = group("a", wait_for_workers if waits_in == "before_commit" else None, fetch=AtStop())

    class Waiting(ConsumerRebalanceListener):
        def before_releasing_partitions(self, owned):
            if waits_in == "listener":
                wait_for_workers()

    member.set_listener(Waiting())
    member.join(Subscription.static({topic: 1}))

    def post():
        if not workers:
            workers.append(threading.Thread(target=member.commit, args=({partition: 33},)))
            workers[0].start()
            eventually(lambda: member._thread._requests)  # it is posted now
            fetch.position = {TopicPartition(topic, 1): 5}  # for the commit of step 1

    fetch.at_stop = post
    second, _ = group("b")
    second.join(Subscription.static({topic: 1}))
    eventually(lambda: (numbers(member), numbers(second)) == ([0], [1]))
    assert zookeeper.get(f"/consumers/{group.name}/offsets/{topic}/0")[0] == b"33"


def test_a_commit_whose_partitions_are_released_meanwhile_is_refused(group, zookeeper, topic_factory):
    """1. A stand-in commits and is in before_commit; 2. the rebalance continues; 3. the new owner commits."""
    topic = topic_factory(partitions=1)
    partition, path = TopicPartition(topic, 0), f"/consumers/{group.name}/offsets/{topic}/0"
    entered, leave, refused = threading.Event(), threading.Event(), []

    def before_commit():
        if threading.current_thread() is not member._thread._thread:
            entered.set()
            assert leave.wait(60)

    def commit():
        with pytest.raises(GenerationEnded):
            member.commit({partition: 33})
        refused.append(True)

    member, _ = group("b", before_commit)
    worker = threading.Thread(target=commit)

    class Starting(ConsumerRebalanceListener):
        def before_releasing_partitions(self, owned):
            if owned:
                worker.start()
                assert entered.wait(60)

    member.set_listener(Starting())
    member.join(Subscription.static({topic: 1}))
    second, _ = group("a")  # gets the only partition
    second.join(Subscription.static({topic: 1}))
    eventually(lambda: numbers(second) == [0])
    second.commit({partition: 50})
    leave.set()
    worker.join(60)
    assert refused
    assert zookeeper.get(path)[0] == b"50"


class RecordingStore:
    """The offset store in ZooKeeper; notes whether commits may be repeated, and whether the lease allows them."""

    def __init__(self, store) -> None:
        self._store = store
        self.commits: list[tuple[bool, bool]] = []

    def commit(self, offsets, *, stamp, may_send, retry):
        self.commits.append((retry, may_send()))
        return self._store.commit(offsets, stamp=stamp, may_send=may_send, retry=retry)

    def __getattr__(self, name):
        return getattr(self._store, name)


def test_while_partitions_are_released_commits_are_tried_once(group, topics, topic_factory):
    topic = topic_factory(partitions=1)
    partition = TopicPartition(topic, 0)
    stores: list[RecordingStore] = []

    def record(store):
        stores.append(RecordingStore(store))
        return stores[0]

    member, fetch = group("a", wrap_store=record, auto_commit_interval_ms=3_600_000)

    class Committing(ConsumerRebalanceListener):
        def before_releasing_partitions(self, owned):
            if owned:
                worker = threading.Thread(target=member.commit, args=({partition: 8},))
                worker.start()
                worker.join(30)

    member.set_listener(Committing())
    member.join(Subscription.static({topic: 1}))
    member.commit({partition: 5})
    fetch.position = {partition: 7}
    topics.grow(topic, 2)  # step 1 commits 7, and the listener 8
    eventually(lambda: numbers(member) == [0, 1] and fetch.assignment.generation == 2)
    member.commit({partition: 9})
    member.leave()
    assert stores[0].commits == [(True, True), (False, True), (False, True), (True, True), (False, True)]


def test_requests_and_timers_are_served_while_a_claim_waits(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=1)
    path = f"/consumers/{group.name}/owners/{topic}/0"
    zookeeper.create(path, b"ghost-0", makepath=True)
    member, _ = group("a", rebalance_backoff_ms=120_000)
    joining = threading.Thread(target=member.join, args=(Subscription.static({topic: 1}),))
    joining.start()
    eventually(lambda: member.describe().attempts == 1)
    ticks = threading.Semaphore(0)
    member.repeat(0.01, ticks.release)
    assert all(ticks.acquire(timeout=30) for _ in range(5))
    assert member.describe().attempts == 1, "a request is no reason to try again"
    zookeeper.delete(path)
    joining.join(30)
    assert not joining.is_alive()


def test_the_cause_is_found_in_the_view_that_was_used(group, zookeeper, topics, topic_factory):
    """A member that is first seen in step 3 is not the cause of the next rebalance."""
    topic = topic_factory(partitions=4)
    member, _ = group("z")

    class Disturbing(ConsumerRebalanceListener):
        def before_releasing_partitions(self, owned):
            if len(owned) == 4:
                put_stranger(zookeeper, group, "b", topic)
                eventually(lambda: member._signal.raised)

    member.set_listener(Disturbing())
    member.join(Subscription.static({topic: 1}))
    put_stranger(zookeeper, group, "a", topic)
    eventually(lambda: numbers(member) == [3])
    topics.grow(topic, 7)
    eventually(lambda: numbers(member) == [5, 6])
    eventually(lambda: member.stats().rebalances.last_cause is RebalanceCause.TOPICS)
    assert member.stats().rebalances.by_cause[RebalanceCause.MEMBERS] == 1


def test_a_forced_commit_is_written_whatever_was_known(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=1)
    partition, path = TopicPartition(topic, 0), f"/consumers/{group.name}/offsets/{topic}/0"
    member, _ = group("b")
    member.join(Subscription.static({topic: 1}))
    member.commit({partition: 5})
    other, _ = group("a")  # gets the only partition
    other.join(Subscription.static({topic: 1}))
    eventually(lambda: (numbers(member), numbers(other)) == ([], [0]))
    other.commit({partition: 9})
    member.commit({partition: 5}, force=True)
    assert zookeeper.get(path)[0] == b"5"


def test_without_a_registration_nothing_is_written(group, zookeeper, topic_factory):
    topic = topic_factory(partitions=1)
    member, _ = group("a")
    member.join(Subscription.static({topic: 1}))
    member._thread.do(member._protocol.lose)  # what an expired session does
    with pytest.raises(SessionExpired):
        member.commit({TopicPartition(topic, 0): 5}, force=True)
    assert zookeeper.exists(f"/consumers/{group.name}/offsets/{topic}/0") is None


@pytest.mark.slow
def test_reading_without_a_group_outlives_zookeeper(private_sandbox, unique_name):
    sandbox = private_sandbox()
    config = ConsumerConfig(
        zookeeper_connect=sandbox.zookeeper_connect, group_id=unique_name, zookeeper_connection_timeout_ms=20_000
    )
    fetch = RecordingFetch()
    member = open_member(config, fetch)
    try:
        member.assign({TopicPartition(unique_name, 0): 0})
        sandbox.zookeeper.pause()
        eventually(lambda: member.describe().lease_s <= 0)
        assert member.may_deliver()
        assert member.stats().lease_lapses == 0, "it has nothing to lose"
    finally:
        sandbox.zookeeper.resume()
        member.leave()


@pytest.mark.slow
def test_what_a_lapse_withholds_is_delivered_when_the_lease_holds_again(private_sandbox, unique_name):
    class Delivery(RecordingFetch):
        def withhold(self):
            self.calls.append("withhold")

        def deliver(self):
            self.calls.append("deliver")

    sandbox, fetch = private_sandbox(), Delivery()
    topic = Topics(sandbox.bootstrap_servers).create(unique_name, 1)
    config = ConsumerConfig(
        zookeeper_connect=sandbox.zookeeper_connect, group_id=unique_name, zookeeper_connection_timeout_ms=20_000
    )
    member = open_member(config, fetch)
    try:
        member.join(Subscription.static({topic: 1}))
        fetch.calls.clear()
        sandbox.zookeeper.pause()
        eventually(lambda: fetch.calls == ["withhold"])
        assert (member.may_deliver(), member.stats().lease_lapses) == (False, 1)
        sandbox.zookeeper.resume()
        eventually(lambda: "deliver" in fetch.calls)
        eventually(member.may_deliver)
    finally:
        sandbox.zookeeper.resume()
        member.leave()


def test_joining_lasts_as_long_as_the_jvms_however_often_the_group_changes(group, zookeeper, topic_factory):
    topic = topic_factory()
    zookeeper.create(f"/consumers/{group.name}/owners/{topic}/0", b"ghost-0", makepath=True)
    member, _ = group("a", rebalance_max_retries=3, rebalance_backoff_ms=500)
    done = threading.Event()

    def flap():
        ids = f"/consumers/{group.name}/ids"
        zookeeper.ensure_path(ids)
        while not done.wait(0.02):
            zookeeper.create(f"{ids}/{group.name}_x", b'{"subscription":{},"pattern":"static"}')
            zookeeper.delete(f"{ids}/{group.name}_x")

    flapping = threading.Thread(target=flap)
    flapping.start()
    try:
        began = time.monotonic()
        with pytest.raises(RebalanceFailed):
            member.join(Subscription.static({topic: 1}))
        assert time.monotonic() - began >= 1.5
    finally:
        done.set()
        flapping.join()


def test_unreachable_zookeeper_and_missing_chroot(sandbox, group):
    with pytest.raises(ZooKeeperUnavailable, match=r"zookeeper\.connect"):
        group("a", zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout_ms=300)
    with pytest.raises(ChrootMissing, match="/no/such"):
        group("a", zookeeper_connect=f"{sandbox.zookeeper_connect}/no/such")


def test_without_brokers_nothing_happens_until_one_registers(private_sandbox, unique_name):
    sandbox = private_sandbox(brokers=0, **PATIENT)
    fetch = RecordingFetch()
    config = ConsumerConfig(
        zookeeper_connect=sandbox.zookeeper_connect, group_id=unique_name, zookeeper_session_timeout_ms=30_000
    )
    member = open_member(config, fetch)
    try:
        member.join(Subscription.static({unique_name: 1}))
        assert fetch.calls == []
        sandbox.add_brokers(1)
        eventually(lambda: fetch.calls == ["stop", "start"])
        Topics(sandbox.bootstrap_servers).create(unique_name, 2)
        eventually(lambda: numbers(member) == [0, 1])
    finally:
        member.leave()


@pytest.mark.slow
def test_commits_by_timer_queue_nothing_while_zookeeper_is_away(private_sandbox, unique_name):
    """The rebalance thread is free meanwhile: it would wait for answers as long as the session lasts."""
    sandbox = private_sandbox(**PATIENT)
    topic = Topics(sandbox.bootstrap_servers).create(unique_name, 40)
    config = ConsumerConfig(
        zookeeper_connect=sandbox.zookeeper_connect,
        group_id=unique_name,
        zookeeper_session_timeout_ms=30_000,
        auto_commit_interval_ms=100,
    )
    member = open_member(config, RecordingFetch())
    served = []
    try:
        member.join(Subscription.static({topic: 1}))
        member.repeat(0.1, lambda: served.append(1))
        sandbox.zookeeper.stop()
        eventually(lambda: not member.describe().connected)
        served.clear()
        eventually(lambda: len(served) > 20)
        assert not member._protocol.zk._client._queue
        sandbox.zookeeper.start()
        eventually(lambda: member.describe().connected)
        member.commit()
    finally:
        member.leave()


def test_a_description_names_what_a_member_does_and_holds(group, topic_factory):
    topic = topic_factory(partitions=2)
    member, _ = group("a")
    assert (member.describe().state, member.describe().generation) == ("latent", 0)
    member.join(Subscription.static({topic: 1}))
    joined = member.describe()
    assert (joined.state, joined.protocol, joined.generation) == ("fetching", "zookeeper", 1)
    assert {partition.partition for partition in joined.owned} == {0, 1}
    assert joined.last_cause is RebalanceCause.START
    assert 0 < joined.last_seconds < time.time() - joined.last_finished + 60
    assert joined.connected
    assert joined.delivering
    assert joined.session
    assert 0 < joined.lease_s <= 30
    assert [one.state for one in joined.states] == [
        MemberState.LATENT,
        MemberState.REGISTERING,
        MemberState.SETTLING,
        MemberState.READING_GROUP,
        MemberState.STOPPING,
        MemberState.RELEASING,
        MemberState.ASSIGNING,
        MemberState.CLAIMING,
        MemberState.STARTING,
        MemberState.FETCHING,
    ]
    assert f"generation 1, owns {topic} 0-1; last rebalance: start" in str(joined)
    member.leave()
    assert [one.state for one in member.describe().states[-2:]] == [MemberState.LEAVING, MemberState.CLOSED]


def test_a_lost_session_is_a_state(group, topic_factory):
    member, fetch = group("a")
    member.join(Subscription.static({topic_factory(): 1}))
    expire(member)
    eventually(lambda: fetch.assignment.generation == 2 and member.describe().state == "fetching")
    assert MemberState.SESSION_LOST in [one.state for one in member.describe().states]
