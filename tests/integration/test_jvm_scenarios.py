"""The scenarios of the JVM consumer's own tests, run with ours; each test names the one that it follows.

Not here: partition assignment (golden vectors in tests/unit/group/rules, and against the JVM in tests/interop).
"""

import gc
import threading
from collections import Counter
from io import UnsupportedOperation
from pathlib import Path

import pytest

from tests.fixtures.sandbox import PATIENT, Topics, produce_records
from tests.fixtures.waiting import eventually
from zkconsumer import (
    Blacklist,
    ConsumerConfig,
    ConsumerConnector,
    ConsumerRebalanceListener,
    ConsumerTimeout,
    TopicPartition,
    Whitelist,
)
from zkconsumer.errors import ChrootMissing, ConsumerIdInUse, UsageError
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.registration import MemberRegistration
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress
from zkconsumer.zookeeper.rules.znodes import ConsumerIdNode

pytestmark = pytest.mark.integration

OFFSETS_TOPIC = "__consumer_offsets"
ROUNDS = 5


@pytest.fixture(scope="module")
def two_brokers():
    """The cluster of most of the originals; the tests here stop no server."""
    with Sandbox(brokers=2, progress=Progress(), **PATIENT) as box:
        yield box


@pytest.fixture
def consumers(two_brokers, unique_name):
    """Make consumers ``group_NAME`` with the originals' properties; all are shut down at the end."""
    made = []

    def consumer(name, sandbox=two_brokers, **values):
        properties = {
            "zookeeper.connect": sandbox.zookeeper_connect,
            "group.id": unique_name,
            "consumer.id": name,
            "zookeeper.session.timeout.ms": "30000",  # theirs is 6000
            "zookeeper.connection.timeout.ms": "20000",
            "zookeeper.sync.time.ms": "200",
            "rebalance.backoff.ms": "5000",
            "auto.commit.interval.ms": "1000",
            "rebalance.max.retries": "4",
            "auto.offset.reset": "smallest",
            "num.consumer.fetchers": "2",
        }
        given = {key.replace("_", "."): str(value) for key, value in values.items()}
        made.append(ConsumerConnector(ConsumerConfig.from_properties({**properties, **given})))
        return made[-1]

    consumer.group = unique_name
    yield consumer
    for one in made:
        one.shutdown()


@pytest.fixture
def spread_topic(two_brokers, unique_name):
    """A topic of two partitions whose leaders are different brokers."""
    topics = Topics(two_brokers.bootstrap_servers)
    return topics.create(unique_name, 2)


@pytest.fixture
def owners(two_brokers, open_session, unique_name):
    """Read the owner of each partition of a topic: ``owners(topic)``."""
    session = open_session(two_brokers.zookeeper_connect)

    def read(topic):
        path = f"/consumers/{unique_name}/owners/{topic}"
        nodes = {name: session.get(f"{path}/{name}") for name in session.children(path) or ()}
        return {int(name): node.data.decode() for name, node in nodes.items() if node is not None}

    return read


def send(sandbox, topic, count, partitions=2, **settings):
    """Produce ``count`` records to each partition; return their values, sorted."""
    records = [
        {"value": f"{topic}-{p}-{n}-{settings}".encode(), "partition": p}
        for p in range(partitions)
        for n in range(count)
    ]
    produce_records(sandbox.bootstrap_servers, topic, records, **settings)
    return sorted(record["value"] for record in records)


