"""Groups that brokers coordinate (``group.protocol=kafka``), on a real broker and without a session in ZooKeeper."""

from contextlib import closing, contextmanager

import pytest
from confluent_kafka.admin import AdminClient

from tests.fixtures.consumers import (
    FIRST_OF_BROKER,
    IN_BROKER_GROUP,
    collect,
    consumers,
    continue_at_offsets,
    owned,
    parts,
    take_over_from_killed,
)
from tests.fixtures.fetch import brokers_of
from tests.fixtures.peers import Confluent, KafkaPython
from tests.fixtures.sandbox import PATIENT, Topics, produce_records, values
from tests.fixtures.waiting import eventually
from zkconsumer import (
    ConsumerClosed,
    ConsumerConfig,
    ConsumerConnector,
    ConsumerRebalanceListener,
    InstanceIdInUse,
    NotOwner,
    RebalanceFailed,
    TopicPartition,
    Whitelist,
)
from zkconsumer.errors import BrokerUnavailable, MembershipLost, RebalanceAwaited
from zkconsumer.group.kafka.groupmessages import leave_group
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.findcoordinator import CoordinatorClient

pytestmark = pytest.mark.integration

EAGER, COOPERATIVE = "range", "cooperative-sticky"
BOTH = pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])


@pytest.fixture
def member(sandbox, unique_name):
    """Make members of one group that know the broker only; all are shut down at the end."""
    with consumers({"bootstrap.servers": sandbox.bootstrap_servers}, unique_name, **IN_BROKER_GROUP) as make:
        yield make


@pytest.fixture
def described(sandbox, unique_name):
    """Describe the group as its coordinator does: ``described() -> (state, [member, ..])``."""
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})

    def describe():
        found = admin.describe_consumer_groups([unique_name])[unique_name].result(30)
        return found.state.name, found.members

    return describe


@pytest.fixture
def client(sandbox):
    servers = brokers_of(sandbox.bootstrap_servers)
    with closing(BrokerClient(lambda: servers, client_id="test", timeout_ms=10_000)) as made:
        yield made


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_two_members_share_a_topic_until_one_leaves(member, topic_factory, produce, strategy):
    topic = topic_factory(4)
    produce(topic, values(40))
    one = member(partition_assignment_strategy=strategy)
    received = collect(one.create_message_streams({topic: 2})[topic])
    eventually(lambda: sorted(received, key=int) == values(40))
    assert owned(one) == parts(topic, 0, 1, 2, 3)
    other = member(partition_assignment_strategy=strategy)
    more = collect(other.create_message_streams({topic: 1})[topic])
    eventually(lambda: (len(owned(one)), len(owned(other))) == (2, 2))
    assert owned(one) | owned(other) == parts(topic, 0, 1, 2, 3)
    one.commit_offsets()
    produce(topic, values(40, start=40))
    eventually(lambda: sorted({*received, *more}, key=int) == values(80))
    one.shutdown()
    eventually(lambda: owned(other) == parts(topic, 0, 1, 2, 3))
    produce(topic, values(40, start=80))
    eventually(lambda: sorted({*received, *more}, key=int) == values(120))


def test_a_cooperative_member_releases_only_what_moves(member, topic_factory):
    topic = topic_factory(4)
    released = []

    class Recording(ConsumerRebalanceListener):
        def before_releasing_partitions(self, owned):
            released.append(owned)

    one, other = (member(partition_assignment_strategy=COOPERATIVE) for _ in range(2))
    one.set_rebalance_listener(Recording())
    collect(one.create_message_streams({topic: 1})[topic])
    collect(other.create_message_streams({topic: 1})[topic])
    eventually(lambda: (len(owned(one)), len(owned(other))) == (2, 2))
    assert frozenset().union(*released) == owned(other)


def test_partitions_are_shared_in_proportion_to_streams(member, topic_factory):
    topic = topic_factory(6)
    one, other = member(), member()
    collect(one.create_message_streams({topic: 2})[topic])
    collect(other.create_message_streams({topic: 1})[topic])
    eventually(lambda: (len(owned(one)), len(owned(other))) == (4, 2))
    assert owned(one) | owned(other) == parts(topic, *range(6))


@BOTH
def test_a_member_that_comes_back_continues_at_its_offsets(member, topic_factory, produce, strategy):
    continue_at_offsets(lambda: member(partition_assignment_strategy=strategy), topic_factory(2), produce)


@pytest.mark.slow
def test_partitions_of_a_member_that_is_killed_are_taken_over(sandbox, member, topic_factory, produce, unique_name):
    properties = ["session.timeout.ms=6000", "heartbeat.interval.ms=500"]
    servers = sandbox.bootstrap_servers
    take_over_from_killed("kafka", properties, servers, unique_name, topic_factory(2), member, produce)


