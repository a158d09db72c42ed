"""ZooKeeperOffsetStore on a real ZooKeeper: foreign writes, refusals, and what they cost."""

import pytest
from kazoo.security import make_acl

from tests.fixtures.waiting import eventually
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.model import Stamp, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.offsets.zookeeperstore import ZooKeeperOffsetStore

pytestmark = pytest.mark.integration

PARTITIONS = [TopicPartition("t", number) for number in range(3)]


@pytest.fixture
def session(sandbox, open_session):
    return open_session(sandbox.zookeeper_connect)


@pytest.fixture
def path(unique_name):
    return f"/consumers/{unique_name}/offsets/t"


@pytest.fixture
def store(session, unique_name):
    """A store that has read its three partitions and written two of them."""
    made = ZooKeeperOffsetStore(session, unique_name)
    made.fetch(PARTITIONS)
    assert made.commit({PARTITIONS[0]: 10, PARTITIONS[1]: 10}) == set(PARTITIONS[:2])
    return made


def warnings(caplog):
    return [record.message for record in caplog.records if "another client wrote" in record.message]


def test_our_own_writes_are_not_reported_as_foreign(store, caplog):
    for offset in (11, 12):
        store.commit(dict.fromkeys(PARTITIONS, offset))
    store.fetch(PARTITIONS)
    store.commit(dict.fromkeys(PARTITIONS, 13))
    assert warnings(caplog) == []


def test_an_offset_that_another_client_wrote_is_reported_and_overwritten(store, zookeeper, path, caplog):
    zookeeper.set(f"{path}/0", b"3")
    store.commit({PARTITIONS[0]: 11, PARTITIONS[1]: 11})
    (warning,) = warnings(caplog)
    assert (
        f"{path}/0 since this consumer left it at offset 10, version 0; it is overwritten with offset 11, version 2"
        in warning
    )
    assert zookeeper.get(f"{path}/0")[0] == b"11"
    store.commit({PARTITIONS[0]: 12})
    assert len(warnings(caplog)) == 1, "reported once"


def test_nodes_that_were_created_or_deleted_by_others_are_reported(store, zookeeper, path, caplog):
    zookeeper.delete(f"{path}/1")
    zookeeper.create(f"{path}/2", b"3")
    assert store.commit(dict.fromkeys(PARTITIONS, 11)) == set(PARTITIONS)
    reported = " ".join(warnings(caplog))
    assert f"{path}/1 since this consumer left it at offset 10" in reported
    assert f"{path}/2 since this consumer left it at no offset" in reported
    assert f"{path}/0" not in reported


def test_reading_an_unreadable_offset_again_forgets_nothing(session, unique_name, zookeeper, path, caplog):
    zookeeper.create(f"{path}/1", b"abc", makepath=True)
    store = ZooKeeperOffsetStore(session, unique_name)
    assert store.fetch(PARTITIONS[:2]) == {PARTITIONS[0]: None}
    store.commit({PARTITIONS[0]: 10})
    assert store.fetch([PARTITIONS[1]], again=True) == {}
    store.commit({PARTITIONS[0]: 10})
    assert zookeeper.get(f"{path}/0")[1].version == 0, "unchanged offsets are not written again"
    zookeeper.set(f"{path}/0", b"3")
    store.commit({PARTITIONS[0]: 11})
    assert len(warnings(caplog)) == 1


def test_a_node_that_we_may_not_write_costs_its_partition_only(store, zookeeper, path, caplog):
    zookeeper.set_acls(f"{path}/0", [make_acl("world", "anyone", read=True)])
    assert store.commit(dict.fromkeys(PARTITIONS, 11)) == set(PARTITIONS[1:])
    assert f"ZooKeeper refused set {path}/0: no permission; check the node's ACL" in caplog.text
    assert [zookeeper.get(f"{path}/{number}")[0] for number in range(3)] == [b"10", b"11", b"11"]


def test_the_mark_of_an_offset_is_the_mzxid_of_its_znode(store, zookeeper, path):
    def mzxids():
        return {p: zookeeper.get(f"{path}/{p.partition}")[1].mzxid for p in PARTITIONS[:2]}

    def marks(partitions):
        return {p: one.mark for p, one in store.stored(partitions).items()}

    created = mzxids()
    assert marks(PARTITIONS) == {**created, PARTITIONS[2]: None}, "creations are looked up"
    store.commit({PARTITIONS[0]: 11, PARTITIONS[1]: 10})
    assert marks(PARTITIONS[:2]) == mzxids()
    assert marks(PARTITIONS[:2])[PARTITIONS[1]] == created[PARTITIONS[1]], "what is unchanged is not written"
    zookeeper.set(f"{path}/0", b"3")
    assert marks(PARTITIONS[:1]) != {PARTITIONS[0]: mzxids()[PARTITIONS[0]]}, "of our write, not of theirs"
    store.fetch(PARTITIONS[:2])
    assert marks(PARTITIONS[:2]) == mzxids()


