"""Which range the options of ``zkconsumer consume`` name."""

from datetime import UTC, datetime

import click
import pytest

from zkconsumer.cli.consumerange import WantedRange, wanted_range


def wanted(partition=None, offset=None, until=None, *, topics=("t",), **of_groups):
    return wanted_range(topics, partition, offset, until, None, of_groups)


def test_the_options_are_positions():
    assert wanted(3, "100", "200") == WantedRange("t", 3, {3: 100}, {3: 200}, None)
    assert wanted(0, until="0") == WantedRange("t", 0, "earliest", {0: 0}, None)
    nine = datetime(2026, 11, 28, 9, tzinfo=UTC)
    assert wanted(None, "2026-11-28T10:00:00+01:00", "latest") == WantedRange("t", None, nine, "latest", None)
    assert wanted(None, "earliest").start == "earliest"
    assert wanted(None, None, "2026-11-28").end == datetime(2026, 11, 28)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"offset": "5"}, "--offset 5 is an offset of one partition: give --partition"),
        ({"until": "yesterday"}, "--until yesterday: write an offset, earliest, latest, or a time such as 2026-"),
        ({"partition": 1, "offset": "-5"}, "--offset -5: write an offset"),
        ({"partition": 1, "topics": ()}, "need one --topic"),
        ({"partition": 1, "topics": ("t", "u")}, "need one --topic"),
        ({"partition": 1, "--group": "g", "--threads": 3}, "without a group: omit --group and --threads"),
    ],
)
def test_contradictions_are_refused(options, why):
    with pytest.raises(click.UsageError, match=why):
        wanted(**options)
