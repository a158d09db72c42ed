"""``offsets restore``: undo or complete what another command wrote, from its snapshot."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from zkconsumer.config.serveraddresses import server_addresses
from zkconsumer.errors import WriteRefused, ZkConsumerError, name_some
from zkconsumer.group.zookeeper.topicrecords import former_origins
from zkconsumer.model import TopicIdentity, TopicPartition, recreated_topics
from zkconsumer.offsets.rules.storedoffsets import NO_OFFSET, StoredOffset, fresh_metadata
from zkconsumer.offsets.rules.topicorigins import WrittenFor, judge_offsets, that_are
from zkconsumer.operate.offsets.groupinuse import read_mark
from zkconsumer.operate.offsets.groupstores import Cluster, partitions_to_hold
from zkconsumer.operate.offsets.judgedoffsets import judge_stored, known_identities
from zkconsumer.operate.offsets.offsetnodes import OffsetNodes, stored_offset
from zkconsumer.operate.offsets.rules.offsetguards import nearest_in_log, outside_logs
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange, OffsetRow
from zkconsumer.operate.offsets.rules.restoredrecords import TO_BE_CREATED, below_parent
from zkconsumer.operate.offsets.snapshot import (
    GroupChange,
    KafkaChange,
    NodeChange,
    NodeState,
    Snapshot,
    partition_of,
)
from zkconsumer.operate.offsets.writeplan import GroupPlan, Guards, WritePlan
from zkconsumer.operate.offsets.writereport import name_in_kafka
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import OffsetNode, describe_mark
from zkconsumer.zookeeper.session import ZkSession

Outside = Literal["refuse", "clamp", "keep"]
"""What becomes of an offset that its log no longer has: the restore is refused, the nearest offset is written, or the
offset itself, with a warning."""


_IN_KAFKA: Final = "in Kafka"


@dataclass(frozen=True, slots=True)
class _Logs:
    """The logs of the partitions, and the topics that were deleted, or deleted and created again since the snapshot.

    ``outdated``: partitions whose former znode was of an earlier topic; ``rewritten`` if that is what is written.
    """

    ranges: Mapping[TopicPartition, LogRange]
    recreated: frozenset[str] = frozenset()
    identities: Mapping[str, TopicIdentity] = field(default_factory=dict)
    outdated: frozenset[TopicPartition] = frozenset()
    deleted: frozenset[str] = frozenset()
    rewritten: bool = True

    def nearest(self, partition: TopicPartition, offset: int, *, in_zookeeper: bool = False) -> int:
        earlier = self.earlier(partition, in_zookeeper=in_zookeeper)
        return nearest_in_log(partition, offset, self.ranges, earlier)

    def earlier(self, partition: TopicPartition, *, in_zookeeper: bool) -> Collection[str]:
        """The topic, if what was stored of the partition is of an earlier one."""
        is_outdated = in_zookeeper and self.rewritten and partition in self.outdated
        is_earlier = partition.topic in self.recreated or is_outdated
        return (partition.topic,) if is_earlier else ()


@dataclass(frozen=True, slots=True)
class _How:
    complete: bool
    overwrite: bool
    outside: Outside
    commits_again: bool
    recorded: Mapping[str, str | int | None]
    several: bool
    is_migration: bool


def plan_restore(  # noqa: PLR0913 - each has its keyword and its default
    session: ZkSession,
    cluster: Cluster,
    snapshot: Snapshot,
    *,
    complete: bool = False,
    overwrite: bool = False,
    outside: Outside = "refuse",
    live: bool = False,
    forceable: bool = True,
    commits_again: bool = False,
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
        overwrite: also what other clients wrote since; a migration, whose own guards decide, writes that they accept.
        outside: see :data:`Outside`.
        live: see :class:`~zkconsumer.operate.offsets.writeplan.WritePlan`.
        forceable: the command has ``--overwrite`` and ``--force-live``, for messages.
        commits_again: commit also the offsets that Kafka has already, so that their retention begins again.

    Raises:
        WriteRefused: the snapshot is of znodes, and no ZooKeeper is named.
        ZkConsumerError: ZooKeeper or the brokers cannot be asked.
    """
    if session.is_absent and any(change.nodes for change in snapshot.groups):
        raise WriteRefused(["the snapshot has znodes: give --zookeeper"])
    several, is_migration = len(snapshot.groups) > 1, snapshot.plan is not None
    how = _How(complete, overwrite, outside, commits_again, snapshot.identities, several, is_migration)
    changes = snapshot.groups
    if not is_migration:  # since the snapshot ZooKeeper may have gone, or is named now
        changes = tuple(change.holding(None if session.is_absent else change.group) for change in changes)
    plans = [
        _plan_group(session, cluster, change, how, Guards(session, live, forceable))
        for change in (changes if complete else reversed(changes))
    ]
    verb = "complete" if complete else "undo"
    checked = _check_place(plans, snapshot, session)
    return WritePlan(f"{verb} {snapshot.command}", checked, live, forceable)


