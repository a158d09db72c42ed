"""MigrationPlan: what a migration writes, as a file that can be checked, and what has changed since it was made."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from zkconsumer.errors import name_some
from zkconsumer.model import TopicIdentity, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import usable_offset
from zkconsumer.offsets.rules.topicorigins import NOT_STORED, JudgedOffset, WrittenFor, may_be_copy
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.offsets.rules.offsetguards import moving_back, outside_logs
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange, how_far
from zkconsumer.operate.offsets.rules.writestate import WriteState

Missing = Literal["fail", "earliest", "latest"]
"""What a partition gets of which neither end has an offset: nothing, which refuses the migration, the log start, or the
log end."""


class Place(NamedTuple):
    """What identifies the servers of both ends.

    Attributes:
        chroot: of ZooKeeper, with its slash; empty if there is none.
        zookeeper_cluster: id of the cluster whose brokers register in this ZooKeeper; None before 0.10.1, or if there
            are none.
        kafka_cluster: id that the brokers report; None before 0.10.1.
    """

    chroot: str
    zookeeper_cluster: str | None
    kafka_cluster: str | None


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """What happens to one partition.

    Attributes:
        partition: which one.
        source: the next offset to consume as the source has it; None if it has none.
        before: the same in the target before the migration.
        new: the offset that is written; None while it is undecided where it begins.
        log: the offsets of its log.
        is_outdated: the source's offset was stored for an earlier topic of this name, so it counts as none.
        is_before_outdated: the same of the target's, or it may be a copy of such an offset of the source.
    """

    partition: TopicPartition
    source: int | None
    before: int | None
    new: int | None
    log: LogRange
    is_outdated: bool = False
    is_before_outdated: bool = False

    @property
    def position(self) -> int | None:
        """Where a consumer of the source would continue; None if that has no such offset."""
        return None if self.is_outdated else usable_offset(self.source)

    @property
    def former(self) -> int | None:
        """Where a consumer of the target would have continued; None if that had no such offset."""
        return None if self.is_before_outdated else usable_offset(self.before)

    @property
    def unwritten(self) -> frozenset[int | None]:
        """What the target may hold unless a run has written: a rollback removes a znode of an earlier topic."""
        return frozenset({self.before, None} if self.is_before_outdated else {self.before})

    @property
    def unread(self) -> frozenset[int | None]:
        """What the source may hold unless a consumer has continued there, likewise."""
        return frozenset({self.source, None} if self.is_outdated else {self.source})

    @property
    def skipped(self) -> int:
        """Records in the log that neither group will have read."""
        return 0 if self._forward is None else max(0, self._forward)

    @property
    def replayed(self) -> int:
        """Records in the log that one of the two groups has read, and the target will read again."""
        return 0 if self._forward is None else max(0, -self._forward)

    @property
    def _forward(self) -> int | None:
        """From where the two groups have read to, else from the log start."""
        read = [offset for offset in (self.position, self.former) if offset is not None]
        return how_far(read or [self.log.start], self.new, self.log)


class Guard(NamedTuple):
    """A condition of the migration: its name, whether it holds, and the reason in a sentence."""

    name: str
    holds: bool
    text: str


@dataclass(frozen=True, slots=True)
class Observation:
    """Both ends at one moment.

    Attributes:
        place: see :class:`Place`.
        source: offsets of the source, by partition; those without one are absent.
        target: the same of the target.
        logs: every partition of the topics, with the range of its log.
        identities: by name of topic.
        guards: conditions of both ends.
        warnings: what the operator should know, one sentence each.
        lost: partitions whose offset the source has lost, so that of the target is older, and does not replace it. One
            that a mirror has copied to the target is none of them.
    """

    place: Place
    source: Mapping[TopicPartition, JudgedOffset]
    target: Mapping[TopicPartition, JudgedOffset]
    logs: Mapping[TopicPartition, LogRange]
    identities: Mapping[str, TopicIdentity] = field(default_factory=dict)
    guards: tuple[Guard, ...] = ()
    warnings: tuple[str, ...] = ()
    lost: Collection[TopicPartition] = ()


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What a migration writes.

    Attributes:
        source: where offsets are read.
        target: where they are written.
        place: see :class:`Place`.
        servers: servers of ZooKeeper, and their chroot, for messages.
        created_ms: ms since the epoch.
        missing: see :data:`Missing`.
        retention_ms: how long Kafka keeps the offsets, in ms; None for the brokers' setting.
        partitions: sorted.
        identities: what the identity of each topic is recorded as, by name.
        guards: as they were when the plan was made; they are checked again before the first write.
        warnings: see :class:`Observation`.
    """

    source: End
    target: End
    place: Place
    servers: str
    created_ms: int
    missing: Missing
    retention_ms: int | None
    partitions: tuple[PlannedPartition, ...]
    identities: Mapping[str, str | int]
    guards: tuple[Guard, ...]
    warnings: tuple[str, ...] = ()

    @property
    def refusals(self) -> tuple[str, ...]:
        """The guards that do not hold."""
        return tuple(guard.text for guard in self.guards if not guard.holds)

    @property
    def lasting_refusals(self) -> tuple[str, ...]:
        """Those that follow from the plan itself, so that no later run of it can succeed."""
        return tuple(guard.text for guard in self.guards if not guard.holds and guard.name in _LASTING)

    @property
    def held_group(self) -> str | None:
        """The group in ZooKeeper whose partitions no member may own meanwhile; None if neither end is one."""
        return next((end.group for end in (self.source, self.target) if end.kind == "zookeeper"), None)


