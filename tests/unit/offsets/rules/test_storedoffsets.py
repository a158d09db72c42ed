import doctest

import pytest

from zkconsumer.model import Stamp, TopicPartition
from zkconsumer.offsets.rules import storedoffsets
from zkconsumer.offsets.rules.storedoffsets import (
    NO_NODE,
    ChosenOffset,
    KnownOffset,
    StoredOffset,
    changed_offsets,
    choose_stored,
    counting_offset,
    counts_in_kafka,
    fresh_metadata,
    is_same_write,
    offsets_of,
    our_metadata,
    stamp_of,
    topic_id_of,
    unmarked,
    written_by_others,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_only_changed_offsets_are_committed():
    assert changed_offsets({P0: 5, P1: 7}, {P0: 5, P1: 6}) == {P1: 7}


def test_zero_of_a_partition_never_committed_is_written():
    assert changed_offsets({P0: 0}, {}) == {P0: 0}
    assert changed_offsets({P0: 0}, {P0: None}) == {P0: 0}


def test_dual_read_rules():
    assert choose_stored(5, 20, "max") == ChosenOffset(20, in_kafka=True)
    assert choose_stored(5, 20, "zookeeper") == ChosenOffset(5)
    assert choose_stored(25, 20, "kafka") == ChosenOffset(20, in_kafka=True)


@pytest.mark.parametrize(("rule", "in_kafka"), [("max", False), ("zookeeper", False), ("kafka", True)])
def test_of_equal_offsets_the_rule_names_the_store(rule, in_kafka):
    assert choose_stored(10, 10, rule) == ChosenOffset(10, in_kafka)


def test_a_store_without_an_offset_is_ignored():
    for rule in ("max", "zookeeper", "kafka"):
        assert choose_stored(None, 20, rule) == ChosenOffset(20, in_kafka=True)
        assert choose_stored(5, None, rule) == ChosenOffset(5)
        assert choose_stored(None, None, rule) == ChosenOffset(None)


@pytest.mark.parametrize("rule", ["max", "zookeeper", "kafka"])
def test_a_negative_offset_does_not_displace_the_other_stores(rule):
    assert choose_stored(-1, 5, rule) == ChosenOffset(5, in_kafka=True)
    assert choose_stored(5, -1, rule) == ChosenOffset(5)
    for in_zookeeper, in_kafka in ((-1, None), (None, -1), (-1, -1)):
        assert choose_stored(in_zookeeper, in_kafka, rule).offset == -1


def test_a_version_that_our_own_write_explains_is_no_foreign_write():
    assert not written_by_others(KnownOffset(5, 3), 4)
    assert not written_by_others(KnownOffset(None, NO_NODE), 0)


def test_every_foreign_write_shows_in_the_version():
    assert written_by_others(KnownOffset(5, 3), 5), "written"
    assert written_by_others(KnownOffset(None, NO_NODE), 1), "created"
    assert written_by_others(KnownOffset(5, 3), 0), "deleted"


def test_after_a_lost_answer_no_foreign_write_is_reported():
    assert not written_by_others(KnownOffset(5, None), 5)


@pytest.mark.parametrize(
    ("in_zookeeper", "in_kafka", "auto", "both"),
    [(None, None, None, None), (5, None, 5, 5), (None, 7, 7, 7), (9, 7, 7, 9), (5, 7, 7, 7)],
)
def test_which_of_two_offsets_counts_for_a_tool(in_zookeeper, in_kafka, auto, both):
    storages = ("auto", "zookeeper", "kafka", "both")
    chosen = [counting_offset(in_zookeeper, in_kafka, storage).offset for storage in storages]
    assert chosen == [auto, in_zookeeper, in_kafka, both]


@pytest.mark.parametrize(
    ("in_zookeeper", "in_kafka", "unknown_in", "counting"),
    [
        (5, None, ["kafka"], [None, 5, None, None]),
        (None, 7, ["zookeeper"], [7, None, 7, None]),
        (None, 0, ["zookeeper"], [0, None, 0, None]),
        (None, -1, ["zookeeper"], [None, None, -1, None]),
        (None, None, ["zookeeper"], [None, None, None, None]),
        (None, None, ["zookeeper", "kafka"], [None, None, None, None]),
    ],
)
def test_an_offset_that_is_unknown_may_be_the_one_that_counts(in_zookeeper, in_kafka, unknown_in, counting):
    storages = ("auto", "zookeeper", "kafka", "both")
    chosen = [counting_offset(in_zookeeper, in_kafka, storage, unknown_in) for storage in storages]
    assert [one.offset for one in chosen] == counting
    without_kafka = unknown_in == ["zookeeper"] and in_kafka is None
    assert [one.is_known for one in chosen] == [
        offset is not None or (without_kafka and storage == "kafka")
        for offset, storage in zip(counting, storages, strict=True)
    ]


def test_stored_offsets_without_an_offset_are_none():
    assert offsets_of({TopicPartition("t", 0): StoredOffset(None), TopicPartition("t", 1): StoredOffset(0, "m")}) == {
        TopicPartition("t", 1): 0
    }


def test_a_mark_of_ours_is_not_used_for_another_offset():
    assert fresh_metadata("zkconsumer:abc:topic", "new") == our_metadata("new", "topic") != "zkconsumer:abc:topic"
    assert [fresh_metadata(mark, "new") for mark in ("theirs", "", None, 77)] == ["theirs", "", "", "77"]


def test_examples():
    assert doctest.testmod(storedoffsets).failed == 0


def test_metadata_names_query_and_topic():
    assert our_metadata("12ab", None) == "zkconsumer:12ab"
    assert our_metadata("12ab", "XnPq", Stamp("1f", 17)) == "zkconsumer:1f.17.12ab:XnPq"


@pytest.mark.parametrize(
    ("mark", "stamp", "topic_id"),
    [
        ("zkconsumer:1f.17.12ab:XnPq", Stamp("1f", 17), "XnPq"),
        ("zkconsumer:1f.17.12ab", Stamp("1f", 17), None),
        ("zkconsumer:1f.x.12ab:a", None, "a"),
        ("zkconsumer:1f.².12ab:a", None, "a"),
        ("zkconsumer:12ab:a.1.b", None, "a.1.b"),
        ("another:1f.17.12ab:a", None, None),
        (77, None, None),
        (None, None, None),
    ],
)
def test_what_a_mark_names(mark, stamp, topic_id):
    assert (stamp_of(mark), topic_id_of(mark)) == (stamp, topic_id)


@pytest.mark.parametrize(
    ("stored", "before", "same"),
    [
        (StoredOffset(5, 77), StoredOffset(5, 77), True),
        (StoredOffset(5, 78), StoredOffset(5, 77), False),
        (StoredOffset(6, "zkconsumer:a"), StoredOffset(5, "zkconsumer:a"), True),
        (StoredOffset(6, "theirs"), StoredOffset(5, "theirs"), False),
        (StoredOffset(5, "theirs"), StoredOffset(5, "theirs"), True),
        (StoredOffset(5, "theirs"), StoredOffset(5, ""), False),
        (StoredOffset(None), StoredOffset(None), True),
    ],
)
def test_a_write_is_known_by_its_mark_or_with_its_offset(stored, before, same):
    assert is_same_write(stored, before) is same


def test_offsets_without_marks():
    assert unmarked({P0: 5, P1: None}) == {P0: StoredOffset(5), P1: StoredOffset(None)}


def test_offsets_that_only_kafka_has_count_unless_zookeepers_do():
    assert [counts_in_kafka(storage) for storage in ("auto", "zookeeper", "kafka", "both")] == [
        False,
        False,
        True,
        True,
    ]
