"""group.protocol=consumer on real brokers of each release from 4.0, which assign (KIP-848)."""

import asyncio
from contextlib import closing, suppress

import psutil
import pytest

from jvmclients.kafkaconsumer import KafkaConsumerJvm
from tests.fixtures.asyncmembers import (
    call_the_coroutines_of_a_listener,
    read_although_the_membership_is_lost,
    rebalance_while_tasks_are_cancelled,
    wait_without_threads,
)
from tests.fixtures.consumers import (
    FIRST_OF_BROKER,
    change_topics_while_removed,
    collect,
    consumers,
    continue_at_offsets,
    owned,
    parts,
    take_over_from_killed,
    wake_and_end,
)
from tests.fixtures.fetch import brokers_of
from tests.fixtures.finishing import (
    commit_by_timer_what_is_done,
    finish_in_an_event_loop,
    forget_what_another_member_had_in_between,
    lose_nothing_in_a_rebalance,
    lose_the_membership_and_nothing_that_is_unfinished,
    stop_below_what_is_not_done,
    wait_after_a_batch_that_exceeds_the_limit,
    wait_at_the_limit,
)
from tests.fixtures.offsethomes import InBrokers
from tests.fixtures.pageprograms import end_by_sigterm, outlive_the_membership, starting
from tests.fixtures.peers import Confluent
from tests.fixtures.running import (
    begin_nothing_while_servers_are_silent,
    end_before_a_record_that_fails,
    hand_over_each_record_once,
    lose_nothing_when_the_membership_is_lost,
)
from tests.fixtures.sandbox import Topics, produce_records, values
from tests.fixtures.waiting import eventually
from zkconsumer import (
    AsyncConsumerConnector,
    ConfigError,
    ConsumerConfig,
    ConsumerConnector,
    ConsumerRebalanceListener,
    RebalanceFailed,
    TopicPartition,
    Whitelist,
)
from zkconsumer.errors import MembershipLost, RebalanceAwaited
from zkconsumer.group.consumer.heartbeatmessages import HeartbeatSettings, consumer_heartbeat, leave_beat
from zkconsumer.group.consumer.rules.epochmember import JOINING, LEAVING, EpochBeat
from zkconsumer.group.kafka.describedmembers import group_members
from zkconsumer.offsets.offsetcoordinator import CommitMembership, OffsetCoordinator
from zkconsumer.offsets.rules.commitfence import CommitIdentity
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress
from zkconsumer.spark.clusterview import read_cluster
from zkconsumer.spark.rules.options import parse_options
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.findcoordinator import CoordinatorClient
from zkconsumer.wire.kafkapython import load_kafka_python

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

BROKER = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "30000",
    "broker.session.timeout.ms": "60000",
}
QUICK = {**BROKER, "broker.session.timeout.ms": "3000"}
"""Of a broker that is killed: it serves again when its former session has timed out."""
SETTINGS = {
    "group_protocol": "consumer",
    "metadata_max_age_ms": 500,
    "rebalance_backoff_ms": 1000,
    **FIRST_OF_BROKER,
}


@pytest.fixture(scope="module", params=["4.2.0", "4.1.1", "4.0.1"])
def box(request):
    with Sandbox(kafka_version=request.param, zookeepers=0, kafka_properties=BROKER, progress=Progress()) as started:
        yield started


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    """A JVM with KafkaConsumers of 4.2."""
    jvm = KafkaConsumerJvm(tmp_path_factory.mktemp("jvm"), version="4.2.0", progress=Progress())
    jvm.start()
    yield jvm
    jvm.kill()


@pytest.fixture
def member(box, unique_name):
    """Make members of one group; all are shut down at the end."""
    with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **SETTINGS) as make:
        yield make


@pytest.fixture
def topics(box):
    return Topics(box.bootstrap_servers)


@pytest.fixture
def topic_factory(topics, unique_name):
    numbers = iter(range(100))
    return lambda partitions=1: topics.create(f"{unique_name}-t{next(numbers)}", partitions)


