"""What a subscription selects from the topics that a source knows."""

import pytest

from zkconsumer.cluster.rules.clustercatalog import ClusterSnapshot
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.group.rules.subscribedtopics import read_subscribed
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.model import Broker, Topic, TopicIdentity

TOPICS = {name: Topic((0, 1), TopicIdentity(name, None)) for name in ("a", "a2", "b", "__consumer_offsets")}
BROKER = Broker(1, "localhost", 9092)


class Source:
    """Topics in memory."""

    def __init__(self, *brokers):
        self.brokers = brokers

    def read(self, topics, *, for_others=True):
        described = {name: topic for name, topic in TOPICS.items() if topics is None or name in topics}
        return ClusterSnapshot(self.brokers, described, topics)


def test_topics_are_asked_for_by_name():
    described, streams = read_subscribed(
        Source(BROKER), Subscription.static({"a": 2, "missing": 1}), exclude_internal=True
    )
    assert described == {"a": TOPICS["a"]}
    assert streams == {"a": 2, "missing": 1}


@pytest.mark.parametrize(("exclude_internal", "more"), [(True, set()), (False, {"__consumer_offsets"})])
def test_a_filter_selects_from_all_topics(exclude_internal, more):
    subscription = Subscription.by_filter(Whitelist("a.*|__.*"), 3)
    described, streams = read_subscribed(Source(BROKER), subscription, exclude_internal=exclude_internal)
    assert described == {name: TOPICS[name] for name in {"a", "a2"} | more}
    assert streams == dict.fromkeys(described, 3)


def test_unknown_topics_are_not_taken_for_missing_ones():
    with pytest.raises(BrokerUnavailable):
        read_subscribed(Source(), Subscription.static({"a": 1}), exclude_internal=True)
