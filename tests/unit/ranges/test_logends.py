"""LogEnds with a broker that answers, on a real socket, like a newly elected leader."""

import threading
from base64 import urlsafe_b64encode
from uuid import UUID

import pytest

from tests.fixtures.kafka import MetadataRequest
from tests.fixtures.stubbroker import EPOCH_VERSIONS, Log
from tests.fixtures.waiting import eventually
from zkconsumer.cluster import brokercatalog
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.logends import LogEnds, backoffs_s, stepped_back
from zkconsumer.wire.errorcodes import ErrorCode

A, B = (TopicPartition("t", n) for n in range(2))


def config(**changes):
    return ConsumerConfig(zookeeper_connect="unused:1", group_id="g", **{"refresh_leader_backoff_ms": 10, **changes})


@pytest.fixture
def log_ends(stub_broker):
    made = []

    def make(**changes):
        made.append(LogEnds(config(**changes), lambda: [stub_broker.broker], "group g"))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def script(stub_broker):
    """Give A these log ends, one per request, and the last one repeatedly; returns the requested partitions."""
    stub_broker.log(B).end = 7
    questions = []

    def begin(*ends):
        stub_broker.log(A).end = ends[0]

        def asked(partitions):
            stub_broker.log(A).end = ends[min(len(questions), len(ends) - 1)]
            questions.append(partitions)

        stub_broker.asked = asked
        return questions

    return begin


def test_an_end_that_moves_back_is_requested_until_it_is_right(log_ends, script):
    questions = script(40, 40, 60)
    assert log_ends().latest([A, B], {A: 50, B: 7}) == {A: 60, B: 7}
    assert questions == [{A, B}, {A}, {A}], "only the doubtful partition is requested again"


def test_the_end_of_a_truncated_log_is_finally_returned(log_ends, script):
    questions = script(40)
    assert log_ends(rebalance_max_retries=2).latest([A], {A: 50}) == {A: 40}
    assert len(questions) == 3


@pytest.mark.parametrize("known", [{}, {A: 40}, {B: 50}])
def test_a_plausible_end_is_requested_once(log_ends, script, known):
    questions = script(40)
    assert log_ends().latest([A], known) == {A: 40}
    assert len(questions) == 1


def test_an_end_is_unknown_if_its_leader_is_lost_meanwhile(log_ends, script, stub_broker):
    script(40)
    before = stub_broker.asked

    def asked(partitions):
        before(partitions)
        if partitions == {A}:
            stub_broker.leaderless = {A}

    stub_broker.asked = asked
    assert log_ends().latest([A, B], {A: 50}) == {B: 7}


def test_closing_ends_the_wait_for_a_better_answer(log_ends, script, caplog):
    script(40)
    ends = log_ends(refresh_leader_backoff_ms=3_600_000)
    raised = []

    def ask():
        try:
            ends.latest([A], {A: 50})
        except BrokerUnavailable as error:
            raised.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: caplog.records)
    ends.close()
    asking.join(60)
    assert len(raised) == 1


def test_partitions_that_stepped_back_are_those_below_a_known_offset():
    assert stepped_back({A: 4, B: 7}, {A: 5, B: 7}) == [A]
    assert stepped_back({A: 5}, {A: 5, B: 7}) == []
    assert stepped_back({A: 0, B: 0}, {A: -2}) == []


@pytest.mark.parametrize(
    ("retries", "pauses"), [(4, [0.2, 0.4, 0.8, 1.6]), (0, []), (-1, []), (1000, [0.2, 0.4, 0.8, 1.6, 3.2])]
)
def test_the_pauses_double_and_are_few(retries, pauses):
    assert backoffs_s(config(rebalance_max_retries=retries, refresh_leader_backoff_ms=200)) == pauses


@pytest.fixture
def log(stub_broker):
    """The log of A at a broker that checks leader epochs: 30 records of epoch 0, the last 20 of which may be lost."""
    stub_broker.versions = dict(EPOCH_VERSIONS)
    log = stub_broker.log(A)
    log.write(10, 0)
    log.write(20, 0)
    return log


def test_a_lost_position_is_found_although_the_log_has_grown_past_it(log_ends, log, caplog):
    ends = log_ends()
    assert ends.latest([A], {A: 0}) == {A: 30}
    log.elect_uncleanly(10, 25, 1)
    for _ in range(2):  # until the caller's position has moved there
        assert ends.latest([A], {A: 30}) == {A: 10}
    assert ends.latest([A], {A: 10}) == {A: 35}
    assert caplog.text.count("the leader of epoch 1 has lost the records from offset 10 on") == 1