def _check_place(plans: Sequence[GroupPlan], snapshot: Snapshot, session: ZkSession) -> tuple[GroupPlan, ...]:
    """The plans; the first one is refused, or has a warning, if the snapshot is of another ZooKeeper.

    The addresses of ZooKeeper and those of brokers, of which one made the snapshot and the other one is named now,
    cannot be compared.
    """
    of_brokers = snapshot.plan is None and all(change.held_group is None for change in snapshot.groups)
    if not plans or of_brokers is not session.is_absent:
        return tuple(plans)
    then, now = snapshot.zookeeper, session.address
    (servers, chroot), (servers_now, chroot_now) = server_addresses(then), server_addresses(now)
    refusals, warnings = plans[0].refusals, plans[0].warnings
    if chroot != chroot_now:
        reason = f"the snapshot was made for chroot {chroot or '/'}, not {chroot_now or '/'}; check --zookeeper"
        refusals = (reason, *refusals)
    if set(servers).isdisjoint(servers_now):  # an ensemble has many names, so this is no refusal
        warnings = (f"the snapshot was made at {then}, not {now}; check that both are one ensemble", *warnings)
    return (replace(plans[0], refusals=refusals, warnings=warnings), *plans[1:])


def _plan_group(session: ZkSession, cluster: Cluster, change: GroupChange, how: _How, guards: Guards) -> GroupPlan:
    nodes = session.get_many(node.path for node in change.nodes)
    logs = _logs(session, cluster, change, how, guards)
    change = _with_present_parent(change, nodes)
    unwritten = [node for node in change.nodes if not how.complete and node.is_former(nodes[node.path])]
    kept = {node.path for node in unwritten}
    if not how.complete and (used := _used_parents(session, change)):
        kept |= used
        guards.warnings.append(f"not deleted, since other clients have created znodes below: {name_some(sorted(used))}")
    changes, foreign, rows = _node_changes([one for one in change.nodes if one.path not in kept], nodes, logs, how)
    kafka = _kafka(cluster, change, how, logs, foreign, guards)
    rows += [
        OffsetRow(offset.partition, offset.before, offset.after, logs.ranges.get(offset.partition), _IN_KAFKA)
        for offset in kafka
    ]
    _check_logs(rows, logs, how, guards)
    rows += filter(None, (_row(node.path, nodes[node.path], node.before, logs) for node in unwritten))
    if foreign and not how.overwrite:
        option = "; give --overwrite to write them all the same" if guards.forceable else ""
        guards.refusals.append(f"other clients wrote since the snapshot: {name_some(foreign)}{option}")
    hold: set[TopicPartition] = set()
    still_refused: Callable[[], Sequence[str]] = tuple
    if change.held_group is not None:
        hold = partitions_to_hold(session, cluster, change.held_group, [row.partition for row in rows])
        # That an offset is recent is no warning: it was this tool, or the write is refused above. A migration is
        # refused under its hold, too, although nothing is left to write.
        if changes or kafka or how.is_migration:
            guards.check_group(change.held_group, hold, OffsetNodes({}))
        if changes and not how.is_migration:  # a migration has written the mark itself
            still_refused = guards.warn_of_mark(change.held_group)
            if not how.overwrite:
                _keep_way_back(session, change, changes, guards)
    return GroupPlan(
        replace(change, nodes=tuple(changes), kafka=tuple(kafka)),
        tuple(sorted(rows, key=lambda row: row.partition)),
        frozenset(hold),
        tuple(guards.refusals),
        tuple(guards.warnings),
        still_refused=still_refused,
    )