@pytest.fixture
def produce(box):
    return lambda topic, records: produce_records(box.bootstrap_servers, topic, records)


@pytest.fixture
def home(box, unique_name):
    """The members and offsets of the test's group."""
    return InBrokers(box.bootstrap_servers, unique_name)


@pytest.fixture
def config(box, unique_name):
    """Of a member of the test's group."""
    return ConsumerConfig(
        bootstrap_servers=box.bootstrap_servers, group_id=unique_name, auto_offset_reset="smallest", **SETTINGS
    )


def connection_of(box):
    """Properties of a program of the page."""
    return {"bootstrap.servers": box.bootstrap_servers, "group.protocol": "consumer"}


@pytest.fixture
def client(box):
    servers = brokers_of(box.bootstrap_servers)
    with closing(BrokerClient(lambda: servers, client_id="test", timeout_ms=10_000)) as made:
        yield made


class Recording(ConsumerRebalanceListener):
    """What was released, in the order of the rebalances."""

    def __init__(self):
        self.released = []

    def before_releasing_partitions(self, owned):
        self.released.append(owned)


def test_topics_are_changed_while_members_read(member, topic_factory, produce):
    stays, goes, comes = (topic_factory(2) for _ in range(3))
    one, other = member(auto_commit_enable=False), member(auto_commit_enable=False)
    recording = Recording()
    one.set_rebalance_listener(recording)
    received = collect(one.create_message_streams_by_filter(Whitelist(f"{stays}|{goes}"), 1))
    received_by_other = collect(other.create_message_streams_by_filter(Whitelist(f"{stays}|{goes}"), 1))
    eventually(lambda: len(owned(one)) == len(owned(other)) == 2)
    kept = owned(one) & parts(stays, 0, 1)
    recording.released.clear()
    one.subscribe([stays, comes])
    eventually(lambda: owned(one) >= parts(comes, 0, 1) and owned(other) >= parts(goes, 0, 1))
    for number, topic in enumerate((stays, goes, comes)):
        produce(topic, values(20, start=20 * number))
    eventually(lambda: {*map(int, [*received, *received_by_other])} == {*range(60)})
    assert not kept & owned(one) & set().union(*recording.released)
    one.subscribe(Whitelist(stays))
    one.subscribe([goes])
    eventually(lambda: owned(one) <= parts(goes, 0, 1) and owned(other) >= parts(stays, 0, 1))


def test_a_member_in_an_event_loop(config, topic_factory, produce):
    topic = topic_factory(2)
    produce(topic, values(40))

    async def read(count):
        seen = []
        async with AsyncConsumerConnector(config) as connector:
            (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
            while len(seen) < count:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02):  # cancels wherever the task waits
                        async for batch in stream.batches(max_rows=3):
                            seen.extend(batch["value"].to_pylist())
                            await connector.commit_offsets() if len(seen) > 30 else None
            await connector.commit_offsets()
        return seen

    assert sorted(asyncio.run(read(40)), key=int) == values(40)
    produce(topic, values(10, start=40))
    assert sorted(asyncio.run(read(10)), key=int) == values(10, start=40)


def test_tasks_of_an_event_loop_finish_records_that_are_committed_when_they_are_done(config, topic_factory, produce):
    asyncio.run(finish_in_an_event_loop(config, topic_factory(4), produce))


def test_tasks_of_an_event_loop_that_are_cancelled_while_the_group_rebalances(config, topic_factory, produce):
    asyncio.run(rebalance_while_tasks_are_cancelled(config.replace, topic_factory(4), produce))


def test_tasks_of_an_event_loop_read_although_the_membership_is_lost(config, group, topic_factory, produce):
    def remove(connector):
        group.remove(identity(connector).member_id)

    asyncio.run(read_although_the_membership_is_lost(config.replace, topic_factory(2), produce, remove))


