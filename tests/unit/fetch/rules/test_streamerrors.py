"""StreamErrors: which error a request raises, by what was reported before."""

import pytest

from zkconsumer.fetch.chunks import QueuedPartition
from zkconsumer.fetch.rules.streamerrors import StreamErrors
from zkconsumer.model import TopicPartition

DENIAL, FAILURE, LATER, TROUBLE, CAUSE = (ValueError(name) for name in ("denial", "failure", "later", "trouble", "end"))
INFO, OTHER = (QueuedPartition(TopicPartition("t", number)) for number in (0, 1))


@pytest.fixture
def errors():
    return StreamErrors()


def raised(errors, *has_records):
    """The errors of one request after the other."""
    return [errors.take(has_records=records) for records in has_records]


def report_all(errors):
    errors.complain(INFO, TROUBLE)
    errors.fail(INFO, FAILURE)
    errors.denials.deny("t", INFO.partition, DENIAL)


def test_nothing_is_raised_without_a_report(errors):
    assert raised(errors, True, False) == [None, None]


def test_a_denial_comes_before_chunks_and_the_rest_after_them(errors):
    report_all(errors)
    assert raised(errors, True, True, False, False) == [DENIAL, None, FAILURE, FAILURE]
    errors.forget([INFO])
    assert raised(errors, False) == [None]


def test_a_denial_comes_before_a_failure(errors):
    report_all(errors)
    assert raised(errors, False, False) == [DENIAL, FAILURE]


def test_the_first_failure_of_a_partition_counts_and_the_oldest_is_raised(errors):
    errors.fail(INFO, FAILURE)
    errors.fail(OTHER, LATER)
    errors.fail(INFO, LATER)
    assert raised(errors, False) == [FAILURE]
    errors.forget([INFO])
    assert raised(errors, False) == [LATER]


def test_the_newest_trouble_is_raised_once_and_ends_the_others(errors):
    assert errors.complain(INFO, LATER)
    assert errors.complain(OTHER, TROUBLE)
    assert raised(errors, True, False, False) == [None, TROUBLE, None]
    assert not errors.complain(INFO, TROUBLE)
    assert raised(errors, False) == [None]


def test_a_chunk_ends_the_trouble_of_its_partition(errors):
    errors.complain(INFO, TROUBLE)
    errors.complain(OTHER, LATER)
    errors.arrived(OTHER)
    assert raised(errors, False) == [TROUBLE]


def test_a_closed_stream_raises_failures_and_its_cause_only(errors):
    report_all(errors)
    errors.close(CAUSE)
    errors.close(LATER)
    assert errors.closed
    assert raised(errors, True, False) == [FAILURE, FAILURE]
    errors.forget([INFO])
    assert raised(errors, True, False) == [CAUSE, CAUSE]


def test_a_closed_stream_without_a_cause_ends_without_an_error(errors):
    errors.complain(INFO, TROUBLE)
    errors.denials.deny("t", INFO.partition, DENIAL)
    errors.close(None)
    assert raised(errors, True, False) == [None, None]


def test_releasing_all_forgets_all_but_the_cause(errors):
    report_all(errors)
    errors.forget_all()
    assert raised(errors, False) == [None]
    errors.close(CAUSE)
    errors.forget_all()
    assert raised(errors, False) == [CAUSE]


def test_a_denial_that_was_raised_stays_known_over_a_release(errors):
    errors.denials.deny("t", INFO.partition, DENIAL)
    assert raised(errors, True) == [DENIAL]
    errors.forget([INFO])
    errors.forget_all()
    errors.denials.deny("t", OTHER.partition, DENIAL)
    assert raised(errors, False) == [None]