def make_plan(
    source: End,
    target: End,
    servers: str,
    seen: Observation,
    *,
    missing: Missing,
    retention_ms: int | None,
    now_ms: int,
    rewind: bool = False,
) -> MigrationPlan:
    """Plan a migration; guards that do not hold are part of the plan.

    ``rewind`` accepts that offsets of the target move back; the other arguments are as in :class:`MigrationPlan`.
    """
    rows = tuple(_planned(seen, partition, missing) for partition in sorted(seen.logs))
    guards = (*seen.guards, *_guards_of(rows, source, target, retention_ms, rewind=rewind))
    return MigrationPlan(
        source=source,
        target=target,
        place=seen.place,
        servers=servers,
        created_ms=now_ms,
        missing=missing,
        retention_ms=retention_ms,
        partitions=rows,
        identities={topic: identity.recorded for topic, identity in seen.identities.items()},
        guards=guards,
        warnings=seen.warnings,
    )


def _planned(seen: Observation, partition: TopicPartition, missing: Missing) -> PlannedPartition:
    log = seen.logs[partition]
    source, before = seen.source.get(partition, NOT_STORED), seen.target.get(partition, NOT_STORED)
    absent = {"fail": None, "earliest": log.start, "latest": log.end}[missing]
    new = choose_new(source, NOT_STORED if partition in seen.lost else before)
    return PlannedPartition(
        partition,
        source.offset,
        before.offset,
        absent if new is None else new,
        log,
        source.written_for is WrittenFor.EARLIER,
        before.written_for is WrittenFor.EARLIER or may_be_copy(source, before),
    )


def choose_new(source: JudgedOffset, before: JudgedOffset) -> int | None:
    """What the target gets: the offset of the source, else it keeps its own; None if ``--missing`` decides.

    One of an earlier topic counts as none, and so does one that :func:`may_be_copy` of such a one.
    """
    if source.position is not None:
        return source.position
    return None if may_be_copy(source, before) else before.position


