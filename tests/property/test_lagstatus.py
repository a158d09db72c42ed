"""Properties of the lag evaluation, for any samples."""

from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.groups import followed
from zkconsumer.operate.groups.rules.lagstatus import LagStatus, evaluate_partition, time_lag
from zkconsumer.operate.groups.rules.lagstretches import JUDGED_S, LagSample

NUMBERS = st.integers(0, 40)


def sampled(samples, shift=0.0):
    """The samples, 10 s apart, as a sampler has them."""
    return followed(sample._replace(at=number * 10.0 + shift) for number, sample in enumerate(samples))


SAMPLES = st.lists(
    st.builds(
        LagSample,
        at=st.just(0.0),
        committed=st.none() | NUMBERS,
        mzxid=st.none() | NUMBERS,
        log_start=st.none() | NUMBERS,
        log_end=st.none() | NUMBERS,
        owner=st.none() | st.just("g_c-0"),
        owner_live=st.booleans(),
        age_s=st.none() | st.floats(0, 1e6),
    ),
    min_size=1,
    max_size=12,
).map(sampled)
WINDOWS = st.integers(2, 9)


@given(SAMPLES, WINDOWS)
def test_every_series_has_a_status_and_no_negative_number(series, window):
    found = evaluate_partition(series, window)
    assert found.lag is None or found.lag >= 0
    assert found.lag_s is None or found.lag_s >= 0
    assert all(rate is None or rate >= 0 for rate in (found.consumed_per_s, found.produced_per_s))
    assert found.reason


@given(SAMPLES, WINDOWS)
def test_samples_before_the_window_only_make_a_verdict_possible(series, window):
    """What a sampler remembers of earlier samples never hides what the window shows."""
    in_window = evaluate_partition(sampled(series[-window:]), window).status
    if in_window not in (LagStatus.OK, LagStatus.UNKNOWN):
        assert evaluate_partition(series, window).status is in_window


@given(SAMPLES, WINDOWS)
def test_unknown_means_no_number(series, window):
    found = evaluate_partition(series, window)
    assert found.status is LagStatus.UNKNOWN or found.lag is not None
    assert found.lag is not None or found.lag_s is None


@given(SAMPLES, WINDOWS)
def test_no_verdict_on_lag_comes_from_less_than_a_window(series, window):
    found = evaluate_partition(series, window)
    if found.status in (LagStatus.STALL, LagStatus.WARN):
        assert len([sample for sample in series if sample.lag is not None]) >= window
        assert series[-1].at >= JUDGED_S


@given(SAMPLES, WINDOWS, st.integers(-(10**6), 10**6))
def test_the_origin_of_the_clock_does_not_matter(series, window, shift):
    moved = sampled(series, shift)
    assert evaluate_partition(series, window).status is evaluate_partition(moved, window).status


@given(SAMPLES, WINDOWS)
def test_a_consumer_at_the_log_end_is_never_a_problem(series, window):
    last = series[-1]._replace(committed=30, log_start=0, log_end=30)
    assert evaluate_partition(sampled([*series[:-1], last]), window).status is LagStatus.OK


@given(st.lists(NUMBERS, min_size=2, max_size=12).map(sorted), NUMBERS, NUMBERS)
def test_a_later_offset_has_no_greater_time_lag(ends, one, other):
    def lag_of(committed):
        series = [LagSample(n * 10.0, committed, None, 0, end, None, False) for n, end in enumerate(ends)]
        return time_lag(series[-1], series)

    earlier, later = lag_of(min(one, other)), lag_of(max(one, other))
    assert later is None or earlier is None or later <= earlier
    assert later is not None or earlier is None, "once it is known it stays known"
    assert later is None or later <= (len(ends) - 1) * 10.0