@BOTH
def test_a_member_that_the_group_has_removed_joins_as_a_new_one(
    member, topic_factory, produce, described, client, unique_name, strategy
):
    topic = topic_factory(2)
    produce(topic, values(10))
    one = member(partition_assignment_strategy=strategy)
    received = collect(one.create_message_streams({topic: 1})[topic])
    eventually(lambda: len(received) == 10)
    (before,) = described()[1]
    removed = CommitIdentity(before.member_id, -1)
    assert CoordinatorClient(client, unique_name).ask(lambda c: leave_group(c, unique_name, removed)) == 0
    eventually(lambda: [m.member_id for m in described()[1]] not in ([], [before.member_id]))
    eventually(lambda: owned(one) == parts(topic, 0, 1))
    produce(topic, values(10, start=10))
    eventually(lambda: {*received} == {*values(20)})
    assert one.describe().last_cause.value == "session"


def test_a_member_describes_its_place_in_the_group(member, topic_factory, described, client, unique_name):
    topic = topic_factory(2)
    members = [member(partition_assignment_strategy="range") for _ in range(2)]
    for each in members:
        collect(each.create_message_streams({topic: 1})[topic])
    eventually(lambda: [len(owned(each)) for each in members] == [1, 1])
    places = [each.describe() for each in members]
    assert {place.member_id for place in places} == {one.member_id for one in described()[1]}
    assert [place.strategy for place in places] == ["range", "range"]
    assert sorted(place.leads for place in places) == [False, True]
    broker = CoordinatorClient(client, unique_name).find()
    assert {place.coordinator for place in places} == {f"{broker.host}:{broker.port} (id {broker.id})"}
    assert f"member {places[0].member_id} at {broker.host}" in str(places[0])


def test_commits_of_another_generation_or_member_are_refused(member, topic_factory, described, client, unique_name):
    topic = topic_factory()
    collect(member().create_message_streams({topic: 1})[topic])
    (one,) = described()[1]
    offsets = {TopicPartition(topic, 0): StoredOffset(1)}

    def commit(identity):
        return OffsetCoordinator(client, unique_name, lambda: identity).commit(offsets)

    with pytest.raises(RebalanceAwaited, match="ILLEGAL_GENERATION"):
        commit(CommitIdentity(one.member_id, 0))
    with pytest.raises(MembershipLost, match="UNKNOWN_MEMBER_ID"):
        commit(CommitIdentity("another", 1))
    assert commit(CommitIdentity(one.member_id, 1)).accepted == {TopicPartition(topic, 0)}


def test_offsets_of_partitions_that_others_own_need_force(member, topic_factory):
    topic = topic_factory(2)
    one, other = member(), member()
    collect(one.create_message_streams({topic: 1})[topic])
    collect(other.create_message_streams({topic: 1})[topic])
    eventually(lambda: (len(owned(one)), len(owned(other))) == (1, 1))
    (theirs,) = owned(other)
    with pytest.raises(NotOwner):
        one.commit_offsets({theirs: 1})
    one.commit_offsets({theirs: 1}, force=True)


@BOTH
def test_new_partitions_and_topics_are_shared(member, topics, unique_name, strategy):
    first = topics.create(f"{unique_name}-1", 2)
    one, other = (member(partition_assignment_strategy=strategy) for _ in range(2))
    pattern = Whitelist(f"{unique_name}-.*")
    collect(one.create_message_streams_by_filter(pattern, 1))
    collect(other.create_message_streams_by_filter(pattern, 1))
    eventually(lambda: (len(owned(one)), len(owned(other))) == (1, 1))
    topics.grow(first, 4)
    eventually(lambda: (len(owned(one)), len(owned(other))) == (2, 2))
    second = topics.create(f"{unique_name}-2", 2)
    eventually(lambda: owned(one) | owned(other) == parts(first, 0, 1, 2, 3) | parts(second, 0, 1))


def test_a_topic_that_is_created_later_is_consumed(sandbox, member, topics, unique_name):
    one = member()
    received = collect(one.create_message_streams({unique_name: 1})[unique_name])
    assert owned(one) == set()
    topics.create(unique_name)
    eventually(lambda: owned(one) == parts(unique_name, 0))
    produce_records(sandbox.bootstrap_servers, unique_name, values(3))
    eventually(lambda: received == values(3))


