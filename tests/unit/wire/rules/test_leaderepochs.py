import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.model import TopicPartition
from zkconsumer.wire.rules import leaderepochs
from zkconsumer.wire.rules.leaderepochs import PATIENCE_S, UNKNOWN_EPOCH, KnownEpochs, PositionEpochs

P = TopicPartition("t", 0)


@pytest.fixture
def known():
    epochs = KnownEpochs()
    assert epochs.accept(P, "id", 5, 0)
    return epochs


def test_epochs_of_one_topic_never_go_back(known):
    assert not known.accept(P, "id", 4, 0)
    assert not known.accept(P, "id", 4, 100 * PATIENCE_S)
    assert known.accept(P, "id", 5, 0)
    assert known.accept(P, "id", 7, 0)
    assert not known.accept(P, "id", 5, 0)
    assert known.to_name(P, 0) == 7


def test_a_topic_that_was_created_again_begins_with_its_own_epochs(known):
    assert known.accept(P, "another id", 0, 0)
    assert known.to_name(P, 0) == 0


def test_a_broker_that_reports_no_epoch_is_believed(known):
    assert known.accept(P, None, UNKNOWN_EPOCH, 0)
    assert not known.accept(P, "id", 4, 0)


@pytest.mark.parametrize(("before", "after"), [(None, None), ("id", None), (None, "id")])
def test_without_topic_ids_an_older_epoch_is_accepted_once_it_is_repeated_for_long(before, after):
    known = KnownEpochs()
    assert known.accept(P, before, 5, 0)
    assert not known.accept(P, after, 0, 10)
    assert not known.accept(P, after, 0, 9 + PATIENCE_S)
    assert known.accept(P, after, 0, 10 + PATIENCE_S)
    assert known.to_name(P, 10 + PATIENCE_S) == 0


def test_an_older_epoch_is_not_repeated_if_the_newest_comes_between():
    known = KnownEpochs()
    for now in range(0, 100, 2):
        assert known.accept(P, None, 5, now)
        assert not known.accept(P, None, 4, now + 1)


def test_an_epoch_that_its_leader_refuses_for_long_is_not_named(known):
    known.fenced(P, 5, 10)
    known.fenced(P, 5, 15)
    assert known.accept(P, "id", 5, 15)
    assert known.to_name(P, 9 + PATIENCE_S) == 5
    assert known.to_name(P, 10 + PATIENCE_S) == UNKNOWN_EPOCH
    assert known.accept(P, "id", 6, 10 + PATIENCE_S)
    assert known.to_name(P, 10 + PATIENCE_S) == 6


def test_the_refusal_of_a_former_epoch_says_nothing_about_the_known_one(known):
    """1. Epoch 6 becomes known because of another partition of the topic; 2. the refusal of 5 is noted."""
    assert known.accept(P, "id", 6, 0)
    known.fenced(P, 5, 0)
    assert known.to_name(P, PATIENCE_S) == 6


def test_unknown_partitions_have_no_epoch():
    known = KnownEpochs()
    known.fenced(P, 5, 0)
    assert known.to_name(P, 0) == UNKNOWN_EPOCH


def test_examples():
    assert doctest.testmod(leaderepochs).failed == 0


def test_brokers_have_ten_seconds_to_repeat_an_epoch():
    known = KnownEpochs()
    known.accept(P, None, 5, 0)
    assert not known.accept(P, None, 4, 100)
    assert not known.accept(P, None, 4, 109.9)
    assert known.accept(P, None, 4, 110)


@pytest.mark.parametrize(
    ("leader", "record", "after"),
    [
        (5, None, (5, 3)),
        (5, 3, (5, 3)),
        (5, 4, (5, 4)),
        (5, 5, (5, 5)),
        (5, 6, (5, -1)),
        (6, None, (6, 3)),
        (6, 3, (6, 3)),
        (6, 2, (6, -1)),
        (3, None, (3, 3)),
        (2, None, (2, -1)),
        (-1, None, (-1, -1)),
        (-1, 7, (-1, -1)),
    ],
)
def test_the_epochs_after_an_answer(leader, record, after):
    assert PositionEpochs(5, 3).after(leader, record) == after


epochs = st.integers(-1, 9)


@given(answers=st.lists(st.tuples(epochs, st.none() | st.integers(-(2**31), 2**31 - 1))), leader=epochs)
def test_only_epochs_that_the_answering_leaders_can_have_are_asked_for(answers, leader):
    position = PositionEpochs()
    for named, record in answers:
        position = position.after(named, record)
    asked = position.to_check(leader)
    if asked != UNKNOWN_EPOCH:
        assert 0 <= asked <= position.leader == answers[-1][0] < leader


def test_an_epoch_of_another_process_makes_older_ones_outdated(known):
    assert known.expect(P, 4)
    assert known.to_name(P, 0) == 5
    assert not known.expect(P, 7)
    assert known.expect(P, 7)
    assert not known.accept(P, "id", 6, 0)
    assert known.accept(P, "id", 7, 0)


def test_an_epoch_of_another_process_is_of_the_same_topic(known):
    known.expect(P, 7)
    assert not known.accept(P, "id", 6, PATIENCE_S)
    assert not known.accept(P, "id", 6, 100 * PATIENCE_S), "however long it is repeated"


def test_without_topic_ids_a_refused_epoch_stays_known_although_a_later_one_is_expected():
    """Metadata is outdated for as long as the reassignment of a partition lasts, before Kafka 2.4."""
    known = KnownEpochs()
    assert not known.expect(P, 5)
    assert not known.accept(P, None, 4, 0)
    assert known.accept(P, None, 4, PATIENCE_S)
    known.fenced(P, 4, PATIENCE_S)
    assert known.expect(P, 5), "by the next task"
    assert known.accept(P, None, 4, 2 * PATIENCE_S)
    assert known.to_name(P, 2 * PATIENCE_S) == UNKNOWN_EPOCH


def test_an_epoch_that_is_expected_again_is_refused_still(known):
    known.fenced(P, 5, 0)
    assert known.expect(P, 5)
    assert known.to_name(P, PATIENCE_S) == UNKNOWN_EPOCH
