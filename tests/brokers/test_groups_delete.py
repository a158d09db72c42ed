"""`groups delete` of groups with offsets in Kafka, on brokers of every release; those since 2.4 delete offsets."""

from contextlib import closing

import pytest

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.zookeeper.session import ZkSession

FIRST_THAT_LISTS = (0, 10, 2)
FIRST_THAT_DELETES = (2, 4)


@pytest.fixture
def delete(broker, group, tmp_path):
    """Run ``groups delete --execute`` for the group: (exit code, its document)."""
    numbers = iter(range(10))

    def run(*arguments):
        where = ("--snapshot", str(tmp_path / f"snapshot-{next(numbers)}"))
        # A machine that stands still makes a short hold end, which is not what is tested.
        return broker.run_tool(
            "groups", "delete", "--group", group.name, *arguments, "--execute", "--long-hold", *where
        )

    return run


@pytest.fixture
def restore(broker):
    """Undo what a document of a command reports: (exit code, its document)."""

    def run(done):
        snapshot = done["snapshot"]
        return broker.run_tool(
            "offsets", "restore", snapshot, "--execute", "--long-hold", "--snapshot", f"{snapshot}-u"
        )

    return run


@pytest.fixture
def in_kafka(broker, group):
    """Read the offset that Kafka stores of the group and a partition."""

    def read(partition):
        config = ConsumerConfig(**broker.sandbox.connection, group_id="tools")
        with closing(ZkSession.from_config(config)) as session:
            session.open()
            with closing(Cluster.of(session, config)) as cluster:
                found = cluster.committed(group.name, [partition])
        return {one.offset for one in found.values()}

    return read


def test_offsets_in_kafka_are_deleted_or_refused(broker, group, delete, restore, in_kafka):
    partition = TopicPartition(group.name, 0)
    broker.commit_to_kafka(group.name, partition, 1)
    before = group.tree()
    code, refused = delete()
    assert (code, "Kafka stores offsets" in refused["refusals"][0]) == (3, True)
    code, ended = delete("--store", "both")
    if broker.release >= FIRST_THAT_DELETES:
        assert (code, ended["faults"], group.tree(), in_kafka(partition)) == (0, [], {}, set())
        code, undone = restore(ended)
        assert (code, undone["faults"], group.tree(), in_kafka(partition)) == (0, [], before, {1})
        return
    assert (code, len(ended["refusals"])) == (3, 1)
    assert "which those since 2.4 can" in ended["refusals"][0]
    assert delete("--store", "kafka")[0] == 3
    assert group.tree() == before
    code, ended = delete("--store", "zookeeper")
    assert (code, ended["faults"], group.tree()) == (0, [], {})
    assert in_kafka(partition) == {1}, "no offset is committed in place of a deletion"
    code, undone = restore(ended)
    assert (code, undone["faults"], group.tree()) == (0, [], before)


def test_a_topic_that_only_kafka_has_is_found_where_brokers_list_offsets(broker, group, delete):
    other = broker.create_topic(f"{group.name}-other")
    broker.commit_to_kafka(group.name, TopicPartition(other, 0), 1)
    code, ended = delete()
    if broker.release >= FIRST_THAT_LISTS:
        assert (code, "Kafka stores offsets" in ended["refusals"][0]) == (3, True)
    else:
        assert (code, ended["refusals"], group.tree()) == (0, [], {})
