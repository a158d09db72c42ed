"""What the samples of a group show in addition to one look."""

import pytest

from tests.fixtures.groups import followed
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.finding import Finding
from zkconsumer.operate.groups.lagfindings import explain_lag, with_lag_findings
from zkconsumer.operate.groups.rules.lagstatus import evaluate_group
from zkconsumer.operate.groups.rules.lagstretches import LagSample
from zkconsumer.zookeeper.rules.znodes import MigrationMark


def findings(first, last, owner="g_c-0", owner_live=True, **group):
    """Of three partitions alike, by samples 70 s apart: committed offset and log end."""
    samples = [LagSample(at, *offsets, owner, owner_live) for at, offsets in ((0.0, first), (70.0, last))]
    partitions = {TopicPartition("t", number): followed(samples) for number in range(3)}
    return list(explain_lag(evaluate_group(partitions, 2, **{"members": 1, **group})))


def offsets(committed, log_end):
    return committed, 1, 0, log_end


@pytest.mark.parametrize(
    ("last", "kind", "reason"),
    [
        (
            offsets(5, 9),
            "stall",
            "status STALL; t-0: lag 4, and offset 5 is unchanged for at least 70 s; its owner is g_c-0",
        ),
        (offsets(6, 19), "warn", "status WARN; t-0: the offset advances, but lag never fell within 70 s: 3 to 13"),
    ],
)
def test_what_a_status_shows_is_a_finding_that_points_at_the_process(last, kind, reason):
    (finding,) = findings(offsets(5, 8), last)
    assert (finding.kind, finding.subject) == (kind, "t 0-2")
    assert finding.evidence.startswith(reason)
    assert "py-spy dump" in finding.to_do


def test_since_when_there_is_no_owner_is_a_finding():
    (finding,) = findings(offsets(5, 8), offsets(5, 8), owner=None, owner_live=False)
    assert (finding.kind, finding.evidence) == ("stop", "status STOP; t-0: lag 3 and no live owner for at least 70 s")


def test_a_migrated_group_has_no_findings():
    mark = MigrationMark("migrated", "kafka:g", 1)
    unconsumed = {"owner": None, "owner_live": False, "members": 0, "mark": mark}
    assert findings(offsets(5, 8), offsets(5, 8), **unconsumed) == []


def test_a_group_that_keeps_up_has_no_findings():
    assert findings(offsets(5, 8), offsets(8, 8)) == []


def test_that_members_commit_nothing_is_a_finding():
    (finding,) = findings((None, None, 0, 5), (None, None, 0, 9))
    assert (finding.kind, finding.subject) == ("no-commit", "t 0-2")
    assert finding.evidence == (
        "status STALL; t-0: no offset was committed for 70 s, in which 4 records came; its owner is g_c-0"
    )
    assert "enable.auto.commit" in finding.to_do


def test_a_group_without_members_names_those_that_left_last():
    """A process that hangs has lost its session, and its member: which one it was is in the history alone."""
    one_look = [Finding("no-member", "g", "no consumer is registered", "start a member", is_problem=True)]
    lag = evaluate_group({}, 2, members=0)
    left = [(1_000, ("g_a",)), (61_000, ("g_b", "g_c")), (90_000, ())]
    (finding,) = with_lag_findings(one_look, lag, left)
    assert finding.evidence == "no consumer is registered; the last members g_b, g_c left before 1970-01-01T00:01:01Z"
    assert with_lag_findings(one_look, lag, left[2:]) == one_look


def test_that_members_commit_nothing_is_found_once():
    samples = [LagSample(at, None, 1, 0, end, "g_c-0", True) for at, end in ((0.0, 5), (70.0, 9))]
    lag = evaluate_group({TopicPartition("t", 0): followed(samples)}, 2, members=1)
    one_look = [Finding("no-commit", "t 0", "at one look", ""), Finding("no-leader", "t-0", "none", "")]
    assert [found.kind for found in with_lag_findings(one_look, lag)] == ["no-leader", "no-commit"]
    fresh = evaluate_group({TopicPartition("t", 0): followed(samples[:1])}, 2, members=1)
    assert with_lag_findings(one_look, fresh) == one_look
