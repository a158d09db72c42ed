"""BrokerClient.list_offsets with brokers that lead, move, die and refuse: which it asks, and the other errors."""

import itertools
import operator
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import pytest

from tests.fixtures.kafka import ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    CoordinatorMoved,
    ProtocolError,
    RebalanceAwaited,
    ZkConsumerError,
)
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.process.deadline import Deadline
from zkconsumer.wire import brokercontacts
from zkconsumer.wire.brokerclient import LATEST, BrokerClient
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.listoffsetsmessages import Offsets

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
REFUSED = 29  # TOPIC_AUTHORIZATION_FAILED: not the fault of a leader


@dataclass
class Cluster:
    """Three brokers at ports 1 to 3; a test sets their partitions and errors.

    Attributes:
        leads: number of the leader of each partition that exists.
        claimed: leaders in metadata that differ from the actual ones.
        down: brokers that cannot be reached, and the error.
        codes: error codes with which the leaders of partitions answer.
        elsewhere: error code with which other brokers answer.
        asked: the requests in their order: "metadata", or the number of the broker and the partitions.
        live: brokers that are registered.
        epochs: epochs of the leaders in metadata, where it is not 0.
        incarnations: how often a topic was created, where it is not 1: its id.
        later: epochs of leaders that metadata do not have yet.
        connected: broker of every connection that was opened.
        named: leader epochs in each request for offsets.
        isolations: number of the isolation level in each request for offsets.
    """

    leads: dict[TopicPartition, int] = field(default_factory=dict)
    claimed: dict[TopicPartition, int] = field(default_factory=dict)
    down: dict[int, ZkConsumerError] = field(default_factory=dict)
    codes: dict[TopicPartition, int] = field(default_factory=dict)
    elsewhere: int = ErrorCode.NOT_LEADER_OR_FOLLOWER
    asked: list[object] = field(default_factory=list)
    live: tuple[int, ...] = (1, 2, 3)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    incarnations: dict[str, int] = field(default_factory=dict)
    connected: list[int] = field(default_factory=list)
    later: dict[TopicPartition, int] = field(default_factory=dict)
    named: list[dict[TopicPartition, int]] = field(default_factory=list)
    isolations: list[int] = field(default_factory=list)
    generation: int = 0

    def hang_up(self):
        """Break all open connections."""
        self.generation += 1

    def brokers(self):
        """The brokers registered in ZooKeeper."""
        return [Broker(number, "host", number) for number in self.live]

    def questions(self):
        """The requests since the last call; those to leaders, which are asked together, by their numbers."""
        questions, self.asked = self.asked, []
        rounds = [number for number, question in enumerate(questions) if question == "metadata"]
        for begin, end in itertools.pairwise([-1, *rounds, len(questions)]):
            questions[begin + 1 : end] = sorted(questions[begin + 1 : end], key=operator.itemgetter(0))
        return questions

    def answer(self, port, key, version, body):
        """The body of the response of the broker at a port."""
        if key == MetadataRequest.API_KEY:
            request = MetadataRequest.decode(body, version=version)
            return bytes(self._metadata(version, [topic.name for topic in request.topics]).encode())
        request = ListOffsetsRequest.decode(body, version=version)
        return bytes(self._list_offsets(port, version, request).encode())

    def _metadata(self, version, names):
        self.asked.append("metadata")
        make = MetadataResponse.MetadataResponseTopic
        known = {**self.leads, **self.claimed}
        topics = []
        for name in names:
            partitions = [
                make.MetadataResponsePartition(
                    error_code=0 if number else ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=p.partition,
                    leader_id=number or -1,
                    leader_epoch=self.epochs.get(p, 0),
                    replica_nodes=[],
                    isr_nodes=[],
                    offline_replicas=[],
                )
                for p, number in known.items()
                if p.topic == name
            ]
            exists = any(name == p.topic for p in self.leads)
            code = 0 if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(
                make(
                    error_code=code,
                    name=name,
                    topic_id=UUID(int=self.incarnations.get(name, 1)),
                    is_internal=False,
                    partitions=partitions,
                )
            )
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=number, host="host", port=number, rack=None)
            for number in (1, 2, 3)
        ]
        return MetadataResponse(
            version=version, throttle_time_ms=0, brokers=brokers, cluster_id=None, controller_id=1, topics=topics
        )

    def _list_offsets(self, port, version, request):
        wanted = [TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions]
        self.asked.append((port, set(wanted)))
        self.named.append(
            {
                TopicPartition(t.name, p.partition_index): p.current_leader_epoch
                for t in request.topics
                for p in t.partitions
            }
        )
        self.isolations.append(request.isolation_level)
        make = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = {}
        for tp in wanted:
            code = self.codes.get(tp, 0) if self.leads.get(tp) == port else self.elsewhere
            if 0 <= self.named[-1][tp] < self.later.get(tp, 0):
                code = ErrorCode.FENCED_LEADER_EPOCH
            topics.setdefault(tp.topic, []).append(
                make.ListOffsetsPartitionResponse(
                    partition_index=tp.partition,
                    error_code=code,
                    timestamp=-1,
                    offset=-1 if code else 100 * port + tp.partition,
                    leader_epoch=self.later.get(tp, -1),
                )
            )
        answers = [make(name=name, partitions=partitions) for name, partitions in topics.items()]
        return ListOffsetsResponse(version=version, throttle_time_ms=0, topics=answers)


