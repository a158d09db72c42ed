"""PolledCluster over a real socket: when it asks, whom, what it keeps, and when it reports a change."""

import threading
from contextlib import closing
from itertools import groupby
from uuid import UUID

import pytest

from tests.fixtures.kafka import MetadataRequest
from tests.fixtures.stubbroker import running_stub_broker
from tests.fixtures.waiting import eventually
from zkconsumer.cluster import polledcluster
from zkconsumer.cluster.polledcluster import PolledCluster
from zkconsumer.cluster.rules import clustercatalog
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ConfigError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.wire.errorcodes import ErrorCode

NEVER_MS = 2**31 - 1
SOON_MS = 20
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def stub():
    with running_stub_broker() as broker:
        broker.versions[MetadataRequest.API_KEY] = 12
        broker.log(T0)
        broker.topic_ids["t"] = UUID(int=1)
        yield broker


@pytest.fixture
def polled(stub, monkeypatch):
    """Opens clusters, each with a list of the changes that it has reported."""
    # A reading that waits no longer returns what was known before; that is not what a slow machine is to show here.
    monkeypatch.setattr(polledcluster, "_PATIENCE_S", 60.0)
    monkeypatch.setattr(polledcluster, "TIMEOUT_MS", 60_000)
    opened = []

    def open_cluster(servers=None, age_ms=NEVER_MS, **properties):
        config = ConsumerConfig(
            group_id="g",
            zookeeper_connect="unused:1",
            bootstrap_servers=servers or f"127.0.0.1:{stub.port}",
            metadata_max_age_ms=age_ms,
            **properties,
        )
        cluster, changes = PolledCluster(config, "g_me"), []
        opened.append(cluster)
        cluster.open(lambda: changes.append(threading.current_thread().name))
        return cluster, changes

    yield open_cluster
    for cluster in opened:
        cluster.close()


def partitions(cluster):
    return cluster.read(["t"]).describe_topics(["t"])["t"].partitions


def topic_id(cluster):
    return cluster.read(["t"]).describe_topics(["t"])["t"].identity.topic_id


def test_every_reading_asks_a_broker(stub, polled):
    cluster, _ = polled()
    assert partitions(cluster) == (0,)
    stub.log(T1)
    assert partitions(cluster) == (0, 1)


def test_the_first_answer_to_a_reading_is_not_a_change(stub, polled):
    cluster, changes = polled()
    partitions(cluster)
    partitions(cluster)
    assert changes == []


def test_a_change_is_reported_also_to_who_reads_it(stub, polled):
    cluster, changes = polled()
    partitions(cluster)
    stub.log(T1)
    partitions(cluster)
    eventually(lambda: changes)


def test_a_change_is_noticed_by_timer(stub, polled):
    cluster, changes = polled(age_ms=SOON_MS)
    partitions(cluster)
    stub.log(T1)
    eventually(lambda: changes)
    assert set(changes) == {"g_me-metadata"}


def test_brokers_are_asked_once_more_after_a_reading(stub, polled):
    stub.elsewhere[TopicPartition("other", 0)] = Broker(1, "127.0.0.1", stub.port)
    cluster, changes = polled()
    partitions(cluster)
    stub.log(T1)
    eventually(lambda: changes)


def test_topics_that_were_asked_for_stay_of_interest(stub, polled):
    cluster, _ = polled()
    for topics in (["t"], ["u"], None, ["t"]):
        cluster.read(topics)
    # Brokers are asked again a second after a reading, which on a slow machine is between two of these.
    described = list(stub.described)
    assert [topics for topics, _ in groupby(described)] == [frozenset("t"), frozenset("tu"), None]
    assert described.count(None) >= 2, "once for each reading"


