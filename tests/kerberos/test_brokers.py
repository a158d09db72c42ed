"""Login to real brokers by Kerberos: with a ticket, with a keytab, and the possible errors of both."""

import contextlib

import pytest

from tests.fixtures.fetch import Reader
from tests.fixtures.kerberos import NAME, KerberizedBroker, KerberizedKRaftBroker
from tests.fixtures.sandbox import Topics, produce_records
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.errors import AuthenticationFailed
from zkconsumer.model import Broker
from zkconsumer.sandbox import JarSource, ZooKeeperServer
from zkconsumer.sandbox.lockfile import read_lock
from zkconsumer.sandbox.ports import HOST, free_port
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.connection import BrokerConnection

# Brokers before 2.0 ask a class for the realm that Java no longer exports.
SHOW_REALM = "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED"
IN_ZOOKEEPER = {"zookeeper.set.acl": "false", "zookeeper.session.timeout.ms": "60000"}
GSSAPI = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
FRAMED, BARE = "3.9.1", "0.10.2.2"  # how the tokens travel, see sasl.py
WITHOUT_ZOOKEEPER = "4.2.0"

pytestmark = [pytest.mark.usefixtures("ticket_cache"), pytest.mark.timeout(600)]


class Kerberized:
    """A broker with a listener for Kerberos, and one without login."""

    def __init__(self, realm, directory, version):
        self.port = free_port()
        self.zookeeper = ZooKeeperServer(directory, max_session_timeout_ms=60_000)
        plain = free_port()
        listeners = f"PLAINTEXT://{HOST}:{plain},SASL_PLAINTEXT://{NAME}:{self.port}"
        self.is_in_zookeeper = version != WITHOUT_ZOOKEEPER
        make = KerberizedBroker if self.is_in_zookeeper else KerberizedKRaftBroker
        self.broker = make(
            directory,
            self.zookeeper,
            JarSource.from_environment().provide(read_lock(f"kafka-{version}"), Progress()),
            kafka_version=version,
            port=plain,
            properties={
                "listeners": listeners,
                "advertised.listeners": listeners,
                "sasl.enabled.mechanisms": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                **(IN_ZOOKEEPER if self.is_in_zookeeper else {"broker.session.timeout.ms": "60000"}),
            },
        )
        self.broker.jvm_options = [
            *realm.server_options(directory, "KafkaServer", "kafka"),
            "-Dzookeeper.sasl.client=false",
            SHOW_REALM,
        ]

    def start(self):
        self.zookeeper.start()
        self.broker.start()

    def stop(self):
        self.broker.kill()
        self.zookeeper.kill()

    def config(self, **more):
        found = {"zookeeper_connect": self.zookeeper.address}
        if not self.is_in_zookeeper:
            found["bootstrap_servers"] = f"{NAME}:{self.port}"
        return ConsumerConfig(
            **{
                **found,
                "group_id": "g",
                "auto_offset_reset": "smallest",
                "consumer_timeout_ms": 100_000,
                "socket_timeout_ms": 60_000,
                "zookeeper_session_timeout_ms": 60_000,
                "zookeeper_connection_timeout_ms": 60_000,
                **GSSAPI,
                **more,
            }
        )

    def log_in(self, **more):
        connection = BrokerConnection.from_config(Broker(0, NAME, self.port), self.config(**more))
        try:
            connection.connect()
            connection.receive(connection.send(3, 0, b"\0\0\0\0"))  # Metadata
        finally:
            connection.close()


@pytest.fixture(scope="module", params=[FRAMED, BARE, WITHOUT_ZOOKEEPER])
def kerberized(request, realm, tmp_path_factory):
    made = Kerberized(realm, tmp_path_factory.mktemp("kerberized"), request.param)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_a_consumer_with_a_ticket_reads(kerberized, ticket, unique_name):
    servers = kerberized.broker.address
    topic = Topics(servers).create(unique_name, partitions=2)
    values = [b"%d " % number * 500 for number in range(2000)]
    produce_records(servers, topic, [{"value": value, "partition": int(value[:1]) % 2} for value in values])
    with ConsumerConnector(kerberized.config(group_id=unique_name)) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        assert sorted(next(stream).value for _ in values) == sorted(values)


