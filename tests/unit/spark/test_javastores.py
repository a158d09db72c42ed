"""Stores that Java's keytool has written, as PEM files that OpenSSL loads."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.certificates import Authority
from zkconsumer.errors import ConfigError
from zkconsumer.spark.javastores import with_pem_files
from zkconsumer.spark.rules.options import SourceOptions, parse_options
from zkconsumer.wire.brokersecurity import BrokerSecurity

PASSWORD = "hunter2"

pytestmark = pytest.mark.skipif(shutil.which("keytool") is None, reason="needs keytool")


def keytool(*arguments):
    subprocess.run(["keytool", *arguments], check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module", params=["JKS", "PKCS12"])
def stores(request, authority, tmp_path_factory):
    """A trust store and a key store of one type."""
    pytest.importorskip("jks" if request.param == "JKS" else "cryptography")
    directory = tmp_path_factory.mktemp(request.param)
    trust, pkcs12, key = (str(directory / name) for name in ("trust", "pkcs12", "key"))
    store = ("-storetype", request.param, "-storepass", PASSWORD, "-noprompt")
    keytool("-importcert", "-file", authority.location, "-alias", "ca", "-keystore", trust, *store)
    settings = authority.client_settings("alice")
    files = ["-in", settings["ssl_certificate_location"], "-inkey", settings["ssl_key_location"]]
    openssl = ["openssl", "pkcs12", "-export", *files, "-out", pkcs12, "-passout", f"pass:{PASSWORD}", "-name", "alice"]
    subprocess.run(openssl, check=True, capture_output=True, timeout=60)
    to = ("-destkeystore", key, "-deststoretype", request.param, "-deststorepass", PASSWORD, "-noprompt")
    keytool("-importkeystore", "-srckeystore", pkcs12, "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD, *to)
    return trust, key


def options(trust: str | None, key: str | None, password: str | None = PASSWORD) -> SourceOptions:
    given = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": trust,
        "kafka.ssl.keystore.location": key,
        "kafka.ssl.truststore.password": password,
        "kafka.ssl.keystore.password": password,
    }
    given |= {"zookeeper.connect": "h:1", "group.id": "g", "subscribe": "t"}
    return parse_options({name: value for name, value in given.items() if value is not None})


def test_a_broker_and_a_client_trust_each_other(authority, stores):
    config = with_pem_files(options(*stores)).config
    client = BrokerSecurity.from_config(config).load_context()
    server = authority.server_context("localhost")
    server.load_verify_locations(authority.location)
    server.verify_mode = ssl.CERT_REQUIRED
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done = set()
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                pass
    assert len(done) == 2
    assert "alice.example" in str(ends[1].getpeercert())


def test_a_process_writes_the_files_once_and_the_key_encrypted(stores):
    config = with_pem_files(options(*stores)).config
    assert with_pem_files(options(*stores)).config == config
    pem = Path(config.ssl_certificate_location)
    assert "BEGIN ENCRYPTED PRIVATE KEY" in pem.read_text()
    assert PASSWORD not in (config.ssl_key_password, repr(config))
    assert pem.parent.stat().st_mode & 0o777 == 0o700


def test_without_stores_the_options_are_unchanged():
    plain = options(None, None)
    assert with_pem_files(plain) is plain


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_key_store_that_cannot_be_opened_is_named_with_what_converts_it(stores, password):
    with pytest.raises(ConfigError, match=r"ssl.keystore.location \S+ cannot be read: .*openssl pkcs12 -in client.p12"):
        with_pem_files(options(None, stores[1], password))


def test_a_trust_store_that_cannot_be_opened_is_named_with_what_converts_it(stores, tmp_path):
    with pytest.raises(ConfigError, match=r"No such file .*keytool -list -rfc -keystore /no/such > ca.pem"):
        with_pem_files(options("/no/such", None))
    (tmp_path / "text").write_text("no store")
    with pytest.raises(
        ConfigError, match=r"ssl.truststore.location \S+text cannot be read: .*Check kafka.ssl.truststore.p"
    ):
        with_pem_files(options(str(tmp_path / "text"), None))
