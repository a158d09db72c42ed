"""What ``migrate fleet`` prints: the state of each group, and what became of each."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click

from zkconsumer.cli.groupoptions import warn
from zkconsumer.cli.terminaltext import escaped, printable

if TYPE_CHECKING:
    from zkconsumer.operate.migrate.fleet import GroupOutcome
    from zkconsumer.operate.migrate.fleetstatus import FleetRow
    from zkconsumer.operate.migrate.rules.fleetfacts import Whereabouts


def status_document(rows: Sequence[FleetRow]) -> dict[str, Any]:
    """The groups of a fleet, and how many there are in each state, for ``--json``."""
    from zkconsumer.operate.migrate.rules.fleetfacts import whereabouts

    known = whereabouts([row.state for row in rows])
    return {"groups": [_row_document(row) for row in rows], "totals": _totals(rows), "progress": known}


def _row_document(row: FleetRow) -> dict[str, Any]:
    group = row.group
    return {
        "cluster": row.cluster,
        "group": group.group,
        "wave": group.wave,
        "owner": group.owner,
        "target": str(group.target),
        "protocol": group.protocol,
        "state": row.state.value,
        "reason": row.reason,
        "members": row.members,
        "partitions": row.partitions,
    }


def _totals(rows: Iterable[FleetRow]) -> dict[str, int]:
    from zkconsumer.operate.migrate.rules.fleetfacts import ORDER

    counts = Counter(row.state for row in rows)
    return {state.value: counts[state] for state in ORDER if counts[state]}


_IN_WORDS: Final[Mapping[Whereabouts, str]] = MappingProxyType(
    {
        "in_kafka": "continue in Kafka",
        "waiting": "wait for their new consumers",
        "in_zookeeper": "are in ZooKeeper",
        "unclear": "have gone wrong or are unknown",
    }
)


def status_csv(rows: Sequence[FleetRow]) -> str:
    """The same as CSV, with a heading."""
    text = io.StringIO()
    documents = [_row_document(row) for row in rows]
    writer = csv.DictWriter(text, list(documents[0]) if documents else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(documents)
    return text.getvalue()


def status_lines(rows: Sequence[FleetRow]) -> Iterator[str]:
    """The table of a fleet, and its totals."""
    from zkconsumer.cli.grouptables import columns
    from zkconsumer.operate.migrate.rules.fleetfacts import whereabouts

    heading = ("CLUSTER", "GROUP", "WAVE", "OWNER", "STATE", "#OLD-MEMBERS", "#PARTITIONS", "REASON")
    yield from columns(
        heading,
        [
            (
                printable(row.cluster),
                printable(row.group.group),
                str(row.group.wave),
                printable(row.group.owner) or "-",
                row.state.value,
                "-" if row.members is None else str(row.members),
                "-" if row.partitions is None else str(row.partitions),
                printable(row.reason),
            )
            for row in rows
        ],
    )
    yield ""
    yield ", ".join(f"{count} {state}" for state, count in _totals(rows).items()) or "no groups"
    if rows:
        known = whereabouts([row.state for row in rows])
        parts = [f"{count} {_IN_WORDS[place]}" for place, count in known.items() if count]
        yield f"{len(rows)} groups: {', '.join(parts)}"


def echo_lines_of(outcome: GroupOutcome, *, done: str) -> None:
    """Print what became of one group; ``done`` is what it is if its step was done."""
    name = f"{outcome.cluster} {outcome.group}"
    if outcome.outcome == "done":
        moved = {"skipped": outcome.records_skipped, "read again": outcome.records_replayed}
        records = "".join(f", {count} records {what}" for what, count in moved.items() if count)
        count = f"{outcome.offsets or 'no'} offset{'' if outcome.offsets == 1 else 's'}"
        nothing = "" if outcome.offsets else ": there was nothing to do"
        click.echo(escaped(f"{name}: {done}, {count}{records}{nothing}"))
    for reason in outcome.reasons:
        click.echo(escaped(f"{name}: {outcome.outcome}: {reason}"), err=outcome.outcome != "skipped")
    warn(f"{name}: {warning}" for warning in outcome.warnings)


def outcome_totals(outcomes: Sequence[GroupOutcome], done: str) -> str:
    """How many groups are done, and how many are not."""
    counts = Counter(outcome.outcome for outcome in outcomes)
    totals = "".join(f", {counts[kind]} {kind}" for kind in ("skipped", "refused", "failed") if counts[kind])
    return f"{counts['done']} of {len(outcomes)} groups {done}{totals}"


def outcome_document(outcomes: Iterable[GroupOutcome], *, executed: bool | None = None) -> dict[str, Any]:
    """What became of groups, for ``--json``; ``executed`` is None for a command that has no dry run."""
    documents = [outcome._asdict() for outcome in outcomes]
    dry = {} if executed is None else {"executed": executed}
    return {**dry, "groups": documents, "totals": dict(Counter(document["outcome"] for document in documents))}
