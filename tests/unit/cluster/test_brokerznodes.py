"""What the znodes of the cluster show of topics."""

from contextlib import closing

import pytest

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.cluster.brokerznodes import BrokerZnodes
from zkconsumer.group.zookeeper.groupreader import GroupReader


@pytest.fixture
def session():
    with closing(session_in_memory(ZooKeeperInMemory())) as opened:
        yield opened


def test_a_topic_that_cannot_be_read_is_not_one_that_does_not_exist(session, caplog):
    """Positions of a topic that was deleted are not committed."""
    session.ensure_path("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
    session.ensure_path("/brokers/topics/garbage", b"{")
    session.ensure_path("/brokers/ids/1", b"")
    identities = BrokerZnodes(session, "PLAINTEXT").identities(["t", "garbage", "missing", "no/name"])
    assert identities.keys() == {"t", "missing", "no/name"}
    assert identities["t"] is not None
    assert (identities["missing"], identities["no/name"]) == (None, None)
    assert "topic skipped: znode /brokers/topics/garbage" in caplog.text


def test_tools_learn_of_topics_that_cannot_be_read(session):
    """They may exist, so what is stored of them is not that of a topic that was deleted."""
    session.ensure_path("/brokers/topics/garbage", b"{")
    session.ensure_path("/brokers/ids/1", b"")
    group_reader = GroupReader(session)
    names = ["garbage", "missing", "no/name"]
    assert group_reader.describe_topics(names) == {}
    assert group_reader.undescribed(names) == {"garbage"}
    session._client.set("/brokers/topics/garbage", b'{"version":1,"partitions":{"0":[1]}}')
    assert group_reader.describe_topics(names).keys() == {"garbage"}
    assert group_reader.undescribed(names) == frozenset()


def test_without_a_broker_in_zookeeper_nothing_is_known_of_topics_that_it_does_not_have(session):
    """They may be those of Kafka 4, also if brokers that were migrated have left the topics of that time behind."""
    session.ensure_path("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
    group_reader = GroupReader(session)
    assert group_reader.describe_topics(["t", "newer"]).keys() == {"t"}
    assert group_reader.undescribed(["t", "newer"]) == {"newer"}
    assert BrokerZnodes(session, "PLAINTEXT").identities(["t", "newer"]).keys() == {"t"}
    session.ensure_path("/brokers/ids/1", b"")
    group_reader.describe_topics(["newer"])
    assert group_reader.undescribed(["newer"]) == frozenset()
    assert BrokerZnodes(session, "PLAINTEXT").identities(["newer"]) == {"newer": None}
