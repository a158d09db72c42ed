"""SASL logins on a real ZooKeeper: accepted, refused, and refused to a member that had joined already."""

import dataclasses
from contextlib import suppress

import pytest

from tests.fixtures.members import open_member
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig
from zkconsumer.cli.connection import ToolConnection
from zkconsumer.cli.groupsource import open_groups
from zkconsumer.errors import BrokerUnavailable, ConfigError, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.sandbox import ZooKeeperServer
from zkconsumer.sandbox.pysparkjars import zookeeper_jars
from zkconsumer.zookeeper.kazooadapter import connection_loop_ended
from zkconsumer.zookeeper.session import ZkSession

pytestmark = pytest.mark.integration

_JAAS = """\
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_consumer="{password}";
}};
"""


class SaslServer(ZooKeeperServer):
    """A server that knows one user, ``consumer``; its password is read at each start."""

    password = "hunter2"

    def _command(self) -> list[str]:
        jaas = self.directory / "jaas.conf"
        jaas.write_text(_JAAS.format(password=self.password))
        command = super()._command()
        return [command[0], f"-Djava.security.auth.login.config={jaas}", *command[1:]]


class NoFetch:
    """A data plane that fetches nothing."""

    generation = 0
    needs_topics = False

    def stop(self, *, drain=True):
        pass

    def start(self, assignment):
        self.generation = assignment.generation

    def withhold(self):
        pass

    def deliver(self):
        pass

    def superseded(self):
        return ()

    def positions(self, *, handed_out):
        return {}


@pytest.fixture
def server(start_zookeeper):
    return start_zookeeper(
        SaslServer,
        properties={"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
        jars=zookeeper_jars(tls=True),  # with one provider named, the server loads them all, that of TLS too
    )


@pytest.fixture
def config(server):
    return ConsumerConfig(
        zookeeper_connect=server.address,
        group_id="g",
        consumer_id="a",
        zookeeper_session_timeout_ms=10_000,
        zookeeper_connection_timeout_ms=20_000,
        rebalance_backoff_ms=300,
        rebalance_max_retries=60,
        zookeeper_sasl_mechanism="DIGEST-MD5",
        zookeeper_sasl_username="consumer",
        zookeeper_sasl_password="hunter2",
        zookeeper_set_acl=True,
    )


def test_the_debug_log_does_not_show_the_password(config, caplog):
    caplog.set_level(1)
    session = ZkSession.from_config(config)
    session.open()
    session.close()
    assert "SASL(<hidden>)" in caplog.text
    assert not [text for text in ("hunter2", "SASL(challenge", "response=") if text in caplog.text]


def test_znodes_belong_to_who_logged_in(config):
    session = ZkSession.from_config(config)
    session.open()
    session.ensure_path("/mine", b"")
    acls = session._client.get_acls("/mine")[0]
    session.close()
    assert ("sasl", "consumer") in {(acl.id.scheme, acl.id.id) for acl in acls}


def test_a_package_that_is_missing_is_reported(config, monkeypatch):
    monkeypatch.setattr(
        "zkconsumer.zookeeper.zookeepersecurity.find_spec", lambda name: None if name == "kerberos" else name
    )
    with pytest.raises(ConfigError, match=r"needs the package kerberos: pip install 'zkconsumer\[gssapi-zookeeper\]'"):
        ZkSession.from_config(dataclasses.replace(config, zookeeper_sasl_mechanism="GSSAPI"))


@pytest.mark.parametrize(("mechanism", "extra"), [("GSSAPI", "gssapi-zookeeper"), ("DIGEST-MD5", "sasl")])
def test_the_extra_that_is_advised_has_all_packages(config, monkeypatch, mechanism, extra):
    monkeypatch.setattr("zkconsumer.zookeeper.zookeepersecurity.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=rf"pip install 'zkconsumer\[{extra}\]'"):
        ZkSession.from_config(dataclasses.replace(config, zookeeper_sasl_mechanism=mechanism))


@pytest.fixture
def wrong(config):
    return ZkSession.from_config(dataclasses.replace(config, zookeeper_sasl_password="wrong"))


def test_a_wrong_password_is_reported(wrong):
    with pytest.raises(ZooKeeperRefused, match="the login failed; check zookeeper"):
        wrong.open()


def test_a_wrong_password_is_reported_by_a_closed_connection(wrong, monkeypatch):
    """The first request comes after kazoo has failed the waiting ones: it only learns that the connection is closed."""

    def late(path, **arguments):
        eventually(lambda: connection_loop_ended(wrong._client))
        return ZkSession.exists(wrong, path, **arguments)

    monkeypatch.setattr(wrong, "exists", late)
    with pytest.raises(ZooKeeperRefused, match="the login failed; check zookeeper"):
        wrong.open()


@pytest.mark.slow
@pytest.mark.parametrize("brokers", [None, "127.0.0.1:1"], ids=["ZooKeeper alone", "both homes"])
def test_groups_are_sampled_again_after_a_login_was_refused(config, server, brokers):
    """kazoo then ends its connection loop, and `serve` and `groups watch` sample for days."""
    login = {"mechanism": "DIGEST-MD5", "username": "consumer", "password": "hunter2"}
    properties = tuple(f"zookeeper.sasl.{name}={value}" for name, value in login.items())
    named = ToolConnection(server.address, None, (*properties, "zookeeper.session.timeout.ms=4000"), brokers)
    with open_groups(named, interval=1.0) as opened:
        session = opened.session()
        server.password = "changed"
        server.restart()
        eventually(lambda: connection_loop_ended(session._client))
        server.password = "hunter2"
        server.restart()

        def is_sampled():
            with suppress(ZooKeeperUnavailable, ZooKeeperRefused, BrokerUnavailable):
                opened.source.names()
            return session.connected

        eventually(is_sampled)


@pytest.mark.slow
def test_a_member_whose_login_is_refused_logs_it_and_recovers(config, server, open_session, caplog):
    """kazoo then ends its connection loop; without a restart the member would never recover."""
    operator = open_session(server.address)
    operator.ensure_path("/brokers/ids/0", b'{"host":"127.0.0.1","port":1}')
    operator.ensure_path("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0]}}')
    operator.close()
    config = dataclasses.replace(config, zookeeper_session_timeout_ms=4000)  # its lease has to lapse
    fetch = NoFetch()
    member = open_member(config, fetch)
    member.join(Subscription.static({"t": 1}))
    try:
        server.password = "changed"
        server.restart()
        eventually(lambda: caplog.text.count("the login was refused") >= 2)
        eventually(lambda: not member.may_deliver())
        generation = fetch.generation
        server.password = "hunter2"
        server.restart()
        eventually(lambda: fetch.generation > generation)
        eventually(member.may_deliver)  # not before it was answered in the new session
        assert list(member.ownership()) == [TopicPartition("t", 0)]
        member.commit({TopicPartition("t", 0): 5})
    finally:
        member.leave()