class Connection:
    """To one broker of a cluster; requests and responses are bytes, as on a socket."""

    def __init__(self, cluster, host, port, **settings):
        self.cluster = cluster
        self.port = port
        self.generation = None

    def connect(self):
        self.cluster.connected.append(self.port)
        self.generation = self.cluster.generation
        self.require_up()

    def require_up(self):
        if self.port in self.cluster.down:
            raise self.cluster.down[self.port]
        if self.generation != self.cluster.generation:
            raise BrokerUnavailable("connection closed") from ConnectionResetError()

    def version(self, key, name, oldest, newest):
        return newest

    def exchange(self, key, version, body, decode, flexible=False):
        self.require_up()
        return decode(memoryview(self.cluster.answer(self.port, key, version, body)))

    def within(self, deadline):
        return nullcontext()

    def close(self):
        self.generation = None


@pytest.fixture
def cluster():
    return Cluster({A0: 1, A1: 2, B0: 1})


@pytest.fixture
def ask(cluster):
    connection = partial(Connection, cluster)
    client = BrokerClient(cluster.brokers, client_id="test", timeout_ms=1000, connection=connection)

    def ask(*partitions):
        return client.list_offsets(dict.fromkeys(partitions, LATEST))

    ask.client = client
    return ask


def test_requests_to_any_broker_open_two_connections(cluster, ask):
    for _ in range(6):
        ask.client.metadata({"a"})
    assert len(cluster.connected) == len(set(cluster.connected)) == 2


def test_leaders_are_requested_once(cluster, ask):
    for questions in (["metadata", (1, {A0}), (2, {A1})], [(1, {A0}), (2, {A1})]):
        assert ask(A0, A1) == Offsets({A0: 100, A1: 201})
        assert cluster.questions() == questions
    assert ask() == Offsets()
    assert cluster.questions() == []


@pytest.mark.parametrize(("level", "number"), [("read_uncommitted", 0), ("read_committed", 1)])
def test_log_ends_are_those_of_the_isolation_level(cluster, level, number):
    class Client(BrokerClient):
        def __init__(self, live_brokers, **settings):
            super().__init__(live_brokers, connection=partial(Connection, cluster), **settings)

    config = ConsumerConfig(zookeeper_connect="unused:1", group_id="g", isolation_level=level)
    Client.from_config(cluster.brokers, config).list_offsets({A0: LATEST})
    assert cluster.isolations == [number]


def test_an_unknown_leader_is_requested(cluster, ask):
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
    assert cluster.questions() == [(2, {A1}), (3, {A0})], "and is cached"


