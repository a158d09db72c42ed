import json

import pytest

from zkconsumer.model import TopicPartition
from zkconsumer.spark.microbatch import Span
from zkconsumer.spark.monitor import lag_after, planned_offset
from zkconsumer.spark.offsetsjson import encode_offset, encode_report
from zkconsumer.spark.sourceoffset import SourceOffset

A, B = (TopicPartition("t", n) for n in range(2))
REPORT = encode_report("g", {A: Span(60, 100), B: Span(5, 5)}, None)


@pytest.mark.parametrize(
    ("planned", "lag"),
    [
        ({A: Span(60, 90)}, {A: 10, B: 0}),
        ({A: Span(0, 60), B: Span(0, 5)}, {A: 40, B: 0}),
        ({TopicPartition("gone", 0): Span(0, 9)}, {A: 40, B: 0}),
    ],
)
def test_lag_counts_the_offsets_after_the_batch(planned, lag):
    end = json.dumps(encode_offset(SourceOffset("g", 1, {}, planned)))
    assert lag_after(REPORT, planned_offset(end)) == lag


@pytest.mark.parametrize("end", [None, "12", '{"v":9,"topics":{}}'])
def test_without_an_end_offset_lag_counts_from_the_positions(end):
    assert lag_after(REPORT, planned_offset(end)) == {A: 40, B: 0}
