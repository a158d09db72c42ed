"""Transport to a server with TLS that asks for a client's certificate; this one's words are OpenSSL's, not Java's."""

import contextlib
import socket
import ssl
import threading

import pytest

from tests.fix_certificates import Authority
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable
from zkconsumer.kafka.security import BrokerSecurity
from zkconsumer.kafka.transport import Transport

HOST = "127.0.0.1"
TLS = {"tls1.2": ssl.TLSVersion.TLSv1_2, "tls1.3": ssl.TLSVersion.TLSv1_3}


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "ca")


@pytest.fixture(params=TLS)
def port(request, authority):
    """Of a server that sends one byte to whoever shows a certificate of the authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.location)
    context.load_cert_chain(authority.broker_properties(HOST)["ssl.keystore.location"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = context.maximum_version = TLS[request.param]
    with socket.create_server((HOST, 0)) as listener:

        def serve():
            with contextlib.suppress(OSError), context.wrap_socket(listener.accept()[0], server_side=True) as sock:
                sock.sendall(b"x")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def read_a_byte(port, authority, **settings):
    config = ConsumerConfig(
        group_id="g",
        zookeeper_connect="unused:1",
        security_protocol="SSL",
        ssl_ca_location=authority.location,
        **settings,
    )
    security = BrokerSecurity.from_config(config)
    transport = Transport(HOST, port, timeout_ms=10_000, receive_buffer_bytes=0, security=security)
    try:
        transport.connect()
        received = memoryview(bytearray(1))
        transport.fill(received)
        return bytes(received)
    finally:
        transport.close()


@pytest.mark.parametrize("password", [None, "it's secret"])
def test_with_a_certificate(port, authority, password):
    assert read_a_byte(port, authority, **authority.client_settings("client", password)) == b"x"


def test_without_a_certificate(port, authority):
    # To a server with OpenSSL and TLS 1.2 it is a failure that may have other reasons, too.
    with pytest.raises(BrokerUnavailable, match=r"asks for a client's certificate \(.*ssl\.certificate\.location"):
        read_a_byte(port, authority)


def test_with_a_certificate_of_somebody_else(port, authority, tmp_path):
    settings = Authority(tmp_path, "other").client_settings("client")
    with pytest.raises(
        AuthenticationFailed, match=r"does not accept .*other-client\.pem \(unknown ca\); check that the"
    ):
        read_a_byte(port, authority, **settings)
