"""The state of a group, as ZooKeeper or its coordinator has it."""

import pytest

from zkconsumer.group.kafka import describedmembers
from zkconsumer.model import Topic, TopicIdentity, TopicPartition
from zkconsumer.spark.clusterview import read_cluster
from zkconsumer.spark.rules.options import parse_options
from zkconsumer.wire.rules.describedgroup import DescribedMember


@pytest.fixture
def described(stub_broker, monkeypatch):
    """Read the cluster as a query with a ``group.instance.id``, whose group has these instance ids by member id."""

    def described(ids, instance_id="query"):
        members = tuple(DescribedMember(member, "g", instance, frozenset()) for member, instance in ids.items())
        monkeypatch.setattr(describedmembers, "group_members", lambda *_: members)
        options = {"group.protocol": "kafka", "bootstrap.servers": f"127.0.0.1:{stub_broker.port}", "group.id": "g"}
        static = {} if instance_id is None else {"group.instance.id": instance_id}
        return read_cluster(parse_options({**options, **static, "subscribe": "t"}))

    return described


def test_the_member_with_the_querys_instance_id_is_no_other_member(described):
    view = described({"g-1": "query", "g-2": "another", "g-3": None})
    assert view.members == {"g-1", "g-2", "g-3"}
    assert view.others == view.our_members == {"g-2", "g-3"}


def test_without_an_instance_id_every_member_is_another_one(described):
    view = described({"g-1": "another", "g-2": None}, instance_id=None)
    assert view.members == view.others == view.our_members == {"g-1", "g-2"}


def test_a_member_whose_registration_cannot_be_read_may_live_for_the_granted_session(znodes):
    znodes.ensure_path("/consumers/g/ids/g_damaged", b"{")
    view = read_cluster(parse_options({"zookeeper.connect": "unused:1", "group.id": "g", "subscribe": "t"}))
    assert view.session_ms == {"g_damaged": round(1000 * znodes.negotiated_timeout)}


def test_topics_have_the_identity_by_which_members_recognise_them(znodes):
    znodes.ensure_path("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
    created = znodes.get("/brokers/topics/t").czxid
    view = read_cluster(parse_options({"zookeeper.connect": "unused:1", "group.id": "g", "subscribe": "t"}))
    (topic,) = view.topics.values()
    assert topic == Topic((0,), TopicIdentity(None, created))
    assert view.partitions == {TopicPartition("t", 0)}
