"""Whatever bytes a znode has, its reader returns a value or raises MalformedZnode, briefly and with the path."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.damage import damaged
from zkconsumer.errors import MalformedZnode
from zkconsumer.group.coordinator.rules.coordinatorznodes import (
    Command,
    CommandNode,
    LeaderNode,
    PolicyNode,
    Status,
    StatusNode,
)
from zkconsumer.group.rules.subscription import Subscription, Whitelist
from zkconsumer.model import Broker, ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.topicorigins import TopicRecord
from zkconsumer.zookeeper.rules.znodes import (
    BrokerIdNode,
    ConsumerIdNode,
    MigratedNode,
    MigrationMark,
    OffsetNode,
    PartitionOwnerNode,
    SessionNode,
    Stamp,
    StampNode,
    TopicNode,
)

SHARE = {TopicPartition("t", number): ConsumerThreadId("g_a", number % 2) for number in range(9)}
NODES = {
    "registration": (ConsumerIdNode, ConsumerIdNode.encode(Subscription.static({"t": 2}).to_registration(1))),
    "filter": (ConsumerIdNode, ConsumerIdNode.encode(Subscription.by_filter(Whitelist("t.*"), 2).to_registration(1))),
    "owner": (PartitionOwnerNode, b"g_a-0"),
    "offset": (OffsetNode, b"12345"),
    "mark": (MigratedNode, MigratedNode.encode(MigrationMark("migrated", "kafka:g", 1, "plan"))),
    "stamp": (StampNode, StampNode.encode(Stamp("query", 7))),
    "broker": (BrokerIdNode, b'{"version":4,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"]}'),
    "topic": (TopicNode, b'{"version":1,"partitions":{"0":[1,2],"1":[2,1]}}'),
    "session node": (SessionNode, SessionNode.encode("range", "coordinator", 6000, shares=True)),
    "record": (TopicRecord, TopicRecord("id", 74, False).encode()),
    "command": (CommandNode, CommandNode.encode(Command(SHARE, 3, 4, brokers=(Broker(1, "h", 9092),)))),
    "leader": (LeaderNode, LeaderNode.encode("g_a", 3)),
    "policy": (PolicyNode, b'{"assignor":"sticky"}'),
    "status": (StatusNode, StatusNode.encode(Status(3, 4, 5, frozenset(SHARE)))),
}
COMMAND_PATH, BROKER_PATH = "/consumers/g/a/g_a@00000000000000ff.0", "/brokers/ids/1"


@pytest.mark.parametrize("name", NODES)
@settings(max_examples=50)
@given(seed=st.integers(0, 1 << 32))
def test_damaged_znodes(name, seed):
    node, data = NODES[name]
    path = BROKER_PATH if node is BrokerIdNode else COMMAND_PATH
    node.decode(path, data)
    try:
        node.decode(path, damaged(data, random.Random(seed)))
    except MalformedZnode as error:
        text = str(error)
    else:
        return
    assert path in text
    assert len(text) < 500
