"""What is outside of its log, and what would move back, with values."""

import pytest

from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets.rules.offsetguards import moving_back, nearest_in_log, outside_logs
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = LogRange(10, 100)


@pytest.mark.parametrize(
    ("offset", "log", "outside"),
    [(9, LOG, True), (10, LOG, False), (100, LOG, False), (101, LOG, True), (None, LOG, False), (9, None, False)],
)
def test_an_offset_is_outside_where_its_log_cannot_be_read(offset, log, outside):
    assert outside_logs({P1: offset, P0: 50}, {P0: LOG, P1: log}) == ([P1] if outside else [])
    assert outside_logs({P1: offset}, {}) == []


@pytest.mark.parametrize(
    ("new", "stored", "log", "back"),
    [
        (10, 90, LOG, True),
        (90, 90, LOG, False),
        (90, 10, LOG, False),
        (10, 90, None, True),
        (100, 500, LOG, False),
        (99, 500, LOG, True),
        (None, 90, LOG, False),
        (10, None, LOG, False),
    ],
)
def test_an_offset_moves_back_if_records_are_read_again(new, stored, log, back):
    assert moving_back({P0: new, P1: 50}, {P0: stored, P1: 50}, {P0: log}) == ([P0] if back else [])


@pytest.mark.parametrize(
    ("offset", "log", "recreated", "nearest", "outside"),
    [
        (5, LOG, (), 10, True),
        (50, LOG, (), 50, False),
        (500, LOG, (), 100, True),
        (500, None, (), 500, False),
        (500, None, ("t",), 500, False),
        (50, LOG, ("t",), 10, True),
        (10, LOG, ("t",), 10, False),
        (50, LOG, ("u",), 50, False),
    ],
)
def test_the_nearest_offset_is_in_the_log_and_of_a_new_topic_its_start(offset, log, recreated, nearest, outside):
    assert nearest_in_log(P0, offset, {P0: log}, recreated) == nearest
    assert outside_logs({P0: offset}, {P0: log}, recreated) == ([P0] if outside else [])


def test_partitions_are_sorted():
    backwards = [TopicPartition("t", number) for number in range(5, -1, -1)]
    logs = dict.fromkeys(backwards, LOG)
    assert outside_logs(dict.fromkeys(backwards, 5), logs) == backwards[::-1]
    assert moving_back(dict.fromkeys(backwards, 20), dict.fromkeys(backwards, 50), logs) == backwards[::-1]


def test_one_record_again_is_a_move_back():
    assert moving_back({P0: 49}, {P0: 50}, {P0: LOG}) == [P0]
