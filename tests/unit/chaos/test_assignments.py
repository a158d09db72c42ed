"""Generations of a group in ``__consumer_offsets``, and the owners that they make."""

import struct

import pytest

from tests.chaos.assignments import AssignmentHistory, Generation, ReconciledGroup, generation_of
from zkconsumer.group.kafka.subscriptionbytes import encode_assignment
from zkconsumer.model import TopicPartition
from zkconsumer.testing.ledger import Claimed, Ledger, Registered, Released, SessionEnded

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def text(value):
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def content(value):
    return struct.pack(">i", len(value)) + value


def member(version, member_id, client_id, partitions):
    parts = [text(member_id)]
    parts += [text(None)] if version >= 3 else []
    parts += [text(client_id), text("/127.0.0.1")]
    parts += [struct.pack(">i", 5000)] if version >= 1 else []
    return b"".join([*parts, struct.pack(">i", 2000), content(b"subscription"), content(encode_assignment(partitions))])


def metadata(version, number, *members):
    head = struct.pack(">h", version) + text("consumer") + struct.pack(">i", number) + text("range") + text("m-1")
    stamp = struct.pack(">q", 1000) if version >= 2 else b""
    return head + stamp + struct.pack(">i", len(members)) + b"".join(members)


KEY = struct.pack(">h", 2) + text("g")


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_generation_is_read_in_every_version(version):
    value = metadata(version, 7, member(version, "m-1", "m", {P0}), member(version, "n-1", "n", {P1}))
    members = {"m-1": ("m", frozenset({P0})), "n-1": ("n", frozenset({P1}))}
    assert generation_of(KEY, value) == ("g", Generation(7, members))


def test_a_group_without_members_and_a_deleted_one_own_nothing():
    empty = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", 8) + text(None) * 2 + struct.pack(">qi", 0, 0)
    assert generation_of(KEY, empty) == ("g", Generation(8, {}))
    assert generation_of(KEY, None) == ("g", Generation(0, {}))


def test_commits_are_no_generations():
    assert generation_of(struct.pack(">h", 1) + text("g") + text("t") + bytes(4), b"") is None


def test_owners_follow_from_the_generations():
    history, found = AssignmentHistory("g"), []
    generations = [
        Generation(1, {"m-1": ("m", frozenset({P0, P1}))}),
        Generation(2, {"m-1": ("m", frozenset({P0})), "n-1": ("n", frozenset())}),
        Generation(3, {"m-1": ("m", frozenset({P0})), "n-1": ("n", frozenset({P1}))}),
        Generation(4, {"n-1": ("n", frozenset({P0, P1}))}),
    ]
    for position, generation in enumerate(generations):
        found += history.records(generation, position, float(position))
    ledger = Ledger(found)
    owners = {p: [(one.claim.owner, one.claim.at, one.until) for one in ledger.tenures[p]] for p in (P0, P1)}
    assert owners == {
        P0: [("g_m", 0.0, 3.0), ("g_n", 3.0, float("inf"))],
        P1: [("g_m", 0.0, 1.0), ("g_n", 2.0, float("inf"))],
    }
    assert [one.expired for one in ledger.of(Released)] == [False, True]
    assert [(one.owner, one.at) for one in ledger.of(Registered)] == [("g_m", 0.0), ("g_n", 1.0)]
    assert [(one.owner, one.at) for one in ledger.of(SessionEnded)] == [("g_m", 3.0)]
    assert len({one.session for one in ledger.of(Claimed)}) == 2


# Written by the coordinator's own classes of Kafka 4.2.0, for member m with client id c in group g: it may use
# partitions 0 and 2, and has not released 1.
MEMBER, ITS_PARTITIONS = bytes.fromhex("0005 0001 67 0001 6d"), bytes.fromhex("0008 0001 67 0001 6d")
METADATA = bytes.fromhex("0000 01 01 0263 0268 02 0274 01 00000005 01 00")
ASSIGNED = bytes.fromhex(
    "0000 00000007 00000006 01"
    "02 0102030405060708090a0b0c0d0e0f10 03 00000000 00000002 00"
    "02 0102030405060708090a0b0c0d0e0f10 02 00000001 00 00"
)


def test_a_group_in_which_the_broker_assigns_is_read_member_by_member():
    group = ReconciledGroup("g")
    assert group.after(MEMBER, METADATA) == Generation(0, {"m": ("c", frozenset())})
    owned = frozenset(TopicPartition("g", number) for number in (0, 1, 2))
    assert group.after(ITS_PARTITIONS, ASSIGNED) == Generation(0, {"m": ("c", owned)})
    assert group.after(ITS_PARTITIONS, None) == Generation(0, {"m": ("c", frozenset())})
    assert group.after(MEMBER, None) == Generation(0, {})


@pytest.mark.parametrize("key", [bytes.fromhex("0003 0001 67"), KEY, bytes.fromhex("0005 0001 68 0001 6d")])
def test_records_of_other_kinds_and_groups_change_no_owner(key):
    assert ReconciledGroup("g").after(key, METADATA) is None
