"""Which brokers are known to answer, after any kind of question."""

import socket
from contextlib import closing

import pytest

from tests.fixtures.stubbroker import running_stub_broker
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, ConfigError, NoCommonVersion, ProtocolError, TopicUnreadable
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.operate.offsets.askedbrokers import AskedBrokers
from zkconsumer.operate.offsets.brokeroffsets import BrokerOffsets

CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")
P0 = TopicPartition("t", 0)


@pytest.fixture
def stub():
    with running_stub_broker() as running:
        yield running


def asking(*brokers):
    return closing(AskedBrokers.from_config(lambda: brokers, CONFIG, timeout_ms=5000))


def outcomes(client):
    return [(one.id, one.answers, one.reason) for one in client.answers()]


def closing_connection(_):
    raise ConnectionAbortedError


def test_a_leader_is_listed_as_long_as_it_is_asked_or_silent():
    brokers = []
    with closing(BrokerOffsets(CONFIG, lambda: brokers, timeout_ms=5000)) as offsets:
        with running_stub_broker() as stub:
            brokers.append(stub.broker)
            stub.log(P0).end = 7
            assert offsets.logs([P0]).found.ends == {P0: 7}
            assert outcomes(offsets.client) == [(stub.broker.id, True, "")]
            offsets.begin_round()
            assert outcomes(offsets.client) == []
            assert offsets.logs([P0]).found.ends == {P0: 7}
            assert outcomes(offsets.client) == [(stub.broker.id, True, "")]
        stub.asked = closing_connection
        offsets.begin_round()
        assert offsets.logs([P0]).found.ends == {}
        ((number, answers, reason),) = outcomes(offsets.client)
        assert (number, answers, f"{stub.broker.host}:{stub.broker.port}" in reason) == (stub.broker.id, False, True)
        offsets.begin_round()
        assert outcomes(offsets.client) == [(stub.broker.id, None, reason)]


def test_a_broker_that_is_named_by_its_address_gets_its_id_with_the_first_question_to_a_leader(stub):
    named = stub.broker._replace(id=-1)
    stub.log(P0).end = 7
    with asking(named) as client:
        client.ask_any(lambda connection: connection.host)
        assert outcomes(client) == [(None, True, "")]
        client.list_offsets({P0: -1})
        assert outcomes(client) == [(stub.broker.id, True, "")]


def test_a_port_that_refuses_connections():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with asking(Broker(3, "127.0.0.1", taken.getsockname()[1])) as client:
            with pytest.raises(BrokerUnavailable):
                client.ask_any(lambda connection: connection.host)
            ((number, answers, reason),) = outcomes(client)
    assert (number, answers, "refused" in reason) == (3, False, True)


@pytest.mark.parametrize(
    ("error", "answers"),
    [
        (BrokerUnavailable("no answer in time"), False),
        (ProtocolError("LOADING"), True),
        (NoCommonVersion("too old"), True),
        (TopicUnreadable("refused", "t"), True),
    ],
)
def test_what_counts_as_an_answer(stub, error, answers):
    def question(_connection):
        raise error

    with asking(stub.broker) as client:
        with pytest.raises(type(error)):
            client.ask(stub.broker, question)
        assert [one.answers for one in client.answers()] == [answers]


def test_a_broker_that_is_not_asked_has_not_answered(stub):
    """A file of the settings cannot be read when the connection is to be made."""

    def question(_connection):
        raise ConfigError(["no such file"])

    with asking(stub.broker) as client:
        with pytest.raises(ConfigError):
            client.ask(stub.broker, question)
        assert client.answers() == ()
