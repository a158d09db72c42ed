import pytest

from zkconsumer.model import TopicPartition
from zkconsumer.spark.offsets_json import EARLIEST, LATEST
from zkconsumer.spark.options import Timestamps
from zkconsumer.spark.planning import Span
from zkconsumer.spark.positions import AtTime, locate, start_positions, tell_losses

T0, T1, T2, T3 = (TopicPartition("t", n) for n in range(4))
SEEN = frozenset({T0, T1, T2})


def start(stored, finished=None, *, starting="group", reset="largest"):
    return start_positions(stored, finished or {}, starting=starting, seen_before=SEEN, reset=reset)


def test_a_new_query_starts_at_the_groups_offset_then_where_the_reset_policy_says():
    assert start({T0: 5, T1: None}).offsets == {T0: 5, T1: LATEST}
    assert start({T0: 0, T1: None}, reset="smallest").offsets == {T0: 0, T1: EARLIEST}


def test_a_partition_that_appeared_by_growth_starts_at_the_beginning_whatever_the_policy():
    assert start({T3: None}).offsets == {T3: EARLIEST}
    assert start({T3: 7}).offsets == {T3: 7}


@pytest.mark.parametrize(("word", "expected"), [("earliest", EARLIEST), ("latest", LATEST)])
def test_starting_offsets_win_over_the_groups(word, expected):
    assert start({T0: 5, T1: None}, starting=word).offsets == {T0: expected, T1: expected}


def test_starting_offsets_as_json_leave_the_others_to_the_group():
    assert start({T0: 5, T1: 6, T2: None}, starting={T0: 9, T2: EARLIEST}).offsets == {T0: 9, T1: 6, T2: EARLIEST}


@pytest.mark.parametrize("stored", [10, 15, 20])
def test_a_finished_batch_counts_while_the_stored_offset_lies_in_it(stored):
    result = start({T0: stored}, {T0: Span(10, 20)})
    assert result.offsets == {T0: 20}
    assert not result.foreign


@pytest.mark.parametrize("stored", [0, 9, 21])
def test_a_stored_offset_outside_the_finished_batch_is_law_and_reported(stored):
    result = start({T0: stored}, {T0: Span(10, 20)})
    assert result.offsets == {T0: stored}
    assert result.foreign == {T0: Span(10, 20)}


def test_a_deleted_offset_is_reported_too():
    result = start({T0: None}, {T0: Span(10, 20)})
    assert result.offsets == {T0: LATEST}
    assert result.foreign == {T0: Span(10, 20)}


def test_names_become_offsets_and_unknown_partitions_are_left_out():
    located = locate({T0: EARLIEST, T1: LATEST, T2: 7, T3: 0}, {T0: 3, T1: 0, T2: 0}, {T0: 9, T1: 8, T2: 7}, "largest")
    assert located.offsets == {T0: 3, T1: 8, T2: 7}
    assert not located.lost


@pytest.mark.parametrize(("reset", "expected"), [("smallest", 5), ("largest", 9)])
@pytest.mark.parametrize("wanted", [4, 10])
def test_offsets_that_the_log_does_not_hold_are_moved_and_reported(wanted, reset, expected):
    located = locate({T0: wanted}, {T0: 5}, {T0: 9}, reset)
    assert located.offsets == {T0: expected}
    assert located.lost == {T0: (wanted, 5, 9)}


def test_times_hold_for_the_partitions_they_are_given_for():
    given = Timestamps(given={T1: 7}, or_latest=True)
    assert start({T0: 5, T1: 6}, starting=given).offsets == {T0: 5, T1: AtTime(7, or_latest=True)}
    assert start({T0: 5}, starting=Timestamps(everywhere=9)).offsets == {T0: AtTime(9, or_latest=False)}


def test_losses_are_counted_where_the_number_is_known():
    told = tell_losses({T1: (10, 40, 50), T0: (90, 0, 50)})
    assert told == "t-0: wanted 90, the log has [0, 50), t-1: wanted 10, the log has [40, 50), 30 offsets are lost"