def receive(count, *streams):
    """``count`` values of each stream, sorted, read as the originals do: stream by stream."""
    return sorted(next(stream).value for stream in streams for _ in range(count))


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_basic_and_test_compression(consumers, spread_topic, two_brokers, owners, compression):
    """ZookeeperConsumerConnectorTest.testBasic, testCompression."""
    topic, settings = spread_topic, {"compression_type": compression}
    with consumers("consumer0", consumer_timeout_ms=200) as zero:
        (stream,) = zero.create_message_streams({topic: 1})[topic]
        for _ in range(2):
            with pytest.raises(ConsumerTimeout):
                next(stream)
    sent = send(two_brokers, topic, 10, **settings)
    one = consumers("consumer1", consumer_timeout_ms=60_000)
    (first,) = one.create_message_streams({topic: 1})[topic]
    c1, c2 = f"{consumers.group}_consumer1-0", f"{consumers.group}_consumer2-0"
    assert owners(topic) == {0: c1, 1: c1}
    assert receive(20, first) == sent
    one.commit_offsets()

    two = consumers("consumer2", consumer_timeout_ms=60_000)
    (second,) = two.create_message_streams({topic: 1})[topic]
    eventually(lambda: owners(topic) == {0: c1, 1: c2})
    sent = send(two_brokers, topic, 20, **settings)
    assert receive(20, first, second) == sent
    one.commit_offsets()
    two.commit_offsets()

    consumers("consumer3").create_message_streams({})
    sent = send(two_brokers, topic, 20, **settings)
    assert receive(20, first, second) == sent
    assert owners(topic) == {0: c1, 1: c2}
    with pytest.raises(UsageError, match="once"):
        one.create_message_streams({})


def test_compression_set_consumption(consumers, spread_topic, two_brokers, owners):
    """ZookeeperConsumerConnectorTest.testCompressionSetConsumption."""
    sent = send(two_brokers, spread_topic, 200, compression_type="gzip")
    connector = consumers("consumer0", consumer_timeout_ms=60_000)
    (stream,) = connector.create_message_streams({spread_topic: 1})[spread_topic]
    assert receive(400, stream) == sent
    assert owners(spread_topic) == dict.fromkeys((0, 1), f"{consumers.group}_consumer0-0")


def test_leader_selection_for_partition(consumers, two_brokers, unique_name, owners):
    """ZookeeperConsumerConnectorTest.testLeaderSelectionForPartition."""
    topic = Topics(two_brokers.bootstrap_servers).create(unique_name, 1)
    sent = send(two_brokers, topic, 10, partitions=1)
    connector = consumers("consumer1", consumer_timeout_ms=60_000)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    assert [(state.topic, state.partition) for state in connector.partition_states()] == [(topic, 0)]
    assert owners(topic) == {0: f"{consumers.group}_consumer1-0"}
    assert receive(10, stream) == sent


class Remembering(ConsumerRebalanceListener):
    """Keeps the arguments of its last call."""

    def __init__(self):
        self.released = None
        self.consumer_id = None
        self.everyone = None

    def before_releasing_partitions(self, owned):
        self.released = set(owned)

    def before_starting_fetchers(self, consumer_id, assignment):
        self.consumer_id = consumer_id
        self.everyone = {partition: str(thread) for partition, thread in assignment.items()}


def test_consumer_rebalance_listener(consumers, spread_topic, two_brokers):
    """ZookeeperConsumerConnectorTest.testConsumerRebalanceListener."""
    both = [TopicPartition(spread_topic, number) for number in range(2)]
    c1, c2 = f"{consumers.group}_consumer1", f"{consumers.group}_consumer2"
    listeners = Remembering(), Remembering()
    one = consumers("consumer1")
    one.set_rebalance_listener(listeners[0])
    one.create_message_streams({spread_topic: 1})
    assert listeners[0].released == set()
    assert listeners[0].consumer_id == c1
    assert listeners[0].everyone == dict.fromkeys(both, f"{c1}-0")

    two = consumers("consumer2")
    two.set_rebalance_listener(listeners[1])
    two.create_message_streams({spread_topic: 1})
    shared = {both[0]: f"{c1}-0", both[1]: f"{c2}-0"}
    eventually(lambda: listeners[0].everyone == shared)
    assert listeners[0].released == set(both)
    assert listeners[1].released == set()
    assert listeners[1].everyone == shared
    assert [listener.consumer_id for listener in listeners] == [c1, c2]


def test_java_api_basic(two_brokers, spread_topic, tmp_path, unique_name):
    """javaapi.consumer.ZookeeperConsumerConnectorTest.testBasic: a properties file, one stream, two creations."""
    sent = send(two_brokers, spread_topic, 200)
    properties = tmp_path / "consumer.properties"
    properties.write_text(
        f"zookeeper.connect = {two_brokers.zookeeper_connect}\ngroup.id: {unique_name}\nconsumer.id=consumer0\n"
        "zookeeper.session.timeout.ms=30000\nauto.offset.reset=smallest\nconsumer.timeout.ms=60000\n",
        encoding="latin-1",
    )
    with ConsumerConnector(ConsumerConfig.from_properties(properties)) as connector:
        (stream,) = connector.create_message_streams({spread_topic: 1})[spread_topic]
        assert receive(400, stream) == sent
        with pytest.raises(UsageError, match="once"):
            connector.create_message_streams({spread_topic: 1})