def test_the_coroutines_of_a_listener_run_on_the_loop_and_may_commit(config, topic_factory, produce):
    asyncio.run(call_the_coroutines_of_a_listener(config.replace, topic_factory(2), produce))


def test_streams_of_an_event_loop_that_wait_cost_no_threads(config, topic_factory):
    wait_without_threads(config.replace, topic_factory(1))


def test_a_stream_is_woken_and_ended_by_threads_and_signals(member, topic_factory, produce):
    wake_and_end(member, topic_factory(2), produce)


def test_topics_change_in_the_moment_of_a_removal(member, group, topic_factory, produce):
    def remove(one):
        """Once it has joined again, if it is just about to."""
        eventually(lambda: group.leave(identity(one).member_id) == ErrorCode.NONE)

    change_topics_while_removed(member, remove, topic_factory, produce)


@pytest.mark.parametrize("ordered_by", ["partition", "key"])
def test_a_run_shares_a_topic_and_outlives_its_membership(
    config, member, group, topics, unique_name, produce, ordered_by
):
    def remove(connector):
        group.remove(identity(connector).member_id)

    shared, lost = (topics.create(f"{unique_name}-{name}", 4) for name in ("shared", "lost"))
    hand_over_each_record_once(config, shared, produce, member, ordered_by=ordered_by)
    lose_nothing_when_the_membership_is_lost(config, lost, produce, remove, ordered_by=ordered_by)


def test_a_run_ends_before_a_record_that_fails(config, topic_factory, produce, home):
    end_before_a_record_that_fails(config, topic_factory(1), produce, home)


def test_a_run_begins_nothing_while_its_broker_is_silent(private_sandbox, unique_name):
    timeouts = {"group.consumer.session.timeout.ms": "4000", "broker.session.timeout.ms": "60000"}
    box = private_sandbox(kafka_version="4.2.0", zookeepers=0, kafka_properties={**BROKER, **timeouts})
    config = ConsumerConfig(
        bootstrap_servers=box.bootstrap_servers, group_id=unique_name, auto_offset_reset="smallest", **SETTINGS
    )
    topic = Topics(box.bootstrap_servers).create(unique_name, 4)
    (broker,) = box.brokers
    begin_nothing_while_servers_are_silent(
        config, topic, lambda *records: produce_records(box.bootstrap_servers, *records), broker.pause, broker.resume
    )


@pytest.mark.parametrize("program", ["two_threads", "handler"])
def test_a_program_ends_by_sigterm_and_has_committed(box, unique_name, topic_factory, produce, home, tmp_path, program):
    topic = topic_factory(4)
    with starting(connection_of(box), unique_name, topic, tmp_path) as start:
        end_by_sigterm(start, program, topic, produce, home)


@pytest.mark.parametrize("program", ["two_threads", "handler"])
def test_a_program_outlives_its_membership(box, unique_name, group, topic_factory, produce, home, tmp_path, program):
    topic = topic_factory(4)
    group.configure("consumer.session.timeout.ms", "3000")
    with starting(connection_of(box), unique_name, topic, tmp_path, **{"auto.commit.interval.ms": "200"}) as start:
        outlive_the_membership(start, program, topic, produce, home)


def test_a_partition_waits_for_a_batch_that_exceeds_the_limit(member, topic_factory, produce):
    wait_after_a_batch_that_exceeds_the_limit(member, topic_factory(2), produce)


def test_late_records_change_no_commit_after_another_member_had_their_partition(member, topic_factory, produce):
    forget_what_another_member_had_in_between(member, topic_factory(1), topic_factory(1), produce)


def test_a_commit_by_timer_covers_what_is_done_and_the_process_is_killed(
    box, unique_name, topic_factory, produce, home
):
    values = {"bootstrap_servers": box.bootstrap_servers, "group_id": unique_name, "auto_offset_reset": "smallest"}
    commit_by_timer_what_is_done({**values, **SETTINGS}, topic_factory(1), produce, home)


