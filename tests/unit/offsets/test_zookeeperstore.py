"""ZooKeeperOffsetStore over znodes in memory: what is written, what is not, and what is reported."""

import pytest

from tests.fixtures.znodes import ZnodesInMemory
from zkconsumer.errors import SessionExpired, ZooKeeperRefused, ZooKeeperUnavailable
from zkconsumer.model import Stamp, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.offsets.rules.topicorigins import TopicOrigin
from zkconsumer.offsets.zookeeperstore import ZooKeeperOffsetStore

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
FENCE = "/session"


@pytest.fixture
def znodes():
    made = ZnodesInMemory()
    made.write(FENCE, b"")
    return made


@pytest.fixture
def store(znodes):
    return ZooKeeperOffsetStore(znodes, "g", lambda: FENCE)


def path_of(partition):
    return f"/consumers/g/offsets/{partition.topic}/{partition.partition}"


@pytest.fixture
def stored(znodes):
    """Offsets as another client stores them; without arguments, those that are stored."""

    def stored(offsets=None):
        for partition, offset in (offsets or {}).items():
            znodes.write(path_of(partition), offset)
        return {p: int(znodes.nodes[path_of(p)].data) for p in (T0, T1, U0) if path_of(p) in znodes.nodes}

    return stored


def test_stored_offsets_are_fetched(store, stored):
    stored({T0: b"5"})
    assert store.fetch([T0, T1]) == {T0: 5, T1: None}


@pytest.mark.parametrize("data", [b"five", b"", b"9223372036854775808"])
def test_a_malformed_offset_costs_its_partition_only(store, znodes, caplog, data):
    znodes.write(path_of(T0), data)
    znodes.write(path_of(T1), b"6")
    assert store.fetch([T0, T1]) == {T1: 6}
    assert f"group g will not consume t-0: znode {path_of(T0)}: " in caplog.text


def test_a_refused_offset_costs_its_partition_only(store, stored, znodes, caplog):
    stored({T0: b"5", T1: b"6"})
    znodes.refused = {path_of(T0)}
    assert store.fetch([T0, T1]) == {T1: 6}
    assert "group g will not consume t-0: " in caplog.text
    znodes.refused = set()
    assert store.fetch([T0], again=True) == {T0: 5}
    assert store.commit({T0: 5, T1: 6}) == {T0, T1}
    assert znodes.transactions == [], "a repeated read of one partition keeps what is known of the others"


def test_only_changed_offsets_are_written(store, stored, znodes):
    stored({T0: b"5", T1: b"6"})
    store.fetch([T0, T1])
    assert store.commit({T0: 5, T1: 7}) == {T0, T1}
    (written,) = znodes.transactions
    assert [operation.path for operation in written] == [path_of(T1)]
    store.commit({T0: 5, T1: 7})
    assert len(znodes.transactions) == 1
    assert store.commits() == {"zookeeper": 1}


@pytest.mark.parametrize("after", [0, 1 << 63], ids=["created", "record replaced by this member"])
def test_an_offset_of_an_earlier_topic_is_written_once_again(store, stored, znodes, after):
    stored({T0: b"5", U0: b"5"})
    store.fetch([T0, U0])
    created = after or znodes.nodes[path_of(T0)].mzxid + 1
    znodes.write("/brokers/topics/t", b"")
    store.consume({"t": TopicOrigin(TopicIdentity("new", created), created), "u": TopicOrigin(TopicIdentity("u", 1))})
    for _ in range(2):
        assert store.commit({T0: 5, U0: 5}) == {T0, U0}
    assert [[operation.path for operation in written] for written in znodes.transactions] == [[path_of(T0)]]
    assert znodes.nodes[path_of(T0)].mzxid >= created or after, "the next member does not ignore it"


def test_an_offset_of_zero_is_written_where_there_is_none(store, stored):
    store.fetch([T0])
    assert store.commit({T0: 0}) == {T0}
    assert stored() == {T0: 0}


def test_missing_nodes_are_created_with_their_parents(store, stored):
    store.fetch([T0, T1, U0])
    assert store.commit({T0: 1, T1: 2, U0: 3}) == {T0, T1, U0}
    assert stored() == {T0: 1, T1: 2, U0: 3}
    assert store.commits() == {"zookeeper": 3}


def test_a_node_that_was_deleted_is_created_again(store, stored, znodes):
    stored({T0: b"5"})
    store.fetch([T0])
    znodes.delete("/consumers/g/offsets/t")
    assert store.commit({T0: 6}) == {T0}
    assert stored() == {T0: 6}


