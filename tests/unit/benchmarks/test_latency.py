"""What the latency benchmark appends, and what it makes of the figures of its contestants."""

import os
import time

import pytest

from benchmarks.contest import OURS
from benchmarks.latency import CONTESTANTS, Appends, LatencyContests, Measured, installed
from benchmarks.machine import cpu_s
from benchmarks.members import JVM
from benchmarks.peers import AIOKAFKA, CONFLUENT
from benchmarks.stamps import Delays

NONE = Measured(Delays(0, float("nan"), float("nan")), 7.0)


@pytest.mark.parametrize(("rate", "records"), [(1, 1), (10, 1), (500, 1), (501, 2), (1000, 2), (50_000, 100)])
def test_appends_give_the_rate_and_are_not_too_frequent(rate, records):
    appends = Appends.of(rate)
    assert appends.records == records
    assert appends.records / appends.every_s == pytest.approx(rate)
    assert appends.every_s >= 0.002 - 1e-9


def test_an_idle_consumer_has_no_latency():
    contests = LatencyContests([10, 0], [OURS, CONFLUENT])
    contests.add(OURS, 0, NONE, 5.0)
    assert [contest.title for contest in contests.all()] == [
        "Idle: CPU",
        "10 records/s: latency, p50",
        "10 records/s: latency, p99",
        "10 records/s: CPU",
    ]
    assert [contest.measured[OURS] for contest in contests.all()] == [[7.0], [], [], []]
    assert all(contest.notes == [] for contest in contests.all())


def test_figures_are_those_of_every_round():
    contests = LatencyContests([10], [CONFLUENT])
    for p50 in (1.0, 2.0):
        contests.add(CONFLUENT, 10, Measured(Delays(50, p50, 9.0), 3.0), 5.0)
    assert [contest.measured[CONFLUENT] for contest in contests.all()] == [[1.0, 2.0], [9.0, 9.0], [3.0, 3.0]]
    assert [contest.notes for contest in contests.all()] == [[], [], []]


def test_a_contestant_that_did_not_keep_up_is_noted():
    contests = LatencyContests([1000], [AIOKAFKA])
    contests.add(AIOKAFKA, 1000, Measured(Delays(1000, 5.0, 9.0), 3.0), 5.0)
    contests.add(AIOKAFKA, 1000, NONE, 5.0)
    p50, p99, cpu = contests.all()
    assert p50.notes == [
        "aiokafka received 200 of 1,000 records/s in a round.",
        "aiokafka received 0 of 1,000 records/s in a round.",
    ]
    assert (p50.measured[AIOKAFKA], p99.measured[AIOKAFKA], cpu.measured[AIOKAFKA]) == ([5.0], [9.0], [3.0, 7.0])


def test_packages_that_are_missing_do_not_take_part(monkeypatch):
    monkeypatch.setattr("benchmarks.latency.find_spec", lambda name: None if name == "aiokafka" else name)
    assert installed() == [name for name in CONTESTANTS if name != AIOKAFKA]
    assert JVM in installed()


def test_the_cpu_time_of_a_process_is_that_of_its_clock():
    before = time.process_time()
    used = cpu_s(os.getpid())
    assert before <= used <= time.process_time()
    with pytest.raises(ProcessLookupError):
        cpu_s(2**22 + 1)  # above the largest id
