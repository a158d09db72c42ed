"""Fetching from the closest replica (KIP-392), on brokers in racks."""

import threading
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from tests.chaos.assignments import OwnersAtCoordinator
from tests.fixtures.consumers import IN_BROKER_GROUP, IN_ZOOKEEPER, owned, parts
from tests.fixtures.fetch import brokers_of
from tests.fixtures.racks import Racks
from tests.fixtures.sandbox import Topics, produce_records, values
from tests.fixtures.waiting import eventually
from tests.fixtures.zookeeper import expire
from zkconsumer import ConsumerConfig, ConsumerConnector, read
from zkconsumer.fetch.fetcher import FetcherThread
from zkconsumer.ranges import rangefetcher
from zkconsumer.sandbox.jars import DEFAULT_KAFKA_VERSION
from zkconsumer.sandbox.progress import Progress
from zkconsumer.spark.source import ZkConsumerDataSource

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

RACK = {"client_rack": "r1", "metadata_max_age_ms": 1000}


OLDEST, NEWEST = "2.4.1", "4.2.0"
"""The first release that names replicas, and the newest one, which has no ZooKeeper."""

of_releases = pytest.mark.parametrize("racks", [OLDEST, DEFAULT_KAFKA_VERSION, NEWEST], indirect=True)
of_newest = pytest.mark.parametrize("racks", [NEWEST], indirect=True)


@pytest.fixture(scope="module")
def racks(request):
    """Two brokers, one in rack r0, one in r1."""
    version = getattr(request, "param", DEFAULT_KAFKA_VERSION)
    with Racks(kafka_version=version, brokers=2, progress=Progress()) as box:
        yield box


@pytest.fixture
def topic(racks, unique_name):
    """Four partitions, two of which each broker leads; both have all of them."""
    return Topics(racks.bootstrap_servers).create(unique_name, 4, 2)


class Reading:
    """A consumer of one group, which reads on a thread of its own."""

    def __init__(self, box, group, topic, **settings):
        self.received = []
        at_brokers = settings.get("group_protocol") in ("kafka", "consumer")
        among = {"bootstrap.servers": box.bootstrap_servers} if at_brokers else box.connection
        found = {name.replace(".", "_"): value for name, value in among.items()}
        patience = IN_BROKER_GROUP if at_brokers else IN_ZOOKEEPER
        if settings.get("group_protocol") == "consumer":  # the broker has the times of sessions
            patience = {name: patience[name] for name in ("metadata_max_age_ms", "rebalance_backoff_ms")}
        config = ConsumerConfig(group_id=group, auto_offset_reset="smallest", **{**found, **patience, **settings})
        self.connector = ConsumerConnector(config)
        (stream,) = self.connector.create_message_streams({topic: 1})[topic]
        threading.Thread(target=self._read, args=[stream], daemon=True).start()

    def _read(self, stream):
        for message in stream:
            self.received.append(message)

    def values(self):
        return sorted(int(message.value) for message in self.received)

    def in_order(self):
        """True if each partition's records came in the order of its log."""
        offsets = {}
        for message in self.received:
            offsets.setdefault(message.partition, []).append(message.offset)
        return all(found == sorted(found) for found in offsets.values())

    def brokers(self):
        """Ids of the brokers that partitions are fetched from, with their number."""
        ours = self.connector.describe().consumer_id
        return {
            thread.broker.id: len(thread._table)
            for thread in threading.enumerate()
            if isinstance(thread, FetcherThread) and ours in thread.name and thread._table
        }

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.connector.shutdown()


@of_releases
@pytest.mark.parametrize("protocol", ["zookeeper", "coordinator", "kafka"])
def test_records_come_from_the_replica_in_the_rack(racks, topic, unique_name, protocol):
    read_in_the_rack(racks, topic, unique_name, protocol)


