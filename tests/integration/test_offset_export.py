"""Exports of offsets from a real ZooKeeper whose znodes are not all readable."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import confluent_kafka
import pytest
from kazoo.security import make_acl

from tests.fixtures.commands import run_command
from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.errors import ZooKeeperRefused
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import our_metadata
from zkconsumer.operate.offsets.offsetexport import export_broker_offsets, export_offsets
from zkconsumer.operate.offsets.offsetfiles import GroupOffset
from zkconsumer.operate.offsets.offsetnodes import offset_nodes

pytestmark = pytest.mark.integration


@pytest.fixture
def unreadable(offset_group):
    """Path of an offset that may not be read; there are two more of the topic, one of which is garbage."""
    path = offset_group.path("offsets", "t", 0)
    offset_group.store("t", {0: 4, 1: 5, 2: 6})
    offset_group.client.set(offset_group.path("offsets", "t", 2), b"x")
    offset_group.client.set_acls(path, [make_acl("world", "anyone", write=True)])
    yield path
    offset_group.client.delete(path)


def test_an_offset_that_may_not_be_read_costs_its_partition_only(tool_session, cluster, offset_group, unreadable):
    exported = export_offsets(tool_session, cluster.config, [offset_group.name])
    assert exported.offsets == (GroupOffset(offset_group.name, TopicPartition("t", 1), 5),)
    garbage = f"znode {offset_group.path('offsets', 't', 2)}: not an offset: 'x'; set it to a decimal number"
    assert garbage in exported.problems
    assert [problem.startswith(f"ZooKeeper refused get {unreadable}") for problem in exported.problems].count(True) == 1


def test_a_group_that_may_not_be_read_is_no_end_of_the_export(tool_session, cluster, offset_group, unique_name):
    offset_group.store("t", {0: 4})
    other = f"/consumers/{unique_name}-secret/offsets"
    offset_group.client.ensure_path(other)
    offset_group.client.set_acls(other, [make_acl("world", "anyone", write=True)])
    try:
        exported = export_offsets(tool_session, cluster.config, [])
        assert GroupOffset(offset_group.name, TopicPartition("t", 0), 4) in exported.offsets
        assert f"ZooKeeper refused children of {other}" in "".join(exported.problems)
        with pytest.raises(ZooKeeperRefused, match=other):
            export_offsets(tool_session, cluster.config, [f"{unique_name}-secret"])
    finally:
        offset_group.client.delete(other)


def test_what_writes_offsets_refuses_a_group_with_an_offset_that_may_not_be_read(
    tool_session, offset_group, unreadable
):
    with pytest.raises(ZooKeeperRefused, match=unreadable):
        offset_nodes(tool_session, offset_group.name)


def test_an_export_goes_into_the_pipe_that_is_its_output(sandbox, offset_group, tmp_path):
    """Another program reads it; so does /dev/null, which was replaced by a regular file."""
    offset_group.store("t", {0: 4})
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = ("offsets", "export", "--zookeeper", sandbox.zookeeper_connect, "--group", offset_group.name)
    with ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_text)
        assert run_command([*words, "--output", pipe]).returncode == 0
        assert read.result(timeout=30) == f"{offset_group.path('offsets', 't', 0)}:4\n"
    assert pipe.is_fifo()


def test_offsets_of_an_earlier_topic_in_kafka_are_not_exported(sandbox, topic_factory, unique_name):
    topic, brokers = topic_factory(2), sandbox.bootstrap_servers
    with closing(confluent_kafka.Consumer({"bootstrap.servers": brokers, "group.id": unique_name})) as consumer:
        late = confluent_kafka.TopicPartition(topic, 0, 7, our_metadata("1", "id-of-the-former-topic"))
        consumer.commit(offsets=[late, confluent_kafka.TopicPartition(topic, 1, 8)], asynchronous=False)
    config = ConsumerConfig(bootstrap_servers=brokers, group_id="tools", group_protocol="kafka")
    exported = export_broker_offsets(config, [unique_name])
    assert exported.offsets == (GroupOffset(unique_name, TopicPartition(topic, 1), 8),)
    assert exported.problems == (
        f"offsets of group {unique_name} were stored for earlier topics of that name: {topic}-0",
    )


def test_a_topic_that_does_not_exist_is_no_problem_of_an_export(sandbox, topic_factory, unique_name):
    topic, group = topic_factory(1), {"group_id": unique_name, "group_protocol": "kafka"}
    config = ConsumerConfig(bootstrap_servers=sandbox.bootstrap_servers, **group)
    with ConsumerConnector(config) as member:
        member.create_message_streams({topic: 1, f"{topic}-absent": 1})
        eventually(lambda: member.describe().owned)
        member.commit_offsets({TopicPartition(topic, 0): 0})
        exported = export_broker_offsets(config, [unique_name])
    assert exported.offsets == (GroupOffset(unique_name, TopicPartition(topic, 0), 0),)
    assert exported.problems == ()