def _with_present_parent(change: GroupChange, present: Mapping[str, Znode | None]) -> GroupChange:
    """The change with records of topics as they are below the parent that exists, or that is created with them."""
    paths = GroupPaths(change.group)
    parent = next((node for node in change.nodes if node.path == paths.topics), None)
    if parent is None:
        return change
    former = TO_BE_CREATED if parent.before is None else parent.before.mzxid  # nothing sets it, so it was created there
    now = present[paths.topics]
    czxid = TO_BE_CREATED if now is None else now.czxid

    def moved(path: str, state: NodeState | None) -> NodeState | None:
        return None if state is None else state._replace(data=below_parent(path, state.data, former, czxid))

    def is_record(path: str) -> bool:
        return path.startswith(f"{paths.topics}/")

    nodes = (
        NodeChange(path, moved(path, before), moved(path, after))
        if is_record(path)
        else NodeChange(path, before, after)
        for path, before, after in change.nodes
    )
    return replace(change, nodes=tuple(nodes))


def _keep_way_back(session: ZkSession, change: GroupChange, changes: Iterable[NodeChange], guards: Guards) -> None:
    """Refuse to delete offsets that a migration goes back to; offsets that are written are a warning (adr/0037).

    1. `groups clean`, or `rename`, is killed before it deletes the group; 2. the group is migrated; 3. the write is
    completed, as its report names it. A mark that the snapshot has was seen by the command that is undone.
    """
    paths = GroupPaths(change.group)
    deleted = [node.path for node in changes if node.after is None and partition_of(node.path) is not None]
    if not deleted or any(node.path == paths.migrated for node in change.nodes):
        return
    if (mark := read_mark(session, change.group)) is not None:
        option = "; give --overwrite to delete them all the same" if guards.forceable else ""
        guards.refusals.append(
            f"{name_some(deleted)} would be deleted, to which a migration goes back: "
            f"{describe_mark(change.group, mark)}{option}"
        )


def _used_parents(session: ZkSession, change: GroupChange) -> set[str]:
    """Parents that the write created, and below which there is now what it has not written.

    The parent of registrations does not count: while it has a child, the whole deletion of a group is to fail. What a
    killed hold has left does not count either, since the release removes it.
    """
    created = {node.path for node in change.nodes if node.before is None}
    parents = {path for path in created if partition_of(path) is None}
    if not parents:
        return set()
    paths = GroupPaths(change.group)
    held = [paths.ours, paths.owners, *map(paths.owner_topic, session.children(paths.owners) or ())]
    children = session.children_of({*parents, *held}).names
    used: set[str] = set()
    deleted = {*created, *held}
    for path in sorted(children, key=lambda path: path.count("/"), reverse=True):
        if path != paths.ids and any(f"{path}/{name}" not in deleted for name in children[path] or ()):
            used.add(path)
            deleted.remove(path)
    return used & parents


def _node_changes(
    nodes: Iterable[NodeChange], present: Mapping[str, Znode | None], logs: _Logs, how: _How
) -> tuple[list[NodeChange], list[str], list[OffsetRow]]:
    """What is written, the znodes that another client has written, and what that means for offsets."""
    changes: list[NodeChange] = []
    foreign: list[str] = []
    rows: list[OffsetRow] = []
    for node in nodes:
        now, wanted = present[node.path], _wanted(node, logs, how)
        if how.complete and node.before is None and now is not None and partition_of(node.path) is None:
            continue  # a parent that was missing then: whoever has created it
        if not _is_one_of(now, node, wanted):
            foreign.append(node.path)
        new = _new_change(node, now, wanted, again=how.complete)
        if new is not None:
            changes.append(new)
        if row := _row(node.path, now, wanted, logs):
            rows.append(row)
    return changes, foreign, rows


