"""The judgement of a fetch's answer: error codes, bytes without a batch, and bytes that cannot be decoded."""

import pytest

from zkconsumer.errors import CorruptRecord, RecordTooLarge
from zkconsumer.model import TopicPartition
from zkconsumer.wire.errorcodes import LEADER_MOVED, ErrorCode, verdict_on
from zkconsumer.wire.rules.fetchanswers import BELIEVED_AT, Faults, Verdict, next_size, resume_at

P = TopicPartition("t", 0)
DAMAGE, DOUBTFUL = CorruptRecord("checksum", 20), CorruptRecord("end of the log", 20, doubtful=True)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, Verdict.SERVED),
        (ErrorCode.OFFSET_OUT_OF_RANGE, Verdict.OUT_OF_RANGE),
        *((code, Verdict.LEADER_MOVED) for code in sorted(LEADER_MOVED)),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Verdict.REFUSED),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, Verdict.REFUSED),
        (ErrorCode.REQUEST_TIMED_OUT, Verdict.FAILED),
    ],
)
def test_each_error_code_has_one_verdict(code, verdict):
    assert verdict_on(code) is verdict


def size(received, *, asked=100, is_first=True):
    return next_size(P, 5, received, asked, 350, is_first=is_first)


def test_the_leader_decides_what_an_error_of_a_follower_means():
    assert verdict_on(ErrorCode.NONE, of_follower=True) is Verdict.SERVED
    assert {verdict_on(code, of_follower=True) for code in range(1, 120)} == {Verdict.LEADER_DECIDES}


def test_a_record_that_was_cut_off_is_requested_with_twice_the_bytes():
    assert (size(100), size(100, is_first=False), size(400)) == (200, 200, 200)
    assert size(200, asked=200) == 350, "not more than fetch.max.bytes"


def test_a_record_longer_than_the_limit_is_an_error():
    with pytest.raises(RecordTooLarge, match=r"t-0 at offset 5: a record is longer than fetch.max.bytes \(350\)"):
        size(350, asked=350)


def test_fewer_bytes_than_requested_are_cut_off_by_the_limit_of_the_response_or_damaged():
    assert (size(99, is_first=False), size(0), size(0, is_first=False)) == (100, 100, 100)
    with pytest.raises(CorruptRecord, match="t-0 at offset 5: 99 bytes hold no complete batch"):
        size(99)


@pytest.mark.parametrize(("first", "more"), [(DAMAGE, 0), (DOUBTFUL, 1)], ids=["damage", "doubtful"])
def test_damage_is_believed_after_some_attempts_of_which_a_doubtful_first_does_not_count(first, more):
    faults, believed = Faults(), []
    for error in (first, *[DOUBTFUL] * 3):
        faults = faults.after(5, error)
        believed.append(faults.are_believed)
    assert believed.index(True) == BELIEVED_AT - 1 + more


def test_there_are_no_faults_at_first():
    assert Faults() == (None, 0)


def test_damage_at_another_offset_is_counted_from_the_beginning():
    assert Faults(5, 2).after(6, DAMAGE) == Faults(6, 1)
    assert Faults(5, 2).after(6, RecordTooLarge("decompressed")) == Faults(6, 1)


def test_damage_is_skipped_only_if_configured_and_its_end_is_known():
    assert resume_at(DAMAGE, "skip", None) == resume_at(DAMAGE, "skip", 30) == 20
    assert resume_at(DAMAGE, "skip", 15) == 15, "a damaged header may exceed the end"
    assert resume_at(DAMAGE, "fail", None) is None
    assert resume_at(CorruptRecord("header"), "skip", 30) is None
    assert resume_at(RecordTooLarge("decompressed"), "skip", 30) is None
