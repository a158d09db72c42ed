"""A real broker that asks for a client's certificate: which clients it accepts, and with which error it refuses."""

import contextlib
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fixtures.certificates import Authority
from tests.fixtures.fetch import Reader
from tests.fixtures.groups import describe_until
from tests.fixtures.sandbox import PATIENT, Topics, produce_records
from zkconsumer import ConsumerConfig, ConsumerConnector, SimpleConsumer, TopicPartition
from zkconsumer.errors import AuthenticationFailed, ConfigError
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.ports import HOST, free_port

pytestmark = pytest.mark.integration

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "OLD": "SSL"}
"""Listeners. OLD speaks TLS 1.2 only, by which a refusal is part of the handshake; by 1.3 it comes after it."""


class Asking:
    """A broker whose listeners with TLS ask for a certificate, and the authorities that it trusts and does not."""

    def __init__(self, directory) -> None:
        self.ports = {listener: free_port() for listener in PROTOCOLS}
        self.authority = Authority(directory, "ca")
        self.stranger = Authority(directory, "other-ca")
        listeners = ",".join(f"{listener}://{HOST}:{port}" for listener, port in self.ports.items())
        self.properties = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(map(":".join, {**PROTOCOLS, "CONTROLLER": "PLAINTEXT"}.items())),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.old.ssl.protocol": "TLSv1.2",
            "listener.name.old.ssl.enabled.protocols": "TLSv1.2",
            "ssl.client.auth": "required",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.location,
            **self.authority.broker_properties(HOST),
            **PATIENT["kafka_properties"],
        }

    def config(self, **settings):
        found = {"zookeeper_connect": self.sandbox.zookeeper_connect}
        if self.sandbox.has_brokers_without_zookeeper:
            found["bootstrap_servers"] = f"{HOST}:{self.ports['SSL']}"
        return ConsumerConfig(
            **{
                "group_id": "g",
                **found,
                "security_protocol": "SSL",
                "ssl_ca_location": self.authority.location,
                "socket_timeout_ms": 30_000,
                "zookeeper_session_timeout_ms": 30_000,
                **settings,
            }
        )

    def read(self, topic, listener="SSL", **settings):
        """The values of a partition as a consumer without a group reads them."""
        with SimpleConsumer(HOST, self.ports[listener], config=self.config(**settings)) as consumer:
            return [message.value for message in consumer.fetch(TopicPartition(topic, 0), 0)]


@pytest.fixture(scope="module", params=["3.9.1", pytest.param("4.2.0", marks=pytest.mark.slow)])
def asking(request, tmp_path_factory):
    made = Asking(tmp_path_factory.mktemp("certificates"))
    patience = {**PATIENT, "kafka_properties": made.properties}
    with Sandbox(kafka_version=request.param, brokers=0, **patience) as box:
        box.add_brokers(port=made.ports["PLAINTEXT"])
        made.sandbox = box
        yield made


@pytest.fixture(scope="module")
def topic(asking):
    """With one partition and three records."""
    name = Topics(asking.sandbox.bootstrap_servers).create("certified")
    produce_records(asking.sandbox.bootstrap_servers, name, VALUES)
    return name


VALUES = [b"one", b"two", b"three"]
LISTENERS = pytest.mark.parametrize("listener", ["SSL", "OLD"])


@LISTENERS
@pytest.mark.parametrize("password", [None, "the key's secret"])
def test_with_a_certificate(asking, topic, listener, password):
    assert asking.read(topic, listener, **asking.authority.client_settings("client", password)) == VALUES


def test_a_group_reads_with_a_certificate(asking, topic, unique_name):
    config = asking.config(
        group_id=unique_name,
        auto_offset_reset="smallest",
        consumer_timeout_ms=60_000,
        **asking.authority.client_settings("client", "the key's secret"),
    )
    with ConsumerConnector(config) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        assert [next(stream).value for _ in VALUES] == VALUES
        described = describe_until(lambda group: not group.problems, config)
    assert [partition.log_end for partition in described.partitions] == [len(VALUES)]


def test_a_group_is_described_without_a_certificate(asking, topic, unique_name):
    config = asking.config(group_id=unique_name, **asking.authority.client_settings("client"))
    with ConsumerConnector(config) as connector:
        connector.create_message_streams({topic: 1})
        advice = "set ssl.certificate.location and ssl.key.location"
        described = describe_until(
            lambda group: all(advice in problem for problem in group.problems), config, asked_with=asking.config()
        )
    assert described.problems
    assert all(
        "log ends are unknown" in problem or "offsets in Kafka are unknown" in problem for problem in described.problems
    )


@LISTENERS
def test_without_a_certificate(asking, topic, listener):
    with pytest.raises(AuthenticationFailed, match=r"requires a client certificate .*; set ssl\.certificate\.location"):
        asking.read(topic, listener)


@LISTENERS
def test_with_a_certificate_of_an_untrusted_authority(asking, topic, listener):
    settings = asking.stranger.client_settings("client")
    with pytest.raises(
        AuthenticationFailed,
        match=r"refused .* ssl\.certificate\.location .*other-ca-client\.pem .*; check that",
    ):
        asking.read(topic, listener, **settings)


@LISTENERS
def test_with_a_certificate_that_has_expired(asking, topic, listener):
    settings = asking.authority.client_settings("late", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(AuthenticationFailed, match=r"refused .*late\.pem .*; check .* has not expired"):
        asking.read(topic, listener, **settings)


@pytest.mark.parametrize("password", ["", "a guess"])
def test_with_a_wrong_password_of_the_key(asking, topic, password):
    settings = {**asking.authority.client_settings("client", "the key's secret"), "ssl_key_password": password or None}
    with SimpleConsumer(HOST, asking.ports["SSL"], config=asking.config(**settings)) as consumer:
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"ssl\.key\.password") as raised:
                consumer.metadata(topic)
            assert "secret" not in str(raised.value)
            assert "a guess" not in str(raised.value)


@pytest.mark.parametrize("error", [AuthenticationFailed, ConfigError])
def test_a_stream_raises_a_bad_certificate_and_continues_with_a_better_one(asking, topic, error):
    good = asking.authority.client_settings("renewed")
    settings = {name: f"{location}.used" for name, location in good.items()}
    stranger = asking.stranger.client_settings("client")
    for name, location in settings.items():
        if error is AuthenticationFailed:
            shutil.copy(stranger[name], location)
        else:
            Path(location).unlink(missing_ok=True)
    config = {"security_protocol": "SSL", "ssl_ca_location": asking.authority.location, **settings}
    values = []
    with contextlib.closing(Reader(f"{HOST}:{asking.ports['SSL']}", consumer_timeout_ms=60_000, **config)) as reader:
        reader.start({(topic, 0): None})
        for _ in range(2):
            with pytest.raises(error, match=r"ssl\.certificate\.location .*ca-renewed\.pem\.used"):
                next(reader.streams[0])
        for name, location in settings.items():
            shutil.copy(good[name], location)
        while len(values) < len(VALUES):
            # An attempt was under way, or saw the new certificate beside the old key.
            with contextlib.suppress(AuthenticationFailed, ConfigError):
                values.append(next(reader.streams[0]).value)
    assert values == VALUES
