"""The demo's checks: each compares figures and reports them. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from demo.aggregate import FIGURES, Aggregate, differing
from demo.delivery import Delivery
from demo.timeline import Sample, number_ranges, shares_text

MINIMUM_RECORDS = 300_000
"""Minimum number of records; fewer are not the whole data set."""

_SIGKILL_EXIT = 128 + 9


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the final table: the expectation, the figures, and whether it is met."""

    name: str
    figures: str
    ok: bool


def loaded(sizes: Sequence[int], ends: Sequence[int]) -> Check:
    """Every record of the source is in its partition, and there are enough of them."""
    ok = list(sizes) == list(ends) and sum(sizes) >= MINIMUM_RECORDS
    return Check("real records produced", f"{sum(ends):,} of {sum(sizes):,} on {len(ends)} partitions", ok)


def shared(name: str, sample: Sample, members: Mapping[str, str]) -> Check:
    """Exactly these members (consumer id to name) own all partitions, and each owns some."""
    return Check(name, shares_text(members, sample), sample.shared_by(members))


def killed_at_work(exit_code: int, partitions: Sequence[int], committed: int, total: int) -> Check:
    """The member that was killed owned partitions and had consumed some of their records, but not all."""
    figures = f"exit {exit_code}; partitions {number_ranges(partitions)}: {committed:,} of {total:,} records committed"
    return Check(
        "killed in mid-work", figures, exit_code == _SIGKILL_EXIT and bool(partitions) and 0 < committed < total
    )


def delivered(delivery: Delivery) -> list[Check]:
    """Every record of the source arrived unchanged at least once. Duplicates are allowed, and counted."""
    figures = f"count missing: {delivery.missing:,}, count duplicates: {delivery.duplicates:,}"
    if delivery.duplicates:
        figures += f" (in partitions {number_ranges(delivery.duplicated_partitions)})"
    return [
        Check("delivered at least once", figures, delivery.missing == 0),
        Check("key, value, offset as produced", f"count altered: {delivery.altered:,}", delivery.altered == 0),
    ]


def ended(name: str, exit_codes: Sequence[int], deserted: bool) -> Check:
    """The processes ended by themselves without an error, and the group has no members or owners any more."""
    codes = ", ".join(map(str, exit_codes))
    left = "no members or owners left" if deserted else "members or owners REMAIN"
    return Check(name, f"exit {codes}; {left}", deserted and not any(exit_codes))


def aggregated(expected: Aggregate, actual: Aggregate) -> Check:
    """Spark's aggregate equals that of the source in all figures."""
    wrong = differing(expected, actual)
    figures = f"{len(actual)} routes x {len(FIGURES)} figures, {len(wrong)} routes differ"
    if wrong:
        figures += f" ({', '.join(wrong[:3])}{' ...' if len(wrong) > 3 else ''})"
    return Check("Spark aggregate = source", figures, bool(expected) and not wrong)


def no_lag(group: str, final: Sample, sizes: Sequence[int]) -> Check:
    """The committed offsets equal the log ends, which equal the numbers of produced records."""
    committed = sum(offset or 0 for offset in final.committed)
    figures = f"{final.lag:,} (committed {committed:,}, log ends {sum(final.ends):,})"
    return Check(f"lag of {group}", figures, list(final.committed) == list(final.ends) == list(sizes))
