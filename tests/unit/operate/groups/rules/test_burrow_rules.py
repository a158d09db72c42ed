"""Our verdicts beside those of Burrow's rules, on traces that were recorded of real consumers (tests/golden/lagtraces).

Burrow's rules are those of its wiki, "Consumer Lag Evaluation Rules": over the last commits of a partition, 10 of them.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fixtures.groups import followed
from zkconsumer.operate.groups.rules.lagstatus import LagStatus, evaluate_partition
from zkconsumer.operate.groups.rules.lagstretches import LagSample

TRACES = json.loads(Path(__file__).parents[5].joinpath("tests", "golden", "lagtraces.json").read_text(encoding="utf-8"))
INTERVALS = 10


class Commit(NamedTuple):
    at: float
    offset: int
    lag: int


def by_burrow(commits, now, current_lag):
    """Burrow's status of a partition that has these commits, oldest first."""
    commits = commits[-INTERVALS:]
    if current_lag == 0:
        return "OK"
    if now - commits[-1].at > commits[-1].at - commits[0].at:
        return "STOP"
    if any(commit.lag == 0 for commit in commits):
        return "OK"
    steps = list(pairwise(commits))
    if any(after.offset < before.offset for before, after in steps):
        return "REWIND"
    if all(after.offset == before.offset for before, after in steps):
        return "STALL"
    return "WARN" if all(after.lag >= before.lag for before, after in steps) else "OK"


def statuses(trace):
    """Burrow's status and ours at the end of a trace."""
    commits = [
        Commit(seen["at"], seen["committed"], seen["log_end"] - seen["committed"])
        for seen in trace
        if seen["is_commit"]
    ]
    samples = followed(
        LagSample(seen["at"], seen["committed"], None, seen["log_start"], seen["log_end"], "g", seen["owner_live"])
        for seen in trace
    )
    last = trace[-1]
    burrows = by_burrow(commits, last["at"], last["log_end"] - last["committed"])
    return burrows, evaluate_partition(samples, INTERVALS).status


@pytest.mark.parametrize(
    ("trace", "burrows", "ours"),
    [
        ("keeps up", "OK", LagStatus.OK),
        ("drains", "OK", LagStatus.OK),
        ("is idle", "OK", LagStatus.OK),
        ("ends without lag", "OK", LagStatus.OK),
        ("falls back", "WARN", LagStatus.WARN),
        ("commits without progress", "STALL", LagStatus.STALL),
        ("ends with lag", "STOP", LagStatus.STOP),
        ("is reset", "REWIND", LagStatus.REWIND),
        # Burrow does not know of owners: a member that lives and commits no more is stopped for it, as one that ended.
        ("hangs", "STOP", LagStatus.STALL),
        # Burrow does not know where logs start.
        ("loses records", "STOP", LagStatus.RANGE),
    ],
)
def test_a_verdict_is_burrows_except_for_what_burrow_cannot_see(trace, burrows, ours):
    assert statuses(TRACES[trace]) == (burrows, ours)


def test_every_trace_is_compared_and_every_status_of_a_partition_is_reached():
    reached = {statuses(trace)[1] for trace in TRACES.values()}
    reached.add(statuses(TRACES["falls back"][:3])[1])
    assert {status.value for status in reached} == {"OK", "UNKNOWN", "WARN", "STALL", "STOP", "REWIND", "RANGE"}
    assert len(TRACES) == 10