def test_a_keytab_needs_no_kinit(kerberized, alice, monkeypatch):
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(alice))
    kerberized.log_in()


def test_a_keytab_outlives_its_tickets(kerberized, realm, alice, ticket_cache, tmp_path, monkeypatch):
    config = tmp_path / "krb5.conf"
    config.write_text(realm.config.read_text().replace("[libdefaults]", "[libdefaults]\nticket_lifetime = 10s"))
    monkeypatch.setenv("KRB5_CONFIG", str(config))
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(alice))

    def has_a_valid_ticket_after_login():
        kerberized.log_in()
        return realm.is_valid(ticket_cache)  # unless the machine stood still for its 10 s

    eventually(has_a_valid_ticket_after_login)
    eventually(lambda: not realm.is_valid(ticket_cache))
    eventually(has_a_valid_ticket_after_login)


def test_no_ticket(kerberized):
    with pytest.raises(AuthenticationFailed, match=r"No Kerberos credentials.*check with klist.*kinit and KRB5CCNAME"):
        kerberized.log_in()


def test_a_stream_reports_a_missing_ticket_and_continues_with_one(kerberized, realm, alice, ticket_cache, unique_name):
    servers = kerberized.broker.address
    topic = Topics(servers).create(unique_name)
    produce_records(servers, topic, [b"at last"])
    with contextlib.closing(Reader(f"{NAME}:{kerberized.port}", **GSSAPI, consumer_timeout_ms=100_000)) as reader:
        reader.start({(topic, 0): 0})
        with pytest.raises(AuthenticationFailed, match="No Kerberos credentials"):
            next(reader.streams[0])
        realm.kinit("alice", alice, ticket_cache)
        read = []

        def succeeds():
            with contextlib.suppress(AuthenticationFailed):
                read.append(next(reader.streams[0]).value)
            return read

        eventually(succeeds)
    assert read == [b"at last"]


def test_an_expired_ticket_is_refused_and_a_new_one_accepted(kerberized, realm, alice, ticket_cache):
    def log_in_with_a_short_ticket():
        realm.kinit("alice", alice, ticket_cache, lifetime_s=10)
        with contextlib.suppress(AuthenticationFailed):  # the machine stood still for these 10 s
            kerberized.log_in()
            return True
        return False

    eventually(log_in_with_a_short_ticket)
    refusals = []

    def refused():
        try:
            kerberized.log_in()
        except AuthenticationFailed as error:
            refusals.append(str(error))
        return refusals

    eventually(refused)
    assert "xpired" in refusals[0]
    realm.kinit("alice", alice, ticket_cache)
    kerberized.log_in()


def test_a_service_unknown_to_the_realm_is_refused(kerberized, ticket):
    with pytest.raises(AuthenticationFailed, match=r"not found.*nobody/localhost \(sasl\.kerberos\.service\.name"):
        kerberized.log_in(sasl_kerberos_service_name="nobody")


def test_a_service_that_is_not_the_brokers(kerberized, realm, ticket):
    realm.keytab(f"other/{NAME}")
    with pytest.raises(AuthenticationFailed, match=r"other/localhost \(sasl\.kerberos\.service\.name"):
        kerberized.log_in(sasl_kerberos_service_name="other")


def test_a_realm_whose_kdc_does_not_answer(kerberized, realm, ticket, tmp_path, monkeypatch):
    config = tmp_path / "krb5.conf"
    config.write_text(realm.config.read_text().replace(str(realm.port), str(free_port())))
    monkeypatch.setenv("KRB5_CONFIG", str(config))
    with pytest.raises(AuthenticationFailed, match=r"Cannot contact any KDC.*krb5\.conf \(KRB5_CONFIG"):
        kerberized.log_in()
