from datetime import UTC, datetime, timedelta, timezone

import pytest

from zkconsumer.errors import OffsetOutOfRange, UsageError
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.rules.rangepositions import (
    EARLIEST,
    LATEST,
    AtTime,
    describe_losses,
    ending_offsets,
    locate,
    positions_of_topic,
)

T0, T1, T2, T3 = (TopicPartition("t", n) for n in range(4))


def test_named_positions_have_the_numbers_of_kafkas_protocol():
    assert (EARLIEST, LATEST) == (-2, -1)


def test_names_become_offsets_and_partitions_without_leader_are_skipped():
    located = locate({T0: EARLIEST, T1: LATEST, T2: 7, T3: 0}, {T0: 3, T1: 0, T2: 0}, *[{T0: 9, T1: 8, T2: 7}] * 2)
    assert located.offsets == {T0: 3, T1: 8, T2: 7}
    assert not located.lost


@pytest.mark.parametrize(("wanted", "expected"), [(4, 5), (10, 9)])
def test_offsets_that_the_log_does_not_hold_move_to_its_nearest_end(wanted, expected):
    located = locate({T0: wanted}, {T0: 5}, {T0: 9}, {T0: 9})
    assert located.offsets == {T0: expected}
    assert located.lost == {T0: (wanted, 5, 9)}


def test_losses_are_counted_if_the_number_is_known():
    losses = locate({T1: 10, T0: 90}, {T0: 0, T1: 40}, {T0: 50, T1: 50}, {T0: 50, T1: 50}).lost
    assert describe_losses(losses) == (
        "t-0: wanted 90, the log has [0, 50), t-1: wanted 10, the log has [40, 50), 30 offsets are lost"
    )


def test_a_partition_without_both_ends_is_not_located():
    located = locate({T0: 5, T1: 5, T2: 5}, {T0: 0, T2: 0}, {T1: 9, T2: 9}, {T1: 9, T2: 9})
    assert (located.offsets, located.lost) == ({T2: 5}, {})


@pytest.mark.parametrize(("wanted", "expected"), [(LATEST, 6), (5, 5), (8, 8), (9, 9)])
def test_only_the_end_to_start_at_is_before_an_open_transaction(wanted, expected):
    located = locate({T0: wanted}, {T0: 0}, {T0: 9}, {T0: 6})
    assert (located.offsets, located.lost) == ({T0: expected}, {})


@pytest.mark.parametrize(
    ("start", "end", "starts", "ends"),
    [
        ("earliest", "latest", {T0: EARLIEST, T1: EARLIEST}, {T0: LATEST, T1: LATEST}),
        ({1: 5}, "latest", {T1: 5}, {T1: LATEST}),
        ("earliest", {0: 7}, {T0: EARLIEST}, {T0: 7}),
        ({1: 5, 0: 3}, {0: 7, 1: 5}, {T0: 3, T1: 5}, {T0: 7, T1: 5}),
    ],
)
def test_positions_name_the_partitions_to_read_or_all(start, end, starts, ends):
    assert positions_of_topic("t", (0, 1), start, end) == (starts, ends)


@pytest.mark.parametrize(
    ("moment", "ms"),
    [
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1000),
        (datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC), 1001),
        (datetime(1970, 1, 1, 1, 0, 0, 999_000, tzinfo=timezone(timedelta(hours=1))), 999),
        (datetime(1969, 12, 31, tzinfo=UTC), 0),
        (datetime.fromtimestamp(5).replace(tzinfo=None), 5000),
    ],
)
def test_a_time_is_the_first_millisecond_that_is_not_older(moment, ms):
    starts, _ = positions_of_topic("t", (0,), moment, "latest")
    assert starts == {T0: AtTime(ms, or_latest=True)}


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        ("first", "latest", "start must be earliest, latest, a datetime, or a mapping"),
        ("earliest", 5, "end must be earliest, latest, a datetime, or a mapping"),
        ([5], "latest", "start must be earliest, latest, a datetime, or a mapping"),
        ({}, "latest", "start must have an offset, from 0 on"),
        ({0: -1}, "latest", "start must have an offset, from 0 on"),
        ({0: True}, "latest", "start must have an offset, from 0 on"),
        ({0: 1}, {1: 5}, "start and end name different partitions"),
        ({0: 1, 2: 1}, "latest", "topic t has 2 partitions, and not number 2"),
        ({0: 6}, {0: 5}, "the start is after the end in t-0"),
    ],
)
def test_what_is_no_position_is_refused(start, end, why):
    with pytest.raises(UsageError, match=why):
        positions_of_topic("t", (0, 1), start, end)


def test_an_end_that_cannot_be_read_is_refused_with_the_reason():
    assert ending_offsets({T0: 5, T1: LATEST}, {T0: 9, T1: 9}, {T0: 6, T1: 6}) == {T0: 5, T1: 6}
    with pytest.raises(OffsetOutOfRange, match=r"t-0: 8, the last stable offset is 6 .*, t-1: 10, the log ends at 9"):
        ending_offsets({T0: 8, T1: 10}, {T0: 9, T1: 9}, {T0: 6, T1: 9})


def test_a_mapping_has_offsets_from_0_on_and_one_of_them_is_enough_to_be_refused():
    starts, _ = positions_of_topic("t", [0], {0: 0}, "latest")
    assert starts == {T0: 0}
    for wrong in ({0: 1, 1: -1}, {0: True, 1: 1}, {0: 1.5, 1: 1}, {}):
        with pytest.raises(UsageError, match="must have an offset, from 0 on"):
            positions_of_topic("t", [0, 1], wrong, "latest")


def test_the_only_partition_must_be_the_one_that_is_named():
    with pytest.raises(UsageError, match="different partitions"):
        positions_of_topic("t", [0, 1], {1: 3}, "latest", only=0)
    starts, ends = positions_of_topic("t", [0, 1], "earliest", "latest", only=1)
    assert (starts, ends) == ({T1: EARLIEST}, {T1: LATEST})


def test_partitions_come_in_order():
    starts, _ = positions_of_topic("t", [2, 0, 1], "earliest", "latest")
    assert list(starts) == [T0, T1, T2]


def test_an_end_at_what_can_be_read_is_no_loss_and_others_are_named_in_order():
    assert ending_offsets({T0: 5}, {T0: 9}, {T0: 5}) == {T0: 5}
    with pytest.raises(OffsetOutOfRange, match=r"t-0: 7, the last stable offset is 5 .*, t-1: 12, the log ends at 9"):
        ending_offsets({T1: 12, T0: 7}, {T0: 9, T1: 9}, {T0: 5, T1: 9})
