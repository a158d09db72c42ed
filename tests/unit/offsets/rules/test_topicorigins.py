"""Which offsets belong to an earlier topic of the same name: by their marks, the topic's record and its identity."""

import pytest

from zkconsumer.errors import MalformedZnode
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.offsets.rules.topicorigins import (
    NOT_STORED,
    JudgedOffset,
    TopicOrigin,
    TopicRecord,
    WrittenFor,
    count_as_none,
    describe_before,
    judge_offset,
    judge_offsets,
    may_be_copy,
    next_record,
    origin,
    that_are,
    without_copies,
)

ENSEMBLE = 50
BY_CZXID, BY_ID, BY_BROKERS = TopicIdentity(None, 100), TopicIdentity("new", 100), TopicIdentity("new", None)
OLD_CZXID, OLD_ID = TopicRecord(70, ENSEMBLE), TopicRecord("old", ENSEMBLE)


def consume(record, identity, ensemble=ENSEMBLE, written_at=120):
    """The origin of a topic that a member begins to consume."""
    following = next_record(record, identity, ensemble)
    return origin(following, identity, written_at if following == record else None)


@pytest.mark.parametrize(("record", "identity"), [(OLD_CZXID, BY_CZXID), (OLD_ID, BY_ID)], ids=["czxid", "id"])
def test_offsets_from_before_the_topic_are_older_where_another_topic_is_recorded(record, identity):
    topic = consume(record, identity)
    found = [topic.judge(mark) for mark in (99, 100, 101, None)]
    assert found == [WrittenFor.EARLIER, WrittenFor.PRESENT, WrittenFor.PRESENT, WrittenFor.UNKNOWN]


def test_offsets_remain_older_when_the_new_topic_is_recorded():
    """Of two members one begins to consume the topic later than the other."""
    record = next_record(OLD_ID, BY_ID, ENSEMBLE)
    assert consume(record, BY_ID).judge(99) is WrittenFor.EARLIER
    assert consume(record, BY_ID).judge(101) is not WrittenFor.EARLIER


@pytest.mark.parametrize(
    "record",
    [None, TopicRecord("new", ENSEMBLE), TopicRecord(100, ENSEMBLE), TopicRecord("", ENSEMBLE)],
    ids=["none", "same id", "before ids", "unknown"],
)
def test_an_mzxid_alone_proves_nothing(record):
    assert consume(record, BY_ID).judge(99) is not WrittenFor.EARLIER
    assert consume(record, BY_ID).judge(101) is not WrittenFor.PRESENT


@pytest.mark.parametrize("record", [OLD_CZXID, OLD_ID, TopicRecord("new", ENSEMBLE, replaced=True)])
def test_a_record_of_another_ensemble_proves_nothing(record):
    """Copying gives the topics and the offsets other transactions, in any order."""
    assert consume(record, BY_ID, ensemble=ENSEMBLE + 1).judge(99) is not WrittenFor.EARLIER


def test_where_brokers_describe_topics_the_record_decides():
    assert consume(OLD_ID, BY_BROKERS).judge(10**12) is WrittenFor.EARLIER, (
        "no member has stored an offset of the new topic yet"
    )
    record = next_record(OLD_ID, BY_BROKERS, ENSEMBLE)
    assert [consume(record, BY_BROKERS).judge(mark) for mark in (119, 121)] == [WrittenFor.EARLIER, WrittenFor.PRESENT]


def test_a_topic_that_has_got_an_id_is_recognised_by_brokers_that_describe_it():
    """1. The brokers are upgraded; 2. a member runs; 3. members ask brokers; 4. the topic is created again."""
    upgraded = next_record(TopicRecord(100, ENSEMBLE), TopicIdentity("old", 100), ENSEMBLE)
    assert next_record(upgraded, TopicIdentity("old", None), ENSEMBLE) == upgraded
    assert consume(upgraded, BY_BROKERS).judge(110) is WrittenFor.EARLIER
    replaced = TopicRecord(100, ENSEMBLE, replaced=True)
    assert next_record(replaced, TopicIdentity("old", 100), ENSEMBLE) == replaced


@pytest.mark.parametrize(
    ("metadata", "written_for"),
    [
        ("zkconsumer:12ab:old", WrittenFor.EARLIER),
        ("zkconsumer:12ab:new", WrittenFor.PRESENT),
        ("zkconsumer:12ab", WrittenFor.UNKNOWN),
        ("a:b:old", WrittenFor.UNKNOWN),
    ],
)
def test_an_offset_in_kafka_names_its_topic(metadata, written_for):
    assert TopicOrigin(BY_BROKERS).judge(metadata) is written_for
    assert TopicOrigin(TopicIdentity(None, 100)).judge(metadata) is not WrittenFor.EARLIER, (
        "the present topic has no id"
    )


