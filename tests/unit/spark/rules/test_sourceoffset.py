from zkconsumer.model import Stamp, Topic, TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.rules.sourceoffset import BatchPlan, KnownTopic, SourceOffset, next_offset

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TOPICS = {"t": Topic((0, 1), TopicIdentity("id", 40)), "u": Topic((0,), TopicIdentity(None, 41))}
NEW_QUERY = SourceOffset("g")
NONE = StoredOffset(None)
AT_70, AT_71, AT_72, AT_80, AT_82 = (StoredOffset(7, mark) for mark in (70, 71, 72, 80, 82))


def test_the_first_plan_names_every_owned_partition_and_every_topic():
    planned = next_offset(NEW_QUERY, BatchPlan({T0: Span(5, 9)}, {T0: 5, U0: 3}, {T0: AT_70, U0: NONE}, TOPICS), "g")
    assert planned == SourceOffset(
        "g",
        1,
        {"t": KnownTopic(2, "id"), "u": KnownTopic(1, 41)},
        {T0: Span(5, 9), U0: Span(3, 3)},
        {T0: AT_70, U0: NONE},
    )


def test_partitions_not_in_a_batch_stay_at_their_end():
    finished = SourceOffset(
        "g",
        4,
        {"t": KnownTopic(2, "id")},
        {T0: Span(5, 9), T1: Span(0, 7), U0: Span(1, 2)},
        {T0: AT_70, T1: AT_71, U0: AT_72},
    )
    planned = next_offset(finished, BatchPlan({T0: Span(9, 12)}, {T0: 9, U0: 0}, {T0: AT_80, U0: AT_82}, TOPICS), "g")
    assert planned.spans == {T0: Span(9, 12), T1: Span(7, 7), U0: Span(0, 0)}
    assert planned.stored == {T0: AT_80, T1: AT_71, U0: AT_82}, "another member owns T1; U0 was moved to 0"
    assert planned.number == 5


def test_topics_that_appear_later_have_no_partitions_known():
    finished = SourceOffset("g", 4, {"t": KnownTopic(1, "id")})
    planned = next_offset(finished, BatchPlan({T0: Span(0, 1)}, {T0: 0}, {T0: AT_80}, TOPICS), "g")
    assert planned.known == {"t": KnownTopic(1, "id"), "u": KnownTopic(0, 41)}


def test_a_topic_that_was_created_again_is_dropped():
    finished = SourceOffset(
        "g", 4, {"t": KnownTopic(2, "old")}, {T0: Span(5, 9), T1: Span(0, 7)}, {T0: AT_70, T1: AT_71}
    )
    assert finished.recreated(TOPICS) == {"t"}
    planned = next_offset(finished, BatchPlan({T0: Span(0, 2)}, {T0: 0}, {T0: AT_80}, TOPICS), "g")
    assert planned.spans == {T0: Span(0, 2)}
    assert planned.stored == {T0: AT_80}
    assert planned.known["t"] == KnownTopic(0, "id")


def test_a_topic_that_is_not_subscribed_to_any_more_stays_known():
    finished = SourceOffset("g", 4, {"gone": KnownTopic(3, "x")}, {TopicPartition("gone", 0): Span(1, 2)})
    planned = next_offset(finished, BatchPlan({T0: Span(0, 1)}, {T0: 0}, {T0: NONE}, {"t": TOPICS["t"]}), "g")
    assert planned.known["gone"] == KnownTopic(3, "x")
    assert planned.spans[TopicPartition("gone", 0)] == Span(2, 2)


def test_the_number_makes_equal_plans_different():
    finished = SourceOffset("g", 4, {"t": KnownTopic(2, "id")}, {T0: Span(5, 9)}, {T0: AT_70})
    again = next_offset(finished, BatchPlan({T0: Span(5, 9)}, {T0: 5}, {T0: AT_70}, {"t": TOPICS["t"]}), "g")
    assert again.spans == finished.spans
    assert again != finished


def test_epochs_stay_with_the_ends_that_were_seen_in_them():
    finished = SourceOffset(
        "g", 4, {"t": KnownTopic(2, "id")}, {T0: Span(5, 9), T1: Span(0, 7)}, {T0: AT_70, T1: AT_71}, {T0: 3, T1: 3}
    )
    planned = next_offset(
        finished, BatchPlan({T0: Span(9, 12)}, {T0: 9}, {T0: AT_80}, {"t": TOPICS["t"]}, {T0: 4}), "g"
    )
    assert planned.epochs == {T0: 4, T1: 3}
    unknown = next_offset(planned, BatchPlan({T0: Span(12, 13)}, {T0: 12}, {T0: AT_80}, {"t": TOPICS["t"]}), "g")
    assert unknown.epochs == {T1: 3}


def test_a_query_keeps_the_id_of_its_first_plan():
    first = next_offset(NEW_QUERY, BatchPlan({}, {T0: 5}, {T0: AT_70}, TOPICS, query="1"), "g")
    second = next_offset(first, BatchPlan({T0: Span(5, 9)}, {T0: 5}, {T0: AT_70}, TOPICS, query="2"), "g")
    assert (first.query, second.query) == ("1", "1")


def test_a_topic_that_was_deleted_leaves_the_checkpoint():
    gone = TopicPartition("gone", 0)
    finished = SourceOffset(
        "g",
        4,
        {"gone": KnownTopic(3, "x"), "t": KnownTopic(2, "id")},
        {gone: Span(1, 2), T0: Span(0, 1)},
        {gone: AT_70, T0: AT_71},
        {gone: 1, T0: 1},
    )
    planned = next_offset(finished, BatchPlan({}, {}, {}, {"t": TOPICS["t"]}, gone={"gone"}), "g")
    assert (planned.known, planned.spans) == ({"t": KnownTopic(2, "id")}, {T0: Span(1, 1)})
    assert (planned.stored, planned.epochs) == ({T0: AT_71}, {T0: 1})


def test_a_stamp_names_query_and_number():
    assert SourceOffset("g", 7, query="1f").stamp == Stamp("1f", 7)
    assert SourceOffset("g", 7).stamp is None
