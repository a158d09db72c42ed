"""Rebalances of a group that brokers coordinate in which one member sends one request at a time, as the test wants."""

import threading
import time
from contextlib import closing, contextmanager, suppress

import pytest
from confluent_kafka.admin import AdminClient

from tests.fixtures.consumers import IN_BROKER_GROUP, collect, consumers, owned, parts
from tests.fixtures.fetch import brokers_of
from tests.fixtures.sandbox import Topics, produce_records, values
from tests.fixtures.waiting import eventually
from zkconsumer import StreamIdle
from zkconsumer.errors import CoordinatorMoved, RetriableError
from zkconsumer.group.kafka.groupmessages import JoinSettings, join_group, leave_group, sync_group
from zkconsumer.group.kafka.rules.generationmember import JoinIntent
from zkconsumer.group.kafka.subscriptionbytes import encode_assignment, encode_subscription
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.offsets.rules.offsetstopic import OFFSETS_TOPIC, partition_of_group
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.findcoordinator import CoordinatorClient

pytestmark = pytest.mark.integration

EAGER, COOPERATIVE = "range", "cooperative-sticky"


@pytest.fixture
def member(sandbox, unique_name):
    """Make members of one group that know the broker only; all are shut down at the end."""
    with consumers({"bootstrap.servers": sandbox.bootstrap_servers}, unique_name, **IN_BROKER_GROUP) as make:
        yield make


@pytest.fixture
def described(sandbox, unique_name):
    """Describe the group as its coordinator does."""
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    return lambda: admin.describe_consumer_groups([unique_name])[unique_name].result(30)


@contextmanager
def client_of(bootstrap_servers):
    servers = brokers_of(bootstrap_servers)
    with closing(BrokerClient(lambda: servers, client_id="test", timeout_ms=10_000)) as made:
        yield made


class ManualMember:
    """A member without threads: no heartbeats, and one request at a time."""

    def __init__(self, client, group, topic, *, session_ms=6000, strategy=COOPERATIVE):
        self._coordinator = CoordinatorClient(client, group)
        self._settings = JoinSettings(group, session_ms, session_ms, None)
        self._strategy, self._topic = strategy, topic
        self.answer = None

    def join(self):
        """Returns when all members have joined."""
        member_id = "" if self.answer is None else self.answer.member_id
        intent = JoinIntent(member_id, -1, frozenset(), frozenset())
        metadata = {self._strategy: encode_subscription(self._strategy, {self._topic: 1}, intent)}

        def ask(connection):
            answer = join_group(connection, self._settings, member_id, metadata, "a test")
            if answer.code != ErrorCode.MEMBER_ID_REQUIRED:
                return answer
            return join_group(connection, self._settings, answer.member_id, metadata, "a test")

        self.answer = self._ask(ask)
        assert self.answer.code == ErrorCode.NONE
        return self.answer

    def synchronise(self, assignments=None):
        encoded = {member_id: encode_assignment(theirs) for member_id, theirs in (assignments or {}).items()}
        identity = CommitIdentity(self.answer.member_id, self.answer.generation)
        return self._ask(lambda connection: sync_group(connection, self._settings, identity, self._strategy, encoded))

    def leave(self):
        identity = CommitIdentity(self.answer.member_id, self.answer.generation)
        assert self._ask(lambda connection: leave_group(connection, self._settings.group, identity)) == 0

    def _ask(self, question):
        """The first group of a cluster has no coordinator before its topic has been created."""
        answers = []

        def answered():
            with suppress(CoordinatorMoved):
                answers.append(self._coordinator.ask(question))
            return answers

        eventually(answered)
        return answers[0]


@pytest.fixture
def manual(sandbox, unique_name):
    with client_of(sandbox.bootstrap_servers) as client:
        yield lambda topic, **settings: ManualMember(client, unique_name, topic, **settings)


def spread(records, partitions):
    return [{"value": value, "partition": number % partitions} for number, value in enumerate(records)]


