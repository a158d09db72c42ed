"""Files of plans and journals: what is written is read again, and other files are refused."""

import hashlib
import json
from dataclasses import replace

import pytest

from tests.unit.core.test_migrationplan import SEEN, SOURCE, TARGET
from zkconsumer.core.migrationend import End
from zkconsumer.core.migrationfile import decode_plan, encode_plan, plan_digest
from zkconsumer.core.migrationjournal import JournalState, encode_event, read_journal, whole_lines
from zkconsumer.core.migrationplan import make_plan
from zkconsumer.errors import ZkConsumerError

PLAN = make_plan(SOURCE, TARGET, "h:1/kafka", SEEN, missing="fail", retention_ms=5000, now_ms=1)


def signed(document):
    """As a person could do it who wants to: with a digest that fits."""
    document = {name: value for name, value in document.items() if name != "sha256"}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return json.dumps({**document, "sha256": hashlib.sha256(text.encode()).hexdigest()}).encode()


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        replace(PLAN, source=TARGET, target=End("zookeeper", "a@b", "h:1,i:2/x")),
        replace(PLAN, retention_ms=None, partitions=(), warnings=("a", "b")),
        replace(PLAN, partitions=tuple(replace(row, source=None, new=None) for row in PLAN.partitions)),
    ],
)
def test_a_plan_is_read_as_it_was_written(plan):
    text = encode_plan(plan)
    assert decode_plan("p", text.encode()) == plan
    assert json.loads(text)["sha256"] == plan_digest(plan)


def test_a_partition_is_a_line():
    assert sum('"new_offset"' in line for line in encode_plan(PLAN).splitlines()) == 2


@pytest.mark.parametrize(
    ("former", "new"),
    [('"new_offset": 50', '"new_offset": 51'), ("/kafka", "/other"), ('"holds": true', '"holds": false')],
)
def test_an_edited_plan_is_refused(former, new):
    text = encode_plan(PLAN)
    assert former in text
    with pytest.raises(ZkConsumerError, match="was edited"):
        decode_plan("p", text.replace(former, new, 1).encode())


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"kind": "zkconsumer snapshot"}'])
def test_another_file_is_refused(content):
    with pytest.raises(ZkConsumerError, match="is not a migration plan"):
        decode_plan("p", content)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"source": "kafka:g"},
        {"missing": "none"},
        {"extra": 1},
        {"partitions": [{}]},
        {"created_ms": "x"},
        {"retention_ms": 1.5},
    ],
)
def test_a_plan_that_no_release_writes_is_refused(change):
    with pytest.raises(ZkConsumerError, match="is not a migration plan"):
        decode_plan("p", signed({**json.loads(encode_plan(PLAN)), **change}))


# -- journals ---------------------------------------------------------------------------------------------------------

LINES = [
    encode_event("begin", plan="abc", at_ms=1),
    encode_event("snapshot", path="/s"),
    encode_event("intent", unit=0, offsets=[["t", 0, 5]]),
    encode_event("outcome", unit=0, written=1, fault=""),
    encode_event("end", at_ms=2),
    encode_event("rollback", at_ms=3),
    encode_event("begin", plan="abc", at_ms=4),
    encode_event("intent", unit=1, offsets=[["t", 0, 5]]),
]


@pytest.mark.parametrize(
    ("count", "state"),
    [
        (0, JournalState()),
        (1, JournalState("abc")),
        (2, JournalState("abc", "/s")),
        (3, JournalState("abc", "/s", True, 1)),
        (4, JournalState("abc", "/s", True, 1)),
        (5, JournalState("abc", "/s", True, 1, ended=True)),
        (6, JournalState("abc", "/s", True, 1, ended=True, is_undoing=True)),
        (7, JournalState("abc", "/s", True, 1, ended=True, is_undoing=True)),
        (8, JournalState("abc", "/s", True, 2)),
    ],
)
@pytest.mark.parametrize("torn", [b"", b'{"event": "inte'])
def test_a_journal_shows_how_far_a_run_came(count, state, torn):
    content = b"".join(LINES[:count]) + torn
    assert read_journal("j", content) == state
    assert whole_lines(content) == b"".join(LINES[:count])


@pytest.mark.parametrize(
    ("writes", "rolled_back"),
    [([None], True), ([0], False), ([3], True), ([0, 0], False), ([3, 0], True), ([None, 0], True), ([0, None], True)],
)
def test_a_rollback_that_wrote_nothing_undoes_nothing(writes, rolled_back):
    """None is a rollback that was killed: another one does not know what it wrote."""
    lines = LINES[:5]
    for count in writes:
        lines.append(encode_event("rollback", at_ms=3))
        lines += [] if count is None else [encode_event("rollback-outcome", written=count)]
    state = read_journal("j", b"".join(lines))
    assert (state.ended, state.rolled_back) == (True, rolled_back)
    again = read_journal("j", b"".join([*lines, *LINES[6:], LINES[4]]))
    assert (again.ended, again.rolled_back) == (True, False), "a run has written again"


def test_a_run_that_writes_nothing_leaves_one_that_ended():
    assert read_journal("j", b"".join([*LINES[:5], LINES[0], LINES[1]])).ended
    assert not read_journal("j", b"".join([*LINES[:5], *LINES[:3]])).ended


def test_an_intent_counts_in_every_later_run():
    again = b"".join([*LINES[:3], LINES[0], LINES[2]])
    assert read_journal("j", again) == JournalState("abc", "/s", True, 2)


@pytest.mark.parametrize("line", [b"x\n", b"{}\n", b"[]\n", b'{"event": "other"}\n', b'{"event": "begin"}\n', b"\n"])
def test_a_file_that_is_no_journal_is_refused(line):
    with pytest.raises(ZkConsumerError, match="line 2, is not a line"):
        read_journal("j", LINES[0] + line)
