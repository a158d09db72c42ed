"""Connections that a real broker ends: idle ones, those whose login has expired, and all of them when it ends."""

import contextlib
import threading
import time

import pytest

from tests.fixtures.sandbox import PATIENT, Topics, keep_logs, produce_records
from tests.fixtures.secured import LOGINS, PLAIN, Secured, add_scram_user
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConnector
from zkconsumer.errors import RetriableError
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.ports import HOST
from zkconsumer.wire.transport import Transport

pytestmark = [pytest.mark.integration, pytest.mark.slow]

METADATA = 3
IDLE_MS, LIFETIME_MS = 2000, 5000
REAUTHENTICATION = "connections.max.reauth.ms"
LONGER_S = 7.0


@contextlib.contextmanager
def secured_broker(request, tmp_path_factory, version, **limits):
    made = Secured(tmp_path_factory.mktemp("certificates"), **limits)
    patience = {**PATIENT, "kafka_properties": made.properties}
    with Sandbox(kafka_version=version, brokers=0, **patience) as box:
        box.add_brokers(port=made.ports["PLAINTEXT"])
        add_scram_user(f"{HOST}:{made.ports['PLAINTEXT']}")
        made.sandbox = box
        yield made
        keep_logs(box, request, tmp_path_factory)


@pytest.fixture(scope="module", params=["3.9.1", "4.2.0"])
def expiring(request, tmp_path_factory):
    """Without the other limit: a busy machine may not use a connection for so long."""
    with secured_broker(request, tmp_path_factory, request.param, **{REAUTHENTICATION: str(LIFETIME_MS)}) as made:
        yield made


@pytest.fixture(scope="module")
def ending(request, tmp_path_factory):
    limits = {"connections.max.idle.ms": str(IDLE_MS), REAUTHENTICATION: str(LIFETIME_MS)}
    limits["zookeeper.session.timeout.ms"] = "6000"  # a killed broker can return only after that
    with secured_broker(request, tmp_path_factory, "3.9.1", **limits) as made:
        yield made


def ask(connection):
    assert connection.receive(connection.send(METADATA, 1, b"\0\0\0\0"))


def test_a_login_is_renewed_on_the_same_connection(expiring):
    """Of every mechanism; a connection cannot be used any more once it is closed."""
    with contextlib.ExitStack() as closing:
        connections = []
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
            for login in LOGINS:
                connections.append(expiring.new_connection(protocol, **login))
                closing.callback(connections[-1].close)
                connections[-1].connect()
        end = time.monotonic() + 2.5 * LIFETIME_MS / 1000
        while time.monotonic() < end:
            for connection in connections:
                ask(connection)
            time.sleep(0.1)  # the broker accepts a renewal once in a second


class Consumer:
    """A stream of a group through one listener, and what was produced for it."""

    def __init__(self, secured, protocol, topic, **config):
        self.servers = f"{HOST}:{secured.ports['PLAINTEXT']}"
        self.topic = Topics(self.servers).create(topic)
        self.produced = 0
        login = PLAIN if protocol.startswith("SASL") else {}
        self.connector = ConsumerConnector(
            secured.config(
                protocol,
                group_id=topic,
                auto_offset_reset="smallest",
                consumer_timeout_ms=120_000,
                auto_commit_interval_ms=500,
                **{**secured.connection(protocol), **login, **config},
            )
        )
        (self.stream,) = self.connector.create_message_streams({self.topic: 1})[self.topic]

    def produce(self, count, pause_s=0.0):
        for _ in range(count):
            produce_records(self.servers, self.topic, [b"%d" % self.produced])
            self.produced += 1
            time.sleep(pause_s)

    def read(self, missing=frozenset()):
        """Read until all of them have come."""
        missing = set(missing)
        while missing:
            missing.discard(int(next(self.stream).value))

    def commit(self):
        def committed():
            with contextlib.suppress(RetriableError):
                self.connector.commit_offsets()
                return True

        eventually(committed)


def test_a_consumer_keeps_its_connections_while_logins_are_renewed(expiring, unique_name, monkeypatch):
    """Those for fetches too, whose requests are sent ahead."""
    connect, connects = Transport.connect, []
    monkeypatch.setattr(Transport, "connect", lambda transport: (connects.append(transport), connect(transport)))
    protocol = "SASL_PLAINTEXT"
    servers = {"bootstrap_servers": f"{HOST}:{expiring.ports[protocol]}"}
    consumer = Consumer(expiring, protocol, unique_name, group_protocol="kafka", heartbeat_interval_ms=500, **servers)
    with consumer.connector:
        consumer.produce(1)
        consumer.read({0})
        consumer.commit()
        before = len(connects)
        end = time.monotonic() + 2.5 * LIFETIME_MS / 1000
        while time.monotonic() < end:
            begin = consumer.produced
            consumer.produce(1, 0.2)
            consumer.read(range(begin, consumer.produced))
        consumer.commit()
        assert len(connects) == before


@pytest.mark.parametrize(
    ("protocol", "config"),
    [
        ("SSL", {"offsets_storage": "kafka"}),
        ("SASL_SSL", {"group_protocol": "kafka"}),
    ],
    ids=["group in ZooKeeper", "group of brokers"],
)
def test_a_consumer_continues_whatever_ends_its_connections(ending, unique_name, protocol, config):
    if "group_protocol" in config:
        config = {**config, "bootstrap_servers": f"{HOST}:{ending.ports[protocol]}"}
    consumer = Consumer(ending, protocol, unique_name, **config)
    (broker,) = ending.sandbox.brokers
    with consumer.connector:

        def exchange(while_producing=lambda: None):
            begin = consumer.produced
            producing = threading.Thread(target=consumer.produce, args=[15, 0.1])
            producing.start()
            while_producing()
            producing.join()
            consumer.read(range(begin, consumer.produced))
            consumer.commit()

        exchange()
        time.sleep(LONGER_S)  # than either limit; fetch requests are sent, commits are not
        exchange()
        for end in (broker.stop, broker.kill):
            end()  # while nothing flows
            broker.start()
            exchange()
            exchange(lambda end=end: (time.sleep(0.5), end(), broker.start()))
