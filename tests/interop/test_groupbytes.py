"""Java's own classes write and read the bytes of a group's members, and assign. A missing golden file is written."""

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.fixtures.groupbytes import (
    ASSIGNMENT_VERSIONS,
    GENERATION,
    INTENT,
    OWNED,
    RACK,
    STREAMS,
    SUBSCRIPTION_VERSIONS,
    USER_DATA,
)
from zkconsumer.group.kafka.rules.generationmember import JoinIntent
from zkconsumer.group.kafka.rules.strategies import STRATEGIES, MemberSubscription
from zkconsumer.group.kafka.subscriptionbytes import encode_assignment, encode_subscription
from zkconsumer.model import TopicPartition

GOLDEN = Path(__file__).parents[1] / "golden" / "groupbytes.json"
JAVA_CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
_PARTITION = re.compile(r"([\w.-]+)-(\d+)(?=[,\]])")


class JavaBytes:
    """ConsumerProtocol and the assignors of one client version, in a JVM."""

    def __init__(self, gateway):
        self.java = gateway.jvm.java
        self.kafka = gateway.jvm.org.apache.kafka
        self.client = self.kafka.clients.consumer
        self.protocol = self.client.internals.ConsumerProtocol

    def array(self, buffer):
        return bytes(self.kafka.common.utils.Utils.toArray(buffer))

    def buffer(self, content):
        return None if content is None else self.java.nio.ByteBuffer.wrap(content)

    def partitions(self, partitions):
        return [self.kafka.common.TopicPartition(one.topic, one.partition) for one in sorted(partitions)]

    def subscription(self, topics, data, owned, generation, rack=None):
        return self.client.ConsumerPartitionAssignor.Subscription(
            sorted(topics),
            self.buffer(data),
            self.partitions(owned),
            generation,
            self.java.util.Optional.ofNullable(rack),
        )

    def write_subscription(self, version):
        subscription = self.subscription(STREAMS, USER_DATA, OWNED, GENERATION, RACK)
        return self.array(self.protocol.serializeSubscription(subscription, version))

    def write_assignment(self, version):
        assignment = self.client.ConsumerPartitionAssignor.Assignment(self.partitions(OWNED), self.buffer(USER_DATA))
        return self.array(self.protocol.serializeAssignment(assignment, version))

    def user_data(self, strategy):
        """What an assignor adds to the subscription of a member that has had an assignment."""
        assignor = getattr(self.client, JAVA_CLASSES[strategy])()
        assignment = self.client.ConsumerPartitionAssignor.Assignment(self.partitions(OWNED))
        nobody = self.java.util.Optional.empty()
        assignor.onAssignment(assignment, self.client.ConsumerGroupMetadata("g", GENERATION, "m", nobody))
        return self.array(assignor.subscriptionUserData(set(STREAMS)))

    def old_user_data(self):
        """The same of ``sticky`` of a client that has no generations in it."""
        assignor = self.client.StickyAssignor()
        assignor.onAssignment(self.client.internals.PartitionAssignor.Assignment(self.partitions(OWNED)))
        return self.array(assignor.subscription(set(STREAMS)).userData())

    def assign(self, strategy, members, partitions):
        """What Java's assignor gives to members whose subscriptions are the bytes that we write for them."""
        subscriptions = {}
        for one in members:
            intent = JoinIntent(one.member_id, one.generation, one.owned, one.owned)
            written = encode_subscription(strategy, dict.fromkeys(one.topics, 1), intent)
            read = self.protocol.deserializeSubscription(self.buffer(written))
            read.setGroupInstanceId(self.java.util.Optional.ofNullable(one.instance_id))
            subscriptions[one.member_id] = read
        counts = {topic: len(numbers) for topic, numbers in partitions.items()}
        assigned = getattr(self.client, JAVA_CLASSES[strategy])().assign(counts, subscriptions)
        return {one.member_id: read_partitions(assigned.get(one.member_id)) for one in members}


def read_partitions(listed):
    return frozenset(TopicPartition(topic, int(number)) for topic, number in _PARTITION.findall(listed.toString()))


@pytest.fixture(scope="module")
def java(client_jvm):
    return JavaBytes(client_jvm.gateway)


def test_golden_bytes(java, jvm):
    written = {
        "subscriptions": {str(version): java.write_subscription(version).hex() for version in SUBSCRIPTION_VERSIONS},
        "assignments": {str(version): java.write_assignment(version).hex() for version in ASSIGNMENT_VERSIONS},
        "user data": {
            "sticky 1.1.1": JavaBytes(jvm.gateway).old_user_data().hex(),
            **{f"{strategy} 3.9.1": java.user_data(strategy).hex() for strategy in ("sticky", "cooperative-sticky")},
        },
    }
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(written, indent=1) + "\n")
    assert json.loads(GOLDEN.read_text()) == written


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_java_reads_our_subscriptions(java, strategy):
    found = java.protocol.deserializeSubscription(java.buffer(encode_subscription(strategy, STREAMS, INTENT)))
    assert list(found.topics()) == sorted(STREAMS)
    assert (read_partitions(found.ownedPartitions()), found.generationId().get()) == (OWNED, GENERATION)


def test_java_reads_our_assignments(java):
    found = java.protocol.deserializeAssignment(java.buffer(encode_assignment(OWNED)))
    assert read_partitions(found.partitions()) == OWNED


def _groups(seed):
    """Members that subscribe to some of three topics, one in three of them static."""
    draw = random.Random(seed)
    partitions = {topic: range(draw.randint(0, 9)) for topic in "tuv"}
    members = [
        MemberSubscription(
            f"m{draw.randrange(10**6)}",
            tuple(draw.sample("tuv", draw.randint(1, 3))),
            instance_id=None if draw.random() < 0.7 else f"i{draw.randrange(10**6)}",
        )
        for _ in range(draw.randint(1, 5))
    ]
    return members, partitions


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_we_assign_as_java_does(java, strategy):
    for seed in range(40):
        members, partitions = _groups(seed)
        assert java.assign(strategy, members, partitions) == STRATEGIES[strategy].assign(members, partitions), seed


@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_java_keeps_what_our_members_declare_and_balances_as_we_do(java, strategy):
    for seed in range(20):
        draw = random.Random(seed)
        partitions = {topic: range(draw.randint(1, 9)) for topic in "tuv"}
        names = [f"m{number}" for number in range(draw.randint(2, 5))]
        fresh = [MemberSubscription(name, ("t", "u", "v")) for name in names]
        owned = STRATEGIES[strategy].assign(fresh, partitions)
        members = [MemberSubscription(name, ("t", "u", "v"), owned[name], GENERATION) for name in names]
        assert java.assign(strategy, members, partitions) == owned, "balanced: all of it stays"
        left = members[1:]
        theirs, ours = java.assign(strategy, left, partitions), STRATEGIES[strategy].assign(left, partitions)
        for one in left:
            assert one.owned <= theirs[one.member_id] & ours[one.member_id], "a leaving member moves nothing else"
        assert Counter(map(len, theirs.values())) == Counter(map(len, ours.values()))
