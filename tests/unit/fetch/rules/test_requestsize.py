"""How much is requested at a time of a log of small messages."""

import pytest

from zkconsumer.fetch.rules.requestsize import MOST_BYTES, next_request_bytes

MIB = 1 << 20


@pytest.mark.parametrize(
    ("now", "received", "messages", "behind", "expected"),
    [
        (MIB, MIB, 5000, 10**6, 2 * MIB),
        (MOST_BYTES, MOST_BYTES, 40_000, 10**6, MOST_BYTES),
        (4 * MIB, MIB, 5000, 10**6, 4 * MIB),  # cut by the limit of the response
        (4 * MIB, 4 * MIB, 20_000, 20_000, MIB),  # about as much is left
        (4 * MIB, MIB, 5000, 0, MIB),
        (MIB, MIB, 0, 10**6, MIB),  # batches
        (MIB, MIB, 200, 10**6, MIB),  # long messages
        (4 * MIB, 4 * MIB, 65_536, 10**6, 4 * MIB),  # more would be cut
        (10 * MIB, 10 * MIB, 5000, 10**6, 10 * MIB),  # more is configured
    ],
)
def test_more_is_requested_where_many_small_messages_are_left(now, received, messages, behind, expected):
    least = max(MIB, now) if now > MOST_BYTES else MIB
    assert next_request_bytes(now, least, received, messages, behind=behind) == expected
