"""Each status of the lag evaluation, from samples written by hand."""

import pytest

from tests.fixtures.groups import followed
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.rules.lagstatus import (
    LagStatus,
    evaluate_group,
    evaluate_partition,
    samples_for,
    time_lag,
    worst,
)
from zkconsumer.operate.groups.rules.lagstretches import LagSample
from zkconsumer.zookeeper.rules.znodes import MigrationMark


def samples(committed, ends, *, live=True, mzxids=None, starts=0, every=25.0):
    """A sample for each committed offset; other arguments are one value for all, or one for each.

    Four of them cover more than a window has to. The clock does not begin at 0.
    """

    def each(values):
        return values if isinstance(values, list) else [values] * len(committed)

    owners = each(live)
    times = [1000.0 + number * every for number in range(len(committed))]
    return followed(
        LagSample(at, offset, mzxid, start, end, "g_c-0" if owner is not None else None, bool(owner))
        for at, (offset, mzxid, start, end, owner) in zip(
            times, zip(committed, mzxids or committed, each(starts), each(ends), owners, strict=True), strict=True
        )
    )


def status(*arguments, window=4, **keywords):
    return evaluate_partition(samples(*arguments, **keywords), window).status


def test_without_an_offset_or_a_log_end_it_is_unknown():
    assert status([1, None], 5) is LagStatus.UNKNOWN
    assert status([1, 1], [5, None]) is LagStatus.UNKNOWN
    assert evaluate_partition(samples([None], 5), 4).lag is None


@pytest.mark.parametrize("start", [0, 5, None])
def test_a_negative_offset_is_none(start):
    found = evaluate_partition(samples([-1], 9, starts=start), 4)
    assert (found.status, found.reason) == (LagStatus.UNKNOWN, "the committed offset is -1, which is none")


@pytest.mark.parametrize(("committed", "start", "end"), [(4, 5, 9), (10, 5, 9)])
def test_an_offset_outside_the_log_is_range(committed, start, end):
    assert status([committed], end, starts=start) is LagStatus.RANGE


@pytest.mark.parametrize(
    ("committed", "start", "where"),
    [(4, 5, "before the log start 5"), (10, 5, "after the log end 9"), (10, None, "after the log end 9")],
)
def test_the_reason_names_the_end_of_the_log(committed, start, where):
    found = evaluate_partition(samples([committed], 9, starts=start), 4)
    assert found.reason == f"offset {committed} lies {where}"


@pytest.mark.parametrize(("committed", "lag"), [(-1, None), (10, 0)])
def test_the_lag_of_an_offset_outside_the_log_is_not_negative(committed, lag):
    assert evaluate_partition(samples([committed], 9), 4).lag == lag


def test_an_offset_at_an_end_of_the_log_is_within():
    assert status([5], 9, starts=5) is LagStatus.UNKNOWN
    assert status([9], 9, starts=9) is LagStatus.OK


def test_a_topic_with_one_commit_a_day_is_ok():
    assert status([7, 7, 7, 7, 7], 7, mzxids=[1] * 5, live=True) is LagStatus.OK
    assert status([7, 7, 7, 7, 7], 7, mzxids=[1] * 5, live=None) is LagStatus.OK


def test_an_offset_that_went_down_is_rewind():
    assert status([5, 3, 4], 9) is LagStatus.REWIND
    assert status([5, 3, 9], 9) is LagStatus.OK, "everything is consumed again"


def test_a_rewind_is_forgotten_when_it_leaves_the_window():
    assert status([5, 3, 4, 5, 6, 7], 9) is LagStatus.OK


@pytest.mark.parametrize("live", [None, False])
def test_lag_without_a_live_owner_is_stop_after_30_seconds(live):
    assert status([1] * 4, 5, live=live, every=10.0) is LagStatus.UNKNOWN, "exactly 30 s"
    assert status([1] * 4, 5, live=live, every=10.2) is LagStatus.STOP, "30.6 s"
    assert status([1] * 5, 5, live=live, window=5, every=10.0) is LagStatus.STOP
    assert status([4] * 5, 5, live=live, window=5, every=10.0) is LagStatus.STOP, "one record"