def test_a_node_that_another_client_created_is_set(store, stored):
    store.fetch([T0])
    stored({T0: b"9"})
    assert store.commit({T0: 6}) == {T0}
    assert stored() == {T0: 6}


def test_an_offset_that_another_client_wrote_is_replaced_and_reported(store, stored, caplog):
    stored({T0: b"5"})
    store.fetch([T0])
    store.commit({T0: 6})
    assert caplog.text == "", "our own write"
    stored({T0: b"2"})
    store.commit({T0: 7})
    assert stored() == {T0: 7}
    assert f"{path_of(T0)} since this consumer left it at offset 6, version 1" in caplog.text
    caplog.clear()
    store.commit({T0: 8})
    assert caplog.text == "", "it is reported once"


def test_without_the_fence_nothing_is_written(store, stored, znodes):
    store.fetch([T0])
    znodes.delete(FENCE)
    with pytest.raises(SessionExpired):
        store.commit({T0: 5})
    assert stored() == {}


def test_a_refused_offset_is_not_done_and_stops_no_other(store, stored, znodes, caplog):
    stored({T0: b"1", T1: b"1"})
    store.fetch([T0, T1])
    znodes.refused = {path_of(T0)}
    assert store.commit({T0: 5, T1: 6}) == {T1}
    assert stored() == {T0: 1, T1: 6}
    assert "group g: an offset is not stored: set " in caplog.text


def commit_without_answer(store, znodes, offsets):
    znodes.loses_answer = True
    with pytest.raises(ZooKeeperUnavailable):
        store.commit(offsets)
    znodes.loses_answer = False


def test_a_lost_answer_is_not_taken_for_anothers_write(store, stored, znodes, caplog):
    stored({T0: b"5"})
    store.fetch([T0])
    commit_without_answer(store, znodes, {T0: 6})
    assert store.commit({T0: 6}) == {T0}
    assert caplog.text == ""


def test_an_offset_as_it_was_before_a_lost_answer_is_written(store, stored, znodes):
    stored({T0: b"5"})
    store.fetch([T0])
    commit_without_answer(store, znodes, {T0: 9})
    assert store.commit({T0: 5}) == {T0}
    assert stored() == {T0: 5}


def test_an_invalidated_offset_is_written_again(store, stored):
    stored({T0: b"5"})
    store.fetch([T0])
    stored({T0: b"2"})
    store.invalidate([T0])
    assert store.commit({T0: 5}) == {T0}
    assert stored() == {T0: 5}


def test_a_mark_is_the_transaction_of_the_last_write(store, stored, znodes):
    for offset in (b"4", b"5"):
        stored({T0: offset})
    store.fetch([T0, T1])
    assert store.stored([T0, T1, U0]) == {
        T0: StoredOffset(5, znodes.nodes[path_of(T0)].mzxid),
        T1: StoredOffset(None),
        U0: StoredOffset(None),
    }
    store.commit({T0: 6, T1: 1})
    assert store.stored([T0, T1]) == {p: StoredOffset(n, znodes.nodes[path_of(p)].mzxid) for p, n in ((T0, 6), (T1, 1))}


def test_a_mark_of_what_another_client_wrote_is_unknown(store, stored):
    """1. We create the node, and the answer lacks its mark. 2. Another client writes it. 3. The mark is read."""
    store.fetch([T0])
    store.commit({T0: 5})
    stored({T0: b"2"})
    assert store.stored([T0]) == {T0: StoredOffset(5, None)}


def test_what_another_client_wrote_to_a_kept_partition_is_reported(store, stored, znodes, caplog):
    """The same, whether or not this member gains other partitions between that write and its next commit."""
    stored({T0: b"80"})
    store.fetch([T0])
    stored({T0: b"5"})
    znodes.read.clear()
    assert store.fetch([T0, T1], kept=[T0]) == {T0: 80, T1: None}
    assert znodes.read == [path_of(T1)]
    assert store.commit({T0: 95, T1: 1}) == {T0, T1}
    assert f"another client wrote {path_of(T0)}" in caplog.text
    assert stored() == {T0: 95, T1: 1}


def test_a_kept_partition_is_read_again_after_a_commit_without_an_answer(store, stored, znodes):
    stored({T0: b"5"})
    store.fetch([T0])
    commit_without_answer(store, znodes, {T0: 6})
    assert store.fetch([T0, T1], kept=[T0]) == {T0: 6, T1: None}


