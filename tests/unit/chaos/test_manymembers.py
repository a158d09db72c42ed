"""The row of a hundred members: its plans, what counts as a write, and when a trial has passed."""

from tests.chaos.manymembers import CHANGED, INTERVAL_S, MANY, Writes, judge, writes_below
from tests.chaos.txnlog import Change, Transaction

EVENTS = {"all join": 4.0, "one leaves": 1.0, "one is killed": 8.0}
SECONDS = 10 * INTERVAL_S


def test_one_leaves_and_another_is_killed_in_either_order():
    faults = [MANY.schedule(seed).faults for seed in range(1, 6)]
    assert {tuple(fault.kind for fault in one) for one in faults} == {("leave", "kill"), ("kill", "leave")}
    assert {tuple(fault.member for fault in one) for one in faults} == {(0, 1)}


def test_what_is_written_below_a_path_counts():
    several = (Change("set", "/a/b"), Change("set", "/a/c"), Change("set", "/ab"))
    transactions = [Transaction(n, 0, 0, changes) for n, changes in enumerate((several, (Change("close"),)))]
    assert writes_below(transactions, "/a") == Writes(2, 1)


def test_a_trial_passes_with_a_write_for_each_changed_partition_in_each_interval():
    verdict = judge(EVENTS, Writes(11 * CHANGED, 500), SECONDS)
    assert verdict.failures == []
    assert verdict.figures["reassigned"] == 8.0
    assert verdict.figures["changed partitions per s"] == CHANGED / INTERVAL_S


def test_kafka_has_no_transactions_to_count():
    verdict = judge(EVENTS, Writes(CHANGED, None), SECONDS)
    assert verdict.failures == []
    assert verdict.figures["transactions per s"] is None


def test_a_trial_fails_with_more_writes_none_or_a_long_rebalance():
    assert judge(EVENTS, Writes(11 * CHANGED + 1, 500), SECONDS).failures == ["5501 writes in 20.0 s, at most 5500"]
    assert judge(EVENTS, Writes(0, 0), SECONDS).failures == ["nothing was committed"]
    late = judge({**EVENTS, "one leaves": 15.5, "all join": None}, Writes(1, 1), SECONDS).failures
    assert late == [
        "all join: all partitions were owned after None s",
        "one leaves: all partitions were owned after 15.5 s",
    ]
