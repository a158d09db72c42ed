"""Groups that brokers list."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable, NoCommonVersion, ProtocolError
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.operate.groups.brokergroups import BrokerGroups, ObservedBrokerGroup, describe_group
from zkconsumer.operate.groups.observedgroup import may_exist
from zkconsumer.operate.offsets.brokeroffsets import BrokersAnswer, ExistingTopics, Logs, why_undescribed
from zkconsumer.wire.rules.describedgroup import DescribedGroup, DescribedMember

BROKERS = {number: Broker(number, "127.0.0.1", 1) for number in (1, 2)}


class Client:
    """Brokers that list groups of consumers; one without a list is silent."""

    def __init__(self):
        self.listed, self.brokers, self.leaderless = {}, dict(BROKERS), {}

    def begin_round(self):
        pass

    def close(self):
        pass

    def metadata(self, _):
        return SimpleNamespace(brokers=self.brokers, leaderless=self.leaderless)

    def ask(self, broker, _):
        if isinstance(self.listed.get(broker.id), Exception):
            raise self.listed[broker.id]
        if broker.id not in self.listed:
            raise BrokerUnavailable("silent")
        return dict.fromkeys(self.listed[broker.id], "consumer")


@contextmanager
def asking(client, has_offsets_topic=lambda: True):
    """What asks these brokers, which have the topic of offsets."""
    config = ConsumerConfig(bootstrap_servers="127.0.0.1:1", group_protocol="kafka", group_id="tool")
    with BrokerGroups(config) as groups:
        groups.asked.client.close()
        groups.asked.client, groups.asked.has_offsets_topic = client, has_offsets_topic
        yield groups


def test_a_silent_broker_keeps_its_groups_until_it_answers_or_another_coordinates_them():
    client = Client()
    with asking(client) as groups:
        client.listed = {1: ["a"], 2: ["b", "c"]}
        assert (groups.names(), groups.unlisted) == (["a", "b", "c"], ())
        del client.listed[2]
        assert groups.names() == ["a", "b", "c"]
        assert groups.unlisted == ("groups of broker 2 are missing: silent",)
        client.brokers, client.leaderless = {1: BROKERS[1]}, {"__consumer_offsets-0": None}
        assert groups.names() == ["a", "b", "c"], "no other broker coordinates them yet"
        command = "kafka-topics.sh --describe --topic __consumer_offsets --bootstrap-server 127.0.0.1:1"
        assert command in groups.unlisted[0]
        client.leaderless = {}
        client.listed[1] = ["a", "b"]
        assert groups.names() == ["a", "b"]


def test_groups_are_listed_although_one_broker_may_have_the_only_ones():
    """Before 2.8, where it is unknown whether there is a topic of offsets as long as a broker is silent."""
    client = Client()
    with asking(client, raising(BrokerUnavailable("silent"))) as groups:
        client.listed = {1: ["a"]}
        assert (groups.names(), groups.unlisted) == (["a"], ("groups of broker 2 are missing: silent",))


def raising(error):
    def call():
        raise error

    return call


def test_brokers_that_coordinate_no_groups_are_told_from_those_that_do_not_answer():
    client, old, loading = Client(), NoCommonVersion("old"), ProtocolError("loading")
    with asking(client) as groups:
        client.listed = {1: old, 2: old}
        with pytest.raises(NoCommonVersion):
            groups.names()
        client.listed = {1: old, 2: loading}
        with pytest.raises(ProtocolError, match="loading"):
            groups.names()


def test_an_offset_or_a_log_end_that_may_exist_is_unread():
    """A partition without an offset is not: its member has committed nothing yet."""
    partitions = [TopicPartition("t", number) for number in range(4)]
    member = DescribedMember("m", "c", None, frozenset(partitions))
    described = DescribedGroup("classic", "Stable", "range", (member,))
    stored = {partition: StoredOffset(5, "") for partition in partitions[:2]}
    group = ObservedBrokerGroup("g", described, BROKERS[1], stored, unread=frozenset({partitions[2]}))
    logs = Logs({}, {partitions[0]: 9}, frozenset({partitions[1]}))
    rows = describe_group(group, logs, ()).partitions
    assert [row.partition for row in rows if row.is_unread] == [1, 2]


def test_a_topic_that_is_not_described_is_unknown_for_its_own_groups_alone(monkeypatch):
    """Beside it a topic that does not exist is one that does not exist."""
    config = ConsumerConfig(bootstrap_servers="127.0.0.1:1", group_protocol="kafka", group_id="tool")
    described = DescribedGroup("classic", "Empty", "", ())
    offsets = {"x": ["secret"], "y": ["t", "deleted"]}
    groups = {
        name: ObservedBrokerGroup(
            name, described, None, {TopicPartition(topic, 0): StoredOffset(3) for topic in topics}
        )
        for name, topics in offsets.items()
    }
    undescribed = {"secret": "TOPIC_AUTHORIZATION_FAILED (29)"}
    answer = BrokersAnswer(ExistingTopics({TopicPartition("t", 0)}, undescribed), why_undescribed(undescribed))
    with BrokerGroups(config) as asking:
        monkeypatch.setattr(asking.asked, "existing", lambda _: answer)
        x, y = asking._with_existing(groups).values()
    assert (x.existing, x.absent, x.problems) == ({}, frozenset(), answer.problems)
    assert may_exist(x, TopicPartition("secret", 0)), "how many partitions the topic has is unknown"
    assert (y.existing, y.absent) == ({"t": (0,)}, {"deleted"})
    assert y.problems == ("log ends of deleted are unknown: no such topic",)
