"""Who stands for election, and when."""

from zkconsumer.group.coordinator.rules.candidacy import (
    LeaderProgress,
    free_slot,
    is_candidate,
    is_hung,
    look_interval,
    looks_at_once,
    progress,
    runs,
)


def test_there_are_at_most_three_candidates():
    assert free_slot([], "g_a") in range(3)
    assert free_slot(["leader", "candidate-0", "candidate-2", "epoch"], "g_a") == 1
    assert free_slot(["candidate-0", "candidate-1", "candidate-2"], "g_a") is None


def test_members_that_look_together_try_all_places():
    assert {free_slot([], f"g_{number}") for number in range(20)} == {0, 1, 2}
    assert {free_slot(["candidate-1"], f"g_{number}") for number in range(20)} == {0, 2}


def test_the_first_members_look_when_they_have_registered():
    assert [looks_at_once(number) for number in (1, 2, 3, 4, 50)] == [True, True, True, False, False]
    assert looks_at_once(None), "another member may have been faster, or none"


def test_a_candidate_runs_when_there_is_no_leader():
    assert runs(["candidate-1"], 1, 0.0, 6.0)
    assert not runs(["candidate-1", "leader"], 1, 60.0, 6.0)


def test_a_candidate_whose_node_was_deleted_is_none():
    assert not is_candidate(["candidate-0"], 1)
    assert not is_candidate(["candidate-0"], None)
    assert not runs(["candidate-0"], 1, 0.0, 6.0)


def test_any_member_runs_when_the_candidates_do_not():
    full = ["candidate-0", "candidate-1", "candidate-2"]
    assert not runs(full, None, 8.9, 6.0)
    assert runs(full, None, 9.0, 6.0)


def test_members_look_at_different_moments():
    intervals = [look_interval(f"g_{number}", 6.0) for number in range(100)]
    assert 4.5 <= min(intervals) < 4.8
    assert 7.2 < max(intervals) <= 7.5


def test_a_leader_that_plans_nothing_for_two_timeouts_is_hung():
    seen = progress(LeaderProgress(None, None), planned=7, present=7, now=0.0)
    assert not is_hung(seen, 100.0, 6.0)
    seen = progress(seen, planned=7, present=8, now=100.0)
    seen = progress(seen, planned=7, present=9, now=106.0)
    assert not is_hung(seen, 111.9, 6.0)
    assert is_hung(seen, 112.0, 6.0)


def test_a_leader_that_is_slow_is_not_hung():
    seen = progress(LeaderProgress(None, None), planned=7, present=8, now=0.0)
    seen = progress(seen, planned=8, present=9, now=10.0)
    assert not is_hung(seen, 12.0, 6.0)
    assert not is_hung(progress(seen, planned=9, present=9, now=12.0), 100.0, 6.0)


def test_a_leader_that_never_planned_is_hung_in_the_end():
    seen = progress(LeaderProgress(None, None), planned=None, present=3, now=0.0)
    assert is_hung(progress(seen, planned=None, present=3, now=12.0), 12.0, 6.0)
