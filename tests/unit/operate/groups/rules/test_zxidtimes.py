"""Transactions are dated by writes whose time is known."""

import pytest

from zkconsumer.operate.groups.rules.zxidtimes import Moment, moment_of

WRITES = [(30, 3000), (10, 1000), (20, 2000)]


@pytest.mark.parametrize(
    ("zxid", "limit_ms", "older"),
    [
        (5, 1500, True),
        (10, 1500, True),
        (11, 1500, None),
        (19, 1500, None),
        (20, 1500, False),
        (35, 1500, False),
        (20, 2000, False),
        (20, 2001, True),
        (31, 9000, None),
        (5, 500, None),
    ],
)
def test_a_transaction_is_dated_by_the_writes_around_it(zxid, limit_ms, older):
    assert moment_of(limit_ms, WRITES).is_after(zxid) is older


def test_a_clock_that_was_wrong_makes_a_transaction_newer():
    """Transaction 12 has a later time than 15."""
    assert moment_of(1500, [(10, 1000), (12, 2000), (15, 1400)]).is_after(13) is False


def test_without_writes_nothing_is_known():
    assert moment_of(1000, []) == Moment(None, None)
    assert moment_of(1000, []).is_after(5) is None
