"""What members of ours may never do, whatever the row."""

from dataclasses import replace

import pytest

from tests.chaos.verdicts import Evidence, Verdict, judge_always
from zkconsumer.testing.checker import Duplicate, check
from zkconsumer.testing.ledger import Delivered, Faulted, Ledger, Produced

FIRST = Delivered(1, "t", 0, 7, "a", 0, 0, asked=8.0, at=9.0)


@pytest.mark.parametrize(("at", "permitted"), [(9.0, False), (12.0, True), (20.0, False)])
def test_what_is_committed_before_a_new_topic_is_noticed_may_be_read_again(at, permitted):
    """The next owner cannot know whether the offset is of the earlier topic."""
    first = replace(FIRST, at=at)
    ledger = Ledger([Produced(1, "t", 0, 7, at=1.0), Faulted("recreate", "", 10.0, 10.0, established=11.0)])
    twice = Duplicate(first, replace(first, owner="b", at=30.0, asked=29.0), True)
    findings = replace(check(ledger), duplicates=(twice,))
    verdict = Verdict()
    judge_always(Evidence(ledger, findings, frozenset({"a", "b"}), 2.0, False), verdict, overlaps=True)
    assert any("committed records delivered again" in one for one in verdict.failures) is not permitted
