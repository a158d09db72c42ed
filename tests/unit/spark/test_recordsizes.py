import pytest

from zkconsumer.errors import BrokerUnavailable
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.rules.spans import Span
from zkconsumer.spark.recordsizes import RecordSizes

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SPANS = {A0: Span(5, 105), A1: Span(0, 50), B0: Span(7, 17)}


class Brokers:
    """Answer with these bytes per offset."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        self.now = 0.0

    def __call__(self, offsets):
        self.asked.append(offsets)
        if isinstance(self.answers, Exception):
            raise self.answers
        return {p: size for p, size in self.answers.items() if p in offsets}


@pytest.fixture
def made():
    def make(answers):
        brokers = Brokers(answers)
        return brokers, RecordSizes(brokers, lambda: brokers.now)

    return make


def test_the_size_of_a_batch_follows_from_records_at_its_beginning(made):
    brokers, sizes = made({A0: 100.0, A1: 200.0, B0: 10.0})
    assert sizes.bytes_of(SPANS) == 150 * 150 + 10 * 10
    assert brokers.asked == [{A0: 5, A1: 0, B0: 7}]


def test_topics_are_asked_for_once_a_minute(made):
    brokers, sizes = made({A0: 100.0})
    assert sizes.bytes_of({A0: Span(0, 10)}) == 1000
    brokers.answers, brokers.now = {A0: 300.0, B0: 1.0}, 59.0
    assert sizes.bytes_of({A0: Span(10, 20), B0: Span(0, 5)}) == 1005
    assert brokers.asked[1:] == [{B0: 0}]
    brokers.now = 60.0
    assert sizes.bytes_of({A0: Span(10, 20)}) == 3000


@pytest.mark.parametrize("answers", [{}, BrokerUnavailable("gone")])
def test_what_is_unknown_is_asked_for_again_soon_and_the_last_size_counts(made, answers):
    brokers, sizes = made({A0: 100.0})
    assert sizes.bytes_of({A0: Span(0, 10)}) == 1000
    brokers.answers, brokers.now = answers, 60.0
    assert sizes.bytes_of(SPANS) == 150 * 100, "nothing is known of the other topic"
    assert sizes.bytes_of(SPANS) == 150 * 100
    assert len(brokers.asked) == 2
    brokers.answers, brokers.now = {A0: 10.0, B0: 1.0}, 65.0
    assert sizes.bytes_of(SPANS) == 150 * 10 + 10


def test_few_partitions_of_many_are_asked_for(made):
    many = {TopicPartition(f"t{n % 40}", n): Span(0, 1 + n) for n in range(4000)}
    brokers, sizes = made(dict.fromkeys(many, 2.0))
    assert sizes.bytes_of(many) == 2 * sum(span.size for span in many.values() if span)
    assert len(brokers.asked[0]) == 64


def test_nothing_is_asked_for_nothing(made):
    brokers, sizes = made({})
    assert sizes.bytes_of({A0: Span(3, 3)}) == 0
    assert not brokers.asked