@pytest.mark.parametrize("live", [None, False])
def test_a_time_without_an_owner_that_is_longer_than_the_window_is_stop(live):
    assert status([1] * 40, 5, live=live, window=4, every=1.0) is LagStatus.STOP


def test_a_sample_without_a_log_end_does_not_end_the_time_without_an_owner():
    series = samples([1] * 5, [5, 5, None, 5, 5], live=None, every=10.0)
    evaluated = evaluate_partition(series, 4)
    assert (evaluated.status, evaluated.ownerless_s, evaluated.unmoved_s) == (LagStatus.STOP, 40.0, None)


def test_a_live_owner_in_between_starts_the_time_again():
    live = [None, None, True, None, None, None]
    assert status([1] * 6, 5, live=live, window=6, every=15.0) is LagStatus.UNKNOWN


def test_a_time_without_an_owner_that_began_before_the_first_sample_is_longer():
    stopped = evaluate_partition(samples([1] * 4, 5, live=None), 4)
    assert stopped.reason == "lag 4 and no live owner for at least 75 s"
    since = evaluate_partition(samples([1] * 4, 5, live=[True, None, None, None]), 4)
    assert since.reason == "lag 4 and no live owner for 50 s"


def test_an_owner_that_comes_back_is_no_progress():
    """It was STOP: 1. a process is started; 2. it has a partition, and has committed nothing yet."""
    live = [None] * 10 + [True] * 3
    evaluated = evaluate_partition(samples([1] * 13, 5, mzxids=[3] * 13, live=live, every=20.0), 4)
    assert (evaluated.status, evaluated.reason) == (
        LagStatus.UNKNOWN,
        "lag 4, and offset 1 is unchanged for at least 240 s; it has had an owner for 40 s, and a verdict needs 4 "
        "samples that cover 65 s",
    )
    assert status([1] * 12 + [3], 5, live=live, every=20.0) is LagStatus.OK, "it has committed"
    assert status([1] * 14, 5, mzxids=[3] * 14, live=[*live, True], every=25.0) is LagStatus.STALL


def restarted(*, every, each=2):
    """A member is killed and started again and again: each process has the partition in a sample, and in one not."""
    owners = [f"g_c{number}-0" if number % each == 0 else None for number in range(12)]
    return followed(
        LagSample(1000.0 + number * every, 1, 3, 0, 5, owner, owner is not None) for number, owner in enumerate(owners)
    )


def test_a_member_that_is_started_again_and_again_is_stall():
    series = restarted(every=10.0)
    evaluated = evaluate_partition(series, 4)
    assert (evaluated.status, evaluated.unmoved_s, evaluated.ownerless_s) == (LagStatus.STALL, 110.0, 0.0)
    assert evaluated.reason == (
        "lag 4, and offset 1 is unchanged for at least 110 s; its owner changed 5 times since an offset was written"
    )
    group = evaluate_group({TopicPartition("t", 0): series}, 4, members=0)
    assert group.status is LagStatus.STALL, "it does not become NO MEMBERS in between"


def test_a_member_that_is_started_again_after_more_than_30_seconds_is_stop_meanwhile():
    series = restarted(every=16.0, each=4)
    found = [evaluate_partition(series[:count], 4) for count in range(8, 13)]
    unknown, stop = LagStatus.UNKNOWN, LagStatus.STOP
    assert [one.status for one in found] == [stop, unknown, unknown, unknown, stop]
    assert found[-1].reason.endswith("no live owner for 32 s; its owner changed 2 times since an offset was written")


def test_lag_that_has_just_come_starts_the_time():
    assert status([5] * 6, [5, 5, 5, 5, 6, 6], live=None, window=6, every=15.0) is LagStatus.OK


def test_an_offset_that_is_not_written_is_stall_over_a_full_window():
    assert status([1] * 4, 5, mzxids=[3] * 4) is LagStatus.STALL
    assert status([1] * 3, 5, mzxids=[3] * 3) is LagStatus.UNKNOWN, "the window is not full"


