import json
from dataclasses import replace

import pytest

from zkconsumer.errors import UsageError
from zkconsumer.model import TopicPartition
from zkconsumer.spark.microbatch import Span
from zkconsumer.spark.offsetsjson import (
    decode_offset,
    decode_positions,
    encode_offset,
    encode_report,
    initial_offset,
)
from zkconsumer.spark.sourceoffset import KnownTopic, SourceOffset

OFFSET = SourceOffset(
    group="g",
    number=17,
    known={"u": KnownTopic(1, 4711), "t": KnownTopic(11, "topic id")},
    spans={TopicPartition("u", 0): Span(0, 1), TopicPartition("t", 10): Span(3, 9), TopicPartition("t", 2): Span(5, 5)},
    marks={TopicPartition("u", 0): 77, TopicPartition("t", 10): "zkconsumer:1", TopicPartition("t", 2): None},
)


def test_the_text_of_an_offset_is_a_contract():
    text = json.dumps(encode_offset(OFFSET), separators=(",", ":"))
    assert text == (
        '{"group":"g","known":{"t":[11,"topic id"],"u":[1,4711]},"n":17,'
        '"topics":{"t":{"10":[3,9,"zkconsumer:1"],"2":[5,5,null]},"u":{"0":[0,1,77]}},"v":2}'
    )
    assert decode_offset(json.loads(text)) == OFFSET


def test_leader_epochs_are_added_if_they_are_known():
    offset = replace(OFFSET, epochs={TopicPartition("t", 10): 5, TopicPartition("t", 2): 0})
    encoded = encode_offset(offset)
    assert list(encoded) == sorted(encoded)
    assert encoded == {"epochs": {"t": {"10": 5, "2": 0}}, **encode_offset(OFFSET)}
    assert decode_offset(encoded) == offset


def test_version_1_is_still_read():
    decoded = decode_offset({"v": 1, "topics": {"t": {"10": [3, 9]}}})
    assert decoded == SourceOffset(spans={TopicPartition("t", 10): Span(3, 9)})
    assert (decoded.known, decoded.group, decoded.is_initial) == (None, None, False)


def test_the_initial_offset_is_a_constant_without_partitions():
    text = json.dumps(initial_offset("g"), separators=(",", ":"))
    assert text == '{"group":"g","known":{},"n":0,"topics":{},"v":2}'
    assert decode_offset(initial_offset("g")).is_initial


def test_a_report_has_the_socket_only_if_there_is_one():
    report = encode_report("g", {TopicPartition("t", 0): Span(3, 9)}, None)
    assert report == {"group": "g", "topics": {"t": {"0": [3, 9]}}, "v": 1}
    assert encode_report("g", {}, "/s") == {"acknowledge": "/s", "group": "g", "topics": {}, "v": 1}


V2 = {"v": 2, "n": 1, "group": "g", "known": {}, "topics": {}}


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ({"v": 3, "topics": {}}, "version 3"),
        ({"t": {"0": 5}}, "version None"),
        ({"v": 1}, "topics"),
        ({"v": 1, "topics": {"t": {"0": 5}}}, "not 2 integers: 5"),
        ({"v": 1, "topics": {"t": {"x": [0, 1]}}}, "invalid literal"),
        ({**V2, "topics": {"t": {"0": [0, 1]}}}, "not enough values"),
        ({**V2, "topics": {"t": {"0": [0, True, 1]}}}, "not 2 integers"),
        ({**V2, "topics": {"t": {"0": [0, 1, 1.5]}}}, "neither a number nor a text: 1.5"),
        ({**V2, "known": {"t": [1, None]}}, "topic t has no identity"),
        ({**V2, "n": "1"}, "not 1 integers"),
        ({**V2, "group": None}, "not a group"),
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
        ('{"t":{"x":5}}', "'x' as a partition of topic t"),
        ('{"t":{"0":-3}}', "-3 as the offset of t-0"),
        ('{"t":{"0":true}}', "True as the offset of t-0"),
    ],
)
def test_malformed_positions_are_refused_with_the_reason(text, expected):
    with pytest.raises(ValueError, match=expected):
        decode_positions(text)
