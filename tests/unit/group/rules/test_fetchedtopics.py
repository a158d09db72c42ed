"""Which topics a member has fetched, and which of them are others now."""

import pytest

from zkconsumer.errors import ShareChanged
from zkconsumer.group.rules.fetchedtopics import FetchedTopics
from zkconsumer.model import TopicIdentity

FIRST, SECOND = TopicIdentity("first", None), TopicIdentity("second", None)


def test_a_topic_counts_from_the_attempt_that_succeeds():
    topics = FetchedTopics()
    topics.begin({"t": FIRST}, ())
    assert topics.replaced({"t": SECOND}) == set()
    topics.started()
    assert topics.replaced({"t": SECOND}) == {"t"}


def test_an_attempt_that_fails_leaves_what_was_fetched_before():
    topics = FetchedTopics()
    topics.begin({"t": FIRST}, ())
    topics.started()
    topics.begin({"t": SECOND}, {"t"})
    topics.begin({"u": FIRST}, ())
    topics.started()
    assert topics.replaced({"t": SECOND, "u": FIRST}) == {"t"}


@pytest.mark.parametrize(
    ("now", "replaced"), [({"t": FIRST}, set()), ({"t": None}, set()), ({}, set()), ({"v": SECOND}, set())]
)
def test_what_is_the_same_or_gone_or_never_fetched_is_not_replaced(now, replaced):
    topics = FetchedTopics()
    topics.begin({"t": FIRST}, ())
    topics.started()
    assert topics.replaced(now) == replaced
    assert ("t" in topics, "v" in topics) == (True, False)


def test_a_topic_that_is_created_again_during_the_attempt_is_not_begun():
    topics = FetchedTopics()
    topics.begin({"t": FIRST, "u": FIRST}, ())
    topics.started()
    with pytest.raises(ShareChanged, match=r"created again during the attempt: t$"):
        topics.begin({"t": SECOND, "u": SECOND, "v": FIRST}, {"u"})
    topics.started()
    assert topics.replaced({"t": SECOND, "u": SECOND}) == {"t", "u"}
