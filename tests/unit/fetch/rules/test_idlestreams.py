from zkconsumer.fetch.rules.idlestreams import Reading, is_idle, judge, seconds_between_looks
from zkconsumer.model import TopicPartition

SOME = frozenset({TopicPartition("t", 0)})
NONE: frozenset[TopicPartition] = frozenset()


def idle_since(*looks):
    """Judge ``(now, progress, unread)`` in turn; the last answer."""
    seen = None
    for now, progress, unread in looks:
        seen = judge(seen, Reading((progress, 0), unread), now)
    return seen.idle_since


def test_the_time_begins_when_data_is_first_seen_and_nothing_is_taken():
    assert idle_since((5, 1, NONE)) is None
    assert idle_since((5, 1, NONE), (6, 1, SOME)) == 6
    assert idle_since((5, 1, NONE), (6, 1, SOME), (9, 1, SOME)) == 6


def test_each_read_restarts_the_time():
    assert idle_since((6, 1, SOME), (9, 2, SOME)) == 9
    assert idle_since((6, 1, SOME), (9, 2, SOME), (10, 2, SOME)) == 9


def test_a_queue_that_was_empty_is_not_idle():
    assert idle_since((6, 1, SOME), (9, 1, NONE)) is None
    assert idle_since((6, 1, SOME), (9, 1, NONE), (12, 1, SOME)) == 12


def test_idle_is_what_reaches_the_limit():
    seen = judge(None, Reading((0, 0), SOME), 100.0)
    assert not is_idle(seen, 100.4, 500)
    assert is_idle(seen, 100.5, 500)
    assert not is_idle(judge(None, Reading((0, 0), NONE), 0.0), 1e9, 1)


def test_looks_are_a_tenth_of_the_limit_apart_within_bounds():
    assert seconds_between_looks(2000) == 0.2
    assert seconds_between_looks(1) == 0.01
    assert seconds_between_looks(3_600_000) == 10.0