def start(connector, topic):
    """Join in a thread, which reads then: other members have to join before this one has."""
    received = []

    def run():
        for message in connector.create_message_streams({topic: 1})[topic][0]:
            received.append(message.value)

    threading.Thread(target=run, daemon=True).start()
    return received


def test_a_late_or_repeated_sync_gets_the_same_assignment(manual, topic_factory):
    topic = topic_factory(2)
    one = manual(topic, session_ms=60_000)
    answer = one.join()
    first = one.synchronise({answer.member_id: parts(topic, 0, 1)})
    assert first == (ErrorCode.NONE, encode_assignment(parts(topic, 0, 1)))
    assert one.synchronise() == first
    one.leave()


@pytest.mark.slow
def test_a_leader_that_dies_before_it_assigns_is_replaced(manual, member, topic_factory, described):
    topic = topic_factory(2)
    leader = manual(topic, session_ms=20_000)
    leader.synchronise({leader.join().member_id: parts(topic, 0, 1)})
    connector = member(partition_assignment_strategy=COOPERATIVE)
    start(connector, topic)
    eventually(lambda: described().state.name == "PREPARING_REBALANCING")
    answer = leader.join()
    assert (answer.leads, len(answer.members)) == (True, 2)
    eventually(lambda: owned(connector) == parts(topic, 0, 1))


def test_a_member_reads_and_commits_while_it_waits_for_a_slow_one(manual, member, topic_factory, produce, described):
    topic = topic_factory(2)
    one = member(partition_assignment_strategy=COOPERATIVE)
    received = collect(one.create_message_streams({topic: 1})[topic])
    slow = manual(topic, session_ms=60_000)
    slow.join()
    slow.synchronise()
    eventually(lambda: len(owned(one)) == 1)
    other = member(partition_assignment_strategy=COOPERATIVE)
    more = start(other, topic)
    eventually(lambda: len(described().members) == 3)
    eventually(lambda: described().state.name == "PREPARING_REBALANCING")
    (kept,) = owned(one)
    produce(topic, [{"value": value, "partition": kept.partition} for value in values(10)])
    eventually(lambda: received == values(10))
    one.commit_offsets()
    lapses_at = time.monotonic() + one.describe().lease_s
    eventually(lambda: time.monotonic() + one.describe().lease_s > lapses_at + 0.1)  # answers to heartbeats extend it
    assert described().state.name == "PREPARING_REBALANCING"
    assert one.describe().delivering
    slow.leave()
    eventually(lambda: (len(owned(one)), len(owned(other))) == (1, 1))
    assert owned(one) == {kept}
    produce(topic, spread(values(10, start=10), 2))
    eventually(lambda: sorted(received + more, key=int) == values(20))


def test_the_last_commit_waits_for_a_leader_that_is_slow_to_assign(manual, member, topic_factory, produce, described):
    """Meanwhile the coordinator refuses every commit, and a member that leaves without its own is read again."""
    topic = topic_factory()
    leader = manual(topic, session_ms=60_000)
    leader.synchronise({leader.join().member_id: ()})
    connector = member(partition_assignment_strategy=COOPERATIVE)
    received = start(connector, topic)
    eventually(lambda: described().state.name == "PREPARING_REBALANCING")
    answer = leader.join()
    (theirs,) = {one.member_id for one in answer.members} - {answer.member_id}
    leader.synchronise({theirs: parts(topic, 0)})
    produce(topic, values(10))
    eventually(lambda: received == values(10))
    leader.join()
    leaving = threading.Thread(target=connector.shutdown)
    leaving.start()
    leaving.join(0.3)  # the commit is refused
    leader.synchronise({theirs: parts(topic, 0)})
    leaving.join()
    leader.leave()
    produce(topic, values(10, start=10))
    after = collect(member(partition_assignment_strategy=COOPERATIVE).create_message_streams({topic: 1})[topic])
    eventually(lambda: after[-1:] == [b"19"])
    assert after == values(10, start=10)


