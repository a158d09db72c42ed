from zkconsumer.connector.consumermetrics import MinuteRates
from zkconsumer.group.memberstats import RebalanceCounts
from zkconsumer.group.rules.memberstate import MemberState, step_name
from zkconsumer.group.rules.rebalancetimes import RebalanceCause


def test_rates_are_those_of_the_last_minute():
    rates = MinuteRates()
    assert rates.slowest({}, 5.0) == 0
    assert rates.slowest({"a": (0.0, 20)}, 10.0) == 2
    assert rates.slowest({"a": (0.0, 20)}, 40.0) == 0.5
    # The reading at 10 s is a minute old now: earlier ones do not count any more.
    assert rates.slowest({"a": (0.0, 80)}, 70.0) == 1
    assert rates.slowest({"a": (0.0, 80)}, 200.0) == 0


def test_the_slowest_fetcher_counts_and_a_new_one_starts_at_zero():
    rates = MinuteRates()
    assert rates.slowest({"a": (0.0, 100), "b": (0.0, 10)}, 10.0) == 1
    assert rates.slowest({"a": (0.0, 100), "b": (15.0, 50)}, 20.0) == 5
    assert rates.slowest({"b": (15.0, 50)}, 25.0) == 5


def test_rebalances_are_counted_by_cause_and_failures_by_step():
    none = RebalanceCounts()
    counts = none.failed(None).failed(MemberState.CLAIMING).failed(MemberState.CLAIMING)
    counts = counts.finished(RebalanceCause.START, 1.5, 100.0).finished(RebalanceCause.MEMBERS, 2.0, 200.0)
    assert counts.failures == {step_name(None): 1, "4 claim ownership": 2}
    assert counts.by_cause == {RebalanceCause.START: 1, RebalanceCause.MEMBERS: 1}
    assert (counts.seconds, counts.last_cause, counts.last_finished) == (3.5, RebalanceCause.MEMBERS, 200.0)
    assert none == RebalanceCounts()
