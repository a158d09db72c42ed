"""Where an owned partition starts, and which partitions of an assignment are fetched."""

import pytest

from zkconsumer.errors import TopicAuthorizationFailed
from zkconsumer.fetch.rules.fetchcontrol import AssignedPartition, FetchAssignment
from zkconsumer.model import ConsumerThreadId, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset

THREAD = ConsumerThreadId("g_c", 0)


@pytest.mark.parametrize(
    ("assigned", "earliest", "origin"),
    [
        (AssignedPartition(THREAD), False, None),
        (AssignedPartition(THREAD, outdated=True), True, None),
        (AssignedPartition(THREAD, 5, StoredOffset(5), "/t/0"), False, "/t/0"),
        (AssignedPartition(THREAD, 7, StoredOffset(5), "/t/0"), False, None),
        (AssignedPartition(THREAD, 7, StoredOffset(5), "/t/0", outdated=True), False, None),
        (AssignedPartition(THREAD, None, StoredOffset(None), "/t/0"), False, None),
    ],
)
def test_where_a_partition_starts(assigned, earliest, origin):
    assert (assigned.earliest, assigned.origin) == (earliest, origin)


def test_a_new_assignment_was_not_moved():
    assert not AssignedPartition(THREAD).moved


def test_a_partition_with_an_error_is_refused_and_all_others_are_fetched():
    error = TopicAuthorizationFailed("no", "u", "Describe")
    fetched, refused = TopicPartition("t", 0), TopicPartition("u", 0)
    assignment = FetchAssignment(
        1, {fetched: AssignedPartition(THREAD), refused: AssignedPartition(THREAD, error=error)}
    )
    assert assignment.threads == {fetched: THREAD}
    assert assignment.refused == {refused: error}
