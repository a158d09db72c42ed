import pytest

from zkconsumer.model import ConsumerThreadId, TopicIdentity, TopicPartition, recreated_topics, replaced_topics


def test_thread_id_is_cut_at_the_last_hyphen():
    assert ConsumerThreadId.parse("g_host-123-abc-10") == ConsumerThreadId("g_host-123-abc", 10)
    assert str(ConsumerThreadId("g_c", 10)) == "g_c-10"


@pytest.mark.parametrize("text", ["", "g_c", "g_c-", "g_c-x", "g_c-\N{SUPERSCRIPT TWO}"])
def test_malformed_thread_ids(text):
    with pytest.raises(ValueError, match="not a consumer thread id"):
        ConsumerThreadId.parse(text)


def test_partitions_sort_as_numbers():
    assert sorted([TopicPartition("t", 10), TopicPartition("t", 2)])[0].partition == 2


@pytest.mark.parametrize(
    ("identity", "recorded", "expected"),
    [
        (TopicIdentity("id", 5), "id", True),
        (TopicIdentity("id", 5), 5, True),
        (TopicIdentity("id", 5), "another", False),
        (TopicIdentity(None, 5), 6, False),
        (TopicIdentity(None, 5), "id", True),
        (TopicIdentity("id", None), "id", True),
        (TopicIdentity("id", None), "another", False),
        (TopicIdentity("id", None), 5, True),
        (TopicIdentity(None, None), "id", True),
        (TopicIdentity("id", 5), "", True),
    ],
)
def test_a_topic_is_recognised_by_what_was_recorded(identity, recorded, expected):
    assert identity.is_recorded_as(recorded) is expected
    assert identity.is_recorded_as(identity.recorded)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (TopicIdentity("id", 5), TopicIdentity("id", None), True),
        (TopicIdentity("id", 5), TopicIdentity("another", 5), False),
        (TopicIdentity(None, 5), TopicIdentity("id", 6), False),
        (TopicIdentity(None, 5), TopicIdentity("id", None), True),
        (TopicIdentity(None, None), TopicIdentity(None, None), True),
    ],
)
def test_topics_are_the_same_unless_an_identity_differs(one, other, expected):
    assert one.is_same_topic(other) is expected
    assert other.is_same_topic(one) is expected


def test_topics_that_were_created_again():
    now = {"same": TopicIdentity("a", None), "again": TopicIdentity("b", None), "new": TopicIdentity("c", None)}
    recorded = {"same": "a", "again": "x", "new": None, "gone": "d"}
    assert recreated_topics(recorded, now) == {"again", "new"}
    assert recreated_topics({}, now) == set(), "what was not recorded cannot be compared"


def test_topics_that_replaced_others():
    before = {"same": TopicIdentity("a", 1), "upgraded": TopicIdentity(None, 2), "other": TopicIdentity(None, 3)}
    now = {"same": TopicIdentity("a", None), "upgraded": TopicIdentity("b", 2), "other": TopicIdentity("c", 4)}
    assert replaced_topics({**before, "gone": TopicIdentity(None, 5)}, now) == {"other"}
    assert replaced_topics({}, now) == set()
