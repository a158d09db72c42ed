"""``commit.on=done`` on real servers: what is committed while records are processed elsewhere and in another order."""

from functools import partial

import pytest
from confluent_kafka import Producer

from tests.fixtures.consumers import IN_BROKER_GROUP, IN_ZOOKEEPER, leave_in_its_name
from tests.fixtures.finishing import (
    DONE,
    commit_by_timer_what_is_done,
    committed,
    forget_what_another_member_had_in_between,
    lose_nothing_in_a_rebalance,
    lose_the_membership_and_nothing_that_is_unfinished,
    read_to_timeout,
    stop_below_what_is_not_done,
    wait_after_a_batch_that_exceeds_the_limit,
    wait_at_the_limit,
)
from tests.fixtures.interrupts import Alarm, read_under_fire
from tests.fixtures.offsethomes import home_of
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import expire
from zkconsumer import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PROTOCOLS = ("zookeeper", "coordinator", "kafka")


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return request.param


@pytest.fixture
def member(protocol, connect, sandbox):
    """Makes members of a group with each protocol; that of Kafka 4 is in test_consumergroup.py."""
    if protocol != "kafka":
        return partial(connect, group_protocol=protocol)
    return partial(connect, bootstrap_servers=sandbox.bootstrap_servers, **IN_BROKER_GROUP)


def test_commits_stop_below_what_is_not_done(member, topic_factory, produce):
    stop_below_what_is_not_done(member, topic_factory(1), produce)


def test_a_rebalance_loses_nothing(member, topic_factory, produce):
    lose_nothing_in_a_rebalance(member, topic_factory(4), produce)


def test_a_partition_waits_at_the_limit_of_unfinished_records(member, topic_factory, produce):
    wait_at_the_limit(member, topic_factory(2), produce)


def test_a_partition_waits_for_a_batch_that_exceeds_the_limit(member, topic_factory, produce):
    wait_after_a_batch_that_exceeds_the_limit(member, topic_factory(2), produce)


def test_late_records_change_no_commit_after_another_member_had_their_partition(member, topic_factory, produce):
    forget_what_another_member_had_in_between(member, topic_factory(1), topic_factory(1), produce)


def test_a_commit_by_timer_covers_what_is_done_and_the_process_is_killed(
    sandbox, protocol, unique_name, topic_factory, produce, zookeeper
):
    connection = {"bootstrap_servers": sandbox.bootstrap_servers, **IN_BROKER_GROUP}
    if protocol != "kafka":
        connection = {"zookeeper_connect": sandbox.zookeeper_connect, "group_protocol": protocol, **IN_ZOOKEEPER}
    config = {**connection, "group_id": unique_name, "auto_offset_reset": "smallest"}
    home = home_of(protocol, zookeeper, sandbox.bootstrap_servers, unique_name)
    commit_by_timer_what_is_done(config, topic_factory(1), produce, home)


def test_a_membership_that_is_lost_loses_nothing_that_is_unfinished(member, sandbox, topic_factory, produce):
    is_in_brokers = "bootstrap_servers" in member.keywords
    lose = partial(leave_in_its_name, sandbox.bootstrap_servers) if is_in_brokers else expire
    lose_the_membership_and_nothing_that_is_unfinished(member, topic_factory(1), produce, lose)


def test_assigned_partitions(connect, topic_factory, produce):
    topic = topic_factory(1)
    produce(topic, values(10))
    first = connect(**DONE)
    stream = first.assign({TopicPartition(topic, 0): None})
    messages = [next(stream) for _ in range(10)]
    for message in messages[:4] + messages[5:]:
        stream.done(message)
    stream.commit()
    assert committed(first) == {0: 4}
    first.shutdown()
    assert next(connect(**DONE).assign({TopicPartition(topic, 0): None})).value == b"4"


@pytest.mark.parametrize("commit_on", ["next", "done"])
def test_a_stream_commits_only_its_own_partitions(connect, topic_factory, produce, commit_on):
    topic = topic_factory(2)
    produce(topic, [{"value": value, "partition": number} for number in range(2) for value in values(3)])
    connector = connect(commit_on=commit_on, auto_commit_enable=False)
    first, second = connector.create_message_streams({topic: 2})[topic]
    for stream in (first, second):
        for message in [next(stream) for _ in range(3)]:
            if commit_on == "done":
                stream.done(message)
    first.commit()
    assert committed(connector) == {0: 3, 1: None}
    second.commit()
    assert committed(connector) == {0: 3, 1: 3}


