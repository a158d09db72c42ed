"""What follows from the rows of a group's members."""

import pytest

from benchmarks.groupevents import Commit, History, Kind, Row, Span, median_time, share_accepted


def gained(at, member, *partitions):
    return Row(at, member, Kind.GAINED, partitions)


def lost(at, member, *partitions):
    return Row(at, member, Kind.LOST, partitions)


def read(member, partition, *times):
    return [Row(at, member, Kind.READ, (partition,)) for at in times]


class TestSettled:
    def test_last_change_of_an_owner_settles_the_group(self):
        history = History([gained(2, "b", 1), gained(1, "a", 0)])
        assert history.settled_at([0, 1], ["a", "b"]) == 2

    def test_gaining_again_what_is_owned_is_no_change(self):
        history = History([gained(1, "a", 0), gained(2, "b", 1), gained(5, "a", 0), lost(6, "a")])
        assert history.settled_at([0, 1], ["a", "b"]) == 2
        assert history.last_change() == 5

    def test_partition_without_owner_is_not_settled(self):
        history = History([gained(1, "a", 0, 1), lost(2, "a", 1)])
        assert history.settled_at([0, 1], ["a"]) is None

    def test_partition_with_two_owners_is_not_settled(self):
        history = History([gained(1, "a", 0), gained(2, "b", 0)])
        assert history.settled_at([0], ["a", "b"]) is None
        assert History([*history.rows, lost(3, "a", 0)]).settled_at([0], ["a", "b"]) == 3

    def test_member_that_leaves_owns_nothing(self):
        rows = [gained(1, "a", 0), gained(1, "b", 1), Row(2, "b", Kind.LEAVING)]
        assert History(rows).settled_at([0, 1], ["a"]) is None
        assert History([*rows, gained(4, "a", 1), lost(5, "b", 1)]).settled_at([0, 1], ["a"]) == 4

    def test_no_rows_are_not_settled(self):
        assert History([]).settled_at([0], ["a"]) is None
        assert History([]).last_change() is None


class TestReading:
    def test_every_partition_must_be_read_by_its_owner(self):
        rows = [gained(1, "a", 0), gained(1, "b", 1), *read("a", 0, 2, 3), *read("a", 1, 2.5), *read("b", 1, 4, 5)]
        assert History(rows).read_by_owner_at([0, 1], since=1) == 4
        assert History(rows).read_by_owner_at([0, 1], since=2.5) == 4
        assert History(rows).read_by_owner_at([0, 1], since=4.5) is None

    def test_partition_stays_if_its_owner_is_the_same_at_both_ends(self):
        rows = [gained(1, "a", 0, 1), lost(11, "a", 0, 1), gained(12, "a", 0), gained(12, "b", 1)]
        assert History(rows).staying(Span(10, 12)) == {0}

    def test_gap_reaches_over_the_ends_of_the_span(self):
        history = History([*read("a", 0, 1, 2, 7, 8), *read("a", 1, 5)])
        assert history.largest_gap([0], Span(3, 4)) == 5
        assert history.largest_gap([0], Span(7.5, 7.6)) == 1
        assert history.largest_gap([1], Span(0, 20)) == 15  # never read again
        assert history.largest_gap([0, 1], Span(0, 20)) == 15
        assert history.largest_gap([], Span(0, 20)) is None

    def test_failed_member_is_reported(self):
        assert History([Row(1, "a", Kind.FAILED, text="broken")]).failures() == ["member a: broken"]


class TestCommits:
    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            (Kind.ACCEPTED, [Commit(5, accepted=True, took=25)]),
            (Kind.REFUSED, [Commit(5, accepted=False, took=25)]),
            (Kind.NOTHING, []),
            (None, [Commit(5, accepted=False)]),
        ],
    )
    def test_commit_has_its_answer(self, answer, expected):
        rows = [gained(1, "a", 0), Row(5, "a", Kind.COMMITTING)]
        rows += [] if answer is None else [Row(30, "a", answer)]
        assert History(rows).commits(Span(4, 6)) == expected

    def test_commit_before_the_span_does_not_count(self):
        rows = [gained(1, "a", 0), Row(2, "a", Kind.COMMITTING), Row(5, "a", Kind.REFUSED)]
        assert History(rows).commits(Span(4, 6)) == []

    def test_member_without_partitions_has_nothing_to_commit(self):
        commit = [Row(5, "a", Kind.COMMITTING), Row(5.5, "a", Kind.ACCEPTED)]
        assert History(commit).commits(Span(4, 6)) == []
        assert History([gained(1, "a", 0), lost(4.5, "a", 0), *commit]).commits(Span(4, 6)) == []

    def test_member_that_leaves_does_not_count(self):
        rows = [gained(1, "a", 0), Row(5, "a", Kind.COMMITTING), Row(5.1, "a", Kind.LEAVING)]
        assert History(rows).commits(Span(4, 6)) == []

    def test_share_is_a_percentage(self):
        assert share_accepted([Commit(1, accepted=True), Commit(2, accepted=False)]) == 50
        assert share_accepted([]) is None

    def test_time_of_a_commit_is_that_of_the_accepted_ones(self):
        commits = [Commit(1, True, 0.2), Commit(2, True, 0.4), Commit(3, False, 9.0), Commit(4, False)]
        assert median_time(commits) == pytest.approx(0.3)
        assert median_time(commits[2:]) is None