@pytest.mark.parametrize("record", [OLD_CZXID, OLD_ID, TopicRecord("t", 9, replaced=True)])
def test_a_record_is_what_was_written(record):
    assert TopicRecord.decode("/t", record.encode()) == record


def test_a_record_is_json_with_a_version():
    record = TopicRecord("t", 9, replaced=True)
    assert record.encode() == b'{"version":1,"topic":"t","ensemble":9,"replaced":true}'


@pytest.mark.parametrize("data", [b"", None, b"[]", b'{"topic":"t"}', b"\xff", b'{"topic":1,"ensemble":"x"}'])
def test_a_malformed_record_is_recognised(data):
    with pytest.raises(MalformedZnode, match="not the record of a topic"):
        TopicRecord.decode("/t", data)


@pytest.mark.parametrize(
    ("identity", "mark", "expected"),
    [
        (BY_CZXID, 99, WrittenFor.BEFORE),
        (BY_CZXID, 100, WrittenFor.UNKNOWN),
        (BY_BROKERS, 99, WrittenFor.UNKNOWN),
    ],
)
def test_without_a_record_an_older_offset_is_a_sign_and_no_proof(identity, mark, expected):
    assert TopicOrigin(identity).judge(mark) is expected


def test_an_origin_that_waits_for_its_record_takes_the_time_of_that():
    waiting = consume(OLD_ID, BY_BROKERS)
    assert waiting.recorded_at(130) == TopicOrigin(BY_BROKERS, 130)
    known = TopicOrigin(BY_BROKERS, 120)
    assert known.recorded_at(130) is known


P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def test_an_offset_of_an_earlier_topic_does_not_count():
    earlier, present = JudgedOffset(7, WrittenFor.EARLIER), JudgedOffset(8, WrittenFor.PRESENT)
    assert (earlier.counting, earlier.position) == (None, None)
    assert (present.counting, present.position) == (8, 8)
    assert (JudgedOffset(-1).counting, JudgedOffset(-1).position) == (-1, None)


def test_offsets_are_judged_by_the_origins_of_their_topics():
    topic = TopicOrigin(BY_CZXID, 100)
    assert judge_offset(topic, StoredOffset(7, 99)) == JudgedOffset(7, WrittenFor.EARLIER)
    assert judge_offset(None, StoredOffset(7, 99)) == JudgedOffset(7)
    other = TopicPartition("other", 0)
    judged = judge_offsets({"t": topic}, {P0: StoredOffset(7, 99), P1: StoredOffset(8, 101), other: StoredOffset(9, 1)})
    assert judged == {
        P0: JudgedOffset(7, WrittenFor.EARLIER),
        P1: JudgedOffset(8, WrittenFor.PRESENT),
        other: JudgedOffset(9),
    }
    assert that_are({P1: judged[P0], P0: judged[P0], P2: judged[P1]}, WrittenFor.EARLIER) == [P0, P1]
    assert that_are({P0: JudgedOffset(None, WrittenFor.EARLIER)}, WrittenFor.EARLIER) == []


@pytest.mark.parametrize(
    ("earlier", "other", "expected"),
    [
        (JudgedOffset(7, WrittenFor.EARLIER), JudgedOffset(7), True),
        (JudgedOffset(7, WrittenFor.EARLIER), JudgedOffset(7, WrittenFor.PRESENT), False),
        (JudgedOffset(7, WrittenFor.EARLIER), NOT_STORED, False),
        (JudgedOffset(-1, WrittenFor.EARLIER), JudgedOffset(7), False),
        (JudgedOffset(7), JudgedOffset(7), False),
    ],
)
def test_the_offset_of_another_store_may_be_a_copy_of_one_of_an_earlier_topic(earlier, other, expected):
    assert may_be_copy(earlier, other) is expected
    kept = NOT_STORED if expected else other
    assert without_copies(earlier, other) == (earlier, kept)
    assert without_copies(other, earlier) == (kept, earlier)


def test_what_operators_are_told_names_the_partitions():
    assert describe_before([]) == ()
    (text,) = describe_before([P1, P0])
    assert "offsets of t-0, t-1 were stored before the topic was created" in text
    assert count_as_none("g", [P1, P0]).endswith("so they count as none: t-0, t-1")