@pytest.mark.parametrize("live", [True, None])
def test_a_short_window_cannot_judge_lag(live):
    """A healthy member commits every 60 s; in 18 s, its offset does not move and the lag grows."""
    found = evaluate_partition(samples([1] * 10, list(range(5, 15)), mzxids=[3] * 10, live=live, every=2.0), 10)
    assert found.status is LagStatus.UNKNOWN
    assert found.reason == "lag 13; 10 samples cover 18 s, and a verdict needs 10 that cover 65 s"


def test_a_short_window_shows_that_lag_fell():
    assert status([1, 2, 6], [5, 7, 9], window=3, every=1.0) is LagStatus.OK
    assert status([1, 1, 1], [5, 4, 3], window=3, every=1.0) is LagStatus.UNKNOWN, "the log was truncated"


@pytest.mark.parametrize("interval", [0.7, 1, 2, 7.3, 10, 60])
def test_the_default_window_can_judge(interval):
    count = samples_for(interval)
    assert count >= 10
    assert status([1] * count, 5, mzxids=[3] * count, window=count, every=interval) is LagStatus.STALL
    assert (samples_for(0.01), samples_for(60)) == (100, 10)


def test_a_stall_that_is_longer_than_the_window_is_judged_by_its_whole_time():
    evaluated = evaluate_partition(samples([1] * 40, 5, mzxids=[3] * 40, every=2.0), 4)
    assert (evaluated.status, evaluated.unmoved_s, evaluated.ownerless_s) == (LagStatus.STALL, 78.0, None)
    assert evaluated.reason == "lag 4, and offset 1 is unchanged for at least 78 s"


