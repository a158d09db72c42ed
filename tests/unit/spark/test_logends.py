"""LogEnds with a broker that answers, on a real socket, like a newly elected leader."""

import threading

import pytest

from tests.fixtures.waiting import eventually
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import BrokerUnavailable
from zkconsumer.model import TopicPartition
from zkconsumer.spark.logends import LogEnds, backoffs_s, stepped_back

A, B = (TopicPartition("t", n) for n in range(2))


def config(**changes):
    return ConsumerConfig(zookeeper_connect="unused:1", group_id="g", **{"refresh_leader_backoff_ms": 10, **changes})


@pytest.fixture
def log_ends(stub_broker):
    made = []

    def make(**changes):
        made.append(LogEnds(config(**changes), lambda: [stub_broker.broker]))
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