def test_what_is_neither_kept_nor_fetched_is_forgotten(store, stored, caplog):
    stored({T0: b"5", T1: b"6"})
    store.fetch([T0, T1])
    store.fetch([T1], kept=[T1])
    stored({T0: b"7"})
    store.fetch([T0, T1], kept=[T1])
    store.commit({T0: 8})
    assert "another client" not in caplog.text


class Stamping:
    """A store that stamps its commits with plans of query "q"."""

    def __init__(self, znodes):
        self.plan = 1
        self.znodes = znodes
        self.store = self.again()

    def again(self):
        return ZooKeeperOffsetStore(self.znodes, "g", lambda: FENCE, is_stamping=True)

    def commit(self, offsets):
        return self.store.commit(offsets, stamp=self.plan and Stamp("q", self.plan))

    def stamps(self):
        """As a client that begins reads them."""
        reader = self.again()
        return {p: one.stamp and one.stamp.plan for p, one in reader.stored(reader.fetch([T0, T1, U0])).items()}


@pytest.fixture
def stamping(znodes):
    return Stamping(znodes)


def test_the_plan_of_a_commit_is_found_by_the_next_owner(stamping, znodes):
    stamping.store.fetch([T0, T1, U0])
    stamping.commit({T0: 5, T1: 6})
    stamping.plan = 2
    stamping.commit({T0: 5, T1: 7, U0: 3})
    assert stamping.stamps() == {T0: 1, T1: 2, U0: 2}
    assert znodes.nodes["/consumers/g/zkconsumer/commits/t/1"].data == b'{"version":1,"query":"q","plan":2}'


def test_an_offset_that_another_client_wrote_has_no_stamp(stamping, stored, znodes):
    stamping.store.fetch([T0, T1])
    stamping.commit({T0: 5, T1: 6})
    stored({T0: b"5"})
    znodes.write("/consumers/g/zkconsumer/commits/t/1", b"{")
    assert stamping.stamps() == {T0: None, T1: None, U0: None}


def test_a_plan_without_a_query_stamps_nothing(stamping, znodes):
    stamping.plan = None
    stamping.store.fetch([T0])
    assert stamping.commit({T0: 5}) == {T0}
    assert stamping.stamps()[T0] is None
    assert "/consumers/g/zkconsumer" not in znodes.nodes


def test_a_commit_whose_answer_was_lost_is_stamped_when_it_is_repeated(stamping, znodes):
    stamping.store.fetch([T0])
    commit_without_answer(stamping, znodes, {T0: 5})
    stamping.plan = 2
    assert stamping.commit({T0: 5}) == {T0}
    assert stamping.stamps()[T0] == 2


def test_a_stamp_counts_only_if_it_was_written(stamping, znodes):
    stamping.store.fetch([T0])
    stamping.commit({T0: 5})
    assert stamping.store.stored([T0])[T0].stamp.plan == 1
    znodes.delete("/consumers/g/zkconsumer/commits")
    stamping.commit({T0: 6})
    assert stamping.store.stored([T0])[T0].stamp is None


def test_stamps_that_were_deleted_are_written_again_by_a_later_commit(stamping, znodes):
    stamping.store.fetch([T0])
    stamping.commit({T0: 5})
    znodes.delete("/consumers/g/zkconsumer/commits")
    assert stamping.commit({T0: 6}) == {T0}
    assert stamping.commit({T0: 7}) == {T0}
    assert stamping.stamps()[T0] == 1


@pytest.mark.parametrize("many", [True, False])
def test_offsets_are_stored_where_stamps_may_not_be(stamping, stored, znodes, caplog, many, monkeypatch):
    znodes.refused = {f"/consumers/g/zkconsumer/commits/t/{number}" for number in (0, 1)}
    if many:  # of many refused operations ZooKeeper is not asked for each one
        transact = znodes.try_transact

        def refuse(fence, operations, **options):
            if refused := [one for one in operations if one.path in znodes.refused]:
                raise ZooKeeperRefused(f"{refused[0]}: not allowed")
            return transact(fence, operations, **options)

        monkeypatch.setattr(znodes, "try_transact", refuse)
    stamping.store.fetch([T0, T1])
    for offset in (5, 6):
        assert stamping.commit({T0: offset, T1: offset}) == {T0, T1}
    assert stored() == {T0: 6, T1: 6}
    (line,) = [record.getMessage() for record in caplog.records]
    assert "offsets are stored without the query that committed them" in line
