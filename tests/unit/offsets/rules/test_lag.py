"""Lag: of every combination of an offset and a log end."""

import doctest
from itertools import product

from zkconsumer.offsets.rules import lag as module
from zkconsumer.offsets.rules.lag import AFTER_LOG, BEFORE_LOG, clamp_to_log, lag, outside_log, signed_lag


def test_examples_hold():
    assert doctest.testmod(module).failed == 0


def test_a_lag_is_the_distance_or_unknown_and_never_negative():
    for offset, end in product((None, -1, 0, 3, 9), (None, 0, 3, 9)):
        unknown = offset in (None, -1) or end is None
        assert signed_lag(offset, end) == (None if unknown else end - offset)
        assert lag(offset, end) == (None if unknown else max(0, end - offset))


def test_where_a_log_begins_is_0_if_it_is_unknown():
    assert [outside_log(offset, None, 9) for offset in (-1, 0, 9, 10)] == [None, None, None, AFTER_LOG]
    assert [outside_log(offset, 0, None) for offset in (-1, 0, 10, None)] == [None, None, None, None]
    assert [outside_log(offset, 5, 9) for offset in (-1, 4, 5)] == [None, BEFORE_LOG, None]


def test_exactly_the_offsets_outside_the_log_are_moved_into_it():
    for start, length, offset in product(range(4), range(3), range(8)):
        nearest = clamp_to_log(offset, start, start + length)
        assert (nearest != offset) == (outside_log(offset, start, start + length) is not None)
        assert outside_log(nearest, start, start + length) is None
