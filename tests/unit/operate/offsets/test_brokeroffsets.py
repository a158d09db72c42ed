"""What brokers report of offsets, and of what they do not answer."""

import socket
from contextlib import closing

import pytest

from tests.fixtures.kafka import MetadataRequest
from tests.fixtures.stubbroker import EPOCH_VERSIONS, running_stub_broker
from zkconsumer.cluster.brokercatalog import UNLISTED
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, CoordinatorMoved, ZkConsumerError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.offsets.brokeroffsets import BrokerOffsets, BrokersAnswer, Logs, offsets_answer
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.wire.errorcodes import ErrorCode
from zkconsumer.wire.listoffsetsmessages import Offsets

CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")
P = [TopicPartition("t", number) for number in range(12)]
TOO_LONG = TopicPartition("t" * 40_000, 0)


@pytest.fixture
def stub():
    with running_stub_broker() as running:
        yield running


@pytest.fixture
def dead_broker():
    """A broker whose port refuses connections: it is taken, but nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield Broker(0, "127.0.0.1", taken.getsockname()[1])


def asked(question, *brokers):
    """The answer to one question: brokers are not asked again about topics that they deny."""
    with closing(BrokerOffsets(CONFIG, lambda: brokers, displays=True)) as offsets:
        return question(offsets)


def test_each_reason_for_a_missing_offset_is_given_once():
    refused, moved = dict.fromkeys(P[4:11], 5), {P[0]: 3, P[11]: 3}
    causes = dict.fromkeys(refused, "host:1 refuses us")
    answer = offsets_answer(Offsets({P[1]: 7, P[2]: None}, {**moved, **refused}, causes), "log ends")
    assert answer.found == {P[1]: 7, P[2]: None}
    assert answer.problems == (
        "log ends of t-0, t-11 are unknown: UNKNOWN_TOPIC_OR_PARTITION (3)",
        "log ends of t-4, t-5, t-6, t-7, t-8 and 2 more are unknown: host:1 refuses us",
    )


def test_a_leader_is_asked_once_for_log_starts_and_once_for_log_ends(stub):
    requests = []
    stub.asked = requests.append
    stub.log(P[0]).end, stub.log(P[1]).end = 7, 0
    logs = asked(lambda offsets: offsets.logs(P[:2]), stub.broker).required()
    assert logs.ranges() == {P[0]: LogRange(0, 7), P[1]: LogRange(0, 0)}
    assert requests == [{P[0], P[1]}] * 2
    assert asked(lambda offsets: offsets.logs(P[:1], with_starts=False), stub.broker).found == Logs({}, {P[0]: 7})


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_log_ends_after_an_open_transaction(stub, isolation):
    stub.versions = EPOCH_VERSIONS
    stub.log(P[0]).stable, stub.log(P[0]).end = 100, 150
    with closing(BrokerOffsets(CONFIG.replace(isolation_level=isolation), lambda: [stub.broker])) as offsets:
        assert offsets.logs(P[:1]).required().ranges() == {P[0]: LogRange(0, 150)}


@pytest.mark.parametrize("is_dead", [True, False])
def test_silence_of_all_brokers_is_reported_and_raised_where_an_answer_is_required(dead_broker, is_dead):
    answer = asked(lambda offsets: offsets.logs(P), *[dead_broker] if is_dead else ())
    assert (answer.found.starts, answer.found.ends) == ({}, {})
    why = "none of 1 brokers answers" if is_dead else "no broker is registered"
    ends, starts = answer.problems
    assert ends.startswith(f"log ends are unknown: {why}")
    assert starts.startswith(f"log starts are unknown: {why}")
    with pytest.raises(BrokerUnavailable, match=why):
        answer.required()


def test_a_topic_that_no_request_can_name_costs_only_itself(stub):
    stub.log(P[0]).end = 7
    answer = asked(lambda offsets: offsets.logs([P[0], TOO_LONG]), stub.broker)
    assert answer.found.ranges() == {P[0]: LogRange(0, 7)}
    assert len(answer.problems) == 2
    with pytest.raises(ZkConsumerError, match="Kafka has no topics with such names"):
        answer.required()


def test_nothing_is_asked_about_no_partitions(dead_broker):
    for question in (
        lambda offsets: offsets.logs([]),
        lambda offsets: offsets.existing([]),
        lambda offsets: offsets.committed({"g": []})["g"],
    ):
        assert asked(question, dead_broker).problems == ()


def test_partitions_exist_of_topics_that_brokers_describe(stub):
    stub.log(P[1]).end = 7
    assert P[1] in asked(lambda offsets: offsets.existing(["t", TOO_LONG.topic]), stub.broker).required().partitions


def test_the_question_which_topics_exist_creates_none(stub):
    """Brokers before 0.11 create a topic that is asked for by name."""
    stub.log(P[1]).end, stub.versions[MetadataRequest.API_KEY] = 7, 1
    stub.log(TopicPartition("secret", 0)).end = 1
    stub.topic_errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # brokers 0.9 list it, too
    found = asked(lambda offsets: offsets.existing(["t", "deleted"]), stub.broker).found
    assert found == ({P[1]}, {"deleted": UNLISTED}), "it may be hidden from this client"
    assert stub.described == [None]


def test_brokers_before_2_8_are_not_asked_by_name_for_the_topic_of_offsets(stub):
    """They would create it."""
    stub.versions[MetadataRequest.API_KEY] = 7
    assert not asked(lambda offsets: offsets.has_offsets_topic(), stub.broker)
    assert stub.described == [None]
    stub.versions[MetadataRequest.API_KEY] = 10
    assert not asked(lambda offsets: offsets.has_offsets_topic(), stub.broker)
    assert stub.described == [None, frozenset({"__consumer_offsets"})]


def test_a_silent_broker_may_have_groups(stub, dead_broker):
    """Before 2.8 a client that may not describe the topic of offsets learns only from the groups that it exists."""
    stub.versions[MetadataRequest.API_KEY] = 7
    stub.elsewhere[P[0]] = dead_broker._replace(id=7)
    stub.log(P[0]).end = 1
    with pytest.raises(BrokerUnavailable):
        asked(lambda offsets: offsets.has_offsets_topic(), stub.broker)


def test_offsets_of_groups_come_with_the_metadata_of_their_commits(stub):
    stub.coordinator, stub.committed[P[0]] = stub.broker, 8
    found = asked(lambda offsets: offsets.committed({"g": P[:2], "h": []}), stub.broker)
    assert found == {"g": BrokersAnswer({P[0]: StoredOffset(8, "")}), "h": BrokersAnswer({})}


def test_a_group_without_a_coordinator_is_unknown(stub):
    with closing(BrokerOffsets(CONFIG, lambda: [stub.broker], coordinator_attempts=1)) as offsets:
        answer = offsets.committed({"g": P[:1]})["g"]
    assert (answer.found, isinstance(answer.error, CoordinatorMoved)) == ({}, True)
    assert answer.problems[0].startswith(
        "offsets in Kafka are unknown, those shown of g are ZooKeeper's: the group has"
    )


def test_a_coordinator_is_asked_for_again_when_its_host_refuses_connections(stub):
    attempts = []

    def question(group, _):
        attempts.append(group)
        if len(attempts) == 1:
            raise BrokerUnavailable("host:1 refuses us") from ConnectionRefusedError()
        if group == "silent":
            raise BrokerUnavailable("host:1 is silent") from TimeoutError()
        return 8

    answers, unknown = asked(lambda offsets: offsets.ask_coordinators(["g", "silent"], question), stub.broker)
    assert (answers, attempts) == ({"g": 8}, ["g", "silent", "g"])
    assert unknown.keys() == {"silent"}


@pytest.mark.parametrize("group", ["g" * 40_000, "\ud800"])
def test_a_group_whose_name_no_request_can_carry_has_no_offsets(dead_broker, group):
    assert asked(lambda offsets: offsets.committed({group: P}), dead_broker)[group] == BrokersAnswer({})
