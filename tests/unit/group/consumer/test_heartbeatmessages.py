"""ConsumerGroupHeartbeat as bytes; the golden ones were written by the message classes of Kafka 4.2.0."""

import pytest

from zkconsumer.errors import ProtocolError
from zkconsumer.group.consumer.heartbeatmessages import (
    HeartbeatAnswer,
    HeartbeatSettings,
    decode_heartbeat,
    encode_heartbeat,
    leave_beat,
)
from zkconsumer.group.consumer.rules.epochmember import EpochBeat, IdPartition
from zkconsumer.offsets.rules.commitfence import CommitIdentity

ONE, TWO = "AQIDBAUGBwgJCgsMDQ4PEA", "__________4AAAAAAAAAAw"
OWNED = frozenset({IdPartition(ONE, 2), IdPartition(ONE, 0), IdPartition(TWO, 1)})
FULL = (
    "0267 026d 00000000 0269 00 000493e0 03 0261 0274 00 08756e69666f726d"
    "03 0102030405060708090a0b0c0d0e0f10 03 00000000 00000002 00 fffffffffffffffe0000000000000003 02 00000001 00 00"
)
SHORT = "0267 026d 00000007 00 00 ffffffff 00 00 00 00 00"
EMPTY = "0267 026d 00000000 00 00 00000005 01 00 00 01 00"
REGEX = "0267 026d 00000000 00 037231 00000005 01 04612e2a 00 01 00"
WITHDRAWN = "0267 026d 00000007 00 00 ffffffff 00 01 00 00 00"
UNCHANGED = "00000000 0000 00 026d 00000007 00001388 ff 00"
ERROR = "00000000 006e 0766656e636564 00 00000000 00000000 ff 00"
ASSIGNED = (
    "00000000 0000 00 026d 00000007 00001388 01"
    "03 0102030405060708090a0b0c0d0e0f10 03 00000000 00000002 00 fffffffffffffffe0000000000000003 02 00000001 00 00 00"
)
NOTHING = "00000000 0000 00 026d 00000007 00001388 01 01 00 00"


@pytest.mark.parametrize(
    ("settings", "beat", "golden"),
    [
        (
            HeartbeatSettings("g", 300_000, "uniform"),
            EpochBeat(CommitIdentity("m", 0, "i"), full=True, topics=("a", "t"), owned=OWNED),
            FULL,
        ),
        (
            HeartbeatSettings("g", 300_000, "uniform"),
            EpochBeat(CommitIdentity("m", 7), full=False, topics=None, owned=None),
            SHORT,
        ),
        (
            HeartbeatSettings("g", 5, None),
            EpochBeat(CommitIdentity("m", 0), full=True, topics=(), owned=frozenset()),
            EMPTY,
        ),
        (
            HeartbeatSettings("g", 5, None, "r1"),
            EpochBeat(CommitIdentity("m", 0), full=True, topics=(), owned=frozenset(), regex="a.*"),
            REGEX,
        ),
        (
            HeartbeatSettings("g", 5, None, "r1"),
            EpochBeat(CommitIdentity("m", 7), full=False, topics=None, owned=None, regex=""),
            WITHDRAWN,
        ),
    ],
    ids=["full", "unchanged", "empty", "regex", "withdrawn"],
)
def test_requests_have_the_bytes_that_java_writes(settings, beat, golden):
    assert encode_heartbeat(settings, beat) == bytes.fromhex(golden)


def test_a_heartbeat_that_leaves_names_the_member_only():
    body = encode_heartbeat(HeartbeatSettings("g", 5, "uniform"), leave_beat(CommitIdentity("m", -2, "i")))
    assert body == bytes.fromhex("0267 026d fffffffe 0269 00 ffffffff 00 00 00 00 00")


@pytest.mark.parametrize(
    ("golden", "answer"),
    [
        (UNCHANGED, HeartbeatAnswer(0, "", 7, 5000, None)),
        (ERROR, HeartbeatAnswer(110, "fenced", 0, 0, None)),
        (ASSIGNED, HeartbeatAnswer(0, "", 7, 5000, OWNED)),
        (NOTHING, HeartbeatAnswer(0, "", 7, 5000, frozenset())),
    ],
    ids=["unchanged", "error", "assigned", "nothing"],
)
def test_answers_that_java_writes_are_understood(golden, answer):
    assert decode_heartbeat(1, memoryview(bytes.fromhex(golden))) == answer


@pytest.mark.parametrize("content", [ASSIGNED[:-3], ASSIGNED + "00", UNCHANGED.replace("026d", "7f6d")])
def test_a_malformed_answer_is_reported(content):
    with pytest.raises(ProtocolError, match="malformed ConsumerGroupHeartbeat response"):
        decode_heartbeat(1, memoryview(bytes.fromhex(content)))
