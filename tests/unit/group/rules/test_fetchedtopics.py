"""Which topics a member has fetched, and which of them are others now."""

import pytest

from zkconsumer.group.rules.fetchedtopics import FetchedTopics
from zkconsumer.model import TopicIdentity

FIRST, SECOND = TopicIdentity("first", None), TopicIdentity("second", None)


def test_a_topic_counts_from_the_attempt_that_succeeds():
    topics = FetchedTopics()
    topics.begin({"t": FIRST})
    assert topics.replaced({"t": SECOND}) == set()
    topics.started()
    assert topics.replaced({"t": SECOND}) == {"t"}


def test_an_attempt_that_fails_leaves_what_was_fetched_before():
    topics = FetchedTopics()
    topics.begin({"t": FIRST})
    topics.started()
    topics.begin({"t": SECOND})
    topics.begin({"u": FIRST})
    topics.started()
    assert topics.replaced({"t": SECOND, "u": FIRST}) == {"t"}


@pytest.mark.parametrize(
    ("now", "replaced"), [({"t": FIRST}, set()), ({"t": None}, set()), ({}, set()), ({"v": SECOND}, set())]
)
def test_what_is_the_same_or_gone_or_never_fetched_is_not_replaced(now, replaced):
    topics = FetchedTopics()
    topics.begin({"t": FIRST})
    topics.started()
    assert topics.replaced(now) == replaced
    assert ("t" in topics, "v" in topics) == (True, False)
