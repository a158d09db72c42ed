"""``groups delete``, ``groups rename`` and ``groups clean``: remove the znodes of groups."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from zkconsumer.errors import WriteRefused, ZkConsumerError, ZooKeeperRefused, name_some
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.offsets.rules.topicorigins import WrittenFor, describe_before, that_are
from zkconsumer.operate.groups.grouplist import matching_groups
from zkconsumer.operate.groups.groupznodes import existing_groups, is_in_zookeeper
from zkconsumer.operate.groups.rules.zxidtimes import moment_of
from zkconsumer.operate.offsets.groupinuse import groups_with_members, marked_since, read_mark
from zkconsumer.operate.offsets.groupstores import Cluster, Store, partitions_to_hold
from zkconsumer.operate.offsets.judgedoffsets import judge_stored, topic_identities
from zkconsumer.operate.offsets.offsetnodes import OffsetNodes, offset_nodes
from zkconsumer.operate.offsets.rules.offsetmoves import OffsetRow
from zkconsumer.operate.offsets.snapshot import GroupChange, KafkaChange, NodeChange, NodeState
from zkconsumer.operate.offsets.writeplan import (
    GroupPlan,
    Guards,
    WritePlan,
    WriteTarget,
    plan_offsets,
)
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths, offset_partition
from zkconsumer.zookeeper.rules.znodes import BROKERS
from zkconsumer.zookeeper.session import ZkSession


def plan_delete(
    session: ZkSession,
    cluster: Cluster,
    groups: Sequence[str],
    topic: str | None,
    *,
    store: Store | None = None,
    live: bool = False,
    forceable: bool = True,
) -> WritePlan:
    """Plan to delete groups, or what groups store of one topic.

    A group's last topic goes with the group, as in the JVM tool, which however ignores topics of which the group has
    offsets and never owned a partition. Offsets in Kafka are deleted with ``store`` kafka or both; nothing is ever
    committed. Brokers before 0.10.2 do not list a group's offsets, so theirs are only found of topics of which
    ZooKeeper has something, too.

    Args:
        session: an open session.
        cluster: to see whether Kafka stores offsets of the group, too.
        groups: names; none stands for all groups that have offsets of ``topic``.
        topic: only what is stored of this topic; None for whole groups.
        store: what is deleted; ``zookeeper`` accepts that Kafka keeps offsets. None refuses if there are any.
        live: see :class:`~zkconsumer.operate.offsets.writeplan.WritePlan`.
        forceable: see there.

    Raises:
        WriteRefused: a group does not exist, or has nothing of the topic.
        ZkConsumerError: ZooKeeper cannot be read.
    """
    names = list(dict.fromkeys(groups)) or _groups_of(session, cluster, topic, store)
    plans = []
    for group in names:
        _require_group(session, group)
        guards = Guards(session, live, forceable)
        known = partitions_to_hold(session, cluster, group)
        stored = _offsets_in_kafka(guards, cluster, group, known, topic, store)
        if not stored.keys() <= known:
            known = partitions_to_hold(session, cluster, group, stored)
        plans.append(_plan_deletion(session, guards, group, topic, known, stored, store))
    subject = " ".join(names if topic is None else [*names, "topic", topic])
    return WritePlan(f"delete {subject}", tuple(plans), live, forceable)


def _require_group(session: ZkSession, group: str) -> None:
    _, missing = existing_groups(session, [group])
    if missing:
        raise WriteRefused(str(missing[group]))


def _groups_of(session: ZkSession, cluster: Cluster, topic: str | None, store: Store | None) -> list[str]:
    """Groups that store something of the topic, also in Kafka if that is written; those with members keep it."""
    if topic is None:
        raise WriteRefused("specify a group or a topic")
    groups = GroupReader(session).groups()
    nodes = session.get_many(
        path
        for group in groups
        for path in (GroupPaths(group).offset_topic(topic), GroupPaths(group).owner_topic(topic))
    )
    have = [
        group
        for group in groups
        if nodes[GroupPaths(group).offset_topic(topic)] or nodes[GroupPaths(group).owner_topic(topic)]
    ]
    if store in ("kafka", "both"):
        partitions = cluster.partitions([topic])
        have += [group for group in groups if group not in have and cluster.committed(group, partitions)]
    active = groups_with_members(session, have)
    inactive = [group for group in have if group not in active]
    if not inactive:
        raise WriteRefused(f"no group without members stores anything of topic {topic}")
    return inactive


def _offsets_in_kafka(
    guards: Guards,
    cluster: Cluster,
    group: str,
    partitions: Collection[TopicPartition],
    topic: str | None,
    store: Store | None,
) -> Mapping[TopicPartition, StoredOffset]:
    """The group's offsets in Kafka, of all topics; a guard refuses where those of ``topic`` would stay."""
    if store == "zookeeper":
        return {}
    hint = "give --store zookeeper to delete what ZooKeeper stores. `groups delete --store both` deletes both"
    try:
        stored = cluster.committed_known(group, partitions)
    except ZkConsumerError as error:
        if store is not None:
            raise
        guards.refusals.append(f"whether Kafka stores offsets of group {group} is unknown: {error}; {hint}")
        return {}
    if any(topic in (None, partition.topic) for partition in stored):
        if store is None:  # a group whose offsets Kafka keeps still exists after its znodes were deleted
            guards.refusals.append(f"Kafka stores offsets of group {group}, which stay; {hint}")
        else:
            guards.require_deletion(cluster, group)
            guards.check_members_in_kafka(cluster, group)
    return stored