def test_a_topic_that_is_deleted_and_created_again(cluster, ask):
    ask(A0, A1)
    cluster.elsewhere = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.leads = {B0: 1}
    for _ in range(2):
        assert ask(A0, A1).errors == dict.fromkeys((A0, A1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.leads |= {A0: 2, A1: 1}
    assert ask(A0, A1) == Offsets({A0: 200, A1: 101})


def test_a_forgotten_leader_is_requested_again(cluster, ask):
    ask(A0, A1)
    cluster.questions()
    ask.client.forget_leaders([A0, B0])
    assert ask(A0, A1) == Offsets({A0: 100, A1: 201})
    assert cluster.questions() == [(2, {A1}), "metadata", (1, {A0})]


def test_outdated_metadata_are_used_for_one_more_request(cluster, ask):
    ask(A0)
    cluster.questions()
    cluster.leads[A0], cluster.claimed = 3, {A0: 1}
    assert ask(A0).errors == {A0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert cluster.questions() == [(1, {A0}), "metadata", (1, {A0})]
    cluster.claimed = {}
    assert ask(A0).found == {A0: 300}


def test_a_partition_loses_its_leader_and_gets_one(cluster, ask):
    ask(A0, A1)
    cluster.leads[A0] = 0
    answer = ask(A0, A1)
    assert (answer.found, answer.errors) == ({A1: 201}, {A0: ErrorCode.LEADER_NOT_AVAILABLE})
    cluster.leads[A0] = 2
    assert ask(A0, A1) == Offsets({A0: 200, A1: 201})


def test_an_error_unrelated_to_leaders_is_not_requested_again(cluster, ask):
    ask(A0, A1)
    cluster.questions()
    cluster.codes, cluster.leads[A1] = {A0: REFUSED}, 3
    for questions in ([(1, {A0}), (2, {A1}), "metadata", (3, {A1})], [(1, {A0}), (3, {A1})]):
        answer = ask(A0, A1)
        assert (answer.found, answer.errors) == ({A1: 301}, {A0: REFUSED})
        assert cluster.questions() == questions


def test_after_a_broken_connection_the_leader_is_requested_again(cluster, ask):
    ask(A0)
    cluster.questions()
    cluster.hang_up()
    assert ask(A0) == Offsets({A0: 100})
    assert cluster.questions() == ["metadata", (1, {A0})]


def test_a_malformed_answer_is_requested_again_and_then_an_error(cluster, ask):
    ask(A0, A1)
    cluster.down[2] = ProtocolError("announced a response of a gigabyte")
    cluster.live = (1,)
    with pytest.raises(ProtocolError, match="gigabyte"):
        ask(A0, A1)
    cluster.leads[A1] = 3
    assert ask(A0, A1) == Offsets({A0: 100, A1: 301})


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_dead_leader_is_named_and_tried_once_per_request(cluster, ask, asked_before):
    if asked_before:
        ask(A0, A1)
    refused = cluster.down[1] = BrokerUnavailable("broker host:1: connection refused; check that it runs")
    refused.__cause__ = ConnectionRefusedError()
    cluster.live = (2, 3)
    cluster.connected.clear()
    answer = ask(A0, A1, B0)
    assert answer.found == {A1: 201}
    assert answer.errors == dict.fromkeys((A0, B0), ErrorCode.LEADER_NOT_AVAILABLE)
    assert answer.reasons() == {"broker host:1: connection refused; check that it runs": [A0, B0]}
    assert cluster.connected.count(1) == 1
    cluster.leads |= {A0: 2, B0: 3}
    assert ask(A0, A1, B0) == Offsets({A0: 200, A1: 201, B0: 300}), "its partitions got other leaders"


def test_a_leader_that_just_died_is_replaced_in_the_same_call(cluster, ask):
    ask(A0, A1)
    cluster.down[1] = BrokerUnavailable("gone")
    cluster.leads[A0] = 3
    assert ask(A0, A1) == Offsets({A0: 300, A1: 201})


def test_leaders_are_asked_at_the_same_time(cluster):
    class Meeting(Connection):
        all_of_them = threading.Barrier(3)

        def exchange(self, key, version, body, decode, flexible=False):
            if key == ListOffsetsRequest.API_KEY:
                self.all_of_them.wait(10)
            return super().exchange(key, version, body, decode, flexible)

    cluster.leads = {A0: 1, A1: 2, B0: 3}
    client = BrokerClient(cluster.brokers, client_id="test", timeout_ms=1000, connection=partial(Meeting, cluster))
    for _ in range(2):
        assert client.list_offsets(dict.fromkeys((A0, A1, B0), LATEST)) == Offsets({A0: 100, A1: 201, B0: 300})


def test_an_interrupt_ends_the_questions_to_other_leaders_and_their_connections(cluster):
    """Otherwise the next question would receive the answer to this one, or two threads would ask one broker."""
    answering, interrupted = threading.Event(), []

    class Interrupted(Connection):
        def __init__(self, *arguments, **settings):
            super().__init__(*arguments, **settings)
            self.closed = threading.Event()

        def close(self):
            super().close()
            self.closed.set()

        def exchange(self, key, version, body, decode, flexible=False):
            if key == ListOffsetsRequest.API_KEY and not interrupted:
                if self.port == 1:
                    assert answering.wait(10)
                    interrupted.append(True)
                    raise KeyboardInterrupt
                answering.set()
                assert self.closed.wait(10)
                raise BrokerUnavailable("closed by this process")
            return super().exchange(key, version, body, decode, flexible)

    client = BrokerClient(
        cluster.brokers, client_id="test", timeout_ms=60_000, connection=partial(Interrupted, cluster)
    )
    wanted = dict.fromkeys((A0, A1), LATEST)
    with pytest.raises(KeyboardInterrupt):
        client.list_offsets(wanted)
    assert "leader-question" not in {thread.name for thread in threading.enumerate()}
    cluster.connected.clear()
    assert client.list_offsets(wanted) == Offsets({A0: 100, A1: 201})
    assert {1, 2} <= set(cluster.connected)


def test_an_interrupted_question_to_a_connected_leader_ends_its_connection(cluster, ask, monkeypatch):
    def interrupt(*_arguments, **_settings):
        raise KeyboardInterrupt

    ask(A0)
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "exchange", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ask(A0)
    cluster.connected.clear()
    assert ask(A0) == Offsets({A0: 100})
    assert 1 in cluster.connected


class Waiting(Connection):
    """To a broker that does not answer requests for offsets while it is in :attr:`silent`."""

    silent: frozenset[int] = frozenset()
    limit_s = 30.0

    def within(self, deadline):
        self.limit_s = deadline.limit(30)
        return nullcontext()

    def exchange(self, key, version, body, decode, flexible=False):
        if key == ListOffsetsRequest.API_KEY and self.port in self.silent:
            self.cluster.asked.append((self.port, None))
            time.sleep(self.limit_s)
            raise BrokerUnavailable(f"broker {self.port}: no answer in time")
        return super().exchange(key, version, body, decode, flexible)


@pytest.mark.parametrize("asked_before", [True, False])
def test_leaders_that_do_not_answer_cost_one_timeout_together(cluster, asked_before):
    class Some(Waiting):
        pass

    cluster.leads = {A0: 1, A1: 2, B0: 3}
    client = BrokerClient(cluster.brokers, client_id="test", timeout_ms=400, connection=partial(Some, cluster))
    wanted = dict.fromkeys((A0, A1, B0), LATEST)
    if asked_before:
        client.list_offsets(wanted)
    Some.silent = frozenset({1, 2})
    cluster.questions()
    began = time.monotonic()
    answer = client.list_offsets(wanted)
    assert time.monotonic() - began < 0.75
    assert answer.found == {B0: 300}
    assert answer.reasons() == {"broker 1: no answer in time": [A0], "broker 2: no answer in time": [A1]}
    assert cluster.questions().count((1, None)) == 1, "it is asked once"
    cluster.leads[A0] = 3
    assert client.list_offsets({A0: LATEST}) == Offsets({A0: 300})


def test_the_refusal_of_a_leader_is_among_the_reasons(cluster, ask):
    cluster.down[2] = AuthenticationFailed("broker host:2: it requires a client certificate")
    answer = ask(A0, A1)
    assert answer.found == {A0: 100}
    assert answer.reasons() == {"broker host:2: it requires a client certificate": [A1]}


def test_no_broker_answers(cluster, ask):
    ask(A0)
    cluster.down = dict.fromkeys((1, 2, 3), BrokerUnavailable("gone"))
    with pytest.raises(BrokerUnavailable, match="none of 3 brokers answers"):
        ask(A0)
    cluster.down = {}
    assert ask(A0) == Offsets({A0: 100})


class Clock:
    """Seconds that pass while a broker is silent."""

    now = 0.0

    def __call__(self):
        return self.now


class SilentConnection(Connection):
    """To a broker that is asked and does not answer for so long."""

    seconds = 10.0

    def require_up(self):
        self.cluster.clock.now += self.deadline.limit(self.seconds)
        raise BrokerUnavailable("no answer in time")

    def within(self, deadline):
        self.deadline = deadline
        return nullcontext()


@pytest.mark.parametrize(("seconds", "asked", "text"), [(25, 3, "answers; last"), (15, 2, "answers in time; last")])
def test_no_broker_is_asked_after_the_deadline_of_an_operation(cluster, seconds, asked, text):
    cluster.clock = Clock()
    connection = partial(SilentConnection, cluster)
    client = BrokerClient(cluster.brokers, client_id="test", timeout_ms=1000, connection=connection)
    with pytest.raises(BrokerUnavailable, match=f"none of 3 brokers {text} error: no answer in time"):
        client.ask_any(Connection.require_up, Deadline.after(seconds, cluster.clock))
    assert len(cluster.connected) == asked
    assert cluster.clock.now == seconds
    with pytest.raises(BrokerUnavailable, match="broker host:1: not asked, since no time is left"):
        client.ask(cluster.brokers()[0], Connection.require_up, Deadline.after(0, cluster.clock))


@pytest.mark.parametrize(("seconds", "connected"), [(9, 0), (11, 1)])
def test_a_broken_connection_is_replaced_before_the_deadline_only(cluster, ask, seconds, connected):
    clock = Clock()
    broker = cluster.brokers()[0]
    ask.client.ask(broker, Connection.require_up)
    cluster.connected.clear()
    deadline = Deadline.after(seconds, clock)

    def question(connection):
        clock.now += deadline.limit(10)
        connection.require_up()

    cluster.hang_up()
    cluster.down = {1: BrokerUnavailable("gone")}
    with pytest.raises(BrokerUnavailable):
        ask.client.ask(broker, question, deadline)
    assert len(cluster.connected) == connected


def test_a_closed_client_sends_no_request(cluster, ask):
    ask(A0)
    ask.client.close()
    cluster.hang_up()
    with pytest.raises(BrokerUnavailable, match="closed"):
        ask(A0)


def test_metadata_are_always_requested(cluster, ask):
    ask(A0)
    cluster.leads[TopicPartition("a", 2)] = 3
    assert ask.client.metadata(["a"]).leaders.keys() == {A0, A1, ("a", 2)}


def test_a_leader_of_an_earlier_epoch_is_no_leader(cluster, ask):
    cluster.epochs = {A0: 5, A1: 5}
    assert ask.client.metadata(["a"]).epochs == {A0: 5, A1: 5}
    cluster.epochs[A0] = 4
    outdated = ask.client.metadata(["a"])
    assert outdated.leaders.keys() == {A1}
    assert outdated.leaderless == {A0: ErrorCode.UNKNOWN_LEADER_EPOCH}
    cluster.incarnations["a"] = 2
    assert ask.client.metadata(["a"]).epochs == {A0: 4, A1: 5}


def test_offsets_are_requested_of_the_known_leader_epochs(cluster, ask):
    cluster.epochs = {A0: 5}
    ask(A0, B0)
    ask(A0, B0)
    assert cluster.named == [{A0: 5, B0: 0}, {A0: 5, B0: 0}]


def test_offsets_of_a_later_leader_epoch_than_known_are_new(cluster, ask):
    """Metadata may be outdated for some time (KAFKA-9212); the answer has the leader's epoch."""
    cluster.epochs = {A0: 5}
    cluster.later = {A0: 6}
    answer = ask(A0, A1)
    assert (answer.found, answer.errors, answer.epochs) == ({A0: 100, A1: 201}, {}, {A0: 6})


@pytest.mark.parametrize("connected_before", [True, False])
def test_an_interrupted_request_ends_its_connection(cluster, ask, connected_before):
    """Otherwise the next request would receive the answer to this one."""
    broker = cluster.brokers()[0]

    def interrupt(_):
        raise KeyboardInterrupt

    if connected_before:
        ask.client.ask(broker, lambda connection: connection.require_up())
    with pytest.raises(KeyboardInterrupt):
        ask.client.ask(broker, interrupt)
    ask.client.ask(broker, lambda connection: connection.require_up())
    assert cluster.connected == [1, 1]


@pytest.mark.parametrize("connected_before", [True, False])
@pytest.mark.parametrize("refusal", [RebalanceAwaited("rebalancing"), CoordinatorMoved("not here")])
def test_a_refusal_keeps_the_connection(cluster, ask, refusal, connected_before):
    broker = cluster.brokers()[0]

    def refuse(connection):
        connection.require_up()
        raise refusal

    if connected_before:
        ask.client.ask(broker, lambda connection: connection.require_up())
    for _ in range(3):
        with pytest.raises(type(refusal)):
            ask.client.ask(broker, refuse)
    assert cluster.connected == [1]


@pytest.mark.parametrize("failure", [BrokerUnavailable("it hung up"), ProtocolError("malformed")])
def test_a_connection_that_fails_at_its_first_request_is_replaced(cluster, ask, failure):
    broker = cluster.brokers()[0]

    def fail(connection):
        raise failure

    with pytest.raises(type(failure)):
        ask.client.ask(broker, fail)
    ask.client.ask(broker, lambda connection: connection.require_up())
    assert cluster.connected == [1, 1]


def test_a_broker_that_was_silent_is_asked_after_the_others_for_a_while(cluster, ask, monkeypatch):
    """Requests that any broker answers alternate between two, so each second one waited for its timeout."""
    cluster.down = dict.fromkeys((1, 2), BrokerUnavailable("no answer in time"))
    for _ in range(6):
        ask.client.begin_round()
        ask.client.metadata(["a"])
    assert cluster.connected.count(1) + cluster.connected.count(2) <= 2
    assert len(cluster.questions()) == 6
    cluster.down, cluster.connected = {}, []
    monkeypatch.setattr(brokercontacts, "_SILENCE_S", 0.0)
    for _ in range(2):
        ask.client.metadata(["a"])
    assert {1, 2}.intersection(cluster.connected)
