import json
from dataclasses import replace

import pytest

from zkconsumer.errors import UsageError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.ranges.rules.rangepositions import EARLIEST, LATEST
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.rules.offsetsjson import (
    Report,
    decode_offset,
    decode_positions,
    decode_report,
    decode_timestamps,
    encode_offset,
    encode_report,
    initial_offset,
)
from zkconsumer.spark.rules.sourceoffset import KnownTopic, SourceOffset

OFFSET = SourceOffset(
    group="g",
    number=17,
    known={"u": KnownTopic(1, 4711), "t": KnownTopic(11, "topic id")},
    spans={TopicPartition("u", 0): Span(0, 1), TopicPartition("t", 10): Span(3, 9), TopicPartition("t", 2): Span(5, 5)},
    stored={
        TopicPartition("u", 0): StoredOffset(0, 77),
        TopicPartition("t", 10): StoredOffset(500, ""),
        TopicPartition("t", 2): StoredOffset(None),
    },
    query="12ab",
)


def test_the_text_of_an_offset_is_a_contract():
    text = json.dumps(encode_offset(OFFSET), separators=(",", ":"))
    assert text == (
        '{"group":"g","known":{"t":[11,"topic id"],"u":[1,4711]},"n":17,"q":"12ab",'
        '"topics":{"t":{"10":[3,9,"",500],"2":[5,5,null,null]},"u":{"0":[0,1,77,0]}},"v":3}'
    )
    assert decode_offset(json.loads(text)) == OFFSET


def test_leader_epochs_are_added_if_they_are_known():
    offset = replace(OFFSET, epochs={TopicPartition("t", 10): 5, TopicPartition("t", 2): 0})
    encoded = encode_offset(offset)
    assert list(encoded) == sorted(encoded)
    assert encoded == {"epochs": {"t": {"10": 5, "2": 0}}, **encode_offset(OFFSET)}
    assert decode_offset(encoded) == offset


def test_version_2_is_read_by_its_own_rule():
    text = (
        '{"epochs":{"t":{"10":5}},"group":"g","known":{"t":[11,"topic id"],"u":[1,4711]},"n":17,'
        '"topics":{"t":{"10":[3,9,""],"2":[5,5,null]},"u":{"0":[0,1,77]}},"v":2}'
    )
    t10 = TopicPartition("t", 10)
    stored = {**OFFSET.stored, t10: StoredOffset(3, "")}
    assert decode_offset(json.loads(text)) == replace(OFFSET, stored=stored, query=None, epochs={t10: 5})


def test_the_initial_offset_is_a_constant_without_partitions():
    text = json.dumps(initial_offset("g"), separators=(",", ":"))
    assert text == '{"group":"g","known":{},"n":0,"q":null,"topics":{},"v":3}'
    assert decode_offset(initial_offset("g")).is_initial


def test_the_text_of_a_report_is_a_contract():
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    text = {"group": "g", "owned": {"t": [0, 1]}, "rebalances": 3, "topics": {"t": {"0": [3, 9]}}, "v": 1}
    report = Report("g", {t0: Span(3, 9)}, None, {t1, t0}, 3)
    assert encode_report(report) == text
    assert encode_report(report._replace(acknowledge="/s")) == text | {"acknowledge": "/s"}


def test_a_report_is_sorted_and_read_back():
    spans = {TopicPartition("t", number): Span(number, 9) for number in (3, 1, 2, 0)}
    encoded = encode_report(Report("g", spans, "/s", spans.keys(), 2))
    assert list(encoded["topics"]["t"]) == ["0", "1", "2", "3"]
    assert decode_report(json.dumps(encoded | {"new": 1})) == Report("g", spans, "/s", spans.keys(), 2)


@pytest.mark.parametrize(
    "text", [None, "", "{", "12", "null", "[]", '{"t":{"0":5}}', '{"group":"g","topics":{"t":{"0":[3,9]}},"v":2}']
)
def test_what_another_source_or_release_reports_is_ignored(text):
    assert decode_report(text) is None


def test_names_of_positions_have_the_numbers_of_sparks_own_source():
    assert (EARLIEST, LATEST) == (-2, -1)


def test_timestamps_begin_with_the_epoch():
    assert decode_timestamps('{"t":{"0":0,"1":1700000000000}}') == {
        TopicPartition("t", 0): 0,
        TopicPartition("t", 1): 1700000000000,
    }
    with pytest.raises(ValueError, match="-1 as the timestamp of t-0"):
        decode_timestamps('{"t":{"0":-1}}')


V3 = {"v": 3, "q": "1", "n": 1, "group": "g", "known": {}, "topics": {}}


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ({"v": 4, "topics": {}}, "version 4"),
        ({"t": {"0": 5}}, "version None"),
        ({"v": 3}, "topics"),
        ({**V3, "topics": {"t": {"0": 5}}}, "cannot unpack"),
        ({**V3, "topics": {"t": {"x": [0, 1, 1, 0]}}}, "invalid literal"),
        ({**V3, "topics": {"t": {"0": [0, 1, 1]}}}, "missing 1 required positional argument"),
        ({**V3, "topics": {"t": {"0": [0, True, 1, 0]}}}, "not 2 integers"),
        ({**V3, "topics": {"t": {"0": [0, 1, 1.5, 0]}}}, "neither a number nor a text: 1.5"),
        ({**V3, "topics": {"t": {"0": [0, 1, 1, "0"]}}}, "not an integer"),
        ({**V3, "v": 2, "topics": {"t": {"0": [0, 1, 1, 0]}}}, "takes 2 positional arguments"),
        ({**V3, "known": {"t": [1, None]}}, "topic t has no identity"),
        ({**V3, "n": "1"}, "not an integer"),
        ({**V3, "group": None}, "not a group"),
        ({**V3, "q": 5}, "the id of a query"),
    ],
)
def test_a_foreign_checkpoint_is_refused_with_what_to_check(offset, expected):
    with pytest.raises(UsageError, match=expected) as caught:
        decode_offset(offset)
    assert "check that the checkpoint belongs to this query" in str(caught.value)


def test_positions_are_read_as_in_sparks_own_source():
    assert decode_positions('{"t":{"0":23,"1":-2},"u":{"0":-1}}') == {
        TopicPartition("t", 0): 23,
        TopicPartition("t", 1): -2,
        TopicPartition("u", 0): -1,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "is not JSON"),
        ("[]", "must look like"),
        ('{"t":5}', "must look like"),
        ('{"t":5,"u":{}}', "must look like"),
        ('{"t":{"x":5}}', "'x' as a partition of topic t"),
        ('{"t":{"0":-3}}', "-3 as the offset of t-0"),
        ('{"t":{"0":true}}', "True as the offset of t-0"),
    ],
)
def test_malformed_positions_are_refused_with_the_reason(text, expected):
    with pytest.raises(ValueError, match=expected):
        decode_positions(text)
