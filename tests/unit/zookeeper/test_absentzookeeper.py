"""The ZooKeeper of a command that names brokers alone."""

import pytest

from zkconsumer.errors import ZooKeeperUnavailable
from zkconsumer.zookeeper.absentzookeeper import AbsentZooKeeper
from zkconsumer.zookeeper.fencedtransaction import Operation


@pytest.fixture
def absent():
    return AbsentZooKeeper("b1:9092,b2:9092")


def test_it_has_no_node(absent):
    assert absent.is_absent
    assert absent.address == "b1:9092,b2:9092"
    assert (absent.get("/a"), absent.exists("/a"), absent.children("/a")) == (None, None, None)
    assert absent.get_many(["/a", "/b"]) == {"/a": None, "/b": None}
    assert absent.read_many(["/a"]) == ({"/a": None}, {})
    assert absent.children_of(["/a"]).existing() == {}
    assert absent.access(["/a"]) == {}
    absent.close()


def test_nothing_is_written_there(absent):
    change = Operation("create", "/a", b"")
    with pytest.raises(ZooKeeperUnavailable, match="give --zookeeper"):
        absent.commit_changes("/", [change])
    with pytest.raises(ZooKeeperUnavailable, match="give --zookeeper"):
        absent.commit_independent("/", [[change]])