def test_the_strategy_with_most_votes_among_the_common_ones_is_used(member, topic_factory, described):
    topic = topic_factory(3)
    lists = ["sticky,range,roundrobin", "roundrobin,range", "roundrobin,sticky,range"]
    members = [member(partition_assignment_strategy=one) for one in lists]
    for one in members:
        collect(one.create_message_streams({topic: 1})[topic])
    eventually(lambda: [len(owned(one)) for one in members] == [1, 1, 1])
    assert described().partition_assignor == "roundrobin"


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_no_record_is_read_twice_when_partitions_move(member, topic_factory, produce, strategy):
    """What a member has handed out is committed before it joins without the partition."""
    topic = topic_factory(4)
    produce(topic, spread(values(40), 4))
    one, other = (member(partition_assignment_strategy=strategy, commit_on="delivery") for _ in range(2))
    received = collect(one.create_message_streams({topic: 1})[topic])
    eventually(lambda: len(received) == 40)
    more = collect(other.create_message_streams({topic: 1})[topic])
    eventually(lambda: (len(owned(one)), len(owned(other))) == (2, 2))
    produce(topic, spread(values(40, start=40), 4))
    eventually(lambda: len(received + more) >= 80)
    assert sorted(received + more, key=int) == values(80)


@pytest.mark.parametrize("limit", ["max_stream_idle_ms", "max_poll_interval_ms"])
def test_a_member_whose_streams_are_not_read_leaves(member, topic_factory, produce, described, limit):
    topic = topic_factory()
    produce(topic, values(5))
    (stream,) = member(**{limit: 2000}).create_message_streams({topic: 1})[topic]
    eventually(lambda: (described().state.name, described().members) == ("EMPTY", []))
    with pytest.raises(StreamIdle):
        next(stream)


@pytest.mark.slow
def test_members_follow_their_coordinator_to_another_broker(private_sandbox, unique_name):
    replicated = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "12"}
    box = private_sandbox(brokers=3, kafka_properties=replicated)
    topic = Topics(box.bootstrap_servers).create(unique_name, 4, replication=3)

    def member_ids():
        admin = AdminClient({"bootstrap.servers": box.bootstrap_servers})  # one that saw a broker end may get no answer
        return {one.member_id for one in admin.describe_consumer_groups([unique_name])[unique_name].result(60).members}

    servers = {"bootstrap.servers": box.bootstrap_servers}
    settings = {**IN_BROKER_GROUP, "partition_assignment_strategy": COOPERATIVE}
    with client_of(box.bootstrap_servers) as client, consumers(servers, unique_name, **settings) as make:
        members = [make(), make()]
        received = [collect(one.create_message_streams({topic: 1})[topic]) for one in members]
        eventually(lambda: [len(owned(one)) for one in members] == [2, 2])
        before = member_ids(), [one.describe().attempts for one in members], [owned(one) for one in members]
        _expect_coordinators_by_hash(client, AdminClient({"bootstrap.servers": box.bootstrap_servers}))
        box.brokers[CoordinatorClient(client, unique_name).find().id].kill()
        for one in members:
            _commit_at_last(one)
        produce_records(box.bootstrap_servers, topic, spread(values(40), 4))
        eventually(lambda: sorted(received[0] + received[1], key=int) == values(40))
        after = member_ids(), [one.describe().attempts for one in members], [owned(one) for one in members]
        assert after == before, "member ids and the generation are kept"


def _expect_coordinators_by_hash(client, admin):
    """The coordinator of a group leads the partition of the offsets topic that the hash of its name selects."""
    partitions = admin.list_topics(OFFSETS_TOPIC, timeout=30).topics[OFFSETS_TOPIC].partitions
    names = [f"group-{number}" for number in range(1000)]
    expected = {name: partitions[partition_of_group(name, len(partitions))].leader for name in names}
    assert {name: CoordinatorClient(client, name).find().id for name in names} == expected
    assert len(set(expected.values())) == 3


def _commit_at_last(connector):
    def commits():
        try:
            connector.commit_offsets()
        except RetriableError:
            return False
        return True

    eventually(commits)