def test_lag_that_grows_for_longer_than_the_window_is_warn():
    """Commits are rarer than the window is long."""
    committed = [number // 20 for number in range(60)]
    evaluated = evaluate_partition(samples(committed, [10 + number for number in range(60)], every=2.0), 4)
    assert (evaluated.status, evaluated.reason) == (
        LagStatus.WARN,
        "the offset advances, but lag never fell within 118 s: 10 to 67",
    )


def test_an_unknown_sample_in_between_does_not_end_a_stall():
    assert status([1] * 6, [5, 5, 5, 5, None, 5], mzxids=[3] * 6) is LagStatus.STALL
    assert status([1, 1, 1, 1, None, 1], 5, mzxids=[3, 3, 3, 3, None, 3]) is LagStatus.STALL
    assert status([1, 1, 1, 1, None, 2], 5, mzxids=[3, 3, 3, 3, None, 4]) is LagStatus.OK, "it moved meanwhile"


def test_a_live_owner_ends_the_time_without_one_though_the_lag_is_unknown():
    live = [None, None, None, True, None]
    assert status([1] * 5, [5, 5, 5, None, 5], live=live, window=5, every=15.0) is LagStatus.UNKNOWN
    assert status([1] * 5, [5, 5, 5, None, 5], live=[True] * 3 + [None, True], window=4) is LagStatus.UNKNOWN


def test_a_moment_without_lag_is_no_stall():
    assert status([5] * 4, [5, 6, 6, 6], mzxids=[3] * 4) is LagStatus.OK


def test_a_commit_of_the_same_offset_is_no_stall():
    assert status([1] * 4, 5, mzxids=[3, 4, 4, 4]) is LagStatus.OK


def test_a_consumer_that_falls_back_is_warn():
    assert status([1, 2, 3, 4], [5, 7, 9, 11]) is LagStatus.WARN
    assert status([1, 2, 3, 4], [5, 6, 7, 9]) is LagStatus.WARN, "the lag never fell"
    assert status([1, 2, 3, 4], [5, 6, 7, 8]) is LagStatus.OK, "it commits as often as samples are taken"


def test_commits_that_drift_against_the_samples_are_no_warning():
    """It was WARN: a member that commits every 5 s is sampled every 10 s, always 2 to 3 s behind."""
    committed = [1000 + 50 * number for number in range(10)]
    ends = [offset + lag for offset, lag in zip(committed, [10, 10, 10, 11, 11, 11, 12, 12, 13, 13], strict=True)]
    assert status(committed, ends, window=10, every=10.0) is LagStatus.OK
    slow = [offset + 10 + 6 * number for number, offset in enumerate(committed)]
    assert status(committed, slow, window=10, every=10.0) is LagStatus.WARN, "by 54 records, and 50 are a step"


def test_a_slow_loss_is_a_warning_once_it_exceeds_what_is_consumed_between_samples():
    committed = [1000 + 50 * number for number in range(60)]
    ends = [offset + 10 + number for number, offset in enumerate(committed)]
    assert status(committed[:50], ends[:50], window=10, every=10.0) is LagStatus.OK, "49 records"
    assert status(committed[:51], ends[:51], window=10, every=10.0) is LagStatus.WARN, "50 records"


def hanging(before):
    """Samples every 10 s of a member that hangs at offset 300; ``before`` has its lag until then."""
    committed = [300 - 5 * (len(before) - 1 - number) for number in range(len(before))] + [300] * 12
    lags = [*before, *(before[-1] + 5 * number for number in range(1, 13))]
    ends = [offset + lag for offset, lag in zip(committed, lags, strict=True)]
    return samples(committed, ends, every=10.0)


def test_a_member_that_hangs_is_never_said_to_advance():
    """It was WARN, "the offset advances", for 75 s after it hung, and then STALL."""
    series = hanging([5] * 10)
    found = [evaluate_partition(series[:count], 10) for count in range(11, 23)]
    assert [one.status for one in found] == [LagStatus.OK] * 8 + [LagStatus.STALL] * 4
    slow = evaluate_partition(hanging([5 + 6 * number for number in range(10)])[:17], 10)
    assert (slow.status, slow.reason) == (
        LagStatus.WARN,
        "lag never fell within 160 s: 5 to 94; offset 300 is unchanged for 70 s",
    )


def test_a_lag_that_fell_once_is_ok():
    assert status([1, 2, 6, 7], [5, 7, 9, 11]) is LagStatus.OK


def test_a_lag_of_nothing_is_less_than_any_other():
    assert status([4, 5, 5], [5, 5, 6], window=3) is LagStatus.OK, "it fell to 0"
    assert status([1, 2, 2], [1, 2, 5], window=3) is LagStatus.UNKNOWN, "it never fell"


def test_offset_0_is_an_offset():
    assert status([0] * 4, 5, mzxids=[3, 4, 4, 4]) is LagStatus.OK, "it does not advance"
    assert status([0, 0, 0, 1], [5, 6, 7, 8]) is LagStatus.WARN


def test_unknown_samples_do_not_fill_a_window():
    evaluated = evaluate_partition(samples([1, None, 1, 1], 5, mzxids=[3, None, 3, 3]), 4)
    assert (evaluated.status, evaluated.complete) == (LagStatus.UNKNOWN, False)


def test_samples_that_could_not_be_read_do_not_delay_a_verdict():
    """It was UNKNOWN: a broker was silent for 38 s of 66 s, and 21 of 34 samples had a lag."""
    ends = [5 if number < 10 or number > 22 else None for number in range(34)]
    series = followed(
        sample._replace(is_unread=sample.log_end is None)
        for sample in samples([1] * 34, ends, mzxids=[3] * 34, every=2.0)
    )
    evaluated = evaluate_partition(series, 34)
    assert (evaluated.status, evaluated.complete) == (LagStatus.STALL, False)
    assert evaluate_partition(followed(series[12:]), 34).status is LagStatus.UNKNOWN, "it began with the silence"


def test_a_problem_that_cannot_be_read_any_more_is_still_one():
    """Scripts saw no problem in an outage, though the group had stopped before."""
    stopped = evaluate_group({TopicPartition("t", 0): samples([1] * 4, 5, live=None)}, 4, members=1)
    healthy = evaluate_group({TopicPartition("t", 0): samples([5] * 4, 5)}, 4, members=1)
    unread = [group.outdated("no broker answers") for group in (stopped, healthy)]
    assert [(group.status, group.was, group.is_problem) for group in unread] == [
        (LagStatus.UNKNOWN, LagStatus.STOP, True),
        (LagStatus.UNKNOWN, LagStatus.OK, False),
    ]


def test_a_group_is_as_bad_as_its_worst_partition():
    partitions = {
        TopicPartition("t", 0): samples([9] * 4, 9),
        TopicPartition("t", 1): samples([1] * 4, 5, mzxids=[3] * 4),
        TopicPartition("t", 2): samples([None], 5),
        TopicPartition("t", 3): [],
    }
    group = evaluate_group(partitions, 4, members=1)
    assert (group.status, group.lag, len(group.partitions)) == (LagStatus.STALL, 4, 3)
    assert group.reason == "t-1: lag 4, and offset 1 is unchanged for at least 75 s"
    assert group.complete == pytest.approx(2 / 3)
    empty = evaluate_group({}, 4, members=1)
    assert (empty.status, empty.complete, empty.reason) == (LagStatus.OK, 1.0, "there are no partitions")


@pytest.mark.parametrize(
    ("series", "lag", "is_problem"),
    [
        (samples([9], 9, live=None), "known lag 0", False),
        (samples([None], 9, live=None), "lag unknown", False),
        (samples([5], 9, live=None), "known lag 4", True),
        (samples([8], 9, live=None), "known lag 1", True),
        (samples([5, 5, 5], [9, 10, 11], live=None, every=1.0), "known lag 6", True),
    ],
)
def test_a_group_without_members_has_a_status_of_its_own(series, lag, is_problem):
    group = evaluate_group({TopicPartition("t", 0): series}, 3, members=0)
    assert (group.status, group.is_problem) == (LagStatus.NO_MEMBERS, is_problem)
    assert group.reason == f"no member is registered; {lag}"


def test_an_error_of_a_group_without_members_is_shown():
    group = evaluate_group({TopicPartition("t", 0): samples([1] * 4, 5, live=None)}, 4, members=0)
    assert (group.status, group.is_problem) == (LagStatus.STOP, True)


@pytest.mark.parametrize(("other", "status"), [(9, LagStatus.UNKNOWN), (10, LagStatus.RANGE)])
def test_a_group_without_members_is_unknown_if_a_partition_could_not_be_read(other, status):
    """It was STOP or RANGE, and may be."""
    (unread,) = samples([5], None, live=None)
    partitions = {
        TopicPartition("t", 0): samples([other], 9, live=None),
        TopicPartition("t", 1): [unread._replace(is_unread=True)],
    }
    assert evaluate_group(partitions, 3, members=0).status is status


def test_unknown_is_no_problem_and_warn_no_error():
    assert [one.name for one in LagStatus if one.is_problem] == ["WARN", "STALL", "STOP", "REWIND", "RANGE"]
    assert not LagStatus.WARN.is_error
    assert worst([LagStatus.WARN, LagStatus.UNKNOWN, LagStatus.RANGE]) is LagStatus.RANGE


def test_time_lag_is_interpolated_between_log_ends():
    series = samples([0, 0, 25, 25], [10, 20, 30, 30], every=10.0)
    assert time_lag(series[-1], series) == pytest.approx(15.0)


def test_the_time_lag_of_a_consumed_log_is_zero():
    series = samples([5, 30], [10, 30])
    assert time_lag(series[-1], series) == 0.0


def test_the_time_lag_before_the_oldest_sample_is_unknown():
    series = samples([5, 5], [10, 30])
    assert time_lag(series[-1], series) is None


def test_log_ends_before_a_truncation_do_not_count():
    series = samples([15, 15, 15], [10, 30, 20])
    assert time_lag(series[-1], series) is None


def test_rates_are_per_second():
    evaluated = evaluate_partition(samples([0, 50, 100], [100, 300, 500], every=10.0), 3)
    assert (evaluated.consumed_per_s, evaluated.produced_per_s) == (5.0, 20.0)
    assert evaluate_partition(samples([5], 9), 3).consumed_per_s is None
    assert evaluate_partition(samples([0, 50], [100, 300], every=10.0), 3).produced_per_s == 20.0
    assert evaluate_partition(samples([5, 5], [9, 9], every=10.0), 3).consumed_per_s == 0.0
    assert evaluate_partition(samples([5, 4], [9, 9], every=10.0), 3).consumed_per_s is None
    assert evaluate_partition(samples([5, 6], [9, 9], every=0.0), 3).consumed_per_s is None
    assert evaluate_partition(samples([-1, 5_000_000], 9, every=10.0), 3).consumed_per_s is None, "-1 is no offset"


def test_the_time_lag_in_the_oldest_interval_is_known():
    series = samples([0, 15], [10, 30], every=10.0)
    assert time_lag(series[-1], series) == pytest.approx(7.5)


def test_the_time_lag_without_a_log_end_is_unknown():
    series = samples([0, 0, 15], [10, 20, None], every=10.0)
    assert time_lag(series[-1], series) is None


@pytest.mark.parametrize(
    ("state", "members", "status", "reason"),
    [
        ("migrated", 0, LagStatus.MIGRATED, "its consumers continue at kafka:g"),
        ("migrated", 2, LagStatus.WARN, "it has members, though it was migrated to kafka:g"),
        ("migrating", 0, LagStatus.WARN, "it is being migrated to kafka:g: complete it with"),
        ("migrating", 1, LagStatus.WARN, "it has members, though it is being migrated to kafka:g"),
        ("undoing", 0, LagStatus.WARN, "it has a migration to kafka:g that is being undone"),
    ],
)
def test_a_group_with_the_mark_of_a_migration(state, members, status, reason):
    mark = MigrationMark(state, "kafka:g", 1)
    group = evaluate_group({TopicPartition("t", 0): samples([5] * 4, 5)}, 4, members=members, mark=mark)
    assert (group.status, group.reason.startswith(reason)) == (status, True)


def test_a_migrated_group_has_no_fault_by_its_old_offsets():
    """Retention overtakes what nobody consumes from."""
    outside = [sample._replace(log_start=50) for sample in samples([1] * 4, 60, live=None)]
    group = evaluate_group({TopicPartition("t", 0): outside}, 4, members=0, mark=MigrationMark("migrated", "", 1))
    assert (group.status, group.reason) == (LagStatus.MIGRATED, "its consumers continue at another store")
    (one,) = group.partitions.values()
    assert (one.status, one.reason, one.lag) == (group.status, group.reason, 59)


@pytest.mark.parametrize(("live", "status"), [(True, LagStatus.WARN), (None, LagStatus.STOP)])
def test_a_group_with_members_in_two_homes_does_not_look_healthy(live, status):
    series = samples([5] * 40, 5) if live else samples([5] * 40, 9, live=None)
    group = evaluate_group({TopicPartition("t", 0): series}, 4, members=2, in_two_homes="both read")
    assert (group.status, group.reason == "both read") == (status, status is LagStatus.WARN)


def never_committed(ends, **keywords):
    return samples([None] * len(ends), ends, mzxids=[None] * len(ends), **keywords)


def test_records_that_come_while_a_member_commits_nothing_are_stall():
    evaluated = evaluate_partition(never_committed([5, 6, 7, 9]), 4)
    assert (evaluated.status, evaluated.complete, evaluated.lag) == (LagStatus.STALL, True, None)
    assert evaluated.reason == "no offset was committed for 75 s, in which 4 records came"
    group = evaluate_group({TopicPartition("t", 0): never_committed([5, 6, 7, 9])}, 4, members=1)
    assert (group.status, group.is_problem, group.is_uncommitted) == (LagStatus.STALL, True, True)


@pytest.mark.parametrize(
    "series",
    [
        never_committed([5, 6, 7]),
        never_committed([5, 6, 7, 9], every=10.0),
        never_committed([5, 6, 7, 9], live=None),
        never_committed([5, 6, 7, 9], live=[True, None, True, True]),
        never_committed([0, 0, 0, 9]),
        never_committed([5, 6, 7, 9], starts=[0, 6, 0, 0]),
        samples([None, 5, None, None], [5, 6, 7, 9]),
    ],
)
def test_no_offset_is_unknown_until_a_whole_window_has_records_and_an_owner(series):
    assert evaluate_partition(series, 4).status is LagStatus.UNKNOWN


def test_an_offset_that_could_not_be_read_is_not_missing():
    series = never_committed([5, 6, 7, 9])
    series[-1] = series[-1]._replace(is_unread=True)
    assert evaluate_partition(series, 4).status is LagStatus.UNKNOWN
    assert evaluate_group({TopicPartition("t", 0): series}, 4, members=1).status is LagStatus.UNKNOWN


def test_members_that_have_committed_nothing_are_warn_though_no_record_comes():
    """One of librdkafka that begins at the log end commits nothing before the next record."""
    old = {TopicPartition("t", n): never_committed([5] * 4) for n in range(2)}
    group = evaluate_group(old, 4, members=1)
    assert (group.status, group.complete, group.is_uncommitted) == (LagStatus.WARN, 1.0, True)
    assert group.reason == (
        "members have committed nothing for 75 s, and 2 of 2 partitions have records, none of them new"
    )
    assert {one.status for one in group.partitions.values()} == {LagStatus.UNKNOWN}
    waiting = evaluate_group(old, 5, members=1)
    assert (waiting.status, waiting.is_uncommitted) == (LagStatus.UNKNOWN, False), "the window is not full"
    longer = {**old, TopicPartition("u", 0): never_committed([5] * 5), TopicPartition("u", 1): never_committed([0])}
    reason = evaluate_group(longer, 4, members=1).reason
    assert reason.startswith("members have committed nothing for 75 s, and 3 of 4 partitions"), "the shortest time"
    others = {**old, TopicPartition("t", 2): samples([9] * 4, 9)}
    assert evaluate_group(others, 4, members=1).status is LagStatus.UNKNOWN, "this partition shows that members commit"
    empty = evaluate_group({TopicPartition("t", 0): never_committed([0] * 4)}, 4, members=1)
    assert empty.status is LagStatus.UNKNOWN, "there is nothing to commit"


def test_one_record_that_came_is_enough():
    evaluated = evaluate_partition(never_committed([5, 5, 5, 6]), 4)
    assert evaluated.reason == "no offset was committed for 75 s, in which 1 record came"


def test_a_stall_is_one_of_commits_alone_if_no_other_partition_is_stalled():
    silent, stalled = never_committed([5, 6, 7, 9]), samples([1] * 4, 5, mzxids=[3] * 4)
    both = {TopicPartition("t", 0): silent, TopicPartition("t", 1): stalled}
    assert not evaluate_group(both, 4, members=1).is_uncommitted
    assert not evaluate_group({TopicPartition("t", 1): stalled}, 4, members=1).is_uncommitted


def test_a_topic_that_does_not_exist_is_a_problem_of_its_subscribers():
    group = evaluate_group({}, 4, members=1, absent=["views", "ordres"])
    assert (group.status, group.is_problem) == (LagStatus.UNKNOWN, True)
    assert group.absent == ("ordres", "views")
    assert group.reason == "members subscribe to what does not exist: ordres, views"
    behind = {TopicPartition("t", 0): samples([1] * 4, 5, mzxids=[3] * 4)}
    assert evaluate_group(behind, 4, members=1, absent=["u"]).status is LagStatus.STALL, "what is worse is shown"
    left = evaluate_group({}, 4, members=0, absent=["ordres"])
    assert (left.status, left.is_problem) == (LagStatus.NO_MEMBERS, False)


def test_samples_of_too_short_a_time_are_not_complete():
    assert not evaluate_partition(samples([9] * 4, 9, every=1.0), 4).complete
    assert evaluate_partition(samples([9] * 4, 9), 4).complete
