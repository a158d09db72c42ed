"""Planning of a batch read from what ZooKeeper said."""

import pytest

from zkconsumer.errors import MalformedZnode
from zkconsumer.model import TopicPartition
from zkconsumer.spark.batch import committed_offsets
from zkconsumer.spark.cluster import ClusterView
from zkconsumer.spark.options import parse_options

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
VIEW = ClusterView((), frozenset({T0, T1, T2}), {T0: 5, T2: None}, frozenset())
"""The offset of T1 cannot be read."""


def options(starting):
    return parse_options(
        {"zookeeper.connect": "unused:1", "group.id": "g", "subscribe": "t", "startingOffsets": starting}
    )


@pytest.mark.parametrize("starting", ["group", '{"t":{"0":3}}'])
def test_an_unreadable_offset_that_is_needed_is_named(starting):
    with pytest.raises(MalformedZnode, match="znode /consumers/g/offsets/t/1: holds no offset"):
        committed_offsets(options(starting), VIEW)


@pytest.mark.parametrize("starting", ["earliest", '{"t":{"1":3}}'])
def test_an_unreadable_offset_that_is_not_needed_leaves_nothing_out(starting):
    assert committed_offsets(options(starting), VIEW) == {T0: 5, T1: None, T2: None}
