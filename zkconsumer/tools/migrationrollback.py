"""Plans to undo what ``migrate run`` wrote, from the plan, its journal and its snapshot."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from zkconsumer.core.migrationback import decide_rollback
from zkconsumer.core.migrationplan import MigrationPlan
from zkconsumer.core.znodes import OffsetNode, offset_partition
from zkconsumer.errors import MalformedZnode, WriteRefused, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.tools.migrationends import MigrationEnds
from zkconsumer.tools.migrationjournal import beside, open_journal
from zkconsumer.tools.offsetplan import WritePlan
from zkconsumer.tools.offsetrestore import plan_restore
from zkconsumer.tools.offsetstores import Cluster
from zkconsumer.tools.offsetwrites import WriteReport, execute
from zkconsumer.tools.snapshot import GroupChange, NodeState, Snapshot, read_snapshot
from zkconsumer.zookeeper.session import ZkSession


def plan_rollback(ends: MigrationEnds, plan: MigrationPlan, plan_file: Path) -> WritePlan:
    """Plan to write the offsets back that the target had before a migration. Nothing is written.

    A rollback that was killed is resumed by another one: each partition has its former offset, or the migrated one.

    Args:
        ends: of the plan.
        plan: that was run.
        plan_file: journal and snapshot are beside it.

    Raises:
        WriteRefused: a guard refuses, for example because consumers have continued at the target.
        ZkConsumerError: a store cannot be read, or the snapshot is not of this plan.
        OSError: the journal cannot be read.
    """
    if plan.target.kind == "spark-options":
        raise WriteRefused(f"{plan.target} is a file, whose former content is not kept; delete it, or plan again")
    journal = open_journal(plan, plan_file)
    partitions = [row.partition for row in plan.partitions]
    if plan.source.kind in ("zookeeper", "kafka"):
        source = ends.offsets_of_source(partitions)
    else:  # nothing writes there, and it may be on other servers
        source = {row.partition: row.source for row in plan.partitions if row.source is not None}
    decision = decide_rollback(
        plan,
        ends.place(),
        ends.offsets_of_target(partitions, others=True),
        source,
        ends.guards_of_target(partitions),
        journal.state,
    )
    if decision.refusals:
        raise WriteRefused(decision.refusals)
    snapshot = _snapshot(plan, plan_file, journal.state.snapshot)
    # A snapshot without a word about it, of an earlier version, would hold a group of the target's name in ZooKeeper.
    (change,) = snapshot.groups
    snapshot = replace(snapshot, groups=(change.holding(plan.held_group),))
    undo = plan_restore(ends.session, ends.cluster, snapshot, outside="keep", forceable=False)
    return replace(undo, command=f"rollback of {snapshot.command}")


def roll_back(
    plan: MigrationPlan,
    plan_file: Path,
    session: ZkSession,
    cluster: Cluster,
    undo: WritePlan,
    snapshot: Path,
    **options: Any,
) -> WriteReport:
    """Execute the plan of a rollback, as :func:`~zkconsumer.tools.offsetwrites.execute` does and raises.

    The journal beside ``plan_file`` gets that it begins, and its outcome: after a rollback that was refused under the
    hold the migration still stands, and with it the other ways back.
    """
    journal = open_journal(plan, plan_file)
    journal.append("rollback", at_ms=int(time.time() * 1000))
    try:
        report = execute(session, cluster, undo, snapshot, **options)
    except ZkConsumerError:  # nothing was written
        journal.append("rollback-outcome", written=0)
        raise
    journal.append("rollback-outcome", written=len(report.written) + len(report.unknown))
    return report


def _snapshot(plan: MigrationPlan, plan_file: Path, noted: str | None) -> Snapshot:
    """The snapshot of the plan: the file beside it, or where the journal has it."""
    paths = [beside(plan_file, "snapshot.json"), *([] if noted is None else [Path(noted)])]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise ZkConsumerError(
            f"{paths[0]} is missing, and with it what the target was before; put it back, or write the column "
            "TARGET-BEFORE of the plan with `zkconsumer offsets import`"
        )
    snapshot = read_snapshot(path)
    planned = {row.partition: (row.before, row.new) for row in plan.partitions if row.before != row.new}
    if [group.group for group in snapshot.groups] != [plan.target.group] or _changed(snapshot.groups[0]) != planned:
        raise ZkConsumerError(f"{path} is not the snapshot of this plan; put back the one that its run wrote")
    return snapshot


def _changed(change: GroupChange) -> dict[TopicPartition, tuple[int | None, int | None]]:
    """The offsets that a snapshot changes, before and after."""
    found = {one.partition: (one.before, one.after) for one in change.kafka}
    for node in change.nodes:
        if (parts := offset_partition(node.path)) is not None:
            found[TopicPartition(parts[1], int(parts[2]))] = (_offset(node.before), _offset(node.after))
    return {partition: pair for partition, pair in found.items() if pair[0] != pair[1]}


def _offset(state: NodeState | None) -> int | None:
    try:
        return None if state is None else OffsetNode.decode("", state.data)
    except MalformedZnode:
        return None
