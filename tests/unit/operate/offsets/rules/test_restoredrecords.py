"""Which records of topics name another parent when they are restored."""

import pytest

from zkconsumer.offsets.rules.topicorigins import TopicRecord
from zkconsumer.operate.offsets.rules.restoredrecords import TO_BE_CREATED, below_parent

FORMER, PRESENT = 70, 90
RECORD = TopicRecord("id", FORMER, replaced=True)


@pytest.mark.parametrize("parent", [PRESENT, TO_BE_CREATED])
def test_a_record_of_the_former_parent_names_the_present_one(parent):
    moved = below_parent("t", RECORD.encode(), FORMER, parent)
    assert TopicRecord.decode("t", moved) == RECORD._replace(ensemble=parent)
    assert below_parent("t", moved, parent, FORMER) == RECORD.encode()


@pytest.mark.parametrize("data", [RECORD._replace(ensemble=71).encode(), b"garbage", b"", None])
def test_what_proved_nothing_stays_as_it_is(data):
    """It is of another ensemble, or is no record."""
    assert below_parent("t", data, FORMER, PRESENT) == data


def test_a_record_stays_byte_for_byte_below_a_parent_that_was_not_deleted():
    spaced = RECORD.encode().replace(b",", b", ")
    assert below_parent("t", spaced, FORMER, FORMER) == spaced