def _logs(session: ZkSession, cluster: Cluster, change: GroupChange, how: _How, guards: Guards) -> _Logs:
    """The log of each partition whose topic still exists."""
    partitions = {offset.partition for offset in change.kafka}
    partitions |= {partition for node in change.nodes if (partition := partition_of(node.path)) is not None}
    topics = {partition.topic for partition in partitions}
    ranges: Mapping[TopicPartition, LogRange] = {}
    recreated: frozenset[str] = frozenset()
    outdated: frozenset[TopicPartition] = frozenset()
    identities: Mapping[str, TopicIdentity] = {}
    deleted: frozenset[str] = frozenset()
    try:
        known = known_identities(cluster.open_reader(session), topics)
        identities = {topic: one for topic, one in known.items() if one is not None}
        recreated = frozenset(recreated_topics(how.recorded, identities))
        outdated = _outdated(session, change, identities)
        existing = cluster.partitions(topics)
        deleted = frozenset(topics - {partition.topic for partition in existing})
        ranges = cluster.log_ranges(partitions & existing)
    except ZkConsumerError as error:
        guards.warnings.append(f"whether offsets are outside their logs is unknown: {error}")
    return _Logs(ranges, recreated, identities, outdated, deleted, rewritten=not how.complete)


def _outdated(
    session: ZkSession, change: GroupChange, identities: Mapping[str, TopicIdentity]
) -> frozenset[TopicPartition]:
    """The partitions whose znode was of an earlier topic before the write that is undone.

    Written again it would be newer than the topic, and count. Records that the write has deleted show it, too.
    """
    former = {path: before for path, before, after in change.nodes if before is not None}
    stored = {
        partition: StoredOffset(stored_offset(path, before), before.mzxid)
        for path, before in former.items()
        if (partition := partition_of(path)) is not None
    }
    deleted = {path: before for path, before, after in change.nodes if before is not None and after is None}
    shown_now = judge_stored(session, change.group, identities, stored)
    shown_then = judge_offsets(former_origins(session, change.group, deleted, identities), stored)
    return frozenset(p for judged in (shown_now, shown_then) for p in that_are(judged, WrittenFor.EARLIER))


def _check_logs(rows: Collection[OffsetRow], logs: _Logs, how: _How, guards: Guards) -> None:
    outside: set[TopicPartition] = set()
    for p, old, new, _, note in rows:  # a partition may have two, in both stores
        earlier = logs.earlier(p, in_zookeeper=note != _IN_KAFKA)
        if new != old or (earlier and not how.complete):  # the write may have changed the mark alone
            outside.update(outside_logs({p: new}, logs.ranges, earlier))
    recreated = sorted(p for p in outside if logs.earlier(p, in_zookeeper=True))
    same = sorted(outside.difference(recreated))
    if how.outside == "keep":
        if removed := sorted(row.partition for row in rows if row.new is None and row.partition in logs.outdated):
            guards.warnings.append(
                f"offsets of {name_some(removed)} are removed: before, they were of earlier topics; consumers begin "
                "there at auto.offset.reset"
            )
        if same:
            guards.warnings.append(f"offsets of {name_some(same)} are outside their logs, as they were before")
        if recreated:
            guards.warnings.append(
                f"offsets of {name_some(recreated)} are those of earlier topics, which were deleted and created again"
            )
        return
    if same:
        guards.refusals.append(
            f"offsets of {name_some(same)} are outside their logs, so consumers would begin there at "
            "auto.offset.reset; give --clamp to write the nearest offsets that the logs have"
        )
    if recreated:
        guards.refusals.append(
            f"offsets of {name_some(recreated)} are those of earlier topics, which were deleted and created again; "
            "give --clamp to write where their logs start"
        )


def _wanted(node: NodeChange, logs: _Logs, how: _How) -> NodeState | None:
    former = node.after if how.complete else node.before
    if how.outside == "clamp":
        return _in_log(node.path, former, logs)
    # It counted as none; written again it would be newer than the topic, and count.
    is_removed = how.outside == "keep" and not how.complete and partition_of(node.path) in logs.outdated
    return None if is_removed else former


def _in_log(path: str, wanted: NodeState | None, logs: _Logs) -> NodeState | None:
    """The state with the nearest offset that the log has."""
    partition, offset = partition_of(path), stored_offset(path, wanted)
    if (
        wanted is None
        or offset is None
        or partition is None
        or (nearest := logs.nearest(partition, offset, in_zookeeper=True)) == offset
    ):
        return wanted
    return wanted._replace(data=OffsetNode.encode(nearest))


def _is_one_of(now: Znode | None, node: NodeChange, wanted: NodeState | None) -> bool:
    """True if the node is as the snapshot has it, before or after the write, or as it is wanted."""
    return any(_holds_same(node.path, now, state) for state in (node.before, node.after, wanted))


