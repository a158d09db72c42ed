"""WatchedReads: watched data is not read again, and nothing else is kept."""

import pytest

from tests.fixtures.kazooinmemory import KazooInMemory
from tests.fixtures.znodes import ZnodesInMemory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.watchedreads import WatchedReads


@pytest.fixture
def znodes():
    made = ZnodesInMemory()
    made.write("/a", b"1")
    made.write("/b", b"2")
    made.read.clear()
    return made


@pytest.fixture
def changes():
    return []


@pytest.fixture
def reads(znodes, changes):
    return WatchedReads(znodes, lambda: changes.append(None))


def data_of(answer):
    return {path: node and node.data for path, node in answer.nodes.items()}


def test_what_has_not_changed_is_read_once(znodes, reads):
    for _ in range(2):
        assert data_of(reads.nodes(["/a", "/b"])) == {"/a": b"1", "/b": b"2"}
    assert znodes.read == ["/a", "/b"]


def test_only_what_has_changed_is_read_again(znodes, reads, changes):
    reads.nodes(["/a", "/b"])
    znodes.write("/b", b"3")
    assert len(changes) == 1
    assert data_of(reads.nodes(["/a", "/b"])) == {"/a": b"1", "/b": b"3"}
    assert znodes.read == ["/a", "/b", "/b"]


def test_a_missing_node_is_watched_until_it_is_created(znodes, reads, changes):
    for _ in range(2):
        assert data_of(reads.nodes(["/c"])) == {"/c": None}
    znodes.write("/c", b"3")
    assert len(changes) == 1
    assert data_of(reads.nodes(["/c"])) == {"/c": b"3"}
    assert znodes.read == ["/c", "/c"]


def test_what_is_not_asked_for_is_forgotten(znodes, reads):
    reads.nodes(["/a", "/b"])
    reads.nodes(["/b"])
    assert data_of(reads.nodes(["/a", "/b"])) == {"/a": b"1", "/b": b"2"}
    assert znodes.read == ["/a", "/b", "/a"]


def test_kazoo_keeps_one_watch_for_each_path():
    """A path that was forgotten is armed again before its watch has fired."""
    server = ZooKeeperInMemory()
    config = ConsumerConfig(zookeeper_connect="memory:1", group_id="g")
    session = ZkSession.from_config(config, client=lambda **arguments: KazooInMemory(server, **arguments))
    session.open()
    changes = []
    reads = WatchedReads(session, lambda: changes.append(None))
    for _ in range(3):
        reads.nodes(["/a"])
        reads.nodes(["/b"])
    session.ensure_path("/a", b"")
    session._client.deliver()
    assert len(changes) == 1


def test_a_new_connection_reads_everything_again(znodes, reads):
    reads.nodes(["/a"])
    reads.children("/")
    znodes.connections += 1
    reads.nodes(["/a"])
    reads.children("/")
    assert znodes.read == ["/a", "/", "/a", "/"]


def test_a_refused_node_is_asked_for_each_time(znodes, reads):
    znodes.refused = {"/b"}
    for _ in range(2):
        answer = reads.nodes(["/a", "/b"])
        assert data_of(answer) == {"/a": b"1"}
        assert answer.refused.keys() == {"/b"}
    assert znodes.read == ["/a", "/b", "/b"]


def test_children_are_the_same_object_until_they_change(znodes, reads, changes):
    before = reads.children("/")
    assert before == {"a", "b"}
    assert reads.children("/") is before
    znodes.write("/c", b"")
    assert len(changes) == 1
    assert reads.children("/") == {"a", "b", "c"}
    znodes.delete("/a")
    assert reads.children("/") == {"b", "c"}


def test_a_node_that_does_not_exist_has_no_children(reads):
    assert reads.children("/none") == frozenset()


def test_a_change_during_a_read_is_read_the_next_time(znodes, changes):
    """1. The watch is armed. 2. The node changes. 3. The old answer arrives."""

    class ChangesMeanwhile(ZnodesInMemory):
        def read_many(self, paths, watch_of=None):
            answer = super().read_many(paths, watch_of)
            if self.nodes["/a"].data == b"1":
                self.write("/a", b"2")
            return answer

    znodes = ChangesMeanwhile()
    znodes.write("/a", b"1")
    reads = WatchedReads(znodes, lambda: changes.append(None))
    assert data_of(reads.nodes(["/a"])) == {"/a": b"1"}
    assert data_of(reads.nodes(["/a"])) == {"/a": b"2"}
    assert len(changes) == 1


def test_events_of_a_path_are_counted(znodes, reads):
    assert reads.events("/") == 0
    reads.children("/")
    assert reads.events("/") == 0
    znodes.write("/c", b"3")
    assert reads.events("/") == 1
    znodes.write("/d", b"4")
    assert reads.events("/") == 1, "not watched before it is read again"
    reads.children("/")
    znodes.write("/e", b"5")
    assert reads.events("/") == 2
