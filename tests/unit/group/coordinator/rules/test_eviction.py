"""Which members are evicted, and when."""

from zkconsumer.group.coordinator.rules.coordinatorplan import Awaited
from zkconsumer.group.coordinator.rules.eviction import evicted_after_seconds, owned_by, reason_to_evict, slow_members
from zkconsumer.model import TopicPartition

P = [TopicPartition("t", number) for number in range(4)]


def test_zero_evicts_no_member():
    assert evicted_after_seconds(0, 6.0) is None


def test_by_default_a_member_has_half_a_minute_or_two_sessions():
    assert [evicted_after_seconds(None, timeout) for timeout in (6.0, 15.0, 40.0)] == [30.0, 30.0, 80.0]


def test_a_member_has_two_thirds_of_its_session_in_any_case():
    assert evicted_after_seconds(1, 6.0) == 4.0
    assert evicted_after_seconds(30_000, 6.0) == 30.0


def test_members_that_are_awaited_for_too_long_are_slow():
    """Whether they have to release or to claim."""
    awaited = {
        P[0]: Awaited("g_a", 10.0),
        P[1]: Awaited("g_b", 12.0),
        P[2]: Awaited("g_a", 10.0, is_granted=True),
        P[3]: Awaited(None, 10.0),
    }
    slow = slow_members(awaited, now=15.0, after_s=5.0)
    assert slow.partitions == {"g_a": [P[0], P[2]]}
    assert slow.next_at == 17.0
    backwards = {partition: Awaited("g_a", 10.0) for partition in reversed(P)}
    assert slow_members(backwards, now=15.0, after_s=5.0) == ({"g_a": P}, None)
    assert slow_members(awaited, now=11.0, after_s=5.0).next_at == 15.0
    assert slow_members(awaited, now=14.9, after_s=5.0).partitions == {}
    assert slow_members({}, now=15.0, after_s=5.0) == ({}, None)


def test_all_partitions_of_a_member_are_found_by_their_owner_znodes():
    owners = {P[2]: "g_a-0", P[0]: "g_a-1", P[1]: "g_a-b-0", P[3]: None}
    assert owned_by("g_a", owners) == [P[0], P[2]]


def test_the_reason_names_the_property_and_a_partition():
    assert reason_to_evict([P[1], P[0]], 5.0).startswith(
        "it did not release or claim 2 partitions within 5 s, first t-0 (coord"
    )
