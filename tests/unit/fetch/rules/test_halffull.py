"""When a queue is filled up again."""

import pytest

from zkconsumer.fetch.rules.halffull import beyond_half


@pytest.mark.parametrize(
    ("held", "limit", "to_take"),
    [(0, 10, 0), (5, 10, 0), (6, 10, 1), (10, 10, 5), (12, 10, 7), (1, 3, 0), (2, 3, 1), (1, 1, 1), (0, 0, 0)],
)
def test_no_more_than_half_may_wait(held, limit, to_take):
    assert beyond_half(held, limit) == to_take
