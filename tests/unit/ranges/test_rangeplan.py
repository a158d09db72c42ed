"""plan_ranges, with brokers that leave questions unanswered."""

from types import SimpleNamespace

import pytest

from zkconsumer.errors import LeaderUnknown
from zkconsumer.model import TopicPartition
from zkconsumer.ranges.rangeplan import plan_ranges
from zkconsumer.ranges.rules.rangepositions import AtTime
from zkconsumer.ranges.rules.spans import Span

P0, P1 = (TopicPartition("t", number) for number in range(2))
END = AtTime(1000, or_latest=True)


class Ends(SimpleNamespace):
    """Logs from 0 to 1000; the record of each time is at 50. ``silent`` does not answer one question."""

    question, silent = "", P1

    def answered(self, question, partitions):
        return [p for p in partitions if (question, p) != (self.question, self.silent)]

    def earliest(self, partitions):
        return dict.fromkeys(self.answered("earliest", partitions), 0)

    def resolve(self, wanted):
        asked = "ends" if END in wanted.values() else "starts"
        return {p: 50 if isinstance(wanted[p], AtTime) else wanted[p] for p in self.answered(asked, wanted)}

    def latest(self, partitions, _least):
        return dict.fromkeys(self.answered("latest", partitions), 1000)

    def readable(self, latest):
        return {p: latest[p] for p in self.answered("readable", latest)}


def planned(question=""):
    return plan_ranges(Ends(question=question), {P0: 0, P1: 0}, {P0: 50, P1: END}, lambda _: None)


def test_ranges_end_where_it_is_given():
    assert planned() == {P0: Span(0, 50), P1: Span(0, 50)}


@pytest.mark.parametrize("question", ["earliest", "starts", "ends", "latest", "readable"])
def test_a_question_that_is_not_answered_makes_no_range(question):
    """Without the answer for the end the range would reach to the end of the log, and no error would show it."""
    with pytest.raises(LeaderUnknown, match="t-1"):
        planned(question)
