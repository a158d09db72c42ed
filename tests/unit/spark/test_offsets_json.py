import json

import pytest

from zkconsumer.errors import UsageError
from zkconsumer.model import TopicPartition
from zkconsumer.spark.offsets_json import decode_batch, decode_positions, encode_batch, initial_offset
from zkconsumer.spark.planning import Span


def test_the_text_of_a_batch_is_a_contract():
    spans = {
        TopicPartition("u", 0): Span(0, 1),
        TopicPartition("t", 10): Span(3, 9),
        TopicPartition("t", 2): Span(5, 6),
    }
    text = json.dumps(encode_batch(spans), separators=(",", ":"))
    assert text == '{"v":1,"topics":{"t":{"10":[3,9],"2":[5,6]},"u":{"0":[0,1]}}}'


def test_the_initial_offset_is_a_batch_of_nothing():
    assert initial_offset() == {"v": 1, "topics": {}}
    assert decode_batch(initial_offset()) == {}


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ({"v": 2, "topics": {}}, "version 2"),
        ({"t": {"0": 5}}, "version None"),
        ({"v": 1}, "topics"),
        ({"v": 1, "topics": {"t": {"0": 5}}}, "not a pair of integers: 5"),
        ({"v": 1, "topics": {"t": {"x": [0, 1]}}}, "invalid literal"),
    ],
)
def test_a_foreign_checkpoint_is_refused_with_what_to_check(offset, expected):
    with pytest.raises(UsageError, match=expected) as caught:
        decode_batch(offset)
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
        ("{", "is no JSON"),
        ("[]", "must look like"),
        ('{"t":5}', "must look like"),
        ('{"t":{"x":5}}', "'x' as a partition of topic t"),
        ('{"t":{"0":-3}}', "-3 as the offset of t-0"),
        ('{"t":{"0":true}}', "True as the offset of t-0"),
    ],
)
def test_malformed_positions_say_what_is_wrong(text, expected):
    with pytest.raises(ValueError, match=expected):
        decode_positions(text)
