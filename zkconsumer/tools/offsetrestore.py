"""``offsets restore``: undo or complete what another command wrote, from its snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from zkconsumer.core.offsetreset import OffsetRow
from zkconsumer.core.offsets import StoredOffset
from zkconsumer.core.znodes import OffsetNode, offset_partition
from zkconsumer.errors import MalformedZnode, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.tools.offsetplan import GroupPlan, Guards, WritePlan
from zkconsumer.tools.offsetstores import Cluster, OffsetNodes, partitions_to_hold
from zkconsumer.tools.snapshot import GroupChange, KafkaChange, NodeChange, NodeState, Snapshot
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.session import ZkSession


def plan_restore(
    session: ZkSession,
    cluster: Cluster,
    snapshot: Snapshot,
    *,
    complete: bool = False,
    overwrite: bool = False,
    live: bool = False,
    forceable: bool = True,
) -> WritePlan:
    """Plan to write what was there before, or what should have been written.

    A znode that is neither as before nor as it should have been was written by another client since, such as a member
    that continued: that is refused. So is another chroot than that of the command, whose group is elsewhere. Groups are
    undone in the reverse order: a renamed group exists again before the one of the new name is deleted.

    Args:
        session: an open session.
        cluster: for offsets in Kafka.
        snapshot: of the command to undo or to complete.
        complete: write what is missing, instead of undoing what was done.
        overwrite: also what other clients wrote since.
        live: see :class:`~zkconsumer.tools.offsetplan.WritePlan`.
        forceable: the command has ``--overwrite`` and ``--force-live``, for messages.

    Raises:
        ZkConsumerError: ZooKeeper or the brokers cannot be asked.
    """
    plans = [
        _plan_group(session, cluster, one, complete, overwrite, Guards(session, live, forceable))
        for one in (snapshot.groups if complete else reversed(snapshot.groups))
    ]
    verb = "complete" if complete else "undo"
    checked = _check_place(plans, snapshot.zookeeper, session.address)
    return WritePlan(f"{verb} {snapshot.command}", checked, live, forceable)


def _check_place(plans: Sequence[GroupPlan], then: str, now: str) -> tuple[GroupPlan, ...]:
    """The plans; the first one is refused, or has a warning, if the snapshot is of another ZooKeeper."""
    if not plans:
        return ()
    (servers, chroot), (servers_now, chroot_now) = _place(then), _place(now)
    refusals, warnings = plans[0].refusals, plans[0].warnings
    if chroot != chroot_now:
        reason = f"the snapshot was made for chroot {chroot or '/'}, not {chroot_now or '/'}; check --zookeeper"
        refusals = (reason, *refusals)
    if not servers & servers_now:  # an ensemble has many names, so this is no refusal
        warnings = (f"the snapshot was made at {then}, not {now}; check that both are one ensemble", *warnings)
    return (replace(plans[0], refusals=refusals, warnings=warnings), *plans[1:])


def _place(address: str) -> tuple[set[str], str]:
    """Servers and chroot of an address as ``zookeeper.connect`` has it."""
    servers, slash, chroot = address.partition("/")
    return {server.strip() for server in servers.split(",")}, (slash + chroot).rstrip("/")


def _plan_group(
    session: ZkSession, cluster: Cluster, change: GroupChange, complete: bool, overwrite: bool, guards: Guards
) -> GroupPlan:
    found = session.get_many(node.path for node in change.nodes)
    changes, foreign, rows = [], [], []
    for node in change.nodes:
        now, wanted = found[node.path], node.after if complete else node.before
        if not _is_one_of(now, node):
            foreign.append(node.path)
        new = _new_change(node.path, now, wanted)
        if new is not None:
            changes.append(new)
        if row := _row(node.path, now, wanted):
            rows.append(row)
    kafka = _kafka(cluster, change, complete, foreign, guards)
    rows += [OffsetRow(one.partition, one.before, one.after, note="in Kafka") for one in kafka]
    if foreign and not overwrite:
        option = "; give --overwrite to write them all the same" if guards.forceable else ""
        guards.refusals.append(f"other clients wrote since the snapshot: {name_some(foreign)}{option}")
    hold: set[TopicPartition] = set()
    if change.held_group is not None:
        hold = partitions_to_hold(session, cluster.config, change.held_group, [row.partition for row in rows])
        # That an offset was written recently is no warning here: it was this tool, or the write is refused above.
        guards.check_group(change.held_group, hold, OffsetNodes({}))
    return GroupPlan(
        replace(change, nodes=tuple(changes), kafka=tuple(kafka)),
        tuple(sorted(rows, key=lambda row: row.partition)),
        frozenset(hold),
        tuple(guards.refusals),
        tuple(guards.warnings),
    )


def _is_one_of(now: Znode | None, node: NodeChange) -> bool:
    """True if the node is as the snapshot has it, before or after the write."""
    data = None if now is None else (now.data,)
    return data in (
        None if node.before is None else (node.before.data,),
        None if node.after is None else (node.after.data,),
    )


def _new_change(path: str, now: Znode | None, wanted: NodeState | None) -> NodeChange | None:
    """None if the node is as it is wanted."""
    if now is None:
        return None if wanted is None else NodeChange(path, None, NodeState(wanted.data, access=wanted.access))
    if wanted is not None and wanted.data == now.data:
        return None
    before = NodeState(now.data, now.version, now.mzxid)
    return NodeChange(path, before, None if wanted is None else NodeState(wanted.data))


def _row(path: str, now: Znode | None, wanted: NodeState | None) -> OffsetRow | None:
    parts = offset_partition(path)
    if parts is None or not parts[2].isdigit():
        return None
    return OffsetRow(TopicPartition(parts[1], int(parts[2])), _offset(path, now), _offset(path, wanted))


def _offset(path: str, node: Znode | NodeState | None) -> int | None:
    try:
        return None if node is None else OffsetNode.decode(path, node.data)
    except MalformedZnode:
        return None


def _kafka(
    cluster: Cluster, change: GroupChange, complete: bool, foreign: list[str], guards: Guards
) -> list[KafkaChange]:
    if not change.kafka:
        return []
    found: Mapping[TopicPartition, StoredOffset] = cluster.committed(
        change.group, [one.partition for one in change.kafka]
    )
    changes = []
    for one in change.kafka:
        stored = found.get(one.partition, StoredOffset(None))
        wanted = one.after if complete else one.before
        if stored.offset not in (one.before, one.after):
            foreign.append(f"{one.partition} in Kafka")
        if stored.offset != wanted:
            changes.append(KafkaChange(one.partition, stored.offset, wanted, one.metadata))
    if any(one.after is None for one in changes) and not cluster.can_delete(change.group):
        kept = [one for one in changes if one.after is None]
        guards.warnings += (
            f"Kafka had no offset of {one.partition}; {one.before} stays, since brokers before 2.4 delete no offsets"
            for one in kept
        )
        changes = [one for one in changes if one.after is not None]
    return changes
