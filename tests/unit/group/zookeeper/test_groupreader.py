"""Where a group_reader reads the cluster: from znodes, or from brokers, which leaves no request to ``/brokers``."""

import json
from contextlib import closing

import pytest

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.members import JVM
from tests.fixtures.znodes import ZnodesInMemory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.cluster.rules.clustercatalog import ClusterSnapshot
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.group.zookeeper.registration import MemberRegistration
from zkconsumer.model import Broker, Topic, TopicIdentity
from zkconsumer.zookeeper.watchedreads import WatchedReads

BROKER = Broker(1, "h", 1)
STATIC = {"subscription": {"t": 1}}
FILTER = {"pattern": "white_list", "subscription": {"t.*": 1}}


@pytest.fixture
def znodes():
    made = ZnodesInMemory()
    made.write("/brokers/ids/1", b'{"version":1,"host":"h","port":1}')
    for topic in ("t", "t2", "u"):
        made.write(f"/brokers/topics/{topic}", b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
    return made


def register(znodes, name, **registration):
    znodes.write(f"/consumers/g/ids/{name}", json.dumps({**JVM, **registration}).encode())


class Brokers:
    """What brokers describe, and the topics that each reading asked for."""

    def __init__(self):
        self.asked = []

    def read(self, topics, *, for_others=True):
        self.asked.append(topics)
        names = ("t", "t2", "u") if topics is None else topics
        identity = TopicIdentity("id", None)
        described = {name: Topic((0, 1), identity) for name in names}
        return ClusterSnapshot((BROKER,), described, None if topics is None else frozenset(topics))


@pytest.mark.parametrize(
    ("registration", "asked_for", "partitions"),
    [(STATIC, {"t"}, {"t": (0, 1)}), (FILTER, None, {"t": (0, 1), "t2": (0, 1)})],
    ids=["names", "filter"],
)
def test_a_view_is_the_same_from_znodes_and_from_brokers(znodes, registration, asked_for, partitions):
    register(znodes, "g_a", **registration)
    brokers = Brokers()
    from_znodes = GroupReader(znodes).view("g")
    assert any(path.startswith("/brokers") for path in znodes.read)
    znodes.read.clear()
    from_brokers = GroupReader(znodes, read_cluster=brokers.read).view("g")
    assert not any(path.startswith("/brokers") for path in znodes.read)
    assert brokers.asked == [asked_for]
    assert from_brokers.partitions == from_znodes.partitions == partitions
    assert from_brokers.topics == from_znodes.topics
    assert from_brokers.brokers == from_znodes.brokers == (BROKER,)


def test_brokers_topics_and_partitions_come_from_brokers(znodes):
    brokers = Brokers()
    group_reader = GroupReader(znodes, read_cluster=brokers.read)
    assert group_reader.live_brokers() == (BROKER,)
    assert group_reader.topics() == {"t", "t2", "u"}
    assert group_reader.partitions(["u"]) == {"u": (0, 1)}
    assert (brokers.asked, znodes.read) == ([(), None, ["u"]], [])


def test_events_of_the_group_are_counted_with_watches(znodes):
    register(znodes, "g_a", **STATIC)
    assert GroupReader(znodes).group_events("g") == 0
    group_reader = GroupReader(znodes, watched=WatchedReads(znodes, lambda: None))
    group_reader.view("g")
    assert group_reader.group_events("g") == 0
    register(znodes, "g_b", **STATIC)
    assert group_reader.group_events("g") == 1


def test_members_that_do_not_share_the_group_are_known():
    server = ZooKeeperInMemory()
    with closing(session_in_memory(server)) as one, closing(session_in_memory(server)) as other:
        for session, name, shares in ((one, "g_sole", False), (other, "g_b", True)):
            member = MemberRegistration(session, "g", name, "range", lambda: 7, shares=shares)
            member.register(Subscription.static({"t": 1}), lambda _: None, lambda _: False)
        view = GroupReader(one).view("g")
    assert view.members.keys() == view.our_clients.keys() == {"g_sole", "g_b"}
    assert view.unshared == {"g_sole"}
