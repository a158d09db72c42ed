"""``group.protocol=kafka`` with brokers of every release that has groups, 0.9 and later."""

import json
import threading

import pytest
from click.testing import CliRunner

from tests.fixtures.consumers import IN_BROKER_GROUP, consumers
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually
from zkconsumer import ConfigError, TopicPartition
from zkconsumer.cli.main import command
from zkconsumer.errors import ZkConsumerError

_GROUPS_SINCE = (0, 9)
_STATIC_MEMBERS_SINCE = (2, 3)


@pytest.fixture
def member(broker, unique_name):
    """Make members of one group that know the brokers only; all are shut down at the end."""
    brokers = {"bootstrap.servers": broker.sandbox.bootstrap_servers}
    with consumers(brokers, unique_name, **IN_BROKER_GROUP) as make:
        yield make


def spread(records, partitions):
    return [{"value": value, "partition": number % partitions} for number, value in enumerate(records)]


def collect(connector, topic, streams=1):
    received = []

    def read(stream):
        for message in stream:
            received.append(message.value)

    for stream in connector.create_message_streams({topic: streams})[topic]:
        threading.Thread(target=read, args=[stream], daemon=True).start()
    return received


def owned(connector):
    return {one.partition for one in connector.describe().owned}


@pytest.mark.parametrize("strategy", ["range", "zkconsumer,cooperative-sticky"])
def test_members_share_a_topic_and_continue_at_commits(broker, member, unique_name, strategy):
    topic = broker.create_topic(unique_name, 4)
    one = member(partition_assignment_strategy=strategy)
    if broker.release < _GROUPS_SINCE:
        with pytest.raises(ZkConsumerError, match="JoinGroup"):
            one.create_message_streams({topic: 1})
        return
    broker.produce(topic, spread(values(20), 4))
    received = collect(one, topic)
    eventually(lambda: sorted(received, key=int) == values(20))
    one.commit_offsets()
    other = member(partition_assignment_strategy=strategy)
    more = collect(other, topic)
    eventually(lambda: (len(owned(one)), len(owned(other))) == (2, 2))
    assert owned(one) | owned(other) == {0, 1, 2, 3}
    broker.produce(topic, spread(values(20, start=20), 4))
    eventually(lambda: sorted(received + more, key=int) == values(40))
    for each in (one, other):
        each.commit_offsets()
    one.shutdown()
    eventually(lambda: owned(other) == {0, 1, 2, 3})
    other.shutdown()
    broker.produce(topic, spread(values(20, start=40), 4))
    rest = collect(member(partition_assignment_strategy=strategy), topic, streams=2)
    eventually(lambda: sorted(rest, key=int) == values(20, start=40))


def test_the_group_is_described(broker, member, unique_name):
    topic = broker.create_topic(unique_name, 2)
    if broker.release < _GROUPS_SINCE:
        pytest.skip("this release has no groups")
    one = member(client_id="mine", partition_assignment_strategy="zkconsumer")
    broker.produce(topic, spread(values(6), 2))
    received = collect(one, topic, streams=2)
    eventually(lambda: len(received) == 6)
    one.commit_offsets()
    servers = broker.sandbox.bootstrap_servers
    arguments = ["groups", "describe", "--group", unique_name, "--bootstrap-server", servers, "--json"]
    described = json.loads(CliRunner().invoke(command, arguments).stdout)
    assert [(row["committed"], row["log_end"], row["lag"]) for row in described["partitions"]] == [(3, 3, 0)] * 2
    (shown,) = described["members"]
    assert (shown["client"], shown["client_id"], shown["threads"]) == ("zkconsumer", "mine", {topic: 2})
    listed = CliRunner().invoke(command, ["groups", "list", "--bootstrap-server", servers, "--topic", topic])
    assert listed.stdout.split() == [unique_name]


def test_a_static_member_needs_a_broker_that_knows_them(broker, member, unique_name):
    if broker.release < _GROUPS_SINCE:
        pytest.skip("this release has no groups")
    topic = broker.create_topic(unique_name)
    broker.commit_to_kafka(f"{unique_name}-k", TopicPartition(topic, 0), 0)  # it has the topic of offsets after this
    one = member(group_instance_id="one", rebalance_max_retries=1, rebalance_backoff_ms=10)
    if broker.release < _STATIC_MEMBERS_SINCE:
        with pytest.raises(ConfigError, match=r"group\.instance\.id needs brokers since 2\.3"):
            one.create_message_streams({topic: 1})
    else:
        one.create_message_streams({topic: 1})
        eventually(lambda: set(one.describe().owned) == {TopicPartition(topic, 0)})