def _plan_deletion(
    session: ZkSession,
    guards: Guards,
    group: str,
    topic: str | None,
    known: Collection[TopicPartition],
    stored: Mapping[TopicPartition, StoredOffset] = MappingProxyType({}),
    store: Store | None = "zookeeper",
) -> GroupPlan:
    """The deletion of a group, or of what it stores of a topic.

    ``known`` is every partition of the group's topics, ``stored`` its offsets in Kafka, of all topics.
    """
    mark = read_mark(session, group)
    roots = _roots(session, group, topic, {partition.topic for partition in stored})
    nodes = offset_nodes(session, group)
    hold = frozenset(partition for partition in known if topic in (None, partition.topic))
    guards.check_group(group, hold, nodes)
    if store == "kafka":
        guards.warn_of_mark(group)
    elif GroupPaths(group).root in roots and mark is not None:
        guards.warnings.append(
            f"the mark of the migration of group {group} is deleted, too: an old consumer that is started joins it and "
            "begins at auto.offset.reset"
        )
    rows: list[OffsetRow] = []
    changes: tuple[NodeChange, ...] = ()
    kafka: tuple[KafkaChange, ...] = ()
    if store in ("kafka", "both"):
        gone = {p: offset for p, offset in sorted(stored.items()) if topic in (None, p.topic)}
        kafka = tuple(KafkaChange(p, offset.offset, None, str(offset.mark or "")) for p, offset in gone.items())
        rows += [OffsetRow(p, offset.offset, None, note="in Kafka") for p, offset in gone.items()]
    if store != "kafka":
        changes = deletions(session, roots)
        rows += [OffsetRow(p, nodes.offset(p), None) for p in nodes.nodes if topic in (None, p.topic)]
    by_partition = tuple(sorted(rows, key=lambda row: row.partition))
    return GroupPlan(
        GroupChange(group, changes, kafka),
        by_partition,
        hold,
        tuple(guards.refusals),
        tuple(guards.warnings),
        still_refused=partial(marked_since, session, group, mark),
    )


def _roots(session: ZkSession, group: str, topic: str | None, in_kafka: Collection[str]) -> list[str]:
    """The znodes to delete with all below them; ``in_kafka`` are topics of which Kafka stores offsets of the group."""
    paths = GroupPaths(group)
    if topic is None:
        return [paths.root]
    topics = {*(session.children(paths.offsets) or ()), *(session.children(paths.owners) or ()), *in_kafka}
    if topic not in topics:
        raise WriteRefused(f"group {group} stores nothing of topic {topic}; check both names")
    return [paths.root] if topics == {topic} else [paths.offset_topic(topic), paths.owner_topic(topic)]


