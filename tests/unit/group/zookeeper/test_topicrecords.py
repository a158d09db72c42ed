"""The records of a group's topics, on a ZooKeeper in memory."""

import pytest

from tests.fixtures.kazooinmemory import KazooInMemory
from tests.fixtures.zookeeperinmemory import ZooKeeperInMemory
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.group.zookeeper.topicrecords import TopicRecords, read_origins, replace_records
from zkconsumer.model import TopicIdentity
from zkconsumer.offsets.rules.topicorigins import WrittenFor
from zkconsumer.zookeeper.session import ZkSession

PARENT = "/consumers/g/zkconsumer/topics"
OLD, NEW = TopicIdentity("old", 1), TopicIdentity("new", 10**6)
DESCRIBED_BY_BROKERS = NEW._replace(czxid=None)


@pytest.fixture
def server():
    return ZooKeeperInMemory()


@pytest.fixture
def zk(server):
    config = ConsumerConfig(zookeeper_connect="memory:1", group_id="g")
    session = ZkSession.from_config(config, client=lambda **arguments: KazooInMemory(server, **arguments))
    session.open()
    return session


@pytest.fixture
def records(zk):
    return TopicRecords(zk, "g", lambda: "/")


def test_another_topic_of_the_same_name_is_recognised_from_then_on(records, zk):
    records.consume({"t": OLD, "u": OLD})
    assert records.replaced({"t": NEW, "u": OLD, "v": NEW}) == {"t"}
    seen = read_origins(zk, "g", {"t": NEW, "u": OLD, "v": NEW})
    assert [topic for topic, origin in seen.items() if origin.judge(5) is WrittenFor.EARLIER] == ["t"]
    for _ in range(2):
        found = records.consume({"t": NEW, "u": OLD})
        assert [found[topic].judge(5) is WrittenFor.EARLIER for topic in "tu"] == [True, False]
    assert records.replaced({"t": NEW}) == set()


def test_a_record_that_is_right_is_not_written_again(records, zk):
    records.consume({"t": OLD})
    version = zk.get(f"{PARENT}/t").version
    records.consume({"t": OLD})
    assert zk.get(f"{PARENT}/t").version == version


def test_a_malformed_record_is_written_again(records, zk, caplog):
    zk.ensure_path(f"{PARENT}/t", b"?")
    assert records.consume({"t": NEW})["t"].judge(5) is not WrittenFor.EARLIER
    assert f"znode {PARENT}/t: not the record of a topic" in caplog.text
    caplog.clear()
    records.consume({"t": NEW})
    assert caplog.text == ""


@pytest.mark.parametrize("guarded", ["/consumers/g/zkconsumer", f"{PARENT}/t"])
def test_a_group_that_may_not_write_records_consumes(server, records, caplog, guarded, zk):
    zk.ensure_path("/consumers/g/zkconsumer" if guarded.endswith("zkconsumer") else PARENT, b"")
    server.guarded.add(guarded)
    for _ in range(2):
        assert records.consume({"t": NEW})["t"].identity == NEW
    assert caplog.text.count("without a record of its topics") <= 1


def test_a_reader_writes_no_record(records, zk):
    reader = TopicRecords(zk, "g", None)
    assert reader.consume({"t": NEW})["t"].judge(5) is not WrittenFor.EARLIER
    assert zk.get(PARENT) is None
    records.consume({"t": OLD})
    assert reader.consume({"t": NEW})["t"].judge(5) is WrittenFor.EARLIER
    assert records.replaced({"t": NEW}) == {"t"}


def test_what_a_tool_writes_after_replacing_records_is_of_the_present_topic(records, zk):
    """Brokers describe the topics; other offsets of the group stay those of the former topic."""
    records.consume({"t": OLD, "u": OLD})
    zk.ensure_path("/former", b"")
    replace_records(zk, "g", "/", {"t": DESCRIBED_BY_BROKERS, "u": OLD, "v": NEW})
    zk.ensure_path("/written", b"")
    origin = records.consume({"t": DESCRIBED_BY_BROKERS})["t"]
    assert [origin.judge(zk.get(path).mzxid) is WrittenFor.EARLIER for path in ("/former", "/written")] == [True, False]
    assert (records.replaced({"u": NEW}), zk.get(f"{PARENT}/v")) == ({"u"}, None)


def test_a_member_does_not_replace_what_another_one_has_replaced(records, zk, monkeypatch):
    """It would count the commits of the other one, after that, as those of the former topic."""
    records.consume({"t": OLD})
    write = zk.try_transact

    def write_late(fence, operations):
        monkeypatch.undo()
        TopicRecords(zk, "g", lambda: "/").consume({"t": DESCRIBED_BY_BROKERS})
        zk.ensure_path("/committed", b"")
        return write(fence, operations)

    monkeypatch.setattr(zk, "try_transact", write_late)
    records.consume({"t": DESCRIBED_BY_BROKERS})
    assert records.consume({"t": DESCRIBED_BY_BROKERS})["t"].judge(zk.get("/committed").mzxid) is not WrittenFor.EARLIER


def test_a_record_that_may_not_be_written_makes_no_offset_one_of_an_earlier_topic(records, server):
    """As one that may not be read: an offset that the topic's own members wrote would be ignored for ever."""
    records.consume({"t": DESCRIBED_BY_BROKERS._replace(topic_id="former")})
    server.guarded.add(f"{PARENT}/t")
    assert records.consume({"t": DESCRIBED_BY_BROKERS})["t"].judge(5000) is not WrittenFor.EARLIER