@pytest.mark.parametrize("stored", [10_000, -1])
@pytest.mark.parametrize(("reset", "expected"), [("smallest", 10), ("largest", 0)])
def test_auto_offset_reset(sandbox, topic_factory, produce, zookeeper, consumers, stored, reset, expected):
    """AutoOffsetResetTest: testReset(ToEarliest|ToLatest)WhenOffset(TooHigh|TooLow)."""
    topic = topic_factory()
    produce(topic, [b"%d" % number for number in range(10)])
    zookeeper.create(f"/consumers/{consumers.group}/offsets/{topic}/0", b"%d" % stored, makepath=True)
    connector = consumers("consumer", sandbox, auto_offset_reset=reset, consumer_timeout_ms=60_000)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    eventually(lambda: [state.high_watermark for state in connector.partition_states()] == [10])
    produce(topic, [b"end"])
    received = []
    while b"end" not in received:
        received.append(next(stream).value)
    assert len(received) == expected + 1


def test_whitelists():
    """TopicFilterTest.testWhitelists."""

    def allowed(regex, topic, exclude_internal):
        return Whitelist(regex).select([topic], exclude_internal=exclude_internal) == [topic]

    for exclude in (True, False):
        assert allowed("white1,white2", "white2", exclude)
        assert not allowed("white1,white2", "black1", exclude)
        assert allowed(".+", "alltopics", exclude)
        assert allowed(".+", OFFSETS_TOPIC, exclude) is not exclude
    assert allowed("white_listed-topic.+", "white_listed-topic1", True)
    assert not allowed("white_listed-topic.+", "black1", True)
    assert allowed(r"test-(?!bad\b)[\w]+", "test-good", True)
    assert not allowed(r"test-(?!bad\b)[\w]+", "test-bad", True)


def test_blacklists():
    """TopicFilterTest.testBlacklists."""

    def allowed(topic, exclude_internal):
        return Blacklist("black1").select([topic], exclude_internal=exclude_internal) == [topic]

    for exclude in (True, False):
        assert allowed("white2", exclude)
        assert not allowed("black1", exclude)
        assert allowed(OFFSETS_TOPIC, exclude) is not exclude


@pytest.mark.parametrize(("regex", "in_json"), [('-"-', rb"-\"-"), (r"-\-", rb"-\\-")])
def test_wildcard_topic_count_escape_json(regex, in_json):
    """TopicFilterTest.testWildcardTopicCountGetTopicCountMapEscapeJson; escaped once, unlike in 1.0.1 to 1.1.1."""
    subscription = Subscription.by_filter(Whitelist(regex), 1)
    data = ConsumerIdNode.encode(subscription.to_registration(0))
    assert b'{"%s":1}' % in_json in data
    assert Subscription.from_registration(ConsumerIdNode.decode("/", data)) == subscription


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_consumer_iterator_deduplication(sandbox, topic_factory, produce, zookeeper, consumers, compression):
    """ConsumerIteratorTest.testConsumerIteratorDeduplicationDeepIterator: a set 0-9 of which 5 are consumed."""
    topic = topic_factory()
    produce(topic, [b"%d" % n for n in range(10)], compression_type=compression, linger_ms=1000, batch_num_messages=10)
    zookeeper.create(f"/consumers/{consumers.group}/offsets/{topic}/0", b"5", makepath=True)
    connector = consumers("consumer", sandbox, consumer_timeout_ms=60_000)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    assert [next(stream).offset for _ in range(5)] == [5, 6, 7, 8, 9]
    assert connector.partition_states()[0].consumed == 10
    connector.shutdown()
    assert list(stream) == []


