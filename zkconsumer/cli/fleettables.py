"""What ``migrate fleet`` prints: the state of each group, and what became of each."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zkconsumer.cli.terminaltext import printable

if TYPE_CHECKING:
    from zkconsumer.operate.migrate.fleet import GroupOutcome
    from zkconsumer.operate.migrate.fleetstatus import FleetRow


def status_document(rows: Sequence[FleetRow]) -> dict[str, Any]:
    """The groups of a fleet, and how many there are in each state, for ``--json``."""
    return {"groups": [_row_document(row) for row in rows], "totals": _totals(rows)}


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
    from zkconsumer.operate.migrate.rules.fleetstate import ORDER

    counts = Counter(row.state for row in rows)
    return {state.value: counts[state] for state in ORDER if counts[state]}


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

    heading = ("CLUSTER", "GROUP", "WAVE", "OWNER", "STATE", "#MEMBERS", "#PARTITIONS", "REASON")
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


def outcome_document(outcomes: Iterable[GroupOutcome]) -> dict[str, Any]:
    """What became of groups, for ``--json``."""
    documents = [outcome._asdict() for outcome in outcomes]
    return {"groups": documents, "totals": dict(Counter(document["outcome"] for document in documents))}