def test_batches(connect, topic_factory, produce):
    topic = topic_factory(1)
    connector = connect(**DONE, consumer_timeout_ms=2000)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    for start in (0, 10):
        produce(topic, values(10, start=start))
    batches = list(iter(partial(stream.next_batch, max_rows=5), None))
    for batch in batches[1:]:
        stream.done(batch)
    stream.commit()
    assert committed(connector) == {0: 0}
    stream.done(batches[0])
    stream.commit()
    assert committed(connector) == {0: 20}


def test_positions_pass_the_markers_of_transactions(connect, sandbox, topic_factory):
    topic = topic_factory(1)
    producer = Producer({"bootstrap.servers": sandbox.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for value in values(3):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.commit_transaction(30)
    connector = connect(**DONE, consumer_timeout_ms=2000)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    messages = read_to_timeout(stream)
    stream.done(messages[0])
    stream.done(messages[2])
    stream.commit()
    assert committed(connector) == {0: 2}
    stream.done(messages[1])
    stream.commit()
    assert committed(connector) == {0: 6}, "after the last marker"
    assert connector.partition_states()[0].lag == 0


def test_an_expired_session_keeps_what_is_unfinished_and_redelivers_nothing(connect, topic_factory, produce):
    """No other member had the partition, so its records are still this one's to finish."""
    topic = topic_factory(1)
    produce(topic, values(10))
    connector = connect(commit_on="done", auto_commit_interval_ms=3_600_000)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    messages = [next(stream) for _ in range(6)]
    for message in messages[:2]:
        stream.done(message)
    generation = connector.describe().generation
    expire(connector)
    eventually(lambda: connector.describe().generation > generation)
    stream.done(messages[3])
    stream.commit()
    assert committed(connector) == {0: 2}
    messages += [next(stream) for _ in range(4)]
    assert [message.value for message in messages] == values(10)
    for message in messages:
        stream.done(message)
    stream.commit()
    assert committed(connector) == {0: 10}


def test_what_another_member_had_in_between_is_not_finished_by_late_records(connect, topic_factory, produce):
    topic = topic_factory(1)
    produce(topic, values(10))
    first = connect(**DONE)
    (stream,) = first.create_message_streams({topic: 1})[topic]
    late = [next(stream) for _ in range(6)]
    generation = first.describe().generation
    partition = TopicPartition(topic, 0)
    first.commit_offsets({partition: 1})
    with connect(**DONE) as other:  # an operator's consumer that resets the group
        other.create_message_streams({topic: 1})
        other.commit_offsets({partition: 3}, force=True)
        expire(first)
        eventually(lambda: first.describe().generation > generation)
    eventually(lambda: first.describe().owned.keys() == {partition})
    again = next(stream)
    while again.offset != 3:
        again = next(stream)
    for message in late:
        stream.done(message)
    stream.commit()
    assert committed(first) == {0: 3}
    stream.done(again)
    stream.commit()
    assert committed(first) == {0: 4}


@pytest.mark.timeout(300, method="thread")  # the other method needs the timer of the test
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_leave_nothing_unfinished_for_ever(member, topic_factory, produce):
    topic, count = topic_factory(2), 20_000
    produce(topic, [{"value": b"%d" % number, "partition": number % 2} for number in range(count)])
    connector = member(**DONE, max_unfinished_records=50, consumer_timeout_ms=3000, fetch_message_max_bytes=50_000)
    (stream,) = connector.create_message_streams({topic: 1})[topic]

    def finish_each(stream, got):
        for message in got[-2:]:
            stream.done(message)
        for message in stream:
            got.append(message)
            stream.done(message)

    got, weapon = [], Alarm()
    with weapon.active():
        assert read_under_fire(finish_each, stream, got, weapon, lambda: len(got) >= count) > 0
    assert sorted(int(message.value) for message in got) == list(range(count))
    stream.commit()
    assert committed(connector) == {0: count // 2, 1: count // 2}