class Watched:
    """A group from outside: who is in it, and requests in the name of its members."""

    def __init__(self, client, group):
        self._client, self._group = client, group
        self._settings = HeartbeatSettings(group, 30_000, None)

    def remove(self, member_id):
        """Let a member leave the group, which does not know it."""
        assert self.leave(member_id) == ErrorCode.NONE

    def leave(self, member_id, instance_id=None):
        """Leave in the name of a member; returns the error code."""
        return self._send(leave_beat(CommitIdentity(member_id, LEAVING, instance_id)))

    def join(self, member_id, instance_id, topic):
        """Join in the name of a member; returns the error code."""
        return self._send(EpochBeat(CommitIdentity(member_id, JOINING, instance_id), True, (topic,), frozenset()))

    def _send(self, beat):
        return (
            CoordinatorClient(self._client, self._group)
            .ask(lambda connection: consumer_heartbeat(connection, self._settings, beat))
            .code
        )

    def shares(self):
        """What each member owns, as the coordinator describes it."""
        members = group_members(CoordinatorClient(self._client, self._group), self._group)
        return {one.assigned for one in members}

    def commit(self, identity, offsets):
        stored = {partition: StoredOffset(offset) for partition, offset in offsets.items()}
        return OffsetCoordinator(
            self._client, self._group, lambda: identity, CommitMembership(lambda *_: False, dict)
        ).commit(stored)

    def configure(self, name, value):
        """Set a property of the group (KIP-1043)."""
        load_kafka_python()
        from kafka.protocol.admin import IncrementalAlterConfigsRequest

        make = IncrementalAlterConfigsRequest.AlterConfigsResource
        change = make.AlterableConfig(name=name, config_operation=0, value=value)
        resource = make(resource_type=32, resource_name=self._group, configs=[change])
        request = IncrementalAlterConfigsRequest(version=1, resources=[resource], validate_only=False)
        answer = self._client.ask_any(lambda connection: connection.call(request))
        assert [one.error_code for one in answer.responses] == [0]


@pytest.fixture
def group(client, unique_name):
    return Watched(client, unique_name)


def identity(connector):
    """Whom the commits of a connector name."""
    return connector._member._protocol.identity()


def test_two_members_share_a_topic_with_nothing_lost_or_read_twice(member, group, topic_factory, produce):
    topic = topic_factory(4)
    produce(topic, values(40))
    one, recording = member(commit_on="delivery"), Recording()
    one.set_rebalance_listener(recording)
    received = collect(one.create_message_streams({topic: 2})[topic])
    eventually(lambda: sorted(received, key=int) == values(40))
    assert owned(one) == parts(topic, 0, 1, 2, 3)
    other = member()
    more = collect(other.create_message_streams({topic: 1})[topic])
    eventually(lambda: (len(owned(one)), len(owned(other))) == (2, 2))
    assert owned(one) | owned(other) == parts(topic, 0, 1, 2, 3)
    assert frozenset().union(*recording.released) == owned(other), "what stays is not released"
    assert group.shares() == {frozenset(owned(one)), frozenset(owned(other))}
    produce(topic, values(40, start=40))
    eventually(lambda: len(received) + len(more) >= 80)
    one.shutdown()
    eventually(lambda: owned(other) == parts(topic, 0, 1, 2, 3))
    produce(topic, values(40, start=80))
    eventually(lambda: len(received) + len(more) >= 120)
    assert sorted(received + more, key=int) == values(120)


def test_a_member_that_comes_back_continues_at_its_offsets(member, topic_factory, produce):
    continue_at_offsets(member, topic_factory(2), produce)


def test_commits_stop_below_what_is_not_done(member, topic_factory, produce):
    stop_below_what_is_not_done(member, topic_factory(1), produce)


def test_a_partition_waits_at_the_limit_of_unfinished_records(member, topic_factory, produce):
    wait_at_the_limit(member, topic_factory(2), produce)