def test_a_static_member_gets_its_partitions_back(member, topic_factory, described):
    topic = topic_factory(2)
    one, other = (member(group_instance_id=name) for name in ("first", "second"))
    collect(one.create_message_streams({topic: 1})[topic])
    collect(other.create_message_streams({topic: 1})[topic])
    eventually(lambda: (len(owned(one)), len(owned(other))) == (1, 1))
    before, theirs = other.describe().attempts, owned(one)
    one.shutdown()
    assert len(described()[1]) == 2, "it stays in the group for its session timeout"
    again = member(group_instance_id="first")
    collect(again.create_message_streams({topic: 1})[topic])
    assert owned(again) == theirs
    assert other.describe().attempts == before, "the group has not rebalanced"


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_a_static_member_that_returns_with_another_topic_gets_it(member, topics, unique_name, strategy):
    """The coordinator answers with its former assignment, and the group does not rebalance by itself."""
    old, new = (topics.create(f"{unique_name}-{name}") for name in ("old", "new"))
    leader = member(group_instance_id="leads", partition_assignment_strategy=strategy)
    collect(leader.create_message_streams({old: 1})[old])
    one = member(group_instance_id="returns", partition_assignment_strategy=strategy)
    collect(one.create_message_streams({old: 1})[old])
    one.shutdown()
    one = member(group_instance_id="returns", partition_assignment_strategy=strategy)
    collect(one.create_message_streams({new: 1})[new])
    eventually(lambda: (owned(leader), owned(one)) == (parts(old, 0), parts(new, 0)))


def test_a_static_leader_that_returns_assigns_what_was_added(member, topics, unique_name):
    topic = topics.create(unique_name)
    leader = member(group_instance_id="leads")
    collect(leader.create_message_streams({topic: 1})[topic])
    other = member(group_instance_id="follows")
    collect(other.create_message_streams({topic: 1})[topic])
    leader.shutdown()
    topics.grow(topic, 4)
    leader = member(group_instance_id="leads")
    collect(leader.create_message_streams({topic: 1})[topic])
    eventually(lambda: owned(leader) | owned(other) == parts(topic, 0, 1, 2, 3))


def test_of_two_consumers_with_one_instance_id_the_streams_of_the_first_raise(member, topic_factory, produce):
    topic = topic_factory()
    one = member(group_instance_id="same")
    streams = one.create_message_streams({topic: 2})[topic]
    other = member(group_instance_id="same")
    received = collect(other.create_message_streams({topic: 1})[topic])
    for stream in (*streams, *streams):
        with pytest.raises(InstanceIdInUse, match=r"uses the same group\.instance\.id"):
            next(stream)
    eventually(lambda: (owned(one), owned(other)) == (set(), parts(topic, 0)))
    produce(topic, values(3))
    eventually(lambda: received == values(3))
    with pytest.raises(ConsumerClosed):
        one.commit_offsets()


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_a_topic_that_is_created_again_is_read_from_its_start(member, topics, produce, unique_name, strategy):
    """Also if no answer of the brokers was without it, and the stored offset is one of the former topic."""
    other = topics.create(f"{unique_name}-other")
    topic = topics.create(unique_name)
    one = member(partition_assignment_strategy=strategy, metadata_max_age_ms=600_000)
    streams = one.create_message_streams({topic: 1, other: 1})
    received = collect(streams[topic])
    produce(topic, values(10))
    eventually(lambda: received == values(10))
    topics.delete(topic)
    topics.create(topic)
    produce(topic, values(30, start=10))
    one.commit_offsets({TopicPartition(topic, 0): 10})
    topics.grow(other, 2)
    member(partition_assignment_strategy=strategy).create_message_streams({other: 1})  # they read the topics to join
    eventually(lambda: {*received} == {*values(40)})


@pytest.mark.parametrize("next_joins", [False, True])
def test_a_reader_that_joins_no_group_knows_which_topic_an_offset_is_of(
    member, topics, produce, unique_name, next_joins
):
    """Its commit after the topic was created again, and one that it finds, are of the former topic."""
    topic = topics.create(unique_name)
    partition = TopicPartition(topic, 0)
    settled = {"auto_offset_reset": "smallest", "auto_commit_enable": False}
    produce(topic, values(10))
    one = member(**settled)
    received = collect([one.assign({partition: None})])
    eventually(lambda: received == values(10))
    if next_joins:
        one.commit_offsets()
    topics.delete(topic)
    topics.create(topic)
    produce(topic, values(30, start=10))
    one.commit_offsets({partition: 10})
    one.shutdown()
    following = member(**settled)
    received = collect(
        following.create_message_streams({topic: 1})[topic] if next_joins else [following.assign({partition: None})]
    )
    eventually(lambda: {*received} == {*values(30, start=10)})


def test_a_member_with_another_strategy_is_refused_with_what_to_change(member, topic_factory):
    topic = topic_factory()
    collect(member(partition_assignment_strategy=COOPERATIVE).create_message_streams({topic: 1})[topic])
    stranger = member(partition_assignment_strategy=EAGER, rebalance_max_retries=1, rebalance_backoff_ms=10)
    both = r"no strategy of partition\.assignment\.strategy=range, but cooperative-sticky"
    with pytest.raises(RebalanceFailed, match=both):
        stranger.create_message_streams({topic: 1})


