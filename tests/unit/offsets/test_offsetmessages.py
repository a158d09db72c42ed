"""How callers handle a broker's answers about a group's offsets, with storage in ZooKeeper and in Kafka."""

from types import SimpleNamespace

import pytest

from zkconsumer.connector.versionzerorequests import commit_through_broker, fetch_through_broker
from zkconsumer.errors import CoordinatorMoved, GroupAuthorizationFailed, ProtocolError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.offsetcoordinator import OffsetCoordinator
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, unmarked
from zkconsumer.wire.brokersecurity import PLAINTEXT
from zkconsumer.wire.errorcodes import ErrorCode

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
TOPIC_AUTHORIZATION_FAILED = 29
TOO_LARGE = 12  # an error of one partition without special handling


class ScriptedBroker:
    """Both a connection and its client; answers for each partition in turn with the code and offset of a script."""

    security = PLAINTEXT

    def __init__(self, script, *, error=None):
        self._script = script
        self._error = error
        self.versions = []
        self.sent = []

    def version(self, key, name, oldest, newest):
        self.versions.append((name, oldest, newest))
        return newest

    def call(self, request, *, before_send=lambda: None):
        before_send()
        self.sent.append(bytes(request.encode()))
        if hasattr(request, "key"):
            return SimpleNamespace(error_code=0, node_id=1, host="broker", port=9092)
        topics = []
        for (name, partition), (code, offset) in self._script.items():
            one = SimpleNamespace(
                partition_index=partition, error_code=code, committed_offset=offset, metadata=f"written at {offset}"
            )
            topics.append(SimpleNamespace(name=name, partitions=[one]))
        return SimpleNamespace(topics=topics, **({} if self._error is None else {"error_code": self._error}))

    def ask(self, _, question, deadline):
        return question(self)

    def ask_any(self, question, deadline):
        return question(self)


def test_offsets_in_zookeeper_are_committed_by_version_zero():
    broker = ScriptedBroker({A0: (0, -1), A1: (TOO_LARGE, -1), B0: (0, -1)})
    outcome = commit_through_broker(broker, "g", {A0: 5, B0: 7, A1: 6})
    assert outcome == ({A0, B0}, {A1: TOO_LARGE})
    assert broker.versions == [("OffsetCommitRequest", 0, 0)]
    each = [number.to_bytes(4) + offset.to_bytes(8) + bytes(2) for number, offset in ((0, 5), (1, 6), (0, 7))]
    topics = [b"\0\1a" + (2).to_bytes(4) + each[0] + each[1], b"\0\1b" + (1).to_bytes(4) + each[2]]
    assert broker.sent == [b"\0\1g" + (2).to_bytes(4) + b"".join(topics)]  # no generation, no retention


def test_a_partition_unknown_to_old_brokers_has_no_offset():
    script = {A0: (0, 5), A1: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), B0: (TOO_LARGE, -1)}
    broker = ScriptedBroker(script)
    assert fetch_through_broker(broker, "g", list(script)) == ({A0: 5, A1: None}, {B0: TOO_LARGE})
    assert broker.versions == [("OffsetFetchRequest", 0, 0)]
    topics = b"\0\1a" + (2).to_bytes(4) + (0).to_bytes(4) + (1).to_bytes(4) + b"\0\1b" + (1).to_bytes(4) + bytes(4)
    assert broker.sent == [b"\0\1g" + (2).to_bytes(4) + topics]


def test_the_coordinator_stores_some_and_refuses_others():
    broker = ScriptedBroker({A0: (0, -1), A1: (TOO_LARGE, -1)})
    outcome = OffsetCoordinator(broker, "g").commit({A0: StoredOffset(5, "our mark"), A1: StoredOffset(6)})
    assert outcome == ({A0}, {A1: TOO_LARGE})
    assert broker.versions[1:] == [("OffsetCommitRequest", 1, 7)]
    assert b"our mark" in broker.sent[1], "the mark is the metadata of the commit"