def test_a_membership_that_is_lost_loses_nothing_that_is_unfinished(member, group, topic_factory, produce):
    def remove(connector):
        group.remove(identity(connector).member_id)

    lose_the_membership_and_nothing_that_is_unfinished(member, topic_factory(1), produce, remove)


def test_a_rebalance_loses_nothing_that_is_not_done(member, topic_factory, produce):
    lose_nothing_in_a_rebalance(member, topic_factory(4), produce)


def test_partitions_of_a_member_that_is_killed_are_taken_over(box, member, group, topic_factory, produce):
    """The group has a session timeout of its own, which members read."""
    group.configure("consumer.session.timeout.ms", "4000")
    one = take_over_from_killed("consumer", [], box.bootstrap_servers, group._group, topic_factory(2), member, produce)
    assert one.describe().lease_s < 4, "the group's timeout, and not session.timeout.ms"


def test_a_member_that_the_group_has_removed_joins_again(member, group, topic_factory, produce):
    topic = topic_factory(2)
    produce(topic, values(10))
    one = member()
    received = collect(one.create_message_streams({topic: 1})[topic])
    eventually(lambda: len(received) == 10)
    before = identity(one)
    group.remove(before.member_id)
    eventually(lambda: one.describe().last_cause.value == "session" and owned(one) == parts(topic, 0, 1))
    assert identity(one).member_id == before.member_id
    assert identity(one).generation > before.generation
    produce(topic, values(10, start=10))
    eventually(lambda: {*received} == {*values(20)})
    one.commit_offsets()


def test_commits_of_another_epoch_or_member_are_refused(member, group, topic_factory):
    topic = topic_factory()
    one = member()
    collect(one.create_message_streams({topic: 1})[topic])
    eventually(lambda: owned(one) == parts(topic, 0))
    offsets = {TopicPartition(topic, 0): 1}
    mine = identity(one)
    with pytest.raises(RebalanceAwaited, match="STALE_MEMBER_EPOCH"):
        group.commit(mine._replace(generation=mine.generation - 1), offsets)
    with pytest.raises(MembershipLost, match="UNKNOWN_MEMBER_ID"):
        group.commit(CommitIdentity("another", 1), offsets)
    assert group.commit(mine, offsets).accepted == parts(topic, 0)


def test_new_partitions_and_topics_of_a_filter_are_shared(member, topics, unique_name):
    first = topics.create(f"{unique_name}-1", 2)
    one, other = member(), member(group_remote_assignor="range")
    pattern = Whitelist(f"{unique_name}-.*")
    collect(one.create_message_streams_by_filter(pattern, 1))
    collect(other.create_message_streams_by_filter(pattern, 1))
    eventually(lambda: (len(owned(one)), len(owned(other))) == (1, 1))
    topics.grow(first, 4)
    eventually(lambda: (len(owned(one)), len(owned(other))) == (2, 2))
    second = topics.create(f"{unique_name}-2", 2)
    eventually(lambda: owned(one) | owned(other) == parts(first, 0, 1, 2, 3) | parts(second, 0, 1))


def test_a_topic_that_is_created_again_is_read_from_its_start(member, topics, produce, unique_name):
    topic = topics.create(unique_name, 2)
    produce(topic, values(20))
    one = member(auto_commit_interval_ms=200)
    received = collect(one.create_message_streams({topic: 1})[topic])
    eventually(lambda: len(received) == 20)
    topics.delete(topic)
    topics.create(topic, 2)
    produce(topic, values(20, start=20))
    eventually(lambda: {*received} == {*values(40)})


def test_a_static_member_gets_its_partitions_back(member, topic_factory):
    topic = topic_factory(2)
    one, other = (member(group_instance_id=name) for name in ("first", "second"))
    collect(one.create_message_streams({topic: 1})[topic])
    collect(other.create_message_streams({topic: 1})[topic])
    eventually(lambda: (len(owned(one)), len(owned(other))) == (1, 1))
    before, theirs = other.describe().attempts, owned(one)
    one.shutdown()
    again = member(group_instance_id="first")
    collect(again.create_message_streams({topic: 1})[topic])
    eventually(lambda: owned(again) == theirs)
    assert other.describe().attempts == before, "the group has not rebalanced"


