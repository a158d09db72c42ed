"""How many connections and requests a member needs at a real broker, and what a quota does to them."""

import contextlib
import time
from collections import Counter

import pytest

from tests.fixtures.consumers import FIRST_OF_BROKER, IN_BROKER_GROUP, consumers, owned, parts
from tests.fixtures.quotas import set_quota
from tests.fixtures.sandbox import PATIENT, Topics, produce_records, values
from tests.fixtures.waiting import eventually
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.apiversions import API_VERSIONS, FETCH, METADATA
from zkconsumer.wire.connection import BrokerConnection
from zkconsumer.wire.transport import Transport

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

FIND_COORDINATOR, JOIN_GROUP = 10, 11
IN_ZOOKEEPER = {"offsets_storage": "kafka", "dual_commit_enabled": False, **FIRST_OF_BROKER}
QUOTA = 100_000.0
ABOVE_QUOTA = 24


class Wire:
    """What this process does at brokers.

    Attributes:
        connects: attempts to connect.
        asked: API of each request.
        muted: how often an answer had a throttle time that has to be heeded.
    """

    def __init__(self, monkeypatch):
        self.connects, self.asked, self.muted, self._made = 0, [], 0, set()
        connect, send, throttled = Transport.connect, BrokerConnection.send, BrokerConnection.throttled

        def counted_connect(transport):
            self.connects += 1
            self._made.add(transport)
            connect(transport)

        def counted_send(connection, api_key, *arguments, **keywords):
            self.asked.append(api_key)
            return send(connection, api_key, *arguments, **keywords)

        def counted_throttled(connection, *arguments):
            throttled(connection, *arguments)
            self.muted += connection.muted

        monkeypatch.setattr(Transport, "connect", counted_connect)
        monkeypatch.setattr(BrokerConnection, "send", counted_send)
        monkeypatch.setattr(BrokerConnection, "throttled", counted_throttled)

    @property
    def open(self):
        """Number of open connections."""
        return sum(transport._socket is not None for transport in self._made)

    def open_by_broker(self):
        """Number of open connections to each port that has any."""
        return Counter(transport.port for transport in self._made if transport._socket is not None)

    def requests(self):
        """Those since the last call."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def wire(monkeypatch):
    return Wire(monkeypatch)


@pytest.fixture(scope="module")
def three_brokers():
    with Sandbox(brokers=3, progress=Progress(), **PATIENT) as box:
        yield box


@pytest.mark.parametrize("config", [IN_BROKER_GROUP, IN_ZOOKEEPER], ids=["kafka", "zookeeper"])
def test_a_member_has_one_connection_for_fetches_and_one_for_all_else(sandbox, wire, unique_name, topics, config):
    topic = topics.create(unique_name, 2)
    where = {"bootstrap.servers": sandbox.bootstrap_servers, **sandbox.connection}
    if config is IN_BROKER_GROUP:
        where.pop("zookeeper.connect", None)
    with consumers(where, unique_name, consumer_timeout_ms=60_000, **config) as make:
        member = make()
        (stream,) = member.create_message_streams({topic: 1})[topic]
        for start in (0, 20):
            produce_records(sandbox.bootstrap_servers, topic, values(20, start=start))
            assert len({next(stream).value for _ in range(20)}) == 20
            member.commit_offsets()
        eventually(lambda: wire.open == 2)
        asked = wire.requests()
        assert asked.count(API_VERSIONS) <= 2, "one at most for each connection"


@pytest.mark.slow
@pytest.mark.parametrize("config", [IN_BROKER_GROUP, IN_ZOOKEEPER], ids=["kafka", "zookeeper"])
def test_a_member_has_at_most_two_connections_to_each_of_three_brokers(three_brokers, wire, unique_name, config):
    servers = three_brokers.bootstrap_servers
    topic = Topics(servers).create(unique_name, 6)
    where = {"bootstrap.servers": servers, **three_brokers.connection}
    if config is IN_BROKER_GROUP:
        where.pop("zookeeper.connect", None)
    with consumers(where, unique_name, consumer_timeout_ms=60_000, **config) as make:
        member = make()
        (stream,) = member.create_message_streams({topic: 1})[topic]
        for start in (0, 60):
            produce_records(
                servers, topic, [{"value": value, "partition": int(value) % 6} for value in values(60, start=start)]
            )
            assert len({next(stream).value for _ in range(60)}) == 60
            member.commit_offsets()
        brokers = {broker.port for broker in three_brokers.brokers}
        # One for fetches to each, and one for all else to those that were asked.
        eventually(lambda: wire.open_by_broker().keys() == brokers and max(wire.open_by_broker().values()) == 2)


def test_a_rebalance_repeats_no_question(sandbox, wire, unique_name, topics):
    """A member that keeps its partitions asks nothing but to join, and to be given its part."""
    topic = topics.create(unique_name, 2)
    where = {"bootstrap.servers": sandbox.bootstrap_servers}
    with consumers(where, unique_name, **IN_BROKER_GROUP | {"metadata_max_age_ms": 300_000}) as make:
        first, second = make(), make()
        for member in (first, second):
            member.create_message_streams({topic: 1})
        eventually(lambda: (len(owned(first)), len(owned(second))) == (1, 1))
        time.sleep(1)  # what follows a rebalance
        wire.requests()
        second.shutdown()
        eventually(lambda: owned(first) == parts(topic, 0, 1))
        time.sleep(1)
        asked = wire.requests()
    assert API_VERSIONS not in asked
    assert FIND_COORDINATOR not in asked
    joins = asked.count(JOIN_GROUP)
    assert asked.count(METADATA) <= 2 * joins, "as the leader, and since the topic may have been created again"


@pytest.mark.slow
def test_a_throttled_consumer_waits_and_loses_nothing(sandbox, wire, unique_name, topics):
    topic = topics.create(unique_name)
    records = [b"%d " % number + b"x" * 49_000 for number in range(ABOVE_QUOTA)]
    # In batches of their own: a broker never sends a batch that alone exceeds the quota.
    produce_records(sandbox.bootstrap_servers, topic, records, batch_num_messages=1)
    entity = {"client-id": unique_name}
    set_quota(sandbox.bootstrap_servers, entity, QUOTA)
    with contextlib.ExitStack() as ending:
        ending.callback(set_quota, sandbox.bootstrap_servers, entity, None)
        make = ending.enter_context(
            consumers(
                {"bootstrap.servers": sandbox.bootstrap_servers},
                unique_name,
                client_id=unique_name,
                consumer_timeout_ms=120_000,
                fetch_message_max_bytes=100_000,
                fetch_max_bytes=200_000,
                **IN_BROKER_GROUP,
            )
        )
        (stream,) = make().create_message_streams({topic: 1})[topic]
        assert [next(stream).value for _ in records[:1]] == records[:1]
        before = wire.connects
        assert [next(stream).value for _ in records[1:]] == records[1:]
        assert wire.muted > 0
        assert wire.connects == before
        assert FETCH in wire.requests()