@of_newest
def test_a_group_in_which_the_broker_assigns_reads_from_the_replica_in_the_rack(racks, topic, unique_name):
    read_in_the_rack(racks, topic, unique_name, "consumer")


def read_in_the_rack(racks, topic, unique_name, protocol):
    with Reading(racks, unique_name, topic, group_protocol=protocol, **RACK) as reading:
        for start in range(0, 200, 40):
            produce_records(racks.bootstrap_servers, topic, values(40, start=start))
        eventually(lambda: reading.values() == [*range(200)])
        eventually(lambda: reading.brokers() == {1: 4})
        assert reading.in_order()


def test_without_a_rack_records_come_from_the_leaders(racks, topic, unique_name):
    with Reading(racks, unique_name, topic) as reading:
        produce_records(racks.bootstrap_servers, topic, values(40))
        eventually(lambda: reading.values() == [*range(40)])
        assert reading.brokers() == {0: 2, 1: 2}


def test_a_rack_without_replicas_is_no_obstacle(racks, topic, unique_name):
    with Reading(racks, unique_name, topic, client_rack="far") as reading:
        produce_records(racks.bootstrap_servers, topic, values(40))
        eventually(lambda: reading.values() == [*range(40)])
        assert reading.brokers() == {0: 2, 1: 2}


@pytest.fixture
def fetched(monkeypatch):
    """Of each answer with records that a reader of ranges gets, the number of the partition and the broker's id."""
    answers = []
    accept = rangefetcher.RangeFetcher._accept

    def note(fetcher, partition, answer, *arguments, **named):
        if len(answer.records):
            answers.append((partition.partition, fetcher.broker.id))
        return accept(fetcher, partition, answer, *arguments, **named)

    monkeypatch.setattr(rangefetcher.RangeFetcher, "_accept", note)
    return answers


@of_releases
def test_a_range_is_read_from_the_replica_in_the_rack(racks, topic, fetched):
    produce_records(racks.bootstrap_servers, topic, values(400))
    config = ConsumerConfig.without_group(bootstrap_servers=racks.bootstrap_servers, client_rack="r1")
    rows = [int(value) for batch in read(topic, config) for value in batch["value"].to_pylist()]
    assert sorted(rows) == [*range(400)]
    assert {broker for _, broker in fetched} == {1}


def leaders(racks, topic):
    """The broker that leads each partition; on a busy machine one may lose what it leads."""
    metadata = AdminClient({"bootstrap.servers": racks.bootstrap_servers}).list_topics(topic, timeout=30)
    return {(number, partition.leader) for number, partition in metadata.topics[topic].partitions.items()}


@of_releases
@pytest.mark.parametrize("rack", ["r1", None])
def test_a_task_of_spark_reads_from_the_replica_in_the_rack(racks, topic, unique_name, fetched, rack):
    """The source as an executor calls it, in this process."""
    produce_records(racks.bootstrap_servers, topic, values(400))
    led_by = leaders(racks, topic)
    options = {**racks.connection, "subscribe": topic, "group.id": unique_name, "startingOffsets": "earliest"}
    source = ZkConsumerDataSource({**options, **({"client.rack": rack} if rack else {})})
    reader = source.reader(source.schema())
    rows = [
        int(value)
        for task in reader.partitions()
        for batch in reader.read(task)
        for value in batch["value"].to_pylist()
    ]
    assert sorted(rows) == [*range(400)]
    if rack:
        assert {broker for _, broker in fetched} == {1}
    else:
        assert {*fetched} <= led_by | leaders(racks, topic)


@pytest.mark.parametrize("protocol", ["zookeeper", "coordinator", "kafka"])
def test_a_group_changes_while_records_come_from_a_replica(racks, topic, unique_name, protocol):
    change_the_group(racks, topic, unique_name, protocol)


@of_newest
def test_a_group_in_which_the_broker_assigns_changes_while_records_come_from_a_replica(racks, topic, unique_name):
    change_the_group(racks, topic, unique_name, "consumer")


