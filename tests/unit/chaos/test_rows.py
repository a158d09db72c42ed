"""What the rows require of a trial: planted violations fail it, and what JVM members do does not."""

from dataclasses import replace

import pytest

from tests.chaos.kinds import IN_BROKERS, OURS, ZOOKEEPER
from tests.chaos.rows import ROWS
from tests.chaos.verdicts import Evidence
from zkconsumer.testing.checker import check
from zkconsumer.testing.ledger import (
    Claimed,
    Committed,
    Delivered,
    Done,
    Faulted,
    Gone,
    Ledger,
    Produced,
    Registered,
    Released,
    SessionEnded,
    Stalled,
)

T = 2.0


def delivered(number, owner, at, asked=None):
    return Delivered(number, "t", 0, number, owner, 0, 1, at - 0.01 if asked is None else asked, at)


def run(*further, kind="kill", began=10.0, ended=10.0, claimed_again=13.0):
    """A delivers record 0; its session ends 2 s after the fault; B claims and delivers record 1."""
    return Ledger(
        [
            Produced(0, "t", 0, 0, 1.0),
            Produced(1, "t", 0, 1, 1.0),
            Registered("a", 1, 0.5),
            Registered("b", 2, 0.5),
            Claimed("t", 0, "a", 1, 5, 1.0),
            delivered(0, "a", 9.0),
            Committed("t", 0, 1, "zookeeper", "a", 1, 0, 6, 6, 9.5),
            Faulted(kind, "a", began, ended),
            Released("t", 0, "a", 1, 7, 12.0, expired=True),
            SessionEnded("a", 1, 12.0),
            Claimed("t", 0, "b", 2, 8, claimed_again),
            delivered(1, "b", claimed_again + 1.0),
            *further,
        ]
    )


def verdict(row, ledger, ours=("a", "b")):
    return ROWS[row].verdict(Evidence(ledger, check(ledger), frozenset(ours), T, manual=False))


STALE = Committed("t", 0, 0, "zookeeper", "a", 1, 1, 9, 6, 14.5)
LATE = delivered(0, "a", 14.0)


def test_a_faultless_kill_passes_with_its_figures():
    found = verdict("R1", run())
    assert found.failures == []
    assert (found.figures["reassigned"], found.figures["delivering"]) == (3.0, 4.0)


def test_a_kill_whose_partitions_are_not_reassigned_in_time_fails():
    assert "reassigned after 5.5 s" in verdict("R1", run(claimed_again=15.5)).failures[0]


@pytest.mark.parametrize(
    "violation", [Produced(2, "t", 0, 2, 1.0), STALE, LATE, delivered(0, "b", 13.5)], ids=lambda one: type(one).__name__
)
def test_a_violation_by_ours_fails_every_trial(violation):
    assert verdict("R1", run(violation)).failures


@pytest.mark.parametrize("violation", [STALE, LATE])
def test_a_violation_by_a_jvm_is_counted_and_no_failure(violation):
    found = verdict("R1", run(violation), ours=["b"])
    assert found.failures == []
    assert found.figures["stale commits by JVMs"] == (2 if violation is STALE else 0)


def test_a_stale_commit_of_an_unknown_session_is_a_failure():
    assert verdict("R1", run(replace(STALE, writer="", session=77)), ours=["b"]).failures


def test_a_trial_in_which_nothing_was_produced_fails():
    assert verdict("R1", Ledger([])).failures == ["nothing was produced"]


def test_an_outage_ends_delivery_with_the_lease():
    assert verdict("R3", run(kind="network", ended=18.0)).failures == []
    assert verdict("R3", run(delivered(0, "a", 11.5), kind="network", ended=18.0)).failures == []
    late = verdict("R3", run(delivered(0, "a", 11.9), kind="network", ended=18.0))
    assert "after the lease had ended" in late.failures[0]


def test_an_outage_counts_while_it_is_certainly_in_force():
    def judged(fault, *further):
        return verdict("R3", Ledger([*(one for one in run(*further).records if not isinstance(one, Faulted)), fault]))

    assert judged(Faulted("network", "a", 10.0, 18.0, 10.5, 17.0), delivered(0, "a", 11.9)).failures == []
    assert judged(Faulted("network", "a", 10.0, 18.0, 10.0, 11.8), delivered(0, "a", 11.9)).failures == []
    assert judged(Faulted("network", "a", 10.0, 18.0, 10.1, 17.0), delivered(0, "a", 11.9)).failures


