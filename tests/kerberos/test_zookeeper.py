"""Login to a real ZooKeeper by Kerberos."""

import pytest

from tests.fixtures.kerberos import NAME, REALM, KerberizedZooKeeper
from zkconsumer import ConsumerConfig
from zkconsumer.errors import ZooKeeperRefused
from zkconsumer.sandbox.pysparkjars import zookeeper_jars
from zkconsumer.zookeeper.session import ZkSession

pytestmark = [pytest.mark.usefixtures("ticket_cache"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(realm, tmp_path_factory):
    directory = tmp_path_factory.mktemp("zookeeper")
    made = KerberizedZooKeeper(
        directory,
        properties={"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
        jars=zookeeper_jars(tls=True),  # with one provider configured, the server loads all of them, including TLS
    )
    made.jvm_options = realm.server_options(directory, "Server", "zookeeper")
    made.start()
    yield made
    made.kill()


@pytest.fixture
def session(server):
    config = ConsumerConfig(
        zookeeper_connect=f"{NAME}:{server.port}",
        group_id="g",
        zookeeper_session_timeout_ms=10_000,
        zookeeper_connection_timeout_ms=60_000,
        zookeeper_sasl_mechanism="GSSAPI",
        zookeeper_set_acl=True,
    )
    made = ZkSession.from_config(config)
    yield made
    made.close()


def owners(session, path):
    session.ensure_path(path, b"")
    return {(acl.id.scheme, acl.id.id) for acl in session._client.get_acls(path)[0]}


@pytest.mark.usefixtures("ticket")
def test_znodes_belong_to_the_ticket_s_principal(session):
    session.open()
    assert ("sasl", f"alice@{REALM}") in owners(session, "/by-ticket")


def test_a_keytab_needs_no_kinit(session, alice, monkeypatch):
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(alice))
    session.open()
    assert ("sasl", f"alice@{REALM}") in owners(session, "/by-keytab")


def test_no_ticket(session):
    with pytest.raises(ZooKeeperRefused, match=r"the login failed; check.*for GSSAPI the ticket"):
        session.open()
