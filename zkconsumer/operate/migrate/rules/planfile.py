"""The file of a MigrationPlan: one JSON document with its own SHA-256, so that an edited plan is recognised."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.operate.migrate.rules.migrationend import check_ends, parse_end
from zkconsumer.operate.migrate.rules.migrationplan import Guard, MigrationPlan, Missing, Place, PlannedPartition
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange
from zkconsumer.zookeeper.rules.znodes import MigrationMark

_KIND: Final = "zkconsumer migration plan"
_VERSION: Final = 1
_MISSING: Final[dict[str, Missing]] = {"fail": "fail", "earliest": "earliest", "latest": "latest"}


def encode_plan(plan: MigrationPlan) -> str:
    """The text of the file, with a line for each partition."""
    document = plan_document(plan)
    rows = ",\n".join(f"  {json.dumps(row)}" for row in document.pop("partitions"))
    head = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in document.items())
    return f'{{\n{head},\n "partitions": [\n{rows}\n ]\n}}\n'


def plan_document(plan: MigrationPlan) -> dict[str, Any]:
    """The plan as JSON, its digest included."""
    document = _document(plan)
    return {**document, "sha256": _digest_of(document)}


def plan_digest(plan: MigrationPlan) -> str:
    """SHA-256 of the plan, in hex."""
    return _digest_of(_document(plan))


def is_mark_of(mark: MigrationMark, *plans: MigrationPlan | None) -> bool:
    """True if a command of one of these plans has written the mark of a group.

    1. A plan is run, and its group comes back; 2. a run of another plan is killed. That mark is not of the first.
    """
    return mark.plan in [plan_digest(plan) for plan in plans if plan is not None]


def decode_plan(name: str, content: bytes) -> MigrationPlan:
    """Read a plan.

    Args:
        name: of the file, for messages.
        content: of the file.

    Raises:
        ZkConsumerError: the file is no plan of this release, or it was changed after it was made.
    """
    try:
        document = json.loads(content)
        if document["kind"] != _KIND or document["version"] != _VERSION:
            raise ValueError("another kind or version of file")
        given = document.pop("sha256")
        if given != _digest_of(document):
            raise ZkConsumerError(f"{name} was edited after it was made: its SHA-256 does not fit; plan again")
        plan = _plan(document)
        if _document(plan) != document:
            raise ValueError("fields that no plan has")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ZkConsumerError(
            f"{name} is not a migration plan of this release ({error!r}); give the file that `migrate plan` wrote"
        ) from None
    return plan


def _digest_of(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _document(plan: MigrationPlan) -> dict[str, Any]:
    return {
        "kind": _KIND,
        "version": _VERSION,
        "created_ms": plan.created_ms,
        "source": str(plan.source),
        "target": str(plan.target),
        "servers": plan.servers,
        "chroot": plan.place.chroot,
        "zookeeper_cluster": plan.place.zookeeper_cluster,
        "kafka_cluster": plan.place.kafka_cluster,
        "missing": plan.missing,
        "retention_ms": plan.retention_ms,
        "identities": dict(sorted(plan.identities.items())),
        "guards": [guard._asdict() for guard in plan.guards],
        "warnings": list(plan.warnings),
        "partitions": [_row_document(row) for row in plan.partitions],
    }


def _row_document(row: PlannedPartition) -> dict[str, Any]:
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "source_offset": row.source,
        "target_before": row.before,
        "new_offset": row.new,
        "log_start": row.log.start,
        "log_end": row.log.end,
        "skipped": row.skipped,
        "replayed": row.replayed,
        **({"outdated": True} if row.is_outdated else {}),
        **({"before_outdated": True} if row.is_before_outdated else {}),
    }


def _plan(document: dict[str, Any]) -> MigrationPlan:
    source, target = parse_end(document["source"]), parse_end(document["target"])
    check_ends(source, target)
    place = Place(str(document["chroot"]), document["zookeeper_cluster"], document["kafka_cluster"])
    retention = document["retention_ms"]
    return MigrationPlan(
        source=source,
        target=target,
        place=place,
        servers=str(document["servers"]),
        created_ms=int(document["created_ms"]),
        missing=_MISSING[document["missing"]],
        retention_ms=None if retention is None else int(retention),
        partitions=tuple(map(_row, document["partitions"])),
        identities={str(topic): _identity(recorded) for topic, recorded in document["identities"].items()},
        guards=tuple(
            Guard(str(guard["name"]), bool(guard["holds"]), str(guard["text"])) for guard in document["guards"]
        ),
        warnings=tuple(map(str, document["warnings"])),
    )


def _row(document: dict[str, Any]) -> PlannedPartition:
    return PlannedPartition(
        TopicPartition(str(document["topic"]), int(document["partition"])),
        _offset(document["source_offset"]),
        _offset(document["target_before"]),
        _offset(document["new_offset"]),
        LogRange(int(document["log_start"]), int(document["log_end"])),
        bool(document.get("outdated")),
        bool(document.get("before_outdated")),
    )


def _identity(value: Any) -> str | int:
    return value if isinstance(value, int) else str(value)


def _offset(value: Any) -> int | None:
    return None if value is None else int(value)
