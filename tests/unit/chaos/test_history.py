"""ZooKeeper's transaction log: what is read from it, and which records of a ledger that gives."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.history import GroupHistory, read_transactions
from tests.chaos.txnlog import Change, Transaction, parse
from zkconsumer.testing.ledger import Claimed, Committed, Registered, Released, SessionEnded

HEADER = struct.pack(">4siq", b"ZKLG", 2, 0)


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack(">i", len(data)) + data


def create(path, data=b"", ephemeral=False):
    access = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
    return 1, text(path) + text(data) + access + struct.pack(">?i", ephemeral, 1)


def set_data(path, data, version):
    return 5, text(path) + text(data) + struct.pack(">i", version)


def delete(path):
    return 2, text(path)


def multi(*parts):
    return 14, struct.pack(">i", len(parts)) + b"".join(struct.pack(">i", kind) + text(body) for kind, body in parts)


CLOSE = -11, b""
OPEN = -10, struct.pack(">i", 2000)
CHECK = 13, text("/a") + struct.pack(">i", 0)
ERROR = -1, struct.pack(">i", -101)


def entry(zxid, session, change, time_ms=1000):
    kind, body = change
    data = struct.pack(">qiqqi", session, 1, zxid, time_ms, kind) + body
    return struct.pack(">qi", zlib.adler32(data), len(data)) + data + b"B"


def log(*entries):
    return HEADER + b"".join(entries)


def test_each_kind_of_change_is_read():
    written = log(
        entry(1, 7, create("/a", b"x")),
        entry(2, 7, create("/b", ephemeral=True)),
        entry(3, 7, set_data("/a", b"y", 1)),
        entry(4, 7, delete("/a")),
        entry(5, 7, CLOSE),
    )
    assert list(parse(written)) == [
        Transaction(1, 7, 1000, (Change("create", "/a", b"x"),)),
        Transaction(2, 7, 1000, (Change("create", "/b", ephemeral=True),)),
        Transaction(3, 7, 1000, (Change("set", "/a", b"y", version=1),)),
        Transaction(4, 7, 1000, (Change("delete", "/a"),)),
        Transaction(5, 7, 1000, (Change("close"),)),
    ]


def test_transactions_before_the_first_wanted_are_skipped():
    written = log(entry(1, 7, create("/a")), entry(2, 7, create("/b")))
    assert [one.zxid for one in parse(written, after=1)] == [2]


def test_changes_of_one_transaction_stay_together():
    (transaction,) = parse(log(entry(1, 7, multi(CHECK, create("/a"), set_data("/b", b"1", 4)))))
    assert [change.path for change in transaction.changes] == ["/a", "/b"]


def test_a_transaction_that_failed_changed_nothing():
    assert not list(parse(log(entry(1, 7, multi(create("/a"), ERROR, ERROR)))))


@pytest.mark.parametrize("change", [OPEN, ERROR, multi(ERROR, ERROR)])
def test_what_changes_no_znode_is_skipped(change):
    assert list(parse(log(entry(1, 7, change)))) == []


@given(st.integers(0, 200))
def test_a_log_that_is_being_written_ends_with_its_last_whole_entry(length):
    written = log(entry(1, 7, create("/a")), entry(2, 7, create("/b")))
    cut = written[: min(length, len(written) - 1)]
    assert [one.zxid for one in parse(cut)] in ([], [1])
    assert [one.zxid for one in parse(written + bytes(1000))] == [1, 2]


def test_another_file_is_refused():
    with pytest.raises(ValueError, match="not a transaction log"):
        list(parse(b"ZKSN" + bytes(100)))


def test_logs_are_read_in_the_order_of_their_first_transaction(tmp_path):
    directory = tmp_path / "version-2"
    directory.mkdir()
    for name, zxid in (("log.10", 16), ("log.9", 9)):
        (directory / name).write_bytes(log(entry(zxid, 7, create("/a"))))
    assert [one.zxid for one in read_transactions([tmp_path])] == [9, 16]


def test_of_several_servers_most_have_a_transaction(tmp_path):
    """A leader that is killed may have logged one that no other server has got."""
    for server, zxids in (("1", (1, 2, 4)), ("2", (1, 3)), ("3", (1, 2, 3))):
        (tmp_path / server / "version-2").mkdir(parents=True)
        entries = [entry(zxid, 7, create("/a")) for zxid in zxids]
        (tmp_path / server / "version-2" / "log.1").write_bytes(log(*entries))
    assert [one.zxid for one in read_transactions([tmp_path / name for name in "123"])] == [1, 2, 3]


ROOT = "/consumers/g"


def history(*changes):
    transactions = [
        Transaction(zxid, session, 1000 * zxid, tuple(change for _, change in parts))
        for zxid, (session, parts) in enumerate(changes, 1)
    ]
    return list(GroupHistory("g", 100.0).records(transactions))


def of(session, *changes):
    return session, [(session, change) for change in changes]


def owner(name, kind="create"):
    return Change(kind, f"{ROOT}/owners/t/0", f"g_{name}-0".encode(), ephemeral=True)


def test_the_life_of_an_owner_becomes_records():
    records = history(
        of(7, Change("create", f"{ROOT}/ids/g_a", ephemeral=True), Change("create", f"{ROOT}/zkconsumer/members/x")),
        of(7, owner("a")),
        of(7, Change("create", f"{ROOT}/offsets/t")),
        of(7, Change("create", f"{ROOT}/offsets/t/0", b"3")),
        of(7, Change("set", f"{ROOT}/offsets/t/0", b"5", version=1)),
        of(7, Change("delete", f"{ROOT}/owners/t/0")),
    )
    assert records == [
        Registered("g_a", 7, 101.0),
        Claimed("t", 0, "g_a", 7, 2, 102.0),
        Committed("t", 0, 3, "zookeeper", "g_a", 7, 0, 4, 4, 104.0),
        Committed("t", 0, 5, "zookeeper", "g_a", 7, 1, 5, 4, 105.0),
        Released("t", 0, "g_a", 7, 6, 106.0, expired=False),
    ]


def test_the_end_of_a_session_ends_its_ownership():
    registration = Change("create", f"{ROOT}/ids/g_a", ephemeral=True)
    records = history(of(7, registration, owner("a")), of(8, owner("b", "set")), of(7, Change("close")))
    assert records[2:] == [Released("t", 0, "g_a", 7, 3, 103.0, expired=True), SessionEnded("g_a", 7, 103.0)]


def test_a_session_is_the_members_also_before_it_registers():
    offset = Change("create", f"{ROOT}/offsets/t/0", b"3")
    early, _ = history(of(7, offset), of(7, Change("create", f"{ROOT}/ids/g_a", ephemeral=True)))
    assert early.writer == "g_a"


def test_who_writes_an_offset_need_not_be_a_member():
    (record,) = history(of(9, Change("create", f"{ROOT}/offsets/t/0", b"3")))
    assert (record.writer, record.session) == ("", 9)


def test_other_groups_and_nudges_leave_no_records():
    others = [
        Change("create", "/consumers/g2/offsets/t/0", b"3"),
        Change("create", "/brokers/topics/t"),
        Change("create", f"{ROOT}/ids/g_a-nudge", ephemeral=True),
    ]
    assert history(of(7, *others), of(7, Change("close"))) == []
