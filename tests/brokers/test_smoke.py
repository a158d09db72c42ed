"""What each further release of brokers has to do: serve records, keep offsets, and show a group to the commands."""

import pytest

from tests.fixtures.brokers import SMOKE_TESTED
from tests.fixtures.consumers import IN_BROKER_GROUP, consumers, owned, parts
from tests.fixtures.sandbox import values
from tests.fixtures.waiting import eventually

each_release = pytest.mark.parametrize("broker", SMOKE_TESTED, indirect=True)


@each_release
def test_an_independent_client_and_ours_read_the_same(broker, unique_name):
    with consumers(broker.sandbox.connection, unique_name, consumer_timeout_ms=60_000) as make:
        for codec in broker.codecs:
            topic = broker.create_topic(f"{unique_name[-20:]}-{codec}")
            written = [(b"k%d" % number, b"value %d " % number * 5) for number in range(100)]
            broker.produce(topic, written, compression_type=codec)
            (stream,) = make().create_message_streams({topic: 1})[topic]
            received = [next(stream) for _ in range(100)]
            assert [(message.key, message.value) for message in received] == written
            peer = [(message.offset(), message.key(), message.value()) for message in broker.consume(topic, 100)]
            assert [(message.offset, message.key, message.value) for message in received] == peer


@each_release
@pytest.mark.parametrize(
    "config",
    [
        {"zookeeper_session_timeout_ms": 30_000, "offsets_storage": "zookeeper"},
        {"zookeeper_session_timeout_ms": 30_000, "offsets_storage": "kafka", "dual_commit_enabled": False},
        IN_BROKER_GROUP,
    ],
    ids=["zookeeper", "offsets-in-kafka", "kafka"],
)
def test_a_group_shares_commits_and_is_shown(broker, unique_name, config):
    topic = broker.create_topic(unique_name, 2)
    of_brokers = "group_protocol" in config
    where = {"bootstrap.servers": broker.sandbox.bootstrap_servers} if of_brokers else broker.sandbox.connection

    def produce(start):
        records = [{"value": value, "partition": number % 2} for number, value in enumerate(values(20, start=start))]
        broker.produce(topic, records)

    def read(member, count):
        return {next(streams[member]).value for _ in range(count)}

    with consumers(where, unique_name, consumer_timeout_ms=60_000, **config) as make:
        produce(0)
        first = make()
        streams = {first: first.create_message_streams({topic: 1})[topic][0]}
        assert read(first, 20) == set(values(20))
        first.commit_offsets()
        second = make()
        streams[second] = second.create_message_streams({topic: 1})[topic][0]
        eventually(lambda: (len(owned(first)), len(owned(second))) == (1, 1))
        produce(20)
        assert read(first, 10) | read(second, 10) == set(values(20, start=20))
        first.commit_offsets()
        second.commit_offsets()
        first.shutdown()
        eventually(lambda: owned(second) == parts(topic, 0, 1))
        check_commands(broker, unique_name, topic, of_brokers)
        produce(40)
        assert read(second, 20) == set(values(20, start=40))


def check_commands(broker, group, topic, of_brokers):
    """`groups list` has the group, `groups describe` its commits and its member."""
    code, listed = broker.run_tool("groups", "list", "--topic", topic, at_brokers=of_brokers)
    assert code == 0
    assert [each["group"] for each in listed] == [group]
    code, described = broker.run_tool("groups", "describe", "--group", group, at_brokers=of_brokers)
    assert code == 0
    assert [(row["committed"], row["log_end"], row["lag"]) for row in described["partitions"]] == [(20, 20, 0)] * 2
    assert [member["client"] for member in described["members"]] == ["zkconsumer"]
