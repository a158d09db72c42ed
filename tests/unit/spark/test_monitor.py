import json

import pytest

from zkconsumer.model import TopicPartition
from zkconsumer.spark.monitor import lag_after
from zkconsumer.spark.offsets_json import encode_batch
from zkconsumer.spark.planning import Span

A, B = (TopicPartition("t", n) for n in range(2))
REPORT = {"group": "g", **encode_batch({A: Span(60, 100), B: Span(5, 5)})}


@pytest.mark.parametrize(
    ("planned", "lag"),
    [
        ({A: Span(60, 90)}, {A: 10, B: 0}),
        ({A: Span(0, 60), B: Span(0, 5)}, {A: 40, B: 0}),
        ({TopicPartition("gone", 0): Span(0, 9)}, {A: 40, B: 0}),
    ],
)
def test_lag_counts_what_the_batch_leaves(planned, lag):
    assert lag_after(REPORT, json.dumps(encode_batch(planned))) == lag


@pytest.mark.parametrize("end", [None, "12", '{"v":9,"topics":{}}'])
def test_an_end_that_says_nothing_counts_from_the_positions(end):
    assert lag_after(REPORT, end) == {A: 40, B: 0}
