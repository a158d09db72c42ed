"""Records of ``__consumer_offsets``, from bytes; those of real brokers are in tests/integration."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.offsetstopic import decode_commit, partition_of_group

TEXTS = st.text(max_size=200)


def text(value):
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def compact(value):
    encoded, length = value.encode(), len(value.encode()) + 1
    prefix = b""
    while length >= 0x80:
        prefix, length = prefix + bytes([length & 0x7F | 0x80]), length >> 7
    return prefix + bytes([length]) + encoded


VALUES = {
    0: lambda offset, metadata, at: struct.pack(">q", offset) + text(metadata) + struct.pack(">q", at),
    1: lambda offset, metadata, at: struct.pack(">q", offset) + text(metadata) + struct.pack(">qq", at, at + 1),
    2: lambda offset, metadata, at: struct.pack(">q", offset) + text(metadata) + struct.pack(">q", at),
    3: lambda offset, metadata, at: struct.pack(">qi", offset, 7) + text(metadata) + struct.pack(">q", at),
    4: lambda offset, metadata, at: struct.pack(">qi", offset, 7) + compact(metadata) + struct.pack(">q", at) + b"\0",
}


@given(st.sampled_from(sorted(VALUES)), TEXTS, TEXTS, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), TEXTS)
def test_each_version_is_decoded(version, group, topic, partition, offset, metadata):
    key = struct.pack(">h", 1) + text(group) + text(topic) + struct.pack(">i", partition)
    value = struct.pack(">h", version) + VALUES[version](offset, metadata, 1234)
    assert decode_commit(key, value) == (group, TopicPartition(topic, partition), offset)
    assert decode_commit(key, None) == (group, TopicPartition(topic, partition), None)


def test_records_of_other_kinds_are_no_commits():
    assert decode_commit(None, b"") is None
    assert decode_commit(struct.pack(">h", 2) + text("g"), b"members") is None


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_damaged_records_are_refused(key, value):
    try:
        decode_commit(struct.pack(">h", 1) + key, value)
    except ValueError:
        return


@pytest.mark.parametrize("length", [-1, -2, 100, 32767])
def test_a_text_of_an_impossible_length_is_refused(length):
    key = struct.pack(">h", 1) + text("g") + struct.pack(">h", length) + b"t" * 20
    with pytest.raises(ValueError, match=f"a text of {length} bytes"):
        decode_commit(key, None)


def test_a_text_may_end_with_the_record():
    key = struct.pack(">h", 1) + text("g") + text("t")
    with pytest.raises(ValueError, match="unpack_from"):
        decode_commit(key, None)


def test_an_unknown_version_is_refused():
    key = struct.pack(">h", 1) + text("g") + text("t") + struct.pack(">i", 0)
    with pytest.raises(ValueError, match="version 5"):
        decode_commit(key, struct.pack(">h", 5))


@given(TEXTS, st.integers(1, 100))
def test_a_group_has_a_partition(group, partitions):
    assert 0 <= partition_of_group(group, partitions) < partitions