def test_a_created_offset_that_another_client_overwrote_has_no_mark(session, unique_name, zookeeper, path):
    store = ZooKeeperOffsetStore(session, unique_name)
    store.fetch(PARTITIONS[:1])
    store.commit({PARTITIONS[0]: 10})
    zookeeper.set(f"{path}/0", b"3")
    assert store.stored(PARTITIONS[:1]) == {PARTITIONS[0]: StoredOffset(10, None)}


def test_a_node_that_we_may_not_read_costs_its_partition_only(store, zookeeper, path, caplog):
    zookeeper.set_acls(f"{path}/0", [make_acl("world", "anyone", write=True)])
    assert store.fetch(PARTITIONS) == {PARTITIONS[1]: 10, PARTITIONS[2]: None}
    assert f"will not consume t-0: ZooKeeper refused get {path}/0: no permission" in caplog.text
    zookeeper.delete(f"{path}/0")


def test_known_offsets_are_forgotten_when_nothing_is_owned(store, zookeeper, path):
    assert store.fetch([]) == {}
    zookeeper.set(f"{path}/0", b"99")
    assert store.commit({PARTITIONS[0]: 10}) == {PARTITIONS[0]}
    assert zookeeper.get(f"{path}/0")[0] == b"10"


@pytest.mark.parametrize(("reset", "offset"), [("smallest", 0), ("largest", 3)])
def test_an_offset_beyond_the_log_is_reported_with_its_path(
    sandbox, zookeeper, unique_name, topic_factory, produce, caplog, reset, offset
):
    topic = topic_factory()
    produce(topic, [b"0", b"1", b"2"])
    path = f"/consumers/{unique_name}/offsets/{topic}/0"
    zookeeper.create(path, b"900", makepath=True)
    config = ConsumerConfig(
        zookeeper_connect=sandbox.zookeeper_connect,
        group_id=unique_name,
        auto_offset_reset=reset,
        consumer_timeout_ms=60_000,
        zookeeper_session_timeout_ms=30_000,
        zookeeper_connection_timeout_ms=20_000,
    )
    report = (
        f"offset 900, stored in {path}, of {topic}-0 is out of range: its log holds 0 to 3. Continuing at the {reset} "
        f"offset {offset} (auto.offset.reset)"
    )
    with ConsumerConnector(config) as connector:
        stream = connector.create_message_streams({topic: 1})[topic][0]
        eventually(lambda: report in caplog.text)
        produce(topic, [b"later"])
        assert next(stream).offset == offset


def test_an_offset_is_written_in_one_transaction_with_its_stamp(session, unique_name, zookeeper, path):
    """Also where many transactions are needed."""
    many = [TopicPartition("t", number) for number in range(600)]
    store = ZooKeeperOffsetStore(session, unique_name, is_stamping=True)
    for offset, stamp in ((5, Stamp("q", 1)), (6, Stamp("q", 2))):
        store.fetch(many)
        assert store.commit(dict.fromkeys(many, offset), stamp=stamp) == set(many)
        again = ZooKeeperOffsetStore(session, unique_name, is_stamping=True)
        assert {one.stamp for one in again.stored(again.fetch(many)).values()} == {stamp}
    zookeeper.set(f"{path}/7", b"6")
    stored = again.stored(again.fetch(many[7:9]))
    assert [stored[partition].stamp for partition in many[7:9]] == [None, Stamp("q", 2)]


def test_offsets_are_stored_where_stamps_are_refused(session, unique_name, zookeeper, path, caplog):
    parent = f"/consumers/{unique_name}/zkconsumer/commits"
    zookeeper.ensure_path(parent)
    zookeeper.set_acls(parent, [make_acl("world", "anyone", read=True)])
    store = ZooKeeperOffsetStore(session, unique_name, is_stamping=True)
    store.fetch(PARTITIONS)
    assert store.commit(dict.fromkeys(PARTITIONS, 5), stamp=Stamp("q", 1)) == set(PARTITIONS)
    assert "offsets are stored without the query that committed them" in caplog.text
    assert zookeeper.get(f"{path}/0")[0] == b"5"