def _holds_same(path: str, now: Znode | None, state: NodeState | None) -> bool:
    """True if both are the same offset, however it is written, or else the same data, or no node."""
    if now is None or state is None:
        return now is None and state is None
    offset = None if partition_of(path) is None else stored_offset(path, now)
    return now.data == state.data if offset is None else offset == stored_offset(path, state)


def _new_change(node: NodeChange, now: Znode | None, wanted: NodeState | None, *, again: bool) -> NodeChange | None:
    """None if the node is as it is wanted.

    ``again``: one that the command writes with the data that it has, since that is of an earlier topic, is written.
    """
    if now is None:
        return None if wanted is None else NodeChange(node.path, None, NodeState(wanted.data, access=wanted.access))
    if wanted is not None and wanted.data == now.data and not (again and node.is_former(now)):
        return None
    before = NodeState(now.data, now.version, now.mzxid)
    return NodeChange(node.path, before, None if wanted is None else NodeState(wanted.data))


def _row(path: str, now: Znode | None, wanted: NodeState | None, logs: _Logs) -> OffsetRow | None:
    partition = partition_of(path)
    if partition is None:
        return None
    return OffsetRow(partition, stored_offset(path, now), stored_offset(path, wanted), logs.ranges.get(partition))


def _kafka(
    cluster: Cluster,
    change: GroupChange,
    how: _How,
    logs: _Logs,
    foreign: list[str],
    guards: Guards,
) -> list[KafkaChange]:
    if not change.kafka:
        return []
    committed: Mapping[TopicPartition, StoredOffset] = cluster.committed(
        change.group, [offset.partition for offset in change.kafka]
    )
    changes = []
    for offset in _with_topic(change, how, logs, guards):
        stored = committed.get(offset.partition, NO_OFFSET)
        wanted = offset.after if how.complete else offset.before
        if how.outside == "clamp" and wanted is not None:
            wanted = logs.nearest(offset.partition, wanted)
        by_others = {offset.before, offset.after, wanted}.isdisjoint({stored.offset})
        if by_others and not (stored.offset is None and offset.partition.topic in logs.recreated):  # deleted with it
            foreign.append(name_in_kafka(change.group, offset.partition))
        # An offset of an earlier topic that the command replaces with an equal one, and has not replaced yet.
        is_left = how.complete and offset.is_former(stored)
        if stored.offset != wanted or is_left or (how.commits_again and wanted is not None):
            metadata = offset.metadata if how.commits_again else _fresh(offset, how, logs)
            changes.append(KafkaChange(offset.partition, stored.offset, wanted, metadata, str(stored.mark or "")))
    if any(offset.after is None for offset in changes) and not cluster.can_delete(change.group):
        kept = [offset for offset in changes if offset.after is None]
        guards.warnings += (
            f"Kafka had no offset of {offset.partition}; {offset.before} stays, since brokers before 2.4 delete no "
            "offsets"
            for offset in kept
        )
        changes = [offset for offset in changes if offset.after is not None]
    if changes:
        guards.check_members_in_kafka(cluster, change.group)
    return changes


def _with_topic(change: GroupChange, how: _How, logs: _Logs, guards: Guards) -> Sequence[KafkaChange]:
    """The changes without the offsets that brokers would refuse, since their topics do not exist; with the reason."""
    refused = {
        one
        for one in change.kafka
        if one.partition.topic in logs.deleted and (one.after if how.complete else one.before) is not None
    }
    left = [one for one in change.kafka if one not in refused]
    if refused:
        topics = sorted({one.partition.topic for one in refused})
        reason = f"topic {name_some(topics)} does not exist, so brokers store no offsets of it"
        if left or change.nodes or how.several:
            guards.warnings.append(f"{reason}; what else there is to write is written")
        else:
            guards.refusals.append(reason)
    return left


def _fresh(offset: KafkaChange, how: _How, logs: _Logs) -> str:
    """The metadata of an offset that is written again: of the topic that it was stored for, unless the log gives it."""
    mark = offset.metadata if how.complete else offset.former or offset.metadata
    is_of_log = how.outside == "clamp" and offset.partition.topic in logs.recreated
    topic = logs.identities[offset.partition.topic].recorded if is_of_log else None
    return fresh_metadata(mark, uuid.uuid4().hex, topic)
