"""Log ends that the tools cannot show, and what they say of them."""

import pytest

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.kafka.client import BrokerClient
from zkconsumer.kafka.listoffsets_protocol import Offsets
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.tools.groups import log_ends

CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="localhost:1")
BROKERS = [Broker(0, "host", 1)]
P = [TopicPartition("t", number) for number in range(12)]


@pytest.fixture
def answer(monkeypatch):
    """Let the brokers answer with offsets, or with an error."""

    def answer(given):
        def list_offsets(self, wanted):
            if isinstance(given, Exception):
                raise given
            return given

        monkeypatch.setattr(BrokerClient, "list_offsets", list_offsets)

    return answer


def test_partitions_are_left_out_for_reasons_that_are_told_once(answer):
    refused, moved = dict.fromkeys(P[4:11], 5), {P[0]: 3, P[11]: 3}
    answer(Offsets({P[1]: 7, P[2]: None, P[3]: 0}, {**moved, **refused}, dict.fromkeys(refused, "host:1 refuses us")))
    ends = log_ends(CONFIG, BROKERS, P)
    assert ends.offsets == {P[1]: 7, P[3]: 0}
    assert ends.problems == (
        "log ends of t-0, t-11 are unknown: UNKNOWN_TOPIC_OR_PARTITION (3)",
        "log ends of t-4, t-5, t-6, t-7, t-8 and 2 more are unknown: host:1 refuses us",
    )


def test_nobody_answers(answer):
    answer(BrokerUnavailable("none of 1 brokers answers"))
    assert log_ends(CONFIG, BROKERS, P) == ({}, ("log ends are unknown: none of 1 brokers answers",))


def test_nobody_is_there_to_be_asked(answer):
    answer(AssertionError())
    ((), (problem,)) = log_ends(CONFIG, [], P)
    assert "no broker is registered" in problem
    assert log_ends(CONFIG, BROKERS, []) == ({}, ())
