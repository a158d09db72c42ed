"""What the commands of ``zkconsumer migrate`` print: tables of plans and of their verification, and their JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zkconsumer.cli.writing import partition_table

if TYPE_CHECKING:
    from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan
    from zkconsumer.operate.migrate.rules.migrationrecheck import VerifiedPartition
    from zkconsumer.operate.migrate.rules.mirrorplan import CopiedOffset
    from zkconsumer.operate.migrate.run import RunReport


def plan_lines(plan: MigrationPlan) -> Iterator[str]:
    """The table of a plan."""
    yield from partition_table(
        ("SOURCE-OFFSET", "TARGET-BEFORE", "NEW-OFFSET", "LOG-START", "LOG-END", "SKIPPED", "REPLAYED"),
        (
            (row.partition, row.source, row.before, row.new, row.log.start, row.log.end, row.skipped, row.replayed)
            for row in plan.partitions
        ),
    )
    skipped, replayed = (sum(getattr(row, name) for row in plan.partitions) for name in ("skipped", "replayed"))
    yield f"\n{len(plan.partitions)} partitions; {skipped} records skipped, {replayed} replayed"


def run_document(
    plan: MigrationPlan, report: RunReport | None, refusals: Sequence[str], *, executed: bool
) -> dict[str, Any]:
    """What a run has written, as JSON."""
    from zkconsumer.operate.migrate.rules.planfile import plan_digest

    def rows(partitions: Iterable[Any]) -> list[dict[str, Any]]:
        return [{"topic": partition.topic, "partition": partition.partition} for partition in partitions]

    return {
        "plan": plan_digest(plan),
        "executed": executed,
        "snapshot": None if report is None or report.snapshot is None else str(report.snapshot),
        "written": rows([] if report is None else report.written),
        "found": rows([] if report is None else report.found),
        "refusals": list(refusals),
        "faults": [] if report is None else report.faults,
        "warnings": [] if report is None else report.warnings,
    }


def verified_row(row: VerifiedPartition) -> dict[str, Any]:
    """A verified partition as JSON."""
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "planned": row.planned,
        "source": row.source,
        "target": row.target,
        "log_end": row.log_end,
        "source_lag": row.source_lag,
        "target_lag": row.target_lag,
        "equal": row.is_equal,
    }


def verify_lines(rows: Sequence[VerifiedPartition]) -> Iterator[str]:
    """The table of a verification."""
    heading = ("PLANNED", "SOURCE", "TARGET", "LOG-END", "SOURCE-LAG", "TARGET-LAG", "EQUAL")
    yield from partition_table(
        heading,
        (
            (
                row.partition,
                row.planned,
                row.source,
                row.target,
                row.log_end,
                row.source_lag,
                row.target_lag,
                "yes" if row.is_equal else "no",
            )
            for row in rows
        ),
    )
    equal = sum(row.is_equal for row in rows)
    yield f"\n{equal} of {len(rows)} partitions are equal"


def copy_lines(rows: Sequence[CopiedOffset]) -> Iterator[str]:
    """The table of what a copy of a mirror would do."""
    heading = ("IN-KAFKA", "IN-ZOOKEEPER", "DUE")
    yield from partition_table(
        heading, ((row.partition, row.in_kafka, row.in_zookeeper, "yes" if row.is_due else "no") for row in rows)
    )
    yield f"\n{sum(row.is_due for row in rows)} of {len(rows)} offsets are to be copied"
