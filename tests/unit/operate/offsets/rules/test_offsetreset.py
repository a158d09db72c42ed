"""Where a reset moves an offset, with values."""

import doctest

import pytest

from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets.rules import offsetreset
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange, OffsetRow, how_far, sums
from zkconsumer.operate.offsets.rules.offsetreset import (
    ResetSpec,
    parse_datetime,
    parse_duration,
    reset_offset,
    time_before,
)

P = TopicPartition("t", 0)
LOG = LogRange(10, 100)


def test_examples():
    assert doctest.testmod(offsetreset).failed == 0


@pytest.mark.parametrize(
    ("spec", "old", "at_time", "new", "note"),
    [
        (ResetSpec("earliest"), 50, None, 10, ""),
        (ResetSpec("latest"), 50, None, 100, ""),
        (ResetSpec("current"), 5, None, 5, ""),
        (ResetSpec("current"), None, None, 100, "no committed offset, so the log end"),
        (ResetSpec("current"), -1, None, 100, "no committed offset, so the log end"),
        (ResetSpec("offset", 60), None, None, 60, ""),
        (ResetSpec("offset", 101), 50, None, 100, "101 is after the log end"),
        (ResetSpec("offset", 9), 50, None, 10, "9 is before the log start"),
        (ResetSpec("shift", -20), 50, None, 30, ""),
        (ResetSpec("shift", 20), 0, None, 20, ""),
        (ResetSpec("shift", -50), 50, None, 10, "0 is before the log start"),
        (ResetSpec("shift", 60), 50, None, 100, "110 is after the log end"),
        (ResetSpec("time", 1), 50, 70, 70, ""),
        (ResetSpec("time", 1), 50, None, 100, "no record so late, so the log end"),
        (ResetSpec("file", offsets={P: 99}), 50, None, 99, ""),
    ],
)
def test_each_scenario_moves_as_the_jvm_tool_does(spec, old, at_time, new, note):
    assert reset_offset(spec, P, old, LOG, at_time) == OffsetRow(P, old, new, LOG, note)


@pytest.mark.parametrize(
    ("spec", "old"), [(ResetSpec("shift", 1), None), (ResetSpec("shift", 1), -1), (ResetSpec("file"), 5)]
)
def test_a_scenario_that_does_not_fit_is_refused(spec, old):
    with pytest.raises(ValueError, match="t-0"):
        reset_offset(spec, P, old, LOG, None)


@pytest.mark.parametrize(
    ("old", "new", "skipped", "replayed"),
    [
        (50, 80, 30, 0),
        (50, 20, 0, 30),
        (0, 20, 10, 0),
        (200, 90, 0, 10),
        (None, 5, None, None),
        (5, None, None, None),
        (-1, 50, None, None),
    ],
)
def test_only_records_that_the_log_has_are_counted(old, new, skipped, replayed):
    row = OffsetRow(P, old, new, LOG)
    assert (row.skipped, row.replayed) == (skipped, replayed)


def test_sums_name_what_is_unknown():
    rows = [OffsetRow(P, 50, 80, LOG), OffsetRow(P, 50, 20, LOG), OffsetRow(P, None, 20, LOG)]
    assert sums(rows) == (30, 30, 1)
    assert sums([OffsetRow(P, 50, 51, LOG), OffsetRow(P, 50, 49, LOG), OffsetRow(P, 50, 50, LOG)]) == (1, 1, 0)


def test_of_several_groups_the_one_that_has_read_most_counts():
    assert how_far([20, None, 60], 50, LOG) == -10
    assert how_far([None], 50, LOG) is None
    assert how_far([LOG.start + 5], LOG.start - 5, LOG) == -5, "what the log no longer has cannot be read again"


def test_a_reset_without_a_value_has_0():
    assert ResetSpec("earliest").value == 0


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2017-06-01T12:00:00.000", 1496318400000),
        ("2017-06-01T12:00:00.007Z", 1496318400007),
        ("2017-06-01T12:00:00.000+02", 1496311200000),
        ("2017-06-01T12:00:00.000-01:30", 1496323800000),
    ],
)
def test_times_with_zones(text, ms):
    assert parse_datetime(text) == ms


def test_all_parts_of_a_duration_are_added():
    assert parse_duration("P1DT2H3M4.5S") == 93784500


@pytest.mark.parametrize(
    "text",
    [
        "2017-06-01",
        "2017-06-01T12:00:00",  # 1.1.1 needs milliseconds
        "2017-06-01T12:00:00.5",  # which it reads as 5 ms
        "2017-06-31T12:00:00.000",  # and this as the first of July
        "2017-06-01T12:00:00.000+0130",  # and this as +01:00
        "2017-06-01T12:00:00.000+25:00",
        "2017-06-01 12:00:00.000",
        "2017-06-01T12:00:00.000Zulu",
        "",
    ],
)
def test_a_time_that_reads_otherwise_than_it_looks_is_refused(text):
    with pytest.raises(ValueError, match="is not a time"):
        parse_datetime(text)


@pytest.mark.parametrize(
    "text", ["1969-12-31T23:59:59.999", "1969-12-31T23:59:59.998", "1970-01-01T00:00:00.000+01:00"]
)
def test_a_time_before_the_epoch_is_the_epoch(text):
    """Brokers would take -1 as the log end, and -2 as the log start."""
    assert parse_datetime(text) == 0


def test_a_duration_that_begins_before_the_epoch_begins_with_it():
    assert (time_before(1000, "PT1S"), time_before(999, "PT1S"), time_before(5000, "PT2S")) == (0, 0, 3000)


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "P1Y", "P1M", "-P1D", "1D", "P1.5D", "PT1H1H", "P1W"])
def test_a_duration_without_a_fixed_length_is_refused(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