def _guards_of(
    rows: Sequence[PlannedPartition], source: End, target: End, retention_ms: int | None, *, rewind: bool
) -> Iterable[Guard]:
    new, logs = {row.partition: row.new for row in rows}, {row.partition: row.log for row in rows}
    yield _guard(
        "offsets",
        bool(rows),
        f"{source} has offsets",
        f"{source} has no offsets of topics that exist, so there is nothing to migrate; check the name of the group",
    )
    absent = [row.partition for row in rows if row.new is None]
    outdated = [row.partition for row in rows if row.new is None and row.is_outdated]
    why = f" (those of {name_some(outdated)} were stored for earlier topics of that name)" if outdated else ""
    yield _guard(
        "missing",
        not absent,
        "every partition has an offset to write",
        f"{source} has no offset of {name_some(absent)}{why}; plan with --missing earliest or --missing latest"
        + _in_fleet(target, 'missing = "earliest"` or `"latest"'),
    )
    outside = outside_logs(new, logs)
    yield _guard(
        "log",
        not outside,
        "every offset is in its log",
        f"offsets of {name_some(outside)} are outside their logs; reset them first (`zkconsumer offsets reset`)",
    )
    # where the source has no offset --missing has decided
    known = {row.partition: row.new for row in rows if row.position is not None}
    back = moving_back(known, {row.partition: row.former for row in rows}, logs)
    yield _guard(
        "back",
        rewind or not back,
        f"offsets of {target} may move back" if back else f"no offset of {target} moves back",
        ahead(target, source, back),
    )
    yield _guard(
        "retention",
        retention_ms is None or target.kind == "kafka",
        "retention fits the target",
        f"{target} has no retention; omit --retention",
    )


def ahead(target: End, source: End, partitions: Collection[TopicPartition]) -> str:
    """Why offsets of the target are not taken back."""
    return (
        f"{target} is ahead of {source}: {name_some(partitions)}; consumers have run there, or {source} was reset, and "
        f"records would be read again. Give --rewind to accept that{_in_fleet(target, 'rewind = true')}"
    )


def _in_fleet(target: End, key: str) -> str:
    """What to write in the file of a fleet, which counts for the way to Kafka alone."""
    return f" (in the file of a fleet, `{key}`)" if target.kind == "kafka" else ""


def _guard(name: str, holds: bool, text: str, otherwise: str) -> Guard:
    return Guard(name, holds, text if holds else otherwise)


def planning(source: End, target: End) -> str:
    """The command that plans a migration between two ends; without the servers, which the caller adds."""
    words = ["zkconsumer", "migrate", "plan", "--from", str(source), "--to", str(target)]
    return shlex.join([*words, "--output", f"{source.kind}-to-{target.kind}.plan.json"])


def why_not_migrated(plan: MigrationPlan, run: WriteState | None) -> str | None:
    """Why consumers cannot have continued at the target of a plan, so that nothing may be copied back from there.

    A run that has only begun may have written nothing: 1. the target has offsets of long ago; 2. a run is killed before
    its first request; 3. old consumers continue at the source. To copy from the target would take their offsets back.

    Args:
        plan: to mirror or to reverse.
        run: how far its run has come; None if it has not begun.

    Returns:
        The reason in a sentence; None if a run of the plan is complete.
    """
    new_plan = f"if consumers have continued there, `{planning(plan.target, plan.source)}`"
    if run is not None and run.is_rolled_back:
        return (
            "the plan was rolled back, or a rollback was begun: complete it with `zkconsumer migrate rollback`, or "
            f"migrate again with `zkconsumer migrate run`; {new_plan}"
        )
    if run is WriteState.COMPLETE:
        return None
    if run is None:
        return "the plan was not run, or the file of its runs is missing; there is no way back"
    return (
        f"no run of the plan has ended, so {plan.target} may have offsets of before the migration: complete it with "
        f"`zkconsumer migrate run`, or undo it with `zkconsumer migrate rollback`; {new_plan}"
    )


def plan_of_existing(plan: MigrationPlan, existing: Collection[TopicPartition]) -> MigrationPlan:
    """A plan without the partitions that do not exist any more: brokers delete the offsets of a topic with it."""
    return replace(plan, partitions=tuple(row for row in plan.partitions if row.partition in existing))


def beyond_plan(plan: MigrationPlan, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those partitions that a plan does not have, sorted: of topics that began after it, or that were added since."""
    return sorted(set(partitions).difference(row.partition for row in plan.partitions))


_LASTING: Final = frozenset({"offsets", "missing", "log", "back", "retention", "place", "migrated", "left"})
"""Guards that follow from the plan, or from the migration that it reverses; others are checked again."""