def test_a_process_that_is_not_run_disturbs_a_trial():
    def disturbance(owner, seconds, kind="kill"):
        return verdict("R1", run(Stalled(owner, 3.0, 3.0 + seconds), kind=kind)).disturbance

    assert disturbance("b", 1.5) == disturbance("", 1.5) == "a process of the trial was not run for 1.50 s"
    assert disturbance(ZOOKEEPER, 1.5)
    assert disturbance("b", 0.5) == disturbance(ZOOKEEPER, 5.0, kind="servers") == ""
    assert disturbance("a", 5.0, kind="pause") == "", "a fault has stopped it"
    for kind, served, text in (
        ("broker", 23.0, "a broker that was killed served again after 13.0 s"),
        ("broker", 20.0, ""),
        ("servers", 23.0, ""),
    ):
        fault = Faulted(kind, "", 10.0, 30.0, established=served)
        assert verdict("R1", run(fault)).disturbance == text


def test_a_short_outage_permits_to_continue():
    assert verdict("R3", run(delivered(0, "a", 11.9), kind="network", ended=11.0)).failures == []


def test_an_expired_session_delivers_no_longer_than_its_lease():
    ledger = run(kind="expire", began=11.9, ended=12.1)
    assert verdict("R2", ledger).failures == []
    late = run(delivered(0, "a", 13.9), kind="expire", began=11.9, ended=12.1, claimed_again=13.95)
    assert "after the lease had ended" in verdict("R2", late).failures[0]
    assert "did not end" in verdict("R2", run(kind="expire", began=11.0, ended=11.5)).failures[0]


def test_an_ensemble_recovers_from_when_it_serves():
    def judged(established):
        fault = Faulted("ensemble", "", 3.0, 30.0, established, 30.0)
        return verdict("R5-ensemble", Ledger([*(one for one in run().records if not isinstance(one, Faulted)), fault]))

    assert judged(8.0).figures["delivering"] == 1.0
    late = Produced(5, "t", 0, 5, 12.0), delivered(5, "b", 25.0)
    serves = Faulted("ensemble", "", 10.0, 10.0, 14.5)
    assert "delivered again after 10.5 s" in verdict("R5-ensemble", run(*late, serves)).failures[0]


def test_a_partition_that_waits_for_long_fails_where_progress_is_judged():
    late = Produced(5, "t", 0, 5, 20.0), delivered(5, "b", 51.0)
    assert verdict("MIX", run(*late)).failures == []
    assert verdict("R6", run(*late)).failures == ["a partition that had records delivered none for 31.0 s"]
    assert verdict("R6", run(*late[:1], delivered(5, "b", 49.0))).failures == []


def test_what_no_broker_has_is_counted_and_moves_the_offset_back_once_for_each_fault():
    back = replace(STALE, writer="b", session=2)
    gone = Produced(7, "t", 0, 7, 2.0), Gone(7, 20.0)
    assert "offsets moved back" in verdict("R6", run(back)).failures[0]
    found = verdict("R6", run(*gone, back, kind="unclean"))
    assert found.failures == []
    assert (found.figures["gone"], found.figures["gone undelivered"], found.figures["lost"]) == (1, 1, 0)
    assert "offsets moved back" in verdict("R6", run(*gone, back)).failures[0], "no fault has removed it"
    again = replace(back, offset=3, mzxid=10, at=15.0), replace(back, offset=1, mzxid=11, at=16.0)
    assert "1 offsets moved back" in verdict("R6", run(*gone, back, *again, kind="unclean")).failures[0]
    assert verdict("R6", run(*gone, back, *again, kind="recreate")).failures == [], "twice of a topic created again"


def test_one_batch_may_arrive_after_a_pause():
    uncommitted = Produced(8, "t", 0, 8, 1.0), replace(LATE, number=8, offset=8)
    assert verdict("R4", run(*uncommitted, kind="pause", ended=14.0)).failures == []
    elsewhere = Claimed("t", 1, "b", 2, 9, 13.0), replace(LATE, partition=1)
    found = verdict("R4", run(*uncommitted, *elsewhere, kind="pause", ended=14.0))
    assert "2 records of partitions [0, 1] were delivered late" in found.failures[-1]


