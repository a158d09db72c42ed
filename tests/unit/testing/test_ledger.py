"""Records of a ledger, their text, and their files."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.errors import UsageError
from zkconsumer.model import TopicPartition
from zkconsumer.testing.ledger import (
    Claimed,
    Committed,
    Delivered,
    Done,
    Faulted,
    Gone,
    Ledger,
    Produced,
    Registered,
    Released,
    Removed,
    SessionEnded,
    Stalled,
    decode,
    encode,
)
from zkconsumer.testing.ledgerfile import SUFFIX, LedgerFile, read_ledger

KINDS = (
    *(Claimed, Committed, Delivered, Done, Faulted, Gone, Produced, Registered, Released, Removed, SessionEnded),
    Stalled,
)
TIMES = st.floats(allow_nan=False)  # NaN equals nothing
RECORDS = st.one_of(
    [st.builds(kind, **{one.name: TIMES for one in fields(kind) if one.type == "float"}) for kind in KINDS]
)


@given(RECORDS)
def test_a_record_is_one_line_that_gives_it_back(record):
    line = encode(record)
    assert "\n" not in line
    assert decode(line) == record


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"record":"produced"}', '{"record":"unknown","at":1}'])
def test_another_line_is_refused(line):
    with pytest.raises(UsageError, match="not a line of a ledger"):
        decode(line)


def test_a_ledger_is_read_from_the_files_of_all_its_processes(tmp_path):
    records = [Produced(number, "t", 0, number, 1.0) for number in range(4)]
    for name, own in (("a", records[:2]), ("b", records[2:3])):
        file = LedgerFile(tmp_path / f"{name}{SUFFIX}")
        file.append(*own)
        file.close()
    assert read_ledger(tmp_path, records[3:]).records == tuple(records)


def test_the_line_that_a_killed_process_began_is_ignored(tmp_path):
    path = tmp_path / f"a{SUFFIX}"
    path.write_text(encode(Produced(1, "t", 0, 0, 1.0)) + "\n" + '{"record":"produ')
    assert read_ledger(tmp_path).records == (Produced(1, "t", 0, 0, 1.0),)


def claim(owner, zxid, at=0.0):
    return Claimed("t", 0, owner, ord(owner), zxid, at)


def release(owner, zxid, at=0.0):
    return Released("t", 0, owner, ord(owner), zxid, at, expired=False)


def test_tenures_follow_each_other_in_the_order_of_transactions():
    records = [claim("b", 3, 2.0), claim("a", 1, 0.0), release("a", 2, 1.0)]
    tenures = Ledger(records).tenures[TopicPartition("t", 0)]
    assert [(one.claim.owner, one.until) for one in tenures] == [("a", 1.0), ("b", float("inf"))]


@pytest.mark.parametrize(("zxid", "owner"), [(1, "a"), (2, "a"), (3, "a"), (4, None), (5, "b"), (9, "b")])
def test_a_transaction_falls_into_one_tenure_or_none(zxid, owner):
    ledger = Ledger([claim("a", 1), release("a", 3), claim("b", 5)])
    tenure = ledger.tenure_at(TopicPartition("t", 0), zxid)
    assert (None if tenure is None else tenure.claim.owner) == owner
