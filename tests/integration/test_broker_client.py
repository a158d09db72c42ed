import time
from contextlib import closing

import pytest

from tests.fixtures import fetch as fetch_fixtures
from tests.fixtures.fetch import brokers_of
from tests.fixtures.waiting import eventually
from zkconsumer.errors import BrokerUnavailable, ProtocolError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.sandbox.admin import create_topics
from zkconsumer.sandbox.producer import Record, produce
from zkconsumer.wire.brokerclient import EARLIEST, LATEST, BrokerClient
from zkconsumer.wire.errorcodes import ErrorCode, error_name

pytestmark = pytest.mark.integration
reader = fetch_fixtures.reader


@pytest.fixture
def live_brokers(sandbox):
    return lambda: brokers_of(sandbox.bootstrap_servers)


@pytest.fixture
def client(live_brokers):
    client = BrokerClient(live_brokers, client_id="test", timeout_ms=10_000)
    yield client
    client.close()


def test_created_topics_have_leaders_at_once(client, sandbox, unique_name):
    create_topics(client, {unique_name: 3, unique_name + "-b": 1}, config={"retention.ms": "12345678"})
    create_topics(client, {unique_name: 3})
    metadata = client.metadata([unique_name, unique_name + "-b"])
    assert sorted(metadata.leaders) == [(unique_name, 0), (unique_name, 1), (unique_name, 2), (unique_name + "-b", 0)]
    (leader,) = set(metadata.leaders.values())
    assert f"{leader.host}:{leader.port}" == sandbox.bootstrap_servers
    assert metadata.brokers[leader.id] == leader
    assert not metadata.leaderless


def test_a_refused_topic_gives_the_reason(client):
    with pytest.raises(ProtocolError, match="cannot create topic a b"):
        create_topics(client, {"a b": 1})