def test_a_second_consumer_with_an_instance_id_is_refused_until_the_first_leaves(member, topic_factory):
    topic = topic_factory()
    one = member(group_instance_id="same")
    collect(one.create_message_streams({topic: 1})[topic])
    second = member(group_instance_id="same", rebalance_max_retries=1, rebalance_backoff_ms=10)
    with pytest.raises(RebalanceFailed, match=r"UNRELEASED_INSTANCE_ID.*has not left the group"):
        second.create_message_streams({topic: 1})
    assert owned(one) == parts(topic, 0)
    one.shutdown()
    third = member(group_instance_id="same")
    collect(third.create_message_streams({topic: 1})[topic])
    eventually(lambda: owned(third) == parts(topic, 0))


def test_a_static_member_that_joins_twice_has_to_leave_first(group, topic_factory):
    """As one whose first answer was lost; a member that leaves cannot take another one's instance id with it."""
    topic = topic_factory()
    assert group.join("one", "same", topic) == ErrorCode.NONE
    assert group.join("one", "same", topic) == ErrorCode.UNRELEASED_INSTANCE_ID
    assert group.leave("other", "same") == ErrorCode.FENCED_INSTANCE_ID
    assert group.leave("one", "same") == ErrorCode.NONE
    assert group.join("one", "same", topic) == ErrorCode.NONE


def test_a_query_knows_how_long_the_coordinator_keeps_a_killed_member(box, member, topic_factory, unique_name):
    topic = topic_factory()
    collect(member().create_message_streams({topic: 1})[topic])
    options = {
        "group.protocol": "consumer",
        "bootstrap.servers": box.bootstrap_servers,
        "group.id": unique_name,
        "subscribe": topic,
        "session.timeout.ms": "10000",
    }
    view = read_cluster(parse_options(options))
    assert list(view.session_ms.values()) == [int(BROKER["group.consumer.session.timeout.ms"])]
    assert view.session_ms.keys() == view.members


def test_an_assignor_that_the_broker_lacks_is_named(member, topic_factory):
    one = member(group_remote_assignor="mine", rebalance_max_retries=1, rebalance_backoff_ms=10)
    with pytest.raises(RebalanceFailed, match=r"UNSUPPORTED_ASSIGNOR.*group\.remote\.assignor=mine"):
        one.create_message_streams({topic_factory(): 1})


def test_a_group_is_shared_with_confluent_kafka(box, member, topic_factory, produce, unique_name):
    topic = topic_factory(4)
    produce(topic, values(20))
    with closing(Confluent(box.bootstrap_servers, unique_name, topic, None)) as other:
        eventually(lambda: len(other.values) == 20)
        connector = member()
        received = collect(connector.create_message_streams({topic: 1})[topic])
        eventually(lambda: (len(owned(connector)), len(other.owned)) == (2, 2))
        assert owned(connector) | other.owned == parts(topic, 0, 1, 2, 3)
        produce(topic, values(20, start=20))
        eventually(lambda: {*received, *other.values} >= {*values(40)})
        assert {*received} & {*other.values} & {*values(20, start=20)} == set()
    eventually(lambda: owned(connector) == parts(topic, 0, 1, 2, 3))


def test_a_group_is_shared_with_javas_kafkaconsumer(box, java, member, topic_factory, produce, unique_name):
    topic = topic_factory(4)
    produce(topic, values(20))
    connector = member()
    received = collect(connector.create_message_streams({topic: 1})[topic])
    eventually(lambda: len(received) == 20)
    connector.commit_offsets()
    properties = {"bootstrap.servers": box.bootstrap_servers, "group.id": unique_name, "group.protocol": "consumer"}
    with closing(java.consumer({**properties, "auto.offset.reset": "earliest"}, [topic])) as other:
        eventually(lambda: (len(owned(connector)), len(other.owned)) == (2, 2))
        assert owned(connector) | other.owned == parts(topic, 0, 1, 2, 3)
        produce(topic, values(20, start=20))
        eventually(lambda: len(received) + len(other.received()) >= 40)
        theirs = [record.value for record in other.received()]
        assert sorted(received + theirs, key=int) == values(40)
    eventually(lambda: owned(connector) == parts(topic, 0, 1, 2, 3))
    produce(topic, values(20, start=40))
    eventually(lambda: len(received) + len(theirs) >= 60)
    assert sorted(received + theirs, key=int) == values(60)


