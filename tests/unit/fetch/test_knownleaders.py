"""KnownLeaders: which leaders are used without another question."""

from zkconsumer.fetch.knownleaders import KnownLeaders
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.wire.metadatamessages import Metadata

ONE, TWO = Broker(1, "one", 9092), Broker(2, "two", 9092)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def described(leaders):
    return Metadata({}, None, leaders, {}, {}, {}, dict.fromkeys(leaders, 5), None)


def test_only_brokers_that_are_being_fetched_from_count():
    """A fetcher would wait for a broker that has gone."""
    known = KnownLeaders(60.0)
    known.learn(described({T0: ONE, T1: TWO}))
    assert {p: (one.broker, one.epoch) for p, one in known.find([T0, T1, T2], {ONE}).items()} == {T0: (ONE, 5)}


def test_what_was_refused_or_is_old_is_not_used():
    now = [0.0]
    known = KnownLeaders(60.0, lambda: now[0])
    known.learn(described({T0: ONE, T1: ONE}))
    known.forget([T0])
    assert known.find([T0, T1], {ONE}).keys() == {T1}
    now[0] = 60.0
    assert not known.find([T1], {ONE})
