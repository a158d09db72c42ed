"""TLS and SASL towards a real broker: which clients are accepted, which are refused, and with which error."""

import contextlib
import ssl
from pathlib import Path

import pytest

from tests.fixtures.fetch import Reader
from tests.fixtures.groups import describe_until
from tests.fixtures.sandbox import PATIENT, Topics, produce_records
from tests.fixtures.secured import LOGINS, PLAIN, PROTOCOLS, Secured, add_scram_user, unsecured_token
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConnector
from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, ConfigError, ProtocolError
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.ports import HOST
from zkconsumer.wire.apiversions import API_VERSIONS
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.tlsstream import TlsStream

pytestmark = pytest.mark.integration

NETWORK_THREADS = 3
"""Kafka's default."""


@pytest.fixture(scope="module", params=["3.9.1", pytest.param("4.2.0", marks=pytest.mark.slow)])
def secured(request, tmp_path_factory):
    made = Secured(tmp_path_factory.mktemp("certificates"), **{"num.network.threads": str(NETWORK_THREADS)})
    patience = {**PATIENT, "kafka_properties": made.properties}
    with Sandbox(kafka_version=request.param, brokers=0, **patience) as box:
        box.add_brokers(port=made.ports["PLAINTEXT"])
        add_scram_user(f"{HOST}:{made.ports['PLAINTEXT']}")
        made.sandbox = box
        yield made


@pytest.mark.parametrize("login", LOGINS, ids=lambda login: login["sasl_mechanism"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_valid_credentials_are_accepted(secured, protocol, login, caplog):
    caplog.set_level(1)
    secured.connect(protocol, **login)
    secrets = [value for name, value in login.items() if name.endswith(("password", "token"))]
    assert not [secret for secret in secrets if secret in caplog.text]


def test_a_consumer_reads_through_each_listener(secured, unique_name):
    servers = f"{HOST}:{secured.ports['PLAINTEXT']}"
    topic = Topics(servers).create(unique_name, partitions=2)
    values = [b"%d " % number * 500 for number in range(2000)]
    produce_records(servers, topic, [{"value": value, "partition": int(value[:1]) % 2} for value in values])
    for protocol in PROTOCOLS:
        login = PLAIN if protocol.startswith("SASL") else {}
        config = secured.config(
            protocol,
            **secured.connection(protocol),
            group_id=f"{unique_name[-30:]}-{protocol}",
            auto_offset_reset="smallest",
            consumer_timeout_ms=60_000,
            zookeeper_session_timeout_ms=30_000,
            **login,
        )
        with ConsumerConnector(config) as connector:
            (stream,) = connector.create_message_streams({topic: 1})[topic]
            assert sorted(next(stream).value for _ in values) == sorted(values)
            described = describe_until(lambda group: not group.problems, config)
        assert sum(partition.log_end for partition in described.partitions) == len(values)


@pytest.mark.parametrize("login", LOGINS[:4], ids=lambda login: login["sasl_mechanism"])
def test_a_wrong_secret_is_refused_and_never_shown(secured, login):
    wrong = {
        name: unsecured_token(-60) if "token" in name else "not " + value if "password" in name else value
        for name, value in login.items()
    }
    with pytest.raises(AuthenticationFailed, match=r"check sasl\.mechanism") as raised:
        secured.connect("SASL_PLAINTEXT", **wrong)
    shown = f"{raised.value!r} {raised.value.__cause__!r} {secured.config('SASL_PLAINTEXT', **wrong)!r}"
    assert "not alice" not in shown
    assert wrong.get("sasl_oauthbearer_token", "not alice") not in shown


def test_a_stream_raises_when_a_login_is_refused(secured):
    server = f"{HOST}:{secured.ports['SASL_PLAINTEXT']}"
    wrong = {"security_protocol": "SASL_PLAINTEXT", **PLAIN, "sasl_password": "not alice"}
    with contextlib.closing(Reader(server, consumer_timeout_ms=60_000, **wrong)) as reader:
        reader.start({("any", 0): 0, ("any", 1): 0})
        with pytest.raises(AuthenticationFailed, match=r"check sasl\.mechanism") as raised:
            next(reader.streams[0])
    assert "not alice" not in str(raised.value)


def test_a_mechanism_that_is_not_offered(secured):
    # The library refuses before anything is sent where it lacks Kerberos; otherwise there is no ticket.
    with pytest.raises(AuthenticationFailed, match="GSSAPI"):
        secured.connect("SASL_PLAINTEXT", sasl_mechanism="GSSAPI")


def test_an_unknown_authority(secured):
    with pytest.raises(AuthenticationFailed, match=r"not trusted.*check ssl\.ca\.location"):
        secured.connect("SSL", ssl_ca_location=secured.other_ca)


def test_plain_text_to_a_listener_with_tls(secured):
    with pytest.raises((BrokerUnavailable, ProtocolError), match=r"security\.protocol is right for this port"):
        secured.connect("PLAINTEXT", port_of="SSL")


def test_tls_to_a_listener_without(secured):
    with pytest.raises(BrokerUnavailable, match="check that this is a listener for SSL"):
        secured.connect("SSL", port_of="PLAINTEXT")


def test_a_login_on_a_listener_without(secured):
    with pytest.raises(AuthenticationFailed, match="does not support a login; check security"):
        secured.connect("SASL_PLAINTEXT", port_of="PLAINTEXT", **PLAIN)


def test_a_file_that_is_no_certificate(secured, tmp_path):
    (tmp_path / "x.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location .*x\.pem cannot be used"):
        secured.connect("SSL", ssl_ca_location=str(tmp_path / "x.pem"))


@pytest.fixture(params=["TLSv1_2", "TLSv1_3"])
def resumed(request, monkeypatch):
    """Of each handshake with this version of TLS, whether the broker has resumed a session."""
    load_context, do_handshake = BrokerSecurity.load_context, TlsStream.do_handshake
    seen = []

    def load_limited(security):
        context = load_context(security)
        context.maximum_version = ssl.TLSVersion[request.param]
        return context

    def note(stream):
        do_handshake(stream)
        seen.append(stream.is_resumed)

    monkeypatch.setattr(BrokerSecurity, "load_context", load_limited)
    monkeypatch.setattr(TlsStream, "do_handshake", note)
    return seen


def test_a_later_connection_resumes_a_session_until_the_certificate_is_renewed(secured, resumed, tmp_path):
    # A context of its own, which knows no session of another test.
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(Path(secured.ca).read_bytes())

    def resumes():
        connection = secured.new_connection("SSL", ssl_ca_location=str(trusted))
        connection.connect()
        connection.receive(connection.send(API_VERSIONS, 0, b""))
        connection.close()
        return resumed.pop()

    assert not any(resumes() for _ in range(NETWORK_THREADS))
    assert [resumes() for _ in range(3 * NETWORK_THREADS)][NETWORK_THREADS:] == [True] * 2 * NETWORK_THREADS
    secured.renew_certificate()
    eventually(lambda: not resumes())
    eventually(resumes)
