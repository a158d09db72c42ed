"""TLS with brokers of 0.9.0, the first ones that have it; they take keystores of Java's kinds only."""

import pytest

from tests.fixtures.brokers import VersionedBroker
from tests.fixtures.certificates import Authority
from tests.fixtures.consumers import IN_BROKER_GROUP, consumers
from tests.fixtures.sandbox import PATIENT, values
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.ports import HOST, free_port

VERSION = "0.9.0.1"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker with a plain and a TLS listener: its client, and the settings of ours."""
    authority = Authority(tmp_path_factory.mktemp("certificates"), "ca")
    ports = {protocol: free_port() for protocol in ("PLAINTEXT", "SSL")}
    listeners = ",".join(f"{protocol}://{HOST}:{port}" for protocol, port in ports.items())
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        **authority.java_broker_properties(HOST),
        **PATIENT["kafka_properties"],
    }
    with Sandbox(kafka_version=VERSION, brokers=0, **{**PATIENT, "kafka_properties": properties}) as box:
        box.add_brokers(port=ports["PLAINTEXT"])
        settings = {"security_protocol": "SSL", "ssl_ca_location": authority.location}
        yield VersionedBroker(box), f"{HOST}:{ports['SSL']}", settings


@pytest.mark.parametrize("of_brokers", [False, True], ids=["zookeeper", "kafka"])
def test_a_group_reads_and_commits_through_tls(secured, unique_name, of_brokers):
    broker, encrypted, settings = secured
    topic = broker.create_topic(unique_name, 2)
    if of_brokers:
        where, settings = {"bootstrap.servers": encrypted}, {**IN_BROKER_GROUP, **settings}
    else:
        where = broker.sandbox.connection
        settings = {"offsets_storage": "kafka", "dual_commit_enabled": False, **settings}
    for start in (0, 20):
        broker.produce(topic, [{"value": value, "partition": 0} for value in values(20, start=start)])
        with consumers(where, unique_name, consumer_timeout_ms=60_000, **settings) as make:
            member = make()
            (stream,) = member.create_message_streams({topic: 1})[topic]
            assert [next(stream).value for _ in range(20)] == values(20, start=start)
            member.commit_offsets()
