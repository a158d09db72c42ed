"""The checker: violations that were planted in a faultless run are found, and nothing else is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.testing.checker import check
from zkconsumer.testing.ledger import Claimed, Committed, Delivered, Done, Gone, Ledger, Produced, Released, Removed

A, B = "a", "b"
SESSIONS = {A: 10, B: 20}


def produced(count, partition=0):
    return [Produced(100 * partition + n, "t", partition, n, 0.0) for n in range(count)]


def delivered(offset, owner, at, generation=1, asked=None, partition=0):
    asked = at - 0.1 if asked is None else asked
    return Delivered(100 * partition + offset, "t", partition, offset, owner, SESSIONS[owner], generation, asked, at)


def claimed(owner, zxid, at, partition=0, session=None):
    return Claimed("t", partition, owner, session or SESSIONS[owner], zxid, at)


def released(owner, zxid, at, partition=0):
    return Released("t", partition, owner, SESSIONS[owner], zxid, at, expired=False)


def committed(offset, writer, zxid, at, version=0, partition=0):
    return Committed("t", partition, offset, "zookeeper", writer, SESSIONS[writer], version, zxid, 5, at)


def run():
    """A faultless run: A delivers 0 to 4, commits 5 and releases; B claims, delivers 5 to 9 and commits 10."""
    return [
        *produced(10),
        claimed(A, 1, 0.0),
        *[delivered(n, A, 1.0 + n) for n in range(5)],
        committed(5, A, 6, 6.0),
        released(A, 7, 6.5),
        claimed(B, 8, 7.0),
        *[delivered(n, B, 8.0 + n) for n in range(5, 10)],
        committed(10, B, 9, 19.0, version=1),
        released(B, 10, 20.0),
    ]


def without_ownership(records):
    return [record for record in records if not isinstance(record, Claimed | Released)]


def found(records):
    """How many findings of each kind there are; those that there are none of are omitted."""
    findings = check(Ledger(records))
    kinds = ("lost", "duplicates", "overlaps", "moved_back", "foreign", "early")
    return {kind: len(getattr(findings, kind)) for kind in kinds if getattr(findings, kind)}


@pytest.mark.parametrize("records", [run(), without_ownership(run()), []])
def test_nothing_is_found_in_a_faultless_run(records):
    assert found(records) == {}
    assert check(Ledger(records)).errors() == []


def test_a_lost_record_is_found():
    records = [one for one in run() if not (isinstance(one, Delivered) and one.offset == 3)]
    findings = check(Ledger(records))
    assert [one.number for one in findings.lost] == [3]
    assert findings.errors() == ["record 3 (t-0 offset 3) was not delivered"]


@pytest.mark.parametrize(
    ("removed", "lost"),
    [(Removed("t", 0, 4, 1.0), []), (Removed("t", 0, 3, 1.0), [3]), (Gone(3, 1.0), []), (Gone(4, 1.0), [3])],
)
def test_a_record_that_its_broker_removed_is_not_lost(removed, lost):
    records = [one for one in run() if not (isinstance(one, Delivered) and one.offset == 3)]
    assert [one.number for one in check(Ledger([*records, removed])).lost] == lost


def test_a_duplicate_of_an_uncommitted_record_is_counted_and_is_no_error():
    records = [replace(one, offset=4) if isinstance(one, Committed) and one.offset == 5 else one for one in run()]
    findings = check(Ledger([*records, delivered(4, B, 7.5)]))
    assert [(one.first.owner, one.again.owner, one.was_committed) for one in findings.duplicates] == [(A, B, False)]
    assert findings.errors() == []


@pytest.mark.parametrize("strip", [list, without_ownership])
def test_a_duplicate_of_a_committed_record_is_an_error(strip):
    findings = check(Ledger(strip([*run(), delivered(4, B, 7.5)])))
    assert [one.was_committed for one in findings.duplicates] == [True]
    assert "although it was committed" in findings.errors()[0]


def test_an_offset_of_an_earlier_topic_commits_no_record_of_the_present_one():
    """1. Offset 500 is stored; 2. the topic is created again; 3. A delivers record 4, and is killed; 4. B does."""
    former = committed(500, A, 2, 0.5)
    records = [one for one in run() if not isinstance(one, Committed)]
    findings = check(Ledger([former, *records, delivered(4, B, 7.5)]))
    assert [one.was_committed for one in findings.duplicates] == [False]


def test_a_record_that_was_appended_twice_is_no_duplicate():
    again = replace(delivered(9, B, 18.0), offset=10)
    assert found([*run(), again]) == {}


def test_a_delivery_while_another_member_owns_is_an_overlap():
    findings = check(Ledger([*run(), delivered(4, A, 9.5)]))
    assert [(one.late.owner, one.other) for one in findings.overlaps] == [(A, B)]


def test_interleaved_deliveries_overlap_where_ownership_is_not_recorded():
    late = replace(delivered(4, A, 15.5), number=77, offset=77)
    assert found([*without_ownership(run()), late]).keys() == {"overlaps"}


def test_a_member_that_comes_back_in_a_later_generation_does_not_overlap():
    again = replace(delivered(4, A, 19.5, generation=2), number=77, offset=77)
    assert found([*without_ownership(run()), again]) == {}


def test_a_record_that_may_have_been_handed_out_before_gets_the_benefit_of_the_doubt():
    assert "overlaps" not in found([*run(), delivered(4, A, 9.5, asked=6.4)])


def test_a_commit_below_the_stored_offset_is_found():
    findings = check(Ledger([*run(), committed(7, B, 9, 19.5, version=2)]))
    assert [(one.commit.offset, one.former.offset) for one in findings.moved_back] == [(7, 10)]


def test_the_offset_znode_of_a_deleted_group_begins_again():
    records = [*run(), replace(committed(0, B, 9, 19.5, version=0), czxid=9)]
    assert found(records) == {}


def test_a_stale_commit_of_a_former_owner_is_found():
    findings = check(Ledger([*run(), committed(6, A, 9, 18.5, version=2)]))
    assert [(one.commit.writer, one.owner) for one in findings.foreign] == [(A, B)]
    assert len(findings.moved_back) == 1


@pytest.mark.parametrize(("zxid", "owner"), [(8, B), (11, None)])
def test_a_commit_by_a_session_that_is_not_the_owners_is_found(zxid, owner):
    findings = check(Ledger([*run(), replace(committed(11, B, zxid, 21.0, version=2), session=99)]))
    assert [one.owner for one in findings.foreign] == [owner]


@given(st.data())
def test_each_record_that_is_taken_out_is_the_one_that_is_lost(data):
    records = run()
    victim = data.draw(st.sampled_from([one for one in records if isinstance(one, Delivered)]))
    records.remove(victim)
    assert [one.number for one in check(Ledger(data.draw(st.permutations(records)))).lost] == [victim.number]


@given(st.permutations(run()))
def test_the_order_in_which_records_are_given_changes_nothing(records):
    assert found(records) == {}


@given(st.integers(0, 9), st.sampled_from([A, B]), st.floats(0.2, 25.0))
def test_whatever_is_delivered_again_is_a_duplicate(offset, owner, at):
    findings = check(Ledger([*run(), delivered(offset, owner, at)]))
    assert len(findings.duplicates) == 1
    assert not findings.lost


def done(offset, owner, at):
    return Done(offset, "t", 0, offset, owner, at)


ALL_DONE = [*(done(n, A, 1.5 + n) for n in range(5)), *(done(n, B, 8.5 + n) for n in range(5, 10))]


def test_commits_of_what_is_done_are_no_finding():
    assert found([*run(), *ALL_DONE]) == {}
    assert found([*run(), *reversed(ALL_DONE)]) == {}


@pytest.mark.parametrize(
    "replacement",
    [
        [],
        [done(3, A, 6.5)],  # after the commit
        [done(3, B, 4.5)],  # by a member that does not own the partition
    ],
)
def test_a_commit_that_covers_what_its_writer_has_not_done_is_found(replacement):
    records = [*run(), *(one for one in ALL_DONE if one.offset != 3), *replacement]
    assert found(records) == {"early": 1}
    (error,) = check(Ledger(records)).errors()
    assert "commit of t-0 offset 5 by a at 6.000 covers record 3 (t-0 offset 3), which was not done" in error


def test_a_writer_answers_for_what_it_has_taken_over_alone():
    """What the former owner committed was that owner's to do."""
    assert found([*run(), *(one for one in ALL_DONE if one.offset not in (3, 7))]) == {"early": 2}
    assert found([*run(), *ALL_DONE, Gone(3, 30.0)]) == {}
    assert found([*run(), *(one for one in ALL_DONE if one.offset != 3), Gone(3, 30.0)]) == {}


def test_of_a_commit_without_a_writer_any_members_work_counts():
    anonymous = [replace(one, writer="", session=0) if isinstance(one, Committed) else one for one in run()]
    swapped = [replace(one, owner=B if one.owner == A else A) for one in ALL_DONE]
    assert found([*anonymous, *swapped]) == {}
    assert found([*anonymous, *swapped[1:]]) == {"early": 2}