def deletions(session: ZkSession, roots: Iterable[str]) -> tuple[NodeChange, ...]:
    """Deletions of nodes with all that is persistent below them, and their access, so that they can be restored."""
    nodes = _subtree(session, roots)
    access = session.access(nodes)
    return tuple(
        NodeChange(path, NodeState(node.data, node.version, node.mzxid, access.get(path)), None)
        for path, node in sorted(nodes.items())
        if not node.owner_session
    )


def _subtree(session: ZkSession, roots: Iterable[str]) -> dict[str, Znode]:
    nodes: dict[str, Znode] = {}
    level = list(roots)
    while level:
        reads = session.get_many(level)
        nodes |= {path: node for path, node in reads.items() if node is not None}
        # Offset znodes are leaves, and nearly all of the nodes; should one have children, its deletion is refused.
        parents = [path for path in level if reads[path] is not None and offset_partition(path) is None]
        children = session.children_of(parents).existing()
        level = [f"{path}/{name}" for path, names in children.items() for name in names]
    return nodes


def plan_rename(
    session: ZkSession,
    cluster: Cluster,
    source: str,
    destination: str,
    *,
    store: Store | None = None,
) -> WritePlan:
    """Plan to give the offsets of a group to a group of another name, and to delete the first.

    The new group is written first; a failure between the two leaves both.

    Args:
        session: an open session.
        cluster: to see whether Kafka stores offsets of the group, too.
        source: group without members.
        destination: name of a group that does not exist.
        store: ``zookeeper`` accepts that Kafka keeps offsets under the old name.

    Raises:
        WriteRefused: the source does not exist, was migrated or has no offsets, or the destination exists.
        ZkConsumerError: ZooKeeper cannot be read.
    """
    _require_group(session, source)
    if is_in_zookeeper(session, destination):
        raise WriteRefused(f"group {destination} exists; delete it first, or copy offsets with `offsets copy`")
    if read_mark(session, source) is not None:
        raise WriteRefused(
            f"group {source} was migrated, or is being: under another name its consumers would read again what is read "
            f"elsewhere; roll it back first, or see `zkconsumer groups explain --group {source}`"
        )
    deletion = plan_delete(session, cluster, [source], None, store=store, forceable=False).groups[0]
    nodes = offset_nodes(session, source)
    if nodes.problems:
        raise WriteRefused(f"group {source} cannot be renamed: {'; '.join(nodes.problems)}")
    rows = {p: OffsetRow(p, None, offset) for p, offset in nodes.offsets().items()}
    if not rows:
        raise WriteRefused(f"group {source} has no offsets in ZooKeeper, so nothing of it would get the new name")
    identities = topic_identities(session, cluster, {partition.topic for partition in rows})
    judged = judge_stored(session, source, identities, nodes.stored())
    if outdated := that_are(judged, WrittenFor.EARLIER):
        raise WriteRefused(
            f"group {source} cannot be renamed: offsets of {name_some(outdated)} were stored for earlier "
            "topics of that name, which the new offsets would not show; reset them first (`zkconsumer offsets reset`)"
        )
    target = WriteTarget(destination, rows, OffsetNodes({}), {}, frozenset({"zookeeper"}))
    guards = Guards(session, forceable=False, warnings=[*describe_before(that_are(judged, WrittenFor.BEFORE))])
    made = plan_offsets(session, cluster, guards, target)
    change = GroupChange(destination, _with_access_of(made.change.nodes, source, destination, deletion))
    still_refused = partial(marked_since, session, source, None)
    creation = replace(made, change=change, still_refused=still_refused)
    deletion = replace(deletion, still_refused=still_refused)
    return WritePlan(f"rename {source} to {destination}", (creation, deletion), forceable=False)


def _with_access_of(
    nodes: Iterable[NodeChange], source: str, destination: str, deletion: GroupPlan
) -> tuple[NodeChange, ...]:
    """The new nodes get the access of those that they replace."""
    old, new = GroupPaths(source).root, GroupPaths(destination).root
    access = {node.path: node.before.access for node in deletion.change.nodes if node.before is not None}
    return tuple(
        NodeChange(node.path, None, NodeState(node.after.data, access=access.get(old + node.path.removeprefix(new))))
        for node in nodes
        if node.after is not None
    )


