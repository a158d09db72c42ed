"""The row of a Spark query: its plans, and when a trial has passed."""

from collections import Counter

from tests.chaos.rows import ROWS
from tests.chaos.schedule import Schedule
from tests.chaos.sparkrow import SPARK, ahead, judge

PRODUCED = [(0, 0), (0, 1), (1, 0)]
WHOLE = [(0, [(0, 0), (1, 0)]), (1, [(0, 1)])]


def test_every_kind_of_fault_is_in_fifty_trials_and_a_schedule_comes_back():
    schedules = [SPARK.schedule(seed) for seed in range(1, 51)]
    kinds = {fault.kind for schedule in schedules for fault in schedule.faults}
    assert kinds == {"available", "driver", "executor", "worker", "stop", "member", "query"}
    assert {sum(fault.kind != "available" for fault in schedule.faults) for schedule in schedules} == {2, 3, 4}
    assert [Schedule.from_json(schedule.to_json()) for schedule in schedules] == schedules
    assert SPARK.name not in ROWS


def test_a_batch_that_is_repeated_with_the_same_rows_passes():
    verdict = judge(PRODUCED, [[*WHOLE, WHOLE[1]]], Counter(), alone=True)
    assert verdict.failures == []
    assert (verdict.figures["produced"], verdict.figures["lost"], verdict.figures["duplicates"]) == (3, 0, 1)


def test_a_batch_that_is_repeated_with_other_rows_fails():
    verdict = judge(PRODUCED, [[*WHOLE, (1, [(0, 1), (1, 0)])]], Counter(), alone=False)
    assert verdict.failures == ["batch 1 was repeated with other rows"]


def test_a_row_in_two_batches_fails_unless_others_had_its_partition():
    twice = [*WHOLE, (2, [(0, 1)])]
    assert judge(PRODUCED, [twice], Counter(), alone=True).failures == ["1 rows are in two batches: [(0, 1)]"]
    assert judge(PRODUCED, [twice], Counter(), alone=False).failures == []


def test_what_nobody_was_handed_out_is_lost():
    assert judge(PRODUCED, [WHOLE[:1]], Counter(), alone=True).failures == ["1 records lost: [(0, 1)]"]
    assert judge(PRODUCED, [WHOLE[:1], [(0, [(0, 1)])]], Counter(), alone=False).failures == []
    assert judge(PRODUCED, [WHOLE[:1]], Counter({(0, 1): 1}), alone=False).failures == []
    assert judge([], [[]], Counter(), alone=True).failures == ["nothing was produced"]


def test_a_row_that_was_not_produced_fails():
    assert judge(PRODUCED, [WHOLE], Counter({(9, 9): 1}), alone=False).failures == [
        "1 rows that were not produced: [(9, 9)]"
    ]


def test_an_offset_is_ahead_that_nobody_has_finished():
    assert ahead({0: 5, 1: 3}, {0: 5}, {1: 3}) == {}
    assert ahead({0: 6, 1: 3}, {0: 5}, {0: 4}) == {0: 6, 1: 3}
    assert ahead({0: 1}) == {0: 1}