def change_the_group(racks, topic, group, protocol):
    """Another member joins, one loses its membership, one leaves; records are produced in each of these."""
    produced = 0

    def produce():
        nonlocal produced
        produce_records(racks.bootstrap_servers, topic, values(40, start=produced))
        produced += 40

    def expect_all(*readings):
        eventually(lambda: {value for reading in readings for value in reading.values()} == {*range(produced)})

    with Reading(racks, group, topic, group_protocol=protocol, client_id="one", **RACK) as one:
        produce()
        eventually(lambda: one.brokers() == {1: 4})
        with Reading(racks, group, topic, group_protocol=protocol, client_id="other", **RACK) as other:
            produce()
            eventually(lambda: one.brokers() == other.brokers() == {1: 2})
            produce()
            expect_all(one, other)
            generation = one.connector.describe().generation
            if protocol in ("kafka", "consumer"):
                with closing(OwnersAtCoordinator(brokers_of(racks.bootstrap_servers), group)) as coordinator:
                    coordinator.remove("one", assigned_by_brokers=protocol == "consumer")
            else:
                expire(one.connector)
            produce()
            eventually(lambda: one.connector.describe().generation > generation)
            eventually(lambda: one.brokers() == other.brokers() == {1: 2})
            produce()
            expect_all(one, other)
        produce()
        eventually(lambda: one.brokers() == {1: 4})
        produce()
        expect_all(one, other)


# The tests from here on harm the broker, and are the last ones of this module.


@pytest.fixture
def kill(racks):
    """Kill the broker in rack r1, which is started again at the end."""
    yield racks.brokers[1].kill
    if not racks.brokers[1].running:
        racks.brokers[1].start()


@of_releases
def test_a_replica_is_killed_while_a_range_is_read_from_it(racks, topic, fetched, kill):
    produce_records(racks.bootstrap_servers, topic, [b"%d" % number + b"." * 20_000 for number in range(4000)])
    config = ConsumerConfig.without_group(bootstrap_servers=racks.bootstrap_servers, client_rack="r1")
    rows, before = [], None
    for batch in read(topic, config, columns=["value"]):
        rows += [int(value.rstrip(b".")) for value in batch["value"].to_pylist()]
        if before is None:
            before = len(fetched)
            kill()
    assert sorted(rows) == [*range(4000)]
    assert {broker for _, broker in fetched[:before]} == {1}
    assert {broker for _, broker in fetched[-4:]} == {0}, "80 MB are more than what had been fetched"


@pytest.mark.parametrize("protocol", ["zookeeper", "coordinator", "kafka"])
def test_a_follower_that_is_killed_costs_no_record(racks, topic, unique_name, protocol, kill):
    outlive_the_replica(racks, topic, unique_name, protocol, kill)


@of_newest
def test_a_follower_that_is_killed_costs_no_record_where_the_broker_assigns(racks, topic, unique_name, kill):
    outlive_the_replica(racks, topic, unique_name, "consumer", kill)


def outlive_the_replica(racks, topic, group, protocol, kill):
    with Reading(racks, group, topic, group_protocol=protocol, **RACK) as reading:
        produce_records(racks.bootstrap_servers, topic, values(40))
        eventually(lambda: reading.values() == [*range(40)])
        eventually(lambda: reading.brokers() == {1: 4})
        kill()
        for start in range(40, 200, 40):
            produce_records(racks.bootstrap_servers, topic, values(40, start=start))
        eventually(lambda: reading.values() == [*range(200)])
        assert reading.brokers() == {0: 4}
        assert owned(reading.connector) == parts(topic, 0, 1, 2, 3)
        racks.brokers[1].start()
        eventually(lambda: reading.brokers() == {1: 4})
        produce_records(racks.bootstrap_servers, topic, values(40, start=200))
        eventually(lambda: reading.values() == [*range(240)])
        assert reading.in_order()
