"""What a ledger shows of a member to which something was done."""

import math

import pytest

from tests.chaos.measures import (
    longest_wait,
    seconds_until_delivered,
    seconds_until_reassigned,
    session_of,
    stale_deliveries,
)
from zkconsumer.testing.ledger import Claimed, Delivered, Ledger, Produced, Registered, Released

A, B = "a", "b"
SESSIONS = {A: 10, B: 20}


def delivered(offset, owner, at, generation=1, asked=None, partition=0):
    asked = at - 0.1 if asked is None else asked
    return Delivered(100 * partition + offset, "t", partition, offset, owner, SESSIONS[owner], generation, asked, at)


def claimed(owner, zxid, at, partition=0, session=None):
    return Claimed("t", partition, owner, session or SESSIONS[owner], zxid, at)


def released(owner, zxid, at, partition=0):
    return Released("t", partition, owner, SESSIONS[owner], zxid, at, expired=False)


def taken_over(at=9.0):
    """A owned partitions 0 and 1 until its session ended at 5; B claimed them, the second one at ``at``."""
    return [
        Registered(A, 10, 0.0),
        *[claimed(A, 1 + p, 0.5, partition=p) for p in (0, 1)],
        *[released(A, 3, 5.0, partition=p) for p in (0, 1)],
        claimed(B, 5, 6.0, partition=0),
        claimed(B, 6, at, partition=1),
        delivered(0, B, 6.5, partition=0),
        delivered(0, B, at + 1.0, partition=1),
    ]


def test_a_partition_waits_from_when_it_has_a_record_until_it_delivers_one():
    def waited(*deliveries, since=0.0):
        produced = [Produced(0, "t", 0, 0, 1.0), Produced(1, "t", 0, 1, 10.0), Produced(2, "t", 0, 2, 11.0)]
        return longest_wait(Ledger([*produced, *deliveries]), since)

    first = delivered(0, A, 2.0)
    assert waited() == 0.0
    assert waited(first) == 1.0
    assert waited(first, delivered(1, A, 14.0)) == 4.0, "until 10 there was nothing to deliver"
    assert waited(first, delivered(2, A, 13.0), delivered(1, B, 20.0)) == 7.0, (
        "one that came later was delivered before"
    )
    assert waited(first, delivered(0, B, 9.0)) == 1.0, "nobody has waited for a duplicate"
    assert waited(first, delivered(1, A, 14.0), since=12.0) == 2.0


def test_recovery_ends_with_the_last_partition():
    ledger = Ledger(taken_over())
    assert seconds_until_reassigned(ledger, 10, 4.0) == 5.0
    assert seconds_until_delivered(ledger, 10, 4.0) == 6.0


def test_recovery_counts_the_delivery_of_a_later_owner():
    moved_on = [released(B, 7, 9.5, partition=1), claimed(A, 8, 9.6, partition=1, session=11)]
    ledger = Ledger([*taken_over()[:-1], *moved_on, delivered(0, A, 9.9, partition=1)])
    assert seconds_until_delivered(ledger, 10, 4.0) == pytest.approx(5.9)


def test_what_is_never_claimed_again_takes_for_ever():
    ledger = Ledger(taken_over()[:-3])
    assert seconds_until_reassigned(ledger, 10, 4.0) == math.inf
    assert seconds_until_delivered(ledger, 10, 4.0) == math.inf


def test_a_session_that_owned_nothing_has_nothing_to_recover():
    assert seconds_until_reassigned(Ledger(taken_over()), 10, 5.5) is None
    assert seconds_until_delivered(Ledger(taken_over()), 99, 4.0) is None


def test_the_session_of_a_member_is_the_newest_that_it_registered_in():
    ledger = Ledger([Registered(A, 10, 0.0), Registered(B, 20, 1.0), Registered(A, 11, 5.0)])
    assert [session_of(ledger, A, at) for at in (-1.0, 4.0, 6.0)] == [0, 10, 11]


@pytest.mark.parametrize(
    ("asked", "at", "stale"),
    [
        (4.5, 4.6, False),  # in time
        (4.9, 5.2, False),  # may have been handed out in time
        (5.1, 5.2, True),
        (7.1, 7.2, False),  # it is over
    ],
)
def test_a_member_has_to_stop_by_the_deadline(asked, at, stale):
    ledger = Ledger([claimed(A, 1, 0.0), delivered(0, A, at, asked=asked)])
    assert bool(stale_deliveries(ledger, A, since=4.0, deadline=5.0, until=7.0)) is stale


def test_a_claim_after_the_event_permits_to_deliver():
    ledger = Ledger([claimed(A, 1, 0.0), released(A, 2, 4.0), claimed(A, 3, 6.0, session=11), delivered(0, A, 6.5)])
    assert not stale_deliveries(ledger, A, since=4.0, deadline=5.0)
    assert stale_deliveries(ledger, A, since=6.1, deadline=6.2)