def plan_clean(
    session: ZkSession,
    older_than_ms: int,
    match: str | None = None,
    *,
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
) -> WritePlan:
    """Plan to delete groups without members in which nothing was written, and no member came or went, for a time.

    Members leave no time behind. A group is kept, with a warning, if other writes do not show that its last member left
    before that time.

    Args:
        session: an open session.
        older_than_ms: age in ms of the newest write to any znode of the group.
        match: regex of their names, see :func:`~zkconsumer.operate.groups.grouplist.matching`.
        now_ms: current time in ms since the epoch.

    Raises:
        ZkConsumerError: ``match`` is not a regex, or ZooKeeper cannot be read.
    """
    try:
        groups = matching_groups(session, match)
    except re.error as error:
        raise ZkConsumerError(f"--match {match!r} is not a regex: {error}") from None
    active = groups_with_members(session, groups)
    limit = now_ms() - older_than_ms
    plans, trees = [], {}
    for group in groups:
        if group not in active:
            try:
                trees[group] = _subtree(session, [GroupPaths(group).root])
            except ZooKeeperRefused as reason:
                plans.append(_kept(group, str(reason)))
    for group, rests in _at_rest(session, trees, limit).items():
        if rests is None:
            plans.append(_kept(group, _WHY_UNKNOWN))
        elif rests and GroupPaths(group).migrated in trees[group]:
            plans.append(_kept(group, _MIGRATED.format(shlex.quote(group))))
        elif rests:
            try:
                known = partitions_to_hold(session, None, group)
                deletion = _plan_deletion(session, Guards(session, forceable=False), group, None, known)
                registrations = trees[group].get(GroupPaths(group).ids)
                still_refused = partial(_used_since, session, group, registrations)
                plans.append(replace(deletion, still_refused=still_refused))
            except ZooKeeperRefused as reason:
                plans.append(_kept(group, str(reason)))
    return WritePlan(f"clean {match or ''}".strip(), tuple(plans), forceable=False)


def _used_since(session: ZkSession, group: str, registrations: Znode | None) -> list[str]:
    """Why a group is not cleaned under its hold: a migration has marked it since, or members came and went.

    1. A group is at rest; 2. a member registers, and ends without a commit, which changes no offset; 3. the group is
    held. ``registrations`` is the parent of the registrations at step 1, whose pzxid shows step 2.
    """
    now = session.get(GroupPaths(group).ids)
    if now is None or (registrations is not None and now.pzxid == registrations.pzxid):
        return marked_since(session, group, None)
    return [f"members of group {group} came or went meanwhile, so it is not at rest; run the command again"]


_WHY_UNKNOWN: Final = (
    "nothing was written for so long, but whether members came or went meanwhile is unknown; check it, and delete it "
    "with `zkconsumer groups delete`"
)


_MIGRATED: Final = (
    "it has the mark of a migration, which keeps old consumers from reading everything again; delete it with "
    "`zkconsumer groups delete --group {} --store zookeeper`"
)


def _kept(group: str, why: str) -> GroupPlan:
    return GroupPlan(GroupChange(group, ()), (), warnings=(f"group {group} is kept: {why}",))


def _at_rest(session: ZkSession, trees: Mapping[str, Mapping[str, Znode]], limit_ms: int) -> dict[str, bool | None]:
    """Whether a group was last changed before the limit, by group; None if that is unknown.

    Registrations are ephemeral, and writing or deleting one changes no node's time of modification.
    """
    changed = {
        group: max(node.pzxid for node in tree.values())
        for group, tree in trees.items()
        if tree and max(node.modified_ms for node in tree.values()) < limit_ms
    }
    writes = [(node.mzxid, node.modified_ms) for tree in trees.values() for node in tree.values()]
    limit = moment_of(limit_ms, writes)
    if None in map(limit.is_after, changed.values()):
        limit = moment_of(limit_ms, writes + _writes_of_brokers(session))
    return {group: limit.is_after(zxid) for group, zxid in changed.items()}


def _writes_of_brokers(session: ZkSession) -> list[tuple[int, int]]:
    """Transactions and their times: brokers write now and then, such as the state of partitions."""
    try:
        return [(node.mzxid, node.modified_ms) for node in _subtree(session, [BROKERS]).values()]
    except ZooKeeperRefused:
        return []
