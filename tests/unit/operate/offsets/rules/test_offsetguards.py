"""What is outside of its log, and what would move back, with values."""

import pytest

from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets.rules.offsetguards import moving_back, outside_logs
from zkconsumer.operate.offsets.rules.offsetreset import LogRange

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