def test_without_an_answer_the_last_snapshot_stays(stub, polled, caplog):
    cluster, changes = polled()
    partitions(cluster)
    stub.hangs_up = True
    assert partitions(cluster) == (0,)
    assert cluster.live_brokers() == (stub.broker,)
    assert "what was known before is used" in caplog.text
    stub.log(T1)
    stub.hangs_up = False
    eventually(lambda: changes)
    assert partitions(cluster) == (0, 1)


def test_a_broker_that_has_just_started_denies_no_topic(stub, polled, monkeypatch):
    """It learns of the brokers before it learns of topics; a topic that it keeps denying was deleted."""
    cluster, changes = polled(age_ms=SOON_MS)
    partitions(cluster)
    log = stub.logs.pop(T0)
    asked = len(stub.described)
    eventually(lambda: len(stub.described) > asked + 3)
    assert partitions(cluster) == (0,)
    stub.logs[T0] = log
    partitions(cluster)
    assert changes == []
    monkeypatch.setattr(clustercatalog, "DENIED_S", 0.1)
    del stub.logs[T0]
    eventually(lambda: changes)
    assert cluster.read(["t"]).topics() == set()


def test_a_broker_that_describes_the_former_topic_changes_nothing(stub, polled):
    """Brokers are asked in turns, and one learns later that a topic was created again."""
    with running_stub_broker() as late:
        late.number, late.others = 1, [stub.broker]
        stub.others = [late.broker]
        late.versions, late.topic_ids = dict(stub.versions), dict(stub.topic_ids)
        late.log(T0)
        cluster, changes = polled()
        partitions(cluster)
        ids = [topic_id(cluster)]
        stub.topic_ids["t"] = UUID(int=2)
        ids += [topic_id(cluster) for _ in range(6)]
        assert len([*groupby(ids)]) == 2
        assert len(late.described) > 1
        eventually(lambda: changes)
        assert len(changes) == 1


def test_a_topic_that_may_not_be_described_any_more_is_not_deleted(stub, polled, monkeypatch):
    """Brokers leave it out of all topics; asked for it by name, they say why."""
    monkeypatch.setattr(clustercatalog, "DENIED_S", 0.0)
    cluster, changes = polled(age_ms=SOON_MS)
    assert cluster.read(None).topics() == {"t"}
    stub.unlisted = {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert cluster.read(None).topics() == {"t"}
    assert changes == []
    stub.unlisted = {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert cluster.read(None).topics() == set()


def test_bootstrap_servers_are_asked_when_no_known_broker_answers(stub, polled):
    with running_stub_broker() as gone:
        gone.versions[MetadataRequest.API_KEY] = 12
        gone.log(T0)
        stub.hangs_up = True
        cluster, _ = polled(f"127.0.0.1:{gone.port},127.0.0.1:{stub.port}")
        assert partitions(cluster) == (0,)
        assert cluster.live_brokers() == (gone.broker,)
        stub.log(T1)
        gone.hangs_up, stub.hangs_up = True, False
        assert partitions(cluster) == (0, 1)
        assert cluster.live_brokers() == (stub.broker,)


def test_before_the_first_answer_nothing_is_known(stub, polled):
    stub.hangs_up = True
    cluster, changes = polled()
    snapshot = cluster.read(["t"])
    assert (snapshot.brokers, snapshot.described) == ((), {})
    assert [broker.port for broker in cluster.live_brokers()] == [stub.port]
    stub.hangs_up = False
    eventually(lambda: changes)
    assert partitions(cluster) == (0,)


def test_settings_that_cannot_work_are_raised_if_nothing_is_known(polled, tmp_path):
    cluster, _ = polled(security_protocol="SSL", ssl_ca_location=str(tmp_path / "missing.pem"))
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        cluster.read(["t"])


def test_closing_ends_the_thread_and_a_reading(stub, polled):
    cluster, _ = polled()
    partitions(cluster)
    with closing(cluster):
        pass
    eventually(lambda: "g_me-metadata" not in {thread.name for thread in threading.enumerate()})
    assert partitions(cluster) == (0,)
    cluster.close()