def test_partitions_are_read_without_a_membership(member, topic_factory, produce, described):
    topic = topic_factory()
    produce(topic, values(5))
    one = member()
    received = collect([one.assign({TopicPartition(topic, 0): 0})])
    eventually(lambda: received == values(5))
    one.commit_offsets()
    assert described() == ("EMPTY", [])


def test_a_cluster_that_does_not_answer_is_reported_at_once():
    config = ConsumerConfig(bootstrap_servers="127.0.0.1:1", group_id="g", group_protocol="kafka")
    with pytest.raises(BrokerUnavailable, match="none of 1 brokers answers"):
        ConsumerConnector(config)


@pytest.mark.slow
def test_the_last_commit_is_made_soon_after_the_coordinator_was_silent(private_sandbox, unique_name):
    """The lease holds, and the next heartbeat, which would find that out, is seconds away."""
    box = private_sandbox(**PATIENT)
    topic = Topics(box.bootstrap_servers).create(unique_name)
    settings = {"group_protocol": "kafka", "session_timeout_ms": 30_000, **FIRST_OF_BROKER}
    with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **settings) as make:
        one = make(heartbeat_interval_ms=9_000, commit_on="delivery")
        received = collect(one.create_message_streams({topic: 1})[topic])
        produce_records(box.bootstrap_servers, topic, values(10))
        eventually(lambda: received == values(10))
        box.brokers[0].pause()
        try:
            eventually(lambda: not one.describe().connected)
        finally:
            box.brokers[0].resume()
        one.shutdown()
        produce_records(box.bootstrap_servers, topic, values(10, start=10))
        after = collect(make().create_message_streams({topic: 1})[topic])
        eventually(lambda: after[-1:] == [b"19"])
        assert after == values(10, start=10)


@pytest.mark.slow
def test_members_outlast_a_coordinator_that_pauses_and_one_that_is_killed(private_sandbox, unique_name):
    box = private_sandbox()
    topic = Topics(box.bootstrap_servers).create(unique_name, 4)
    brokers = {"bootstrap.servers": box.bootstrap_servers}
    settings = {"group_protocol": "kafka", "session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
    with consumers(brokers, unique_name, partition_assignment_strategy=COOPERATIVE, **settings) as make:
        members = [make(), make()]
        received = [collect(one.create_message_streams({topic: 1})[topic]) for one in members]

        def all_read(count):
            everything = {*received[0], *received[1]} == {*values(count)}
            return everything and set(map(len, map(owned, members))) == {2} and owned(members[0]) != owned(members[1])

        produce_records(box.bootstrap_servers, topic, values(20))
        eventually(lambda: all_read(20))
        box.brokers[0].pause()
        try:
            eventually(lambda: not any(one.describe().delivering for one in members))
        finally:
            box.brokers[0].resume()
        eventually(lambda: all(one.describe().delivering for one in members))
        produce_records(box.bootstrap_servers, topic, values(20, start=20))
        eventually(lambda: all_read(40))
        box.brokers[0].kill()
        box.brokers[0].start()
        produce_records(box.bootstrap_servers, topic, values(20, start=40))
        eventually(lambda: all_read(60))
        for one in members:
            one.commit_offsets()


@contextmanager
def _in_order(ours_first, ours, theirs):
    """Both members of a group, of which one is made first and leads: (streams' values, connector, the other)."""
    if ours_first:
        received, connector = ours()
        with closing(theirs()) as other:
            yield received, connector, other
    else:
        with closing(theirs()) as other:
            eventually(lambda: other.owned != set())
            received, connector = ours()
            yield received, connector, other


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours-leads", "theirs-leads"])
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky", "sticky"])
def test_a_group_is_shared_with_other_clients(
    sandbox, member, topic_factory, produce, unique_name, strategy, ours_first
):
    topic = topic_factory(4)
    produce(topic, values(20))

    def ours():
        connector = member(partition_assignment_strategy=strategy)
        return collect(connector.create_message_streams({topic: 1})[topic]), connector

    def theirs():
        if strategy == "sticky":
            return KafkaPython(sandbox.bootstrap_servers, unique_name, topic)
        return Confluent(sandbox.bootstrap_servers, unique_name, topic, strategy)

    with _in_order(ours_first, ours, theirs) as (received, connector, other):
        eventually(lambda: (len(owned(connector)), len(other.owned)) == (2, 2))
        assert owned(connector) | other.owned == parts(topic, 0, 1, 2, 3)
        produce(topic, values(20, start=20))
        eventually(lambda: {*received, *other.values} == {*values(40)})
        assert {*received} & {*other.values} & {*values(20, start=20)} == set()
    eventually(lambda: owned(connector) == parts(topic, 0, 1, 2, 3))
