"""Records of ``__consumer_offsets``."""

import struct

import pytest

from tests.chaos.kafkahistory import commit_of


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


def key(version=1):
    return struct.pack(">h", version) + text("g") + text("topic") + struct.pack(">i", 3)


@pytest.mark.parametrize(
    "value",
    [
        struct.pack(">hq", 0, 42) + text("") + struct.pack(">q", 1000),
        struct.pack(">hq", 1, 42) + text("") + struct.pack(">qq", 1000, 2000),
        struct.pack(">hq", 3, 42) + struct.pack(">i", -1) + text("") + struct.pack(">q", 1000),
    ],
)
def test_a_commit_is_read_in_every_version(value):
    assert commit_of(key(), value) == ("g", "topic", 3, 42)


def test_deletions_and_other_records_are_no_commits():
    assert commit_of(key(), None) is None
    assert commit_of(struct.pack(">h", 2) + text("g"), b"x") is None
