import pytest

from benchmarks.contest import Contest, Summary, rotated


def test_a_summary_is_of_all_rounds():
    assert Summary.of([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)


def test_ratios_compare_medians():
    contest = Contest("joining", "s", reference="JVM")
    for ours, theirs in ((0.1, 1.0), (0.2, 4.0), (9.0, 2.0)):
        contest.add("zkconsumer", ours)
        contest.add("JVM", theirs)
    assert contest.ratio("zkconsumer") == pytest.approx(0.1)
    assert contest.ratio("JVM") == 1


def test_a_ratio_can_name_another_peer():
    contest = Contest("reading", "records/s", reference="JVM", peers=("librdkafka",))
    for name, value in (("zkconsumer", 8.0), ("JVM", 1.0), ("librdkafka", 2.0)):
        contest.add(name, value)
    assert contest.ratio("zkconsumer") == 8
    assert contest.ratio("zkconsumer", "librdkafka") == 4


def test_without_a_reference_there_is_no_ratio():
    contest = Contest("joining", "s", reference="JVM")
    contest.add("zkconsumer", 1.0)
    assert contest.ratio("zkconsumer") is None


def test_a_contestant_that_failed_has_neither_summary_nor_ratio():
    contest = Contest("reading", "records/s", reference="JVM")
    contest.announce("aiokafka")
    contest.add("JVM", 1.0)
    assert list(contest.summaries()) == ["JVM"]
    assert contest.ratio("aiokafka") is None


def test_summaries_keep_the_announced_order():
    contest = Contest("reading", "records/s", reference="")
    for name in ("first", "second"):
        contest.announce(name)
    for name in ("second", "first"):
        contest.add(name, 1.0)
    assert list(contest.summaries()) == ["first", "second"]


def test_the_largest_peak_counts():
    contest = Contest("joining", "s", reference="JVM")
    for peak in (10.0, 30.0, 20.0):
        contest.note_memory("zkconsumer", peak)
    assert contest.memory == {"zkconsumer": 30.0}


def test_the_shortest_window_counts():
    contest = Contest("reading", "records/s", reference="", enough_s=2.0)
    for name, seconds in (("quick", 2.5), ("quick", 1.5), ("slow", 2.2)):
        contest.note_window(name, seconds)
    assert contest.too_short() == {"quick": 1.5}


def test_each_contestant_is_first_and_last_in_turn():
    rounds = [rotated("abc", number) for number in range(4)]
    assert ["".join(names) for names in rounds] == ["abc", "bca", "cab", "abc"]
    assert rotated([], 1) == []
