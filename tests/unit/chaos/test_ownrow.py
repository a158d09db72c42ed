"""Rows that run their trials themselves."""

import pytest

from tests.chaos.kinds import COORDINATED, OURS
from tests.chaos.ownrow import OwnRow, judge_no_ledger
from tests.chaos.verdicts import Verdict
from zkconsumer.errors import UsageError

RAN = []
ROW = OwnRow("R0", "", "", lambda *_: (), judge_no_ledger, run=lambda *run: RAN.append(run) or Verdict())


def test_a_row_runs_the_schedules_of_its_kinds_of_members_only():
    schedule = ROW.schedule(1)
    assert schedule.members == (OURS,) * 3
    assert ROW.trial(None, schedule) == Verdict()
    assert [(None, schedule)] == RAN
    for other in (ROW.schedule(1, ours=COORDINATED), ROW.schedule(1, jvm=True), ROW.schedule(1, storage="kafka")):
        with pytest.raises(UsageError, match="row R0 has no trials with members"):
            ROW.trial(None, other)
