import pytest

from zkconsumer.bench.contest import Contest, Summary


def test_a_summary_is_of_all_rounds():
    assert Summary.of([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)


def test_ratios_compare_medians():
    contest = Contest("joining", "s", reference="JVM")
    for ours, theirs in ((0.1, 1.0), (0.2, 4.0), (9.0, 2.0)):
        contest.add("zkconsumer", ours)
        contest.add("JVM", theirs)
    assert contest.ratio("zkconsumer") == pytest.approx(0.1)
    assert contest.ratio("JVM") == 1


def test_without_a_reference_there_is_no_ratio():
    contest = Contest("joining", "s", reference="JVM")
    contest.add("zkconsumer", 1.0)
    assert contest.ratio("zkconsumer") is None


def test_the_largest_peak_counts():
    contest = Contest("joining", "s", reference="JVM")
    for peak in (10.0, 30.0, 20.0):
        contest.note_memory("zkconsumer", peak)
    assert contest.memory == {"zkconsumer": 30.0}