def test_asking_for_a_topic_does_not_create_it(client, unique_name):
    for _ in range(3):
        assert client.metadata([unique_name]).failed_topics == {unique_name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_offsets_by_time(client, live_brokers, unique_name):
    create_topics(client, {unique_name: 2})
    records = [Record(b"v", timestamp=1_000_000 + 10 * number) for number in range(100)]
    assert produce(live_brokers, {TopicPartition(unique_name, 1): records}) == {(unique_name, 1): 0}
    assert produce(live_brokers, {TopicPartition(unique_name, 1): records[:1]}) == {(unique_name, 1): 100}

    def offset(partition, timestamp):
        key = TopicPartition(unique_name, partition)
        return client.list_offsets({key: timestamp}).found[key]

    assert (offset(0, EARLIEST), offset(0, LATEST)) == (0, 0)
    assert (offset(1, EARLIEST), offset(1, LATEST)) == (0, 101)
    assert offset(1, 1_000_000 + 10 * 42) == 42
    assert offset(1, 1_000_000 + 10 * 42 + 1) == 43
    assert offset(1, 2_000_000) is None
    assert offset(0, 1) is None


def test_offsets_of_many_partitions_with_errors_among_them(client, unique_name):
    create_topics(client, {unique_name: 50})
    wanted = {TopicPartition(unique_name, number): LATEST for number in range(51)}
    wanted[TopicPartition(unique_name + "-no", 0)] = LATEST
    answer = client.list_offsets(wanted)
    assert answer.found == {(unique_name, number): 0 for number in range(50)}
    assert sorted(answer.errors) == [(unique_name, 50), (unique_name + "-no", 0)]
    assert {error_name(code) for code in answer.errors.values()} == {"UNKNOWN_TOPIC_OR_PARTITION (3)"}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_leaders_that_die_and_a_topic_that_is_created_again(private_sandbox):
    from tests.fixtures.sandbox import Topics, produce_records

    box = private_sandbox(brokers=2)
    topics = Topics(box.bootstrap_servers)
    topics.create("t", 4, replication=2)
    produce_records(box.bootstrap_servers, "t", [{"value": b"v", "partition": number % 4} for number in range(8)])
    partitions = [TopicPartition("t", number) for number in range(4)]
    with closing(
        BrokerClient(lambda: brokers_of(box.bootstrap_servers), client_id="test", timeout_ms=10_000)
    ) as client:

        def ends():
            answer = client.list_offsets(dict.fromkeys(partitions, LATEST))
            return answer.found or answer.reasons()

        assert ends() == dict.fromkeys(partitions, 2)
        metadata = client.metadata(["t"])
        assert len(set(metadata.leaders.values())) == 2
        victim = box.brokers[1 - metadata.controller]  # the admin client does not see it when the controller moves
        victim.kill()
        answer = client.list_offsets(dict.fromkeys(partitions, LATEST))
        assert all("refused; check that the broker runs" in reason for reason in answer.reasons())
        eventually(lambda: ends() == dict.fromkeys(partitions, 2))
        victim.start()
        eventually(lambda: ends() == dict.fromkeys(partitions, 2))
        topics.delete("t")
        eventually(lambda: ends() == {"UNKNOWN_TOPIC_OR_PARTITION (3)": partitions})
        topics.create("t", 4)
        eventually(lambda: ends() == dict.fromkeys(partitions, 0))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_leaders_that_are_paused_cost_one_timeout_together(private_sandbox):
    from tests.fixtures.sandbox import Topics

    box = private_sandbox(brokers=3)
    Topics(box.bootstrap_servers).create("t", 6)
    wanted = dict.fromkeys((TopicPartition("t", number) for number in range(6)), LATEST)
    timeout_s = 5
    with closing(
        BrokerClient(lambda: brokers_of(box.bootstrap_servers), client_id="test", timeout_ms=1000 * timeout_s)
    ) as client:
        eventually(lambda: client.list_offsets(wanted).found.keys() == wanted.keys())
        leaders = client.metadata(["t"]).leaders
        for broker in box.brokers[1:]:
            broker.pause()
        led = {p for p, leader in leaders.items() if leader.id == 0}
        for _ in range(2):
            began = time.monotonic()
            answer = client.list_offsets(wanted)
            assert time.monotonic() - began < 2 * timeout_s
            assert (answer.found.keys(), answer.errors.keys()) == (led, wanted.keys() - led)
        for broker in box.brokers[1:]:
            broker.resume()
        eventually(lambda: client.list_offsets(wanted).found.keys() == wanted.keys())


def test_dead_brokers_are_skipped(live_brokers, unique_name):
    client = BrokerClient(lambda: [Broker(7, "127.0.0.1", 1), *live_brokers()], client_id="test", timeout_ms=5000)
    for _ in range(8):
        assert client.metadata([unique_name]).brokers
    client.close()
    with pytest.raises(BrokerUnavailable, match="closed"):
        client.metadata([unique_name])


def test_no_broker_at_all():
    client = BrokerClient(lambda: [Broker(7, "127.0.0.1", 1)], client_id="test", timeout_ms=5000)
    with pytest.raises(BrokerUnavailable, match=r"none of 1 brokers .*refused"):
        client.metadata(["t"])
    client.close()


def test_many_records_with_everything(client, live_brokers, unique_name, reader):
    create_topics(client, {unique_name: 1})
    records = [Record(b"v%d" % i, None if i % 3 else b"k", 1000 + i, [("h", None)] * (i % 2)) for i in range(5000)]
    produce(live_brokers, {TopicPartition(unique_name, 0): records}, batch_bytes=10_000)
    one = reader()
    one.start({(unique_name, 0): 0})
    read = [(m.value, m.key, m.timestamp, list(m.headers)) for m in one.read(5000)]
    assert read == [tuple(record) for record in records]


def test_producing_to_a_topic_that_is_not_there(live_brokers, unique_name):
    with pytest.raises(BrokerUnavailable, match="has no leader"):
        produce(live_brokers, {TopicPartition(unique_name, 0): [Record(b"v")]})
