"""Writes of a group's offsets to a ZooKeeper and brokers in memory, in which something happens in the middle."""

from contextlib import closing

import pytest

from tests.fixtures.groupsinmemory import session_in_memory
from tests.fixtures.migrationsinmemory import OFFSETS, PARTITIONS
from zkconsumer.core.offsetreset import ResetSpec
from zkconsumer.tools import hold
from zkconsumer.tools.offsetreset import plan_reset
from zkconsumer.tools.offsetwrites import execute

NAMES = [f"{partition} in Kafka" for partition in PARTITIONS]


@pytest.fixture
def session(servers):
    servers.write("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0],"1":[0],"2":[0],"3":[0],"4":[0]}}')
    with closing(session_in_memory(servers.server)) as session:
        yield session


def after_writing(monkeypatch, action):
    """Call ``action`` between the last write and the reading back."""
    outlast = hold.GroupHold.outlast_attempts
    pending = [action]

    def late(self):
        outlast(self)
        if pending:
            pending.pop()()

    monkeypatch.setattr(hold.GroupHold, "outlast_attempts", late)


def reset_in_kafka(servers, session):
    """Reset a group that has its offsets in Kafka to 0."""
    servers.brokers.store("g", OFFSETS)
    plan = plan_reset(session, servers.brokers, "g", {"t": None}, ResetSpec("earliest"), store="kafka")
    return execute(session, servers.brokers, plan, servers.file.with_name("snapshot"))


# -- offsets in Kafka -------------------------------------------------------------------------------------------------


def test_a_commit_to_kafka_is_read_back(servers, session):
    report = reset_in_kafka(servers, session)
    assert (report.faults, report.written) == ([], NAMES)
    assert servers.brokers.stored("g") == dict.fromkeys(PARTITIONS, 0)


def test_a_client_that_overwrites_a_commit_is_reported(servers, session, monkeypatch):
    after_writing(monkeypatch, lambda: servers.brokers.store("g", {**dict.fromkeys(PARTITIONS, 0), PARTITIONS[2]: 77}))
    (fault,) = reset_in_kafka(servers, session).faults
    assert fault.startswith("another client wrote t-2 in Kafka as 77, right after")


def test_what_a_commit_without_an_answer_has_stored_is_written(servers, session):
    servers.brokers.loses_answer = True
    report = reset_in_kafka(servers, session)
    assert (report.written, report.not_written) == (NAMES, [])
    assert "the connection broke" in report.faults[0]


def test_nothing_is_committed_once_the_hold_has_ended(servers, session):
    servers.brokers.before_commit = lambda _group: servers.server.end_session(session.session_id)
    report = reset_in_kafka(servers, session)
    assert (servers.brokers.stored("g"), report.written) == (OFFSETS, [])
    assert "ZooKeeper did not answer" in report.faults[0]
