"""BrokerClient.list_offsets among brokers that lead, move, die and refuse: whom it asks, what it says of the rest."""

from dataclasses import dataclass, field

import pytest

from zkconsumer.errors import AuthenticationFailed, BrokerUnavailable, ProtocolError, ZkConsumerError
from zkconsumer.kafka import client as module
from zkconsumer.kafka.client import LATEST, BrokerClient
from zkconsumer.kafka.errorcodes import ErrorCode
from zkconsumer.kafka.listoffsets_protocol import Offsets
from zkconsumer.kafka.metadata_protocol import Metadata
from zkconsumer.model import Broker, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
REFUSED = 29  # TOPIC_AUTHORIZATION_FAILED: no leader's fault


@dataclass
class Cluster:
    """Three brokers behind ports 1 to 3; a test says who leads what, and what is wrong.

    Attributes:
        leads: number of the leader of each partition that exists.
        told: what metadata say of leaders, where that is not the truth.
        down: brokers that cannot be reached, and the error.
        codes: error codes with which the leaders of partitions answer.
        elsewhere: error code with which other brokers answer.
        asked: the questions in their order: "metadata", or the number of the broker and the partitions.
        live: brokers that are registered.
        connected: broker of every connection that was opened.
    """

    leads: dict[TopicPartition, int] = field(default_factory=dict)
    told: dict[TopicPartition, int] = field(default_factory=dict)
    down: dict[int, ZkConsumerError] = field(default_factory=dict)
    codes: dict[TopicPartition, int] = field(default_factory=dict)
    elsewhere: int = ErrorCode.NOT_LEADER_OR_FOLLOWER
    asked: list[object] = field(default_factory=list)
    live: tuple[int, ...] = (1, 2, 3)
    connected: list[int] = field(default_factory=list)
    generation: int = 0

    def hang_up(self):
        """Break all connections that there are."""
        self.generation += 1

    def brokers(self):
        """Those that ZooKeeper has."""
        return [Broker(number, "host", number) for number in self.live]

    def questions(self):
        """Those since the last call."""
        questions, self.asked = self.asked, []
        return questions

    def fetch_metadata(self, connection, topics):
        connection.require_up()
        self.asked.append("metadata")
        brokers = {number: Broker(number, "host", number) for number in (1, 2, 3)}
        known = {p: number for p, number in {**self.leads, **self.told}.items() if p.topic in topics}
        return Metadata(
            brokers,
            None,
            {p: brokers[number] for p, number in known.items() if number},
            {p: ErrorCode.LEADER_NOT_AVAILABLE for p, number in known.items() if not number},
            {t: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for t in topics if all(t != p.topic for p in self.leads)},
        )

    def list_offsets(self, connection, wanted, *, isolation):
        connection.require_up()
        self.asked.append((connection.port, set(wanted)))
        offsets = Offsets()
        for partition in wanted:
            leads = self.leads.get(partition) == connection.port
            if code := self.codes.get(partition, 0) if leads else self.elsewhere:
                offsets.errors[partition] = code
            else:
                offsets.found[partition] = 100 * connection.port + partition.partition
        return offsets


@pytest.fixture
def cluster(monkeypatch):
    cluster = Cluster({A0: 1, A1: 2, B0: 1})

    class Connection:
        def __init__(self, host, port, **settings):
            self.port = port
            self.generation = None

        def connect(self):
            cluster.connected.append(self.port)
            self.generation = cluster.generation
            self.require_up()

        def require_up(self):
            if self.port in cluster.down:
                raise cluster.down[self.port]
            if self.generation != cluster.generation:
                raise BrokerUnavailable("hung up")

        def close(self):
            self.generation = None

    monkeypatch.setattr(module, "BrokerConnection", Connection)
    monkeypatch.setattr(module, "fetch_metadata", cluster.fetch_metadata)
    monkeypatch.setattr(module, "list_offsets", cluster.list_offsets)
    return cluster


@pytest.fixture
def ask(cluster):
    client = BrokerClient(cluster.brokers, client_id="test", timeout_ms=1000)

    def ask(*partitions):
        return client.list_offsets(dict.fromkeys(partitions, LATEST))

    ask.client = client
    return ask


def test_questions_to_any_broker_open_two_connections(cluster, ask):
    for _ in range(6):
        ask.client.metadata({"a"})
    assert len(cluster.connected) == len(set(cluster.connected)) == 2


def test_leaders_are_asked_for_once(cluster, ask):
    for questions in (["metadata", (1, {A0}), (2, {A1})], [(1, {A0}), (2, {A1})]):
        assert ask(A0, A1) == Offsets({A0: 100, A1: 201})
        assert cluster.questions() == questions
    assert ask() == Offsets()
    assert cluster.questions() == []


def test_a_leader_that_is_not_known_is_asked_for(cluster, ask):
    ask(A0)
    cluster.questions()
    assert ask(A0, B0) == Offsets({A0: 100, B0: 100})
    assert cluster.questions() == [(1, {A0}), "metadata", (1, {B0})]
    cluster.leads[TopicPartition("a", 2)] = 3
    assert ask(A0, TopicPartition("a", 2)).found == {A0: 100, ("a", 2): 302}, "a topic that grew"


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_a_leader_that_moved_is_followed_in_the_same_call(cluster, ask, code):
    ask(A0, A1, B0)
    cluster.questions()
    cluster.leads[A0], cluster.elsewhere = 3, code
    assert ask(A0, A1, B0) == Offsets({A0: 300, A1: 201, B0: 100})
    assert cluster.questions() == [(1, {A0, B0}), (2, {A1}), "metadata", (3, {A0})]
    assert ask(A0, A1) == Offsets({A0: 300, A1: 201})
    assert cluster.questions() == [(3, {A0}), (2, {A1})], "and is remembered"