def test_consumer_decoder(consumers, spread_topic, two_brokers):
    """ZookeeperConsumerConnectorTest.testConsumerDecoder: string decoders, two streams."""
    sent = send(two_brokers, spread_topic, 25)
    connector = consumers("consumer0", consumer_timeout_ms=60_000)
    streams = connector.create_message_streams({spread_topic: 2}, bytes.decode, bytes.decode)[spread_topic]
    received = [next(stream) for stream in streams for _ in range(25)]
    assert sorted(message.value for message in received) == [value.decode() for value in sent]
    assert {message.key for message in received} == {None}
    connector.commit_offsets()


def test_consumer_iterator_decoding_failure(sandbox, topic_factory, produce, consumers):
    """ConsumerIteratorTest.testConsumerIteratorDecodingFailure: a decoder that always fails."""

    def fail(data):
        raise UnsupportedOperation(f"cannot decode {data!r}")

    topic = topic_factory()
    produce(topic, [b"%d" % number for number in range(10)])
    connector = consumers("consumer", sandbox, consumer_timeout_ms=60_000)
    (stream,) = connector.create_message_streams({topic: 1}, value_decoder=fail)[topic]
    for expected in range(10):
        message = next(stream)
        with pytest.raises(UnsupportedOperation):
            message.value  # noqa: B018 - it is a call
        assert message.offset == expected


@pytest.fixture
def sessions(sandbox, open_session):
    """Open sessions of the sandbox's ZooKeeper, or of a path there."""
    return lambda path="": open_session(sandbox.zookeeper_connect + path)


def test_ephemeral_node_cleanup(sessions, zookeeper, unique_name):
    """ZKEphemeralTest.testEphemeralNodeCleanup."""
    path = f"/{unique_name}"
    session = sessions()
    assert session.create_ephemerals([(path, b"node created")])
    assert zookeeper.exists(path)
    session.close()
    assert not zookeeper.exists(path)


def test_checked_ephemeral(sessions, zookeeper, unique_name):
    """ZKEphemeralTest.testZkWatchedEphemeral, testOverlappingSessions, testSameSession: registering a consumer."""
    session, other = sessions(), sessions()

    def register(membership):
        membership.register(Subscription.static({}), lambda: None, lambda seconds: False)  # waits for no conflict

    one, two = (
        MemberRegistration(each, unique_name, f"{unique_name}_c", "range", lambda: 7) for each in (session, other)
    )
    register(one)  # all parents are missing
    path = f"/consumers/{unique_name}/ids/{unique_name}_c"
    assert zookeeper.get(path)[1].ephemeralOwner == session.session_id
    with pytest.raises(ConsumerIdInUse):
        register(two)
    register(one)
    session.close()
    register(two)
    assert zookeeper.get(path)[1].ephemeralOwner == other.session_id


def test_paths_below_a_chroot(sessions, zookeeper, unique_name):
    """ZKPathTest: nothing can be created where the chroot is missing; below one that exists, everything can."""
    with pytest.raises(ChrootMissing):
        sessions(f"/{unique_name}/chroot")
    assert not zookeeper.exists(f"/{unique_name}")
    zookeeper.ensure_path(f"/{unique_name}/chroot")
    session = sessions(f"/{unique_name}/chroot")
    session.ensure_path("/persistent/nested", None)
    assert session.create_ephemerals([("/persistent/ephemeral", b"")])
    assert sorted(zookeeper.get_children(f"/{unique_name}/chroot/persistent")) == ["ephemeral", "nested"]


def test_metrics_leak(consumers, spread_topic, two_brokers):
    """MetricsTest.testMetricsLeak, of what we could leak: threads and file descriptors."""

    def consume_once():
        sent = send(two_brokers, spread_topic, 5)
        with consumers("consumer", consumer_timeout_ms=60_000) as connector:
            (stream,) = connector.create_message_streams({spread_topic: 1})[spread_topic]
            assert len(receive(len(sent), stream)) == len(sent)
            connector.commit_offsets()
        gc.collect()  # what only waits for the garbage collector is no leak

    def held():
        threads = Counter(thread.name for thread in threading.enumerate())
        return threads, len(list(Path("/proc/self/fd").iterdir()))

    consume_once()
    before = held()
    for _ in range(ROUNDS):
        consume_once()
    # One that each round leaves is a leak; a client of the test may have made another connection meanwhile.
    eventually(lambda: held()[0] <= before[0] and held()[1] < before[1] + ROUNDS)
