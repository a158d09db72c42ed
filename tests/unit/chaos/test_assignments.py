"""Generations of a group in ``__consumer_offsets``, and the owners that they make."""

import struct

import pytest

from tests.chaos.assignments import AssignmentHistory, Generation, generation_of
from zkconsumer.kafka.consumerprotocol import encode_assignment
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