def test_a_topic_that_is_deleted_and_created_anew(cluster, ask):
    ask(A0, A1)
    cluster.elsewhere = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.leads = {B0: 1}
    for _ in range(2):
        assert ask(A0, A1).errors == dict.fromkeys((A0, A1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.leads |= {A0: 2, A1: 1}
    assert ask(A0, A1) == Offsets({A0: 200, A1: 101})


def test_a_leader_that_is_forgotten_is_asked_for_again(cluster, ask):
    ask(A0, A1)
    cluster.questions()
    ask.client.forget_leaders([A0, B0])
    assert ask(A0, A1) == Offsets({A0: 100, A1: 201})
    assert cluster.questions() == [(2, {A1}), "metadata", (1, {A0})]


def test_metadata_that_lag_behind_are_believed_for_one_more_question(cluster, ask):
    ask(A0)
    cluster.questions()
    cluster.leads[A0], cluster.told = 3, {A0: 1}
    assert ask(A0).errors == {A0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert cluster.questions() == [(1, {A0}), "metadata", (1, {A0})]
    cluster.told = {}
    assert ask(A0).found == {A0: 300}


def test_a_partition_loses_its_leader_and_gets_one(cluster, ask):
    ask(A0, A1)
    cluster.leads[A0] = 0
    answer = ask(A0, A1)
    assert (answer.found, answer.errors) == ({A1: 201}, {A0: ErrorCode.LEADER_NOT_AVAILABLE})
    cluster.leads[A0] = 2
    assert ask(A0, A1) == Offsets({A0: 200, A1: 201})


def test_what_is_no_leaders_fault_is_not_asked_again(cluster, ask):
    ask(A0, A1)
    cluster.questions()
    cluster.codes, cluster.leads[A1] = {A0: REFUSED}, 3
    for questions in ([(1, {A0}), (2, {A1}), "metadata", (3, {A1})], [(1, {A0}), (3, {A1})]):
        answer = ask(A0, A1)
        assert (answer.found, answer.errors) == ({A1: 301}, {A0: REFUSED})
        assert cluster.questions() == questions


def test_behind_a_connection_that_broke_somebody_else_may_lead(cluster, ask):
    ask(A0)
    cluster.questions()
    cluster.hang_up()
    assert ask(A0) == Offsets({A0: 100})
    assert cluster.questions() == ["metadata", (1, {A0})]


def test_an_answer_that_makes_no_sense_is_asked_for_again_and_then_is_an_error(cluster, ask):
    ask(A0, A1)
    cluster.down[2] = ProtocolError("announces a response of a gigabyte")
    cluster.live = (1,)
    with pytest.raises(ProtocolError, match="gigabyte"):
        ask(A0, A1)
    cluster.leads[A1] = 3
    assert ask(A0, A1) == Offsets({A0: 100, A1: 301})


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_leader_that_died_is_named_and_tried_once_for_each_question(cluster, ask, asked_before):
    if asked_before:
        ask(A0, A1)
    cluster.down[1] = BrokerUnavailable("broker host:1: connection refused; check that it runs")
    cluster.live = (2, 3)
    cluster.connected.clear()
    answer = ask(A0, A1, B0)
    assert answer.found == {A1: 201}
    assert answer.errors == dict.fromkeys((A0, B0), ErrorCode.LEADER_NOT_AVAILABLE)
    assert answer.reasons() == {"broker host:1: connection refused; check that it runs": [A0, B0]}
    assert cluster.connected.count(1) == 1
    cluster.leads |= {A0: 2, B0: 3}
    assert ask(A0, A1, B0) == Offsets({A0: 200, A1: 201, B0: 300}), "its partitions got other leaders"


def test_a_leader_that_died_just_now_is_replaced_in_the_same_call(cluster, ask):
    ask(A0, A1)
    cluster.down[1] = BrokerUnavailable("gone")
    cluster.leads[A0] = 3
    assert ask(A0, A1) == Offsets({A0: 300, A1: 201})


def test_a_leader_that_refuses_us_is_told_as_such(cluster, ask):
    cluster.down[2] = AuthenticationFailed("broker host:2: it asks for a client's certificate")
    answer = ask(A0, A1)
    assert answer.found == {A0: 100}
    assert answer.reasons() == {"broker host:2: it asks for a client's certificate": [A1]}


def test_nobody_answers(cluster, ask):
    ask(A0)
    cluster.down = dict.fromkeys((1, 2, 3), BrokerUnavailable("gone"))
    with pytest.raises(BrokerUnavailable, match="none of 3 brokers answers"):
        ask(A0)
    cluster.down = {}
    assert ask(A0) == Offsets({A0: 100})


def test_a_closed_client_asks_nobody(cluster, ask):
    ask(A0)
    ask.client.close()
    cluster.hang_up()
    with pytest.raises(BrokerUnavailable, match="closed"):
        ask(A0)


def test_metadata_are_always_asked_for(cluster, ask):
    ask(A0)
    cluster.leads[TopicPartition("a", 2)] = 3
    assert ask.client.metadata(["a"]).leaders.keys() == {A0, A1, ("a", 2)}


@pytest.mark.parametrize("connected_before", [True, False])
def test_an_interrupted_question_ends_its_connection(cluster, ask, connected_before):
    """Else the next question would receive the answer to this one."""
    broker = cluster.brokers()[0]

    def interrupt(_):
        raise KeyboardInterrupt

    if connected_before:
        ask.client.ask(broker, lambda connection: connection.require_up())
    with pytest.raises(KeyboardInterrupt):
        ask.client.ask(broker, interrupt)
    ask.client.ask(broker, lambda connection: connection.require_up())
    assert cluster.connected == [1, 1]
