"""Metrics of a real consumer, as plain values and as Prometheus reads them."""

import socket
from collections import defaultdict
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fixtures.fork import idle_forked_child
from tests.fixtures.sandbox import Topics
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.connector.consumermetrics import METRICS
from zkconsumer.errors import UsageError

pytestmark = pytest.mark.integration


@pytest.fixture
def serve(connect):
    """Make consumers of one group that serve metrics."""

    def connector(**values):
        return connect(**{"metrics_port": 0, **values})

    connector.group = connect.group
    return connector


def scrape(connector):
    """Sample name to its samples as Prometheus parses them."""
    host, port = connector.metrics_address
    with urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    samples = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name].append(sample)
    return samples


def values(samples, name, **labels):
    return [s.value for s in samples[name] if all(s.labels[key] == text for key, text in labels.items())]


def only(samples, name, **labels):
    (value,) = values(samples, name, **labels)
    return value


def test_what_is_scraped_while_consuming_and_at_the_end(serve, topic_factory, produce):
    topic = topic_factory(partitions=2)
    produce(topic, [{"value": b"x" * 100, "partition": number % 2} for number in range(200)])
    connector = serve()
    streams = connector.create_message_streams({topic: 1})[topic]
    for _ in range(50):
        next(streams[0])
    during = scrape(connector)
    assert only(during, "zkconsumer_messages_total", topic=topic) == 50
    assert only(during, "zkconsumer_owned_partitions", topic=topic) == 2
    assert only(during, "zkconsumer_member_state", state="joined") == 1
    assert only(during, "zkconsumer_rebalances_total", cause="start") == 1
    assert only(during, "zkconsumer_rebalance_seconds_count") == 1
    assert only(during, "zkconsumer_rebalance_seconds_sum") > 0
    for _ in range(150):
        next(streams[0])
    connector.commit_offsets()
    # A fetcher queues a chunk first, and moves its position then.
    eventually(lambda: values(scrape(connector), "zkconsumer_consumer_lag") == [0, 0])
    end = scrape(connector)
    assert only(end, "zkconsumer_messages_total", topic=topic) == 200
    assert only(end, "zkconsumer_bytes_total", topic=topic) > 200 * 100
    assert only(end, "zkconsumer_max_lag") == 0
    assert values(end, "zkconsumer_consumer_lag") == [0, 0]
    assert only(end, "zkconsumer_fetch_queue_size", topic=topic, thread_id="0") == 0
    assert only(end, "zkconsumer_zookeeper_commits_total") == 2
    assert only(end, "zkconsumer_kafka_commits_total") == 0
    assert only(end, "zkconsumer_min_fetch_rate") > 0
    assert {sample.labels["client_id"] for group in end.values() for sample in group} == {serve.group}


def test_the_loss_of_zookeeper_is_seen_in_the_metrics(private_sandbox):
    box = private_sandbox(tick_time_ms=500)
    Topics(box.bootstrap_servers).create("t")
    config = ConsumerConfig(
        zookeeper_connect=box.zookeeper_connect,
        group_id="g",
        zookeeper_session_timeout_ms=3000,
        zookeeper_connection_timeout_ms=20_000,
    )

    def gauges():
        found = {sample.name: sample.value for sample in connector.metrics()}
        return found["zkconsumer_zookeeper_connected"], found["zkconsumer_delivering"]

    with ConsumerConnector(config) as connector:
        connector.create_message_streams({"t": 1})
        eventually(lambda: gauges() == (1, 1))
        box.zookeeper.pause()
        eventually(lambda: gauges() == (0, 0))
        box.zookeeper.resume()
        eventually(lambda: gauges() == (1, 1))


def test_another_member_is_seen_in_the_metrics(serve, topic_factory):
    topic = topic_factory(partitions=2)
    first = serve()
    first.create_message_streams({topic: 1})
    second = serve()
    second.create_message_streams({topic: 1})
    # In the middle of the rebalance nothing is owned, and only its end is counted: there may be no sample yet.
    eventually(lambda: values(scrape(first), "zkconsumer_owned_partitions", topic=topic) == [1])
    eventually(lambda: values(scrape(first), "zkconsumer_rebalances_total", cause="members") == [1])
    assert only(scrape(first), "zkconsumer_last_rebalance_timestamp_seconds", cause="members") > 1e9


def test_the_port_is_closed_by_shutdown_and_plain_values_remain(serve, topic_factory):
    connector = serve()
    connector.create_message_streams({topic_factory(): 1})
    address = connector.metrics_address
    connector.shutdown()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=5)
    states = {s.labels["state"]: s.value for s in connector.metrics() if s.name == "zkconsumer_member_state"}
    assert states == {"latent": 0, "joined": 0, "rebalancing": 0, "closed": 1}


def test_values_have_the_names_of_the_reference(serve, topic_factory, produce):
    topic = topic_factory()
    produce(topic, [b"x"])
    connector = serve(metrics_port=-1)
    assert connector.metrics_address is None
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    next(stream)
    documented = {metric.name: {"client_id", "group_id", *metric.labels} for metric in METRICS}
    seen = {s.name.removesuffix("_count").removesuffix("_sum"): set(s.labels) for s in connector.metrics()}
    assert seen.items() <= documented.items()
    assert documented.keys() - seen.keys() <= {"zkconsumer_rebalance_failures_total"}


def test_a_port_in_use_is_reported(serve, topic_factory):
    taken = serve().metrics_address[1]
    with pytest.raises(UsageError, match=r"metrics\.port"):
        serve(metrics_port=taken)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_metrics_port_in_use(serve):
    connector = serve()
    address = connector.metrics_address
    with idle_forked_child():
        assert scrape(connector)
        connector.shutdown()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