def test_members_change_from_kafka_to_consumer_and_back_one_by_one(member, topic_factory, produce):
    topic = topic_factory(4)
    received = []

    def start(protocol):
        connector = member(group_protocol=protocol, commit_on="delivery")
        received.append(collect(connector.create_message_streams({topic: 1})[topic]))
        return connector

    def await_shared(*members):
        shares = [2, 2] if len(members) == 2 else [4]
        everything = parts(topic, 0, 1, 2, 3)
        eventually(
            lambda: [len(owned(one)) for one in members] == shares and set().union(*map(owned, members)) == everything
        )

    def await_records(count):
        produce(topic, values(20, start=count - 20))
        eventually(lambda: sum(map(len, received)) >= count)

    one, two = start("kafka"), start("kafka")
    await_shared(one, two)
    await_records(20)
    for round_, protocol in enumerate(("consumer", "kafka")):
        one.shutdown()
        one = start(protocol)
        await_shared(one, two)
        await_records(40 + 40 * round_)
        two.shutdown()
        await_shared(one)
        two = start(protocol)
        await_shared(one, two)
        await_records(60 + 40 * round_)
    assert sorted((value for each in received for value in each), key=int) == values(100)


def test_members_outlast_a_broker_that_is_restarted(private_sandbox, unique_name):
    box = private_sandbox(kafka_version="4.2.0", zookeepers=0, kafka_properties=QUICK)
    topic = Topics(box.bootstrap_servers).create(unique_name, 4)
    with consumers({"bootstrap.servers": box.bootstrap_servers}, unique_name, **SETTINGS) as make:
        members = [make(), make()]
        received = [collect(one.create_message_streams({topic: 1})[topic]) for one in members]

        def all_read(count):
            everything = {*received[0], *received[1]} == {*values(count)}
            return everything and [len(owned(one)) for one in members] == [2, 2]

        produce_records(box.bootstrap_servers, topic, values(20))
        eventually(lambda: all_read(20))
        epochs = [identity(one) for one in members]
        box.brokers[0].kill()
        box.brokers[0].start()
        produce_records(box.bootstrap_servers, topic, values(20, start=20))
        eventually(lambda: all_read(40))
        for one in members:
            one.commit_offsets()
        assert [identity(one) for one in members] == epochs, "nothing has moved"


def test_a_broker_without_the_protocol_is_refused_with_what_to_use(sandbox):
    config = ConsumerConfig(bootstrap_servers=sandbox.bootstrap_servers, group_id="g", group_protocol="consumer")
    with pytest.raises(ConfigError, match=r"of release 3\.9.*use group\.protocol=kafka"):
        ConsumerConnector(config)


def test_a_broker_with_the_protocol_disabled_is_refused(private_sandbox):
    box = private_sandbox(
        kafka_version="4.2.0", zookeepers=0, kafka_properties={"group.coordinator.rebalance.protocols": "classic"}
    )
    config = ConsumerConfig(bootstrap_servers=box.bootstrap_servers, group_id="g", group_protocol="consumer")
    with pytest.raises(ConfigError, match=r"disabled.*use group\.protocol=kafka"):
        ConsumerConnector(config)
    port = int(box.bootstrap_servers.rpartition(":")[2])
    connections = psutil.Process().net_connections(kind="tcp")
    assert [connection for connection in connections if connection.raddr and connection.raddr.port == port] == []
