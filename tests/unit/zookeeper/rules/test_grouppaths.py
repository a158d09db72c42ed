"""The paths of a group's znodes, and names of which no path is made."""

import pytest

from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths, is_node_name, offset_partition, partition_named
from zkconsumer.zookeeper.rules.znodes import SessionNode


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/consumers/g/offsets/clicks/0", ("g", "clicks", "0")),
        ("/consumers/g/owners/clicks/0", None),
        ("/brokers/g/offsets/clicks/0", None),
        ("/consumers//offsets/clicks/0", None),
        ("/consumers/g/offsets//0", None),
        ("/consumers/g/offsets/clicks", None),
        ("consumers/g/offsets/clicks/0", None),
    ],
)
def test_the_partition_of_an_offset_path(path, found):
    assert offset_partition(path) == found


def test_the_path_of_a_mark():
    assert GroupPaths("g").migrated == "/consumers/g/zkconsumer/migrated"


def test_paths():
    paths = GroupPaths("g")
    partition = TopicPartition("t", 7)
    assert paths.owner(partition) == "/consumers/g/owners/t/7"
    assert paths.offset(partition) == "/consumers/g/offsets/t/7"
    assert paths.ids == "/consumers/g/ids"
    assert paths.consumer_id("g_a") == "/consumers/g/ids/g_a"
    assert paths.topics == "/consumers/g/zkconsumer/topics"
    assert paths.stamp(partition) == "/consumers/g/zkconsumer/commits/t/7"
    assert paths.hold(0x100AB) == "/consumers/g/zkconsumer/hold@00000000000100ab"
    session = paths.session("g_a@b", 0x100AB)
    assert session == "/consumers/g/zkconsumer/members/g_a@b@00000000000100ab"
    assert SessionNode.consumer_id(session.rpartition("/")[2]) == "g_a@b"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../brokers"])
def test_a_name_that_leads_to_another_znode_is_recognised(name):
    assert not is_node_name(name)
    assert is_node_name(f"a{name.replace('/', '')}")


@pytest.mark.parametrize("name", ["", "..", "g/offsets"])
def test_no_path_is_made_of_a_name_that_leads_to_another_znode(name):
    with pytest.raises(ZkConsumerError, match="cannot be the name of a group"):
        GroupPaths(name)
    paths, partition = GroupPaths("g"), TopicPartition(name, 0)
    makers = (
        paths.offset_topic,
        paths.owner_topic,
        lambda _: paths.offset(partition),
        lambda _: paths.owner(partition),
    )
    for make in makers:
        with pytest.raises(ZkConsumerError, match="cannot be the name of a topic"):
            make(name)
    with pytest.raises(ZkConsumerError, match="cannot be the name of a consumer"):
        paths.consumer_id(name)


@pytest.mark.parametrize("character", ["\0", "\n", "\x1b", "\x7f", "\ud800", "\ue000", "\uffff", "\U0001f600"])
def test_a_name_with_a_character_that_zookeeper_refuses_is_recognised(character):
    assert not is_node_name(f"a{character}")


def test_a_name_may_have_any_other_character():
    assert is_node_name("<b>\u00fc\u202e %2F")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("0", 0),
        ("12", 12),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("007", None),
        ("\u00b2", None),
        ("-1", None),
        ("", None),
    ],
)
def test_a_partition_is_named_by_its_plain_number(name, number):
    assert partition_named(name) == number
