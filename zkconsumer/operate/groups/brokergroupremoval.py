"""``groups delete`` of groups that brokers coordinate: their offsets, with a snapshot, and then the groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zkconsumer.errors import WriteRefused, ZkConsumerError
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.offsetwrites import execute
from zkconsumer.operate.offsets.rules.offsetmoves import OffsetRow
from zkconsumer.operate.offsets.snapshot import GroupChange, KafkaChange
from zkconsumer.operate.offsets.writeplan import GroupPlan, Guards, WritePlan
from zkconsumer.operate.offsets.writereport import WriteReport
from zkconsumer.wire.rules.describedgroup import exists_at_brokers
from zkconsumer.zookeeper.session import ZkSession


def plan_delete_at_brokers(session: ZkSession, cluster: Cluster, groups: Sequence[str], topic: str | None) -> WritePlan:
    """Plan to delete groups that brokers coordinate, or their offsets of one topic.

    Args:
        session: of no ZooKeeper; see :class:`~zkconsumer.zookeeper.absentzookeeper.AbsentZooKeeper`.
        cluster: the brokers.
        groups: names.
        topic: only offsets of this topic; None for whole groups.

    Raises:
        WriteRefused: a group does not exist, or has no offsets of the topic.
        ZkConsumerError: the brokers cannot be asked.
    """
    names = list(dict.fromkeys(groups))
    plans = tuple(_plan_group(session, cluster, group, topic) for group in names)
    subject = " ".join(names if topic is None else [*names, "topic", topic])
    return WritePlan(f"delete {subject}", plans, live=False, forceable=False)


def _plan_group(session: ZkSession, cluster: Cluster, group: str, topic: str | None) -> GroupPlan:
    stored = cluster.committed_known(group, ())
    if not exists_at_brokers(cluster.describe(group).state, stored):
        raise WriteRefused(f"group {group} does not exist at the brokers; check its name (`zkconsumer groups list`)")
    gone = {p: offset for p, offset in sorted(stored.items()) if topic in (None, p.topic)}
    if topic is not None and not gone:
        raise WriteRefused(f"group {group} stores nothing of topic {topic}; check both names")
    guards = Guards(session, live=False, forceable=False)
    guards.check_members_in_kafka(cluster, group)
    if not cluster.can_delete(group):
        guards.refusals.append(
            f"the coordinator of group {group} cannot delete single offsets, which brokers since 2.4 can (KIP-496), so "
            "there would be no way back; use `kafka-consumer-groups --delete --group`, which brokers since 1.1 know"
        )
    changes = tuple(KafkaChange(p, one.offset, None, str(one.mark or "")) for p, one in gone.items())
    return GroupPlan(
        GroupChange(group, (), changes).holding(None),
        tuple(OffsetRow(p, one.offset, None, note="in Kafka") for p, one in gone.items()),
        refusals=tuple(guards.refusals),
        warnings=tuple(guards.warnings),
    )


def delete_at_brokers(
    session: ZkSession, cluster: Cluster, plan: WritePlan, *others: Any, whole: bool, **options: Any
) -> WriteReport:
    """Delete the offsets, as :func:`~zkconsumer.operate.offsets.offsetwrites.execute` does; then ``whole`` groups.

    A coordinator keeps a group without offsets and members for some minutes.
    """
    report = execute(session, cluster, plan, *others, **options)
    if not (whole and report.is_complete):
        return report
    for group in plan.groups:
        name = group.change.group
        try:
            cluster.delete_group(name)
        except ZkConsumerError as error:
            report.faults.append(f"the offsets of group {name} are deleted, and the group may not be: {error}")
            report.unknown.append(f"group {name}")
        else:
            report.warnings.append(f"group {name} is deleted")
    return report
