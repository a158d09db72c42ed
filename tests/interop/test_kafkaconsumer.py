"""Groups that brokers coordinate, shared with Java's KafkaConsumer and with confluent-kafka, each of which may lead."""

import threading
from collections import Counter
from contextlib import ExitStack, closing

import pytest

from jvmclients.kafkaconsumer import JavaKafkaConsumer
from tests.fixtures.peers import Confluent
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector, RebalanceFailed

PARTITIONS = 6
JAVA, OURS, CONFLUENT = "java", "ours", "confluent"
EACH_FIRST = [(JAVA, OURS, CONFLUENT), (OURS, CONFLUENT, JAVA), (CONFLUENT, JAVA, OURS)]
OTHER_ORDERS = [(JAVA, CONFLUENT, OURS), (OURS, JAVA, CONFLUENT), (CONFLUENT, OURS, JAVA)]
CASES = [
    *(("cooperative-sticky", order) for order in EACH_FIRST + OTHER_ORDERS),
    *((strategy, order) for strategy in ("range", "roundrobin") for order in EACH_FIRST),
    *(("sticky", order) for order in ((JAVA, OURS), (OURS, JAVA))),  # confluent-kafka does not have it
]
_CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


class Ours:
    """A member of ours, read by a thread for each stream; ``settings`` are further ones."""

    def __init__(self, servers, group, topic, strategy=None, streams=1, **settings):
        self.connector = ConsumerConnector(
            ConsumerConfig(
                bootstrap_servers=servers,
                group_id=group,
                group_protocol="kafka",
                auto_offset_reset="smallest",
                session_timeout_ms=20_000,
                heartbeat_interval_ms=200,
                partition_assignment_strategy=strategy,
                **settings,
            )
        )
        self.values = []
        for stream in self.connector.create_message_streams({topic: streams})[topic]:
            threading.Thread(target=self._read, args=[stream], daemon=True).start()

    def _read(self, stream):
        for message in stream:
            self.values.append(message.value)

    @property
    def owned(self):
        return set(self.connector.describe().owned)

    def close(self):
        self.connector.shutdown()


class Java:
    """A KafkaConsumer in a JVM; ``strategy`` None for its defaults."""

    def __init__(self, jvm, servers, group, topic, strategy=None, version="3.9.1"):
        properties = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": "20000",
            "heartbeat.interval.ms": "200",
        }
        if strategy is not None:
            name = f"org.apache.kafka.clients.consumer.{_CLASSES[strategy]}"
            properties["partition.assignment.strategy"] = name
        self._consumer = JavaKafkaConsumer(jvm, properties, [topic], version)

    @property
    def values(self):
        return [record.value for record in self._consumer.received()]

    @property
    def owned(self):
        assert self._consumer.failure is None
        return self._consumer.owned

    def close(self):
        self._consumer.close()