def test_a_lost_position_is_not_moved_to_the_end_of_a_log_that_grew_less(log_ends, log):
    ends = log_ends(rebalance_max_retries=0)
    assert ends.latest([A], {A: 0}) == {A: 30}
    log.elect_uncleanly(10, 5, 1)
    assert ends.latest([A], {A: 30}) == {A: 10}


def test_a_clean_election_changes_no_end(log_ends, log, stub_broker, caplog):
    ends = log_ends()
    ends.latest([A], {A: 0})
    log.write(10, 1)
    assert ends.latest([A], {A: 30}) == {A: 40}
    assert ends.latest([A], {A: 40}) == {A: 40}
    assert stub_broker.epoch_questions == [{A: (0, 1)}]
    assert "lost" not in caplog.text


def test_a_position_past_the_seen_end_is_of_another_member(log_ends, log, stub_broker, caplog):
    ends = log_ends()
    ends.latest([A], {A: 0})
    log.write(10, 1)
    log.write(10, 2)
    assert ends.latest([A], {A: 40}) == {A: 50}
    assert (stub_broker.epoch_questions, caplog.text) == ([], "")


def test_a_partition_is_skipped_while_its_leader_cannot_be_asked(log_ends, log, stub_broker):
    ends = log_ends()
    ends.latest([A], {A: 0})
    log.elect_uncleanly(10, 25, 1)
    stub_broker.epoch_errors[A] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ends.latest([A], {A: 30}) == {}
    stub_broker.epoch_errors[A] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ends.latest([A], {A: 30}) == {A: 35}


def test_executors_get_the_epoch_in_which_an_end_was_seen(log_ends, log, stub_broker):
    stub_broker.log(B)
    ends = log_ends()
    log.write(10, 3)
    ends.latest([A, B])
    assert ends.epochs({A: 40, B: 1}) == {A: 3}
    log.elect_uncleanly(10, 25, 4)
    ends.latest([A], {A: 40})
    assert ends.epochs({A: 40}) == {A: 3}


def test_an_earlier_run_s_position_is_compared(log_ends, log):
    log.elect_uncleanly(10, 25, 1)
    ends = log_ends()
    ends.remember({A: (0, 30), B: (0, 5)})
    assert ends.latest([A], {A: 30}) == {A: 10}
    ends.latest([A], {A: 10})
    ends.remember({A: (0, 30)})
    assert ends.epochs({A: 35}) == {A: 1}


def test_a_topic_that_was_created_again_has_its_own_epochs(log_ends, log, stub_broker):
    stub_broker.topic_ids = {"t": UUID(int=1)}
    log.write(20, 5)
    ends = log_ends()
    assert ends.latest([A], {A: 0}) == {A: 50}
    created_again = log_ends()
    stub_broker.topic_ids = {"t": UUID(int=2)}
    stub_broker.logs[A] = Log()
    stub_broker.logs[A].write(10, 0)
    created_again.remember({A: (5, 50)})
    for each in (ends, created_again):
        assert each.latest([A], {A: 0}) == {A: 10}
        assert each.epochs({A: 10}) == {A: 0}


def test_a_topic_counts_as_deleted_if_brokers_keep_not_knowing_it(log_ends, stub_broker, monkeypatch):
    """A topic of the same name with another id is another one; a broker that has just started may not know any."""
    stub_broker.versions.update(EPOCH_VERSIONS)
    stub_broker.log(A)
    first, second = UUID(int=1), UUID(int=2)
    stub_broker.topic_ids = {"t": first, "u": second}
    stub_broker.topic_errors = {"v": ErrorCode.LEADER_NOT_AVAILABLE}
    recorded = urlsafe_b64encode(first.bytes).decode().rstrip("=")
    monkeypatch.setattr(brokercatalog, "DENIED_S", 0.2)
    known = {"t": recorded, "u": recorded, "v": recorded}
    assert log_ends().gone(known) == {"u"}
    stub_broker.log(TopicPartition("u", 0))
    assert log_ends().gone(known) == {"u"}, "another id"
    stub_broker.topic_ids["u"] = first
    stub_broker.logs.pop(A)
    asked = len(stub_broker.described)
    monkeypatch.setattr(brokercatalog, "DENIED_S", 60.0)

    def learn():
        eventually(lambda: len(stub_broker.described) > asked)
        stub_broker.log(A)

    learning = threading.Thread(target=learn)
    learning.start()
    assert log_ends(refresh_leader_backoff_ms=10).gone(known) == set(), "it is asked for again"
    learning.join()


def test_a_broker_that_cannot_report_a_deletion_is_not_believed(log_ends, stub_broker):
    stub_broker.versions[MetadataRequest.API_KEY] = 1
    assert log_ends().gone({"t": "id"}) == set()
