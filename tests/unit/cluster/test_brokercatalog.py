"""Brokers and topics as a broker describes them, over a real socket, in old and new versions."""

import logging
import time
from contextlib import closing
from functools import partial
from uuid import UUID

import pytest

from tests.fixtures.kafka import MetadataRequest
from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.cluster import brokercatalog
from zkconsumer.cluster.brokercatalog import BrokerCatalog, PatientCatalog, RememberedCatalog
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.model import Broker, TopicIdentity, TopicPartition
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.errorcodes import ErrorCode

OLD, NEW, NEWEST = 1, 6, 12


@pytest.fixture
def stub():
    with running_stub_broker() as broker:
        broker.versions[MetadataRequest.API_KEY] = NEWEST
        for partition in (TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("u", 0)):
            broker.log(partition)
        broker.topic_ids = {"t": UUID(int=1)}
        yield broker


def read(stub, topics):
    config = ConsumerConfig(
        group_id="g", zookeeper_connect="unused:1", bootstrap_servers=f"127.0.0.1:{stub.port}", socket_timeout_ms=5000
    )
    return BrokerCatalog(config).read(topics)


@pytest.fixture(autouse=True)
def denied_topics_are_soon_gone(monkeypatch):
    monkeypatch.setattr(brokercatalog, "DENIED_S", 1.0)


def test_topics_have_their_partitions_and_ids(stub):
    snapshot = read(stub, ["t", "missing"])
    assert snapshot.live_brokers() == (stub.broker,)
    assert snapshot.describe_topics(["t", "missing"]) == {
        "t": ((0, 1), TopicIdentity("AAAAAAAAAAAAAAAAAAAAAQ", None)),
    }
    assert snapshot.covers(["missing"])
    assert not snapshot.covers(["u"])


def test_all_topics_are_described(stub):
    snapshot = read(stub, None)
    assert snapshot.topics() == {"t", "u"}
    assert stub.described == [None]


def test_a_partition_without_a_leader_exists(stub):
    stub.leaderless.add(TopicPartition("t", 1))
    assert read(stub, ["t"]).described["t"].partitions == (0, 1)


@pytest.mark.parametrize(
    ("version", "asked_for"), [(OLD, None), (NEW, frozenset({"t"})), (10, frozenset({"t"})), (NEWEST, frozenset({"t"}))]
)
def test_brokers_that_might_create_topics_are_asked_for_all(stub, version, asked_for):
    stub.versions[MetadataRequest.API_KEY] = version
    snapshot = read(stub, ["t"])
    assert stub.described == [asked_for]
    assert snapshot.describe_topics(["t"])["t"].partitions == (0, 1)


def test_names_that_no_topic_can_have_are_not_sent(stub):
    long = "x" * 255
    stub.log(TopicPartition(long, 0))
    assert read(stub, ["t", long, "", "..", "a/b", "\ud800", "x" * 256]).topics() == {"t", long}
    assert stub.described == [frozenset({"t", long})], "brokers before 0.10 allowed 255 characters"


def test_versions_before_topic_ids_have_none(stub):
    stub.versions[MetadataRequest.API_KEY] = NEW
    assert read(stub, ["t"]).described["t"].identity == TopicIdentity(None, None)


def test_a_topic_without_permission_is_reported(stub, caplog):
    stub.topic_errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with caplog.at_level(logging.ERROR):
        assert read(stub, ["t", "secret"]).topics() == {"t"}
    assert "topic secret cannot be read" in caplog.text
    assert "kafka-acls --list --topic secret" in caplog.text


def test_a_broker_that_is_starting_lists_no_brokers(stub):
    stub.lists_brokers = False
    with pytest.raises(BrokerUnavailable, match="lists no live brokers"):
        read(stub, None)


def test_bootstrap_servers_are_brokers_without_known_ids():
    assert bootstrap_brokers("one:9092,[::1]:9093") == (Broker(-1, "one", 9092), Broker(-2, "::1", 9093))
    assert bootstrap_brokers(None) == ()


def test_a_remembered_catalog_asks_by_name_only_for_what_is_missing(stub):
    stub.topic_errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    catalog = RememberedCatalog(partial(read, stub))
    for _ in range(2):
        assert catalog.read(()).live_brokers() == (stub.broker,)
        assert catalog.read(["t", "secret"]).topics() == {"t", "u"}
        assert catalog.read(["t", "u"]).covers(None)
    assert stub.described == [None, frozenset({"secret"})]


# -- denials ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(stub):
    config = ConsumerConfig(group_id="g", zookeeper_connect="unused:1", socket_timeout_ms=5000)
    with closing(BrokerClient.from_config(lambda: [stub.broker], config)) as client:
        yield client


@pytest.mark.parametrize("topics", [["t", "u"], None])
def test_a_broker_that_denies_every_topic_is_asked_again(stub, client, topics):
    """1. A broker starts; 2. it denies every topic for some seconds; 3. what is of these topics would count as none."""
    logs, stub.logs = stub.logs, {}
    catalog = PatientCatalog(client, wait=lambda _: stub.logs.update(logs))
    assert catalog.read(topics).topics() == {"t", "u"}


def test_only_what_is_denied_is_asked_for_again(stub, client, monkeypatch):
    monkeypatch.setattr(brokercatalog, "DENIED_S", 0.1)
    stub.topic_errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer = PatientCatalog(client, pause_s=0.02).ask(["t", "gone", "secret"])
    assert set(stub.described[1:]) == {frozenset({"gone"})}
    assert (answer.snapshot.topics(), answer.snapshot.undescribed) == ({"t"}, {"secret"})
    assert answer.denied(["t", "gone", "secret", "no/topic"]) == {"gone"}


def test_questions_in_a_row_wait_once_for_what_is_denied(stub, client, monkeypatch):
    monkeypatch.setattr(brokercatalog, "DENIED_S", 0.2)
    catalog = PatientCatalog(client, pause_s=0.02)
    catalog.ask(["gone"])
    asked = len(stub.described)
    catalog.ask(["gone"])
    assert len(stub.described) == asked + 1
    time.sleep(0.25)
    catalog.ask(["gone"])
    assert len(stub.described) > asked + 2, "a denial of long ago shows nothing"


def test_who_displays_believes_the_first_denial(stub, client):
    assert PatientCatalog(client, displays=True).read(["t", "gone"]).topics() == {"t"}
    assert len(stub.described) == 1