class Group:
    """The members of one group and what they received, also those that have left."""

    def __init__(self, produce, topic):
        self._produce = produce
        self._topic = topic
        self._made = ExitStack()
        self.present = []
        self._all = []
        self._produced = 0

    def join(self, member):
        self._made.enter_context(closing(member))
        self.present.append(member)
        self._all.append(member)

    def leave(self, member):
        member.close()
        self.present.remove(member)

    def settle(self, sizes=None):
        """Wait until the members share all partitions, evenly unless ``sizes`` are given."""
        wanted = sizes or [PARTITIONS // len(self.present)] * len(self.present)

        def shared():
            owned = [set(one.owned) for one in self.present]
            return [*map(len, owned)] == wanted and len(set().union(*owned)) == PARTITIONS

        eventually(shared)

    def expect_each_record_once(self, count=30):
        """Produce, and wait until every record was received; of a settled group none is received twice."""
        wanted = {b"%d" % number for number in range(self._produced, self._produced + count)}
        self._produced += count
        self._produce(self._topic, [{"value": value, "partition": int(value) % PARTITIONS} for value in wanted])
        eventually(lambda: wanted <= {value for one in self._all for value in one.values})
        received = Counter(value for one in self._all for value in one.values)
        assert {value for value in wanted if received[value] > 1} == set()

    def close(self):
        self._made.close()


@pytest.fixture
def topic(topic_factory):
    return topic_factory(PARTITIONS)


@pytest.fixture
def group(produce, topic):
    with closing(Group(produce, topic)) as made:
        yield made


@pytest.mark.parametrize(("strategy", "order"), CASES, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_members_of_all_kinds_share_a_group(client_jvm, sandbox, group, topic, unique_name, strategy, order):
    """The first to join leads, and when it has left, one of the others."""
    common = (sandbox.bootstrap_servers, unique_name, topic, strategy)
    make = {
        JAVA: lambda: Java(client_jvm, *common),
        OURS: lambda: Ours(*common),
        CONFLUENT: lambda: Confluent(*common),
    }
    for kind in order:
        group.join(make[kind]())
        group.settle()
    group.expect_each_record_once()
    while len(group.present) > 1:
        group.leave(group.present[0])
        group.settle()
        group.expect_each_record_once()


def test_defaults_of_both_have_a_common_strategy(client_jvm, sandbox, group, topic, unique_name):
    """While KafkaConsumer is in the group, each member counts once; before and after, its streams count."""
    common = (sandbox.bootstrap_servers, unique_name, topic)
    group.join(Ours(*common, streams=2))
    group.join(Ours(*common, streams=1))
    group.settle([4, 2])
    group.join(Java(client_jvm, *common))
    group.settle([2, 2, 2])
    group.expect_each_record_once()
    group.leave(group.present[-1])
    group.settle([4, 2])
    group.expect_each_record_once()


OWN = "tests.fixtures.assignors:R0"


def test_an_own_assignor_alone_is_refused_beside_java(client_jvm, sandbox, group, topic, unique_name):
    """The brokers refuse a member without a common strategy before they begin a rebalance."""
    common = (sandbox.bootstrap_servers, unique_name, topic)
    group.join(Java(client_jvm, *common))
    group.settle()

    def rebalances():
        logs = (broker.log.read_text(encoding="utf-8", errors="replace") for broker in sandbox.brokers)
        return sum(log.count(f"Preparing to rebalance group {unique_name} ") for log in logs)

    before = rebalances()
    with pytest.raises(RebalanceFailed, match=r"no strategy of partition\.assignment\.strategy="):
        Ours(*common, OWN, rebalance_max_retries=2, rebalance_backoff_ms=100)
    group.expect_each_record_once()
    assert rebalances() == before > 0


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours-leads", "java-leads"])
def test_an_own_assignor_takes_over_when_java_has_left(client_jvm, sandbox, group, topic, unique_name, ours_first):
    """While both are in the group, the strategy that both have assigns."""
    common = (sandbox.bootstrap_servers, unique_name, topic)
    strategies = []

    def ours():
        made = Ours(*common, f"{OWN},cooperative-sticky")
        strategies.append(lambda: made.connector.describe().strategy)
        return made

    def java():
        return Java(client_jvm, *common, "cooperative-sticky")

    for make in (ours, java, ours) if ours_first else (java, ours, ours):
        group.join(make())
        group.settle()
    assert [strategy() for strategy in strategies] == ["cooperative-sticky"] * 2
    group.expect_each_record_once()
    (of_java,) = (member for member in group.present if isinstance(member, Java))
    group.leave(of_java)
    group.settle()
    eventually(lambda: [strategy() for strategy in strategies] == ["by-rack"] * 2)
    group.expect_each_record_once()


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours-leads", "java-leads"])
def test_a_client_of_1_1_shares_a_sticky_group(jvm, sandbox, group, topic, unique_name, ours_first):
    """Its subscription is of version 0, and its user data have no generation."""
    common = (sandbox.bootstrap_servers, unique_name, topic, "sticky")
    kinds = [lambda: Ours(*common), lambda: Java(jvm, *common, version="1.1.1")]
    for make in kinds if ours_first else reversed(kinds):
        group.join(make())
        group.settle()
    group.expect_each_record_once()
    group.leave(group.present[0])
    group.settle()
    group.expect_each_record_once()