def test_each_stop_of_a_member_permits_one_batch_in_flight():
    uncommitted = Produced(8, "t", 0, 8, 1.0), replace(LATE, number=8, offset=8)
    elsewhere = Claimed("t", 1, "b", 2, 9, 13.0), replace(LATE, partition=1)
    stopped_again = Faulted("pause", "a", 15.0, 16.0)
    assert verdict("R8", run(*uncommitted, kind="pause", ended=14.0)).failures == []
    assert "stopped 0 times" in verdict("R8", run(*uncommitted, kind="kill", ended=14.0)).failures[-1]
    late_twice = verdict("R8", run(*uncommitted, *elsewhere, kind="pause", ended=14.0)).failures[-1]
    assert late_twice == "a, stopped 1 times, delivered t-0, t-1 late"
    both = verdict("R8", run(*uncommitted, *elsewhere, stopped_again, kind="pause", ended=14.0)).failures
    assert not any("stopped" in failure for failure in both)


def test_in_a_group_of_brokers_only_a_stopped_process_delivers_late():
    uncommitted = Produced(8, "t", 0, 8, 1.0), replace(LATE, number=8, offset=8)
    assert verdict("KAFKA", run(*uncommitted, kind="pause", ended=14.0)).failures == []
    assert "1 overlapping deliveries" in verdict("KAFKA", run(*uncommitted)).failures[-1]
    elsewhere = Claimed("t", 1, "b", 2, 9, 13.0), replace(LATE, partition=1)
    found = verdict("KAFKA", run(*uncommitted, *elsewhere, kind="pause", ended=14.0))
    assert "2 records of partitions [0, 1] were delivered late" in found.failures[-1]


def test_a_clean_bounce_permits_no_duplicate_of_ours():
    uncommitted = Produced(5, "t", 0, 5, 1.0), delivered(5, "a", 9.7), delivered(5, "b", 15.0)
    ledger = run(*uncommitted, kind="bounce")
    assert "1 duplicates" in verdict("R7-clean", ledger).failures[0]
    assert verdict("R7-clean", ledger, ours=["b"]).failures == []
    assert verdict("R7-clean", ledger, ours=["a"]).failures == [], "a JVM has read the offset too early"
    assert verdict("R7-hard", ledger).failures == []


def test_nothing_that_waits_for_zookeeper_begins_while_it_is_paused():
    """The injector would wait for ZooKeeper, and nobody else would let it continue."""
    for seed in range(300):
        faults = ROWS["MIX"].schedule(seed).faults
        pauses = [one for one in faults if one.kind == "servers"]
        for fault in faults:
            if fault.kind in ("broker", "expire", "grow", "trim"):
                assert not any(one.at <= fault.at < one.until for one in pauses), faults


DONE = (Done(0, "t", 0, 0, "a", 9.2), Done(7, "t", 0, 7, "b", 14.2), Done(1, "t", 0, 1, "b", 14.3))


def test_where_records_are_declared_done_nothing_else_is_committed():
    held = Produced(7, "t", 0, 7, 1.0), delivered(7, "b", 14.1)
    found = verdict("DONE", run(*held, *DONE))
    assert found.failures == []
    assert found.figures["done out of order"] == 1
    early = verdict("DONE", run(*held, *DONE[1:], Done(0, "t", 0, 0, "a", 9.6)))
    assert "1 commits of what was not done: ['commit of t-0 offset 1 by a" in early.failures[0]


def test_what_a_killed_member_had_not_done_is_done_by_another_one():
    held = Produced(7, "t", 0, 7, 1.0), delivered(7, "b", 14.1), delivered(1, "a", 9.1)
    found = verdict("DONE", run(*held, *DONE))
    assert found.failures == []
    assert found.figures["unfinished by one that was killed"] == 1
    assert "1 records were handed out and never done: [1]" in verdict("DONE", run(*held, *DONE[:2])).failures[0]


def test_a_trial_without_records_done_out_of_order_shows_nothing():
    held = Produced(7, "t", 0, 7, 1.0), delivered(7, "b", 14.4)
    in_order = (DONE[0], DONE[2], replace(DONE[1], at=14.5))
    assert verdict("DONE", run(*held, *in_order)).failures == ["no record was done out of order"]


@pytest.mark.parametrize("ours", [OURS, IN_BROKERS])
def test_each_trial_in_which_records_are_declared_done_kills_a_member(ours):
    schedules = [ROWS["DONE"].schedule(seed, ours=ours) for seed in range(100)]
    assert all(any(fault.kind == "kill" for fault in one.faults) for one in schedules)
    assert {one.done for one in schedules} == {True}
    assert min(len(one.faults) for one in schedules) > 1
    assert "jvm" not in ROWS["DONE"].schedule(1, jvm=True, ours=ours).members