def test_a_commit_to_a_moved_coordinator_is_an_error():
    broker = ScriptedBroker({A0: (TOO_LARGE, -1), A1: (0, -1), B0: (ErrorCode.NOT_COORDINATOR, -1)})
    with pytest.raises(CoordinatorMoved, match=r"commit of group g: NOT_COORDINATOR \(16\)"):
        OffsetCoordinator(broker, "g").commit(unmarked({A0: 5, A1: 6, B0: 7}))


def test_offsets_in_kafka_are_those_of_all_requested_partitions():
    broker = ScriptedBroker({A0: (0, 0), A1: (0, -1), B0: (0, -7)}, error=0)
    stored = OffsetCoordinator(broker, "g").fetch([A0, A1, B0])
    assert stored.found == {A0: StoredOffset(0, "written at 0"), A1: StoredOffset(None), B0: StoredOffset(None)}
    assert broker.versions[1:] == [("OffsetFetchRequest", 1, 5)]


def test_a_missing_answer_is_not_a_missing_offset():
    """Its position would be reset."""
    coordinator = OffsetCoordinator(ScriptedBroker({A0: (0, 5)}, error=0), "g")
    with pytest.raises(ProtocolError, match="an OffsetFetch response without 2 requested partitions"):
        coordinator.fetch([A0, A1, B0])


def test_a_partition_without_an_answer_does_not_count_as_committed():
    coordinator = OffsetCoordinator(ScriptedBroker({A0: (0, 5)}), "g")
    with pytest.raises(ProtocolError, match="an OffsetCommit response without 1 requested partitions"):
        coordinator.commit(unmarked({A0: 5, A1: 6}))


@pytest.mark.parametrize(
    ("code", "error", "raised"),
    [
        (ErrorCode.NOT_COORDINATOR, None, CoordinatorMoved),
        (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, CoordinatorMoved),
        (0, 30, GroupAuthorizationFailed),
        (30, None, GroupAuthorizationFailed),
        (ErrorCode.INVALID_GROUP_ID, None, ProtocolError),
        (TOO_LARGE, ErrorCode.NOT_COORDINATOR, CoordinatorMoved),
    ],
)
def test_an_error_of_the_group_is_an_error_of_the_whole(code, error, raised):
    broker = ScriptedBroker({A0: (0, 5), A1: (code, -1)}, error=error)
    with pytest.raises(raised, match="offsets of group g"):
        OffsetCoordinator(broker, "g").fetch([A0, A1])


def test_an_error_of_one_partition_affects_only_that_partition():
    broker = ScriptedBroker({A0: (0, 5), A1: (TOPIC_AUTHORIZATION_FAILED, -1)}, error=0)
    stored = OffsetCoordinator(broker, "g").fetch([A0, A1])
    assert stored.found == {A0: StoredOffset(5, "written at 5")}
    assert stored.errors == {A1: TOPIC_AUTHORIZATION_FAILED}


def test_a_retention_is_sent_by_the_versions_that_have_one():
    broker = ScriptedBroker({A0: (0, -1)})
    assert OffsetCoordinator(broker, "g").commit({A0: StoredOffset(5)}, retention_ms=7).refused == {}
    assert broker.versions[-1] == ("OffsetCommitRequest", 2, 4)
    no_member = (-1).to_bytes(4, signed=True) + bytes(2)
    assert broker.sent[-1].startswith(b"\0\1g" + no_member + (7).to_bytes(8))


def test_all_offsets_of_a_group_are_asked_for_without_names():
    broker = ScriptedBroker({A0: (0, 5), B0: (0, -1)}, error=0)
    found = OffsetCoordinator(broker, "g").fetch_all().found
    assert {partition: one.offset for partition, one in found.items()} == {A0: 5, B0: None}
    assert broker.versions[-1] == ("OffsetFetchRequest", 2, 5)
    assert broker.sent[-1] == b"\0\1g" + (-1).to_bytes(4, signed=True)
