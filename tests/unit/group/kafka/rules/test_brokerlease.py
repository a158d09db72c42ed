"""A lease counts from when requests were sent, and ends before either timeout of the coordinator."""

from dataclasses import replace

import pytest

from zkconsumer.group.kafka.rules.brokerlease import ENDED, NOTHING_TO_LOSE, BrokerLease, LeaseTerm

LEASE = BrokerLease(session_s=10.0, rebalance_s=60.0)


def test_a_new_lease_has_lapsed():
    assert LEASE.deadline < 0
    assert not LEASE.is_confirmed


def test_an_answer_without_error_counts_from_when_it_was_asked_for():
    assert LEASE.confirmed(100.0).deadline == 108.0
    assert LEASE.confirmed(100.0).is_confirmed


def test_a_late_answer_to_an_early_request_changes_nothing():
    lease = LEASE.confirmed(100.0)
    assert lease.confirmed(95.0) == lease


@pytest.mark.parametrize(("rebalance_s", "heartbeat_s", "expected"), [(300, 3, 237), (10, 3, 5), (3, 3, 0)])
def test_a_release_ends_within_the_lease(rebalance_s, heartbeat_s, expected):
    assert replace(LEASE, rebalance_s=rebalance_s, heartbeat_s=heartbeat_s).release_s == expected


def test_heartbeats_during_a_rebalance_extend_it_until_the_rebalance_timeout_is_near():
    lease = LEASE.confirmed(100.0)
    assert lease.in_rebalance(105.0).deadline == 113.0
    assert lease.in_rebalance(145.0).deadline == 148.0  # 0.8 of 60 s after the last heartbeat before the rebalance


def test_a_rebalance_that_begins_right_after_the_answer_ends_with_its_own_timeout():
    lease = BrokerLease(session_s=10.0, rebalance_s=5.0).confirmed(100.0)
    assert lease.deadline == lease.in_rebalance(101.0).deadline == 104.0


def test_a_rebalance_never_shortens_it():
    lease = replace(LEASE.confirmed(100.0), rebalance_s=5.0)
    assert lease.in_rebalance(101.0).deadline == lease.deadline


def test_it_ends_with_the_membership():
    ended = LEASE.confirmed(100.0).ended()
    assert ended.deadline < 0
    assert not ended.is_confirmed
    assert ended.in_rebalance(200.0).deadline < 0


def test_a_term_ends_at_its_time():
    term = LeaseTerm(10.0)
    assert (term.holds(9.9), term.remaining(9.0)) == (True, 1.0)
    assert (term.holds(10.0), term.remaining(10.0)) == (False, 0.0)
    assert term.remaining(11.0) == 0.0


def test_nothing_to_lose_cannot_lapse_and_an_ended_lease_has_lapsed():
    assert (NOTHING_TO_LOSE.holds(1e9), NOTHING_TO_LOSE.remaining(0.0)) == (True, 0.0)
    assert (ENDED.holds(-1e9), ENDED.remaining(0.0)) == (False, 0.0)
