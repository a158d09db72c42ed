import pytest

from zkconsumer.model import TopicPartition
from zkconsumer.ranges.rules.rangepositions import EARLIEST, LATEST, describe_losses, locate

T0, T1, T2, T3 = (TopicPartition("t", n) for n in range(4))


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
