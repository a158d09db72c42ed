"""Findings about a group's coordinator: what keeps its members from being commanded, or from obeying."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from zkconsumer.group.coordinator.rules.coordinatorznodes import Status
from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.model import TopicPartition
from zkconsumer.operate.groups.finding import Finding
from zkconsumer.operate.groups.groupcoordinators import GroupCoordinator
from zkconsumer.operate.groups.groupznodes import GroupZnodes
from zkconsumer.operate.groups.observedgroup import may_exist
from zkconsumer.zookeeper.rules.znodes import PartitionOwnerNode


def explain_coordinator(znodes: GroupZnodes) -> Iterator[Finding]:
    """Findings for a group that has members with ``group.protocol=coordinator``; none for other groups.

    Args:
        znodes: the group.
    """
    coordinator = znodes.coordinator
    if coordinator is None or not coordinator.commands:
        return
    verify = shlex.join(["zkconsumer", "groups", "verify", "--group", znodes.group])
    if coordinator.leader is None:
        yield Finding(
            "no-coordinator",
            znodes.group,
            "no member leads the group; partitions of members that end stay without an owner",
            "wait for two session timeouts; if none leads then, look in the logs of its members for what they cannot "
            "write below zkconsumer/coordinator",
        )
        return
    status = coordinator.status
    if status is not None and status.epoch == coordinator.epoch:
        yield from _of_status(znodes, coordinator, status)
    for consumer_id, command in coordinator.commands.items():
        if command is None:
            yield Finding(
                "not-commanded",
                consumer_id,
                f"the coordinator {coordinator.leader} has written no command for this member",
                f"look in the log of {coordinator.leader}",
                verify,
            )
            continue
        if command.refused:
            yield Finding(
                "member-refused",
                consumer_id,
                f"the coordinator lets it own nothing: {command.refused}",
                "remove that cause; the member joins again by itself, or when it is started again",
            )
        missing = sorted(p for p in command.share if may_exist(znodes, p) and p not in znodes.owners)
        if missing:
            yield Finding(
                "command-not-obeyed",
                consumer_id,
                f"it is commanded to own {format_partitions(missing)}, which have no owner",
                "look in its log for failed attempts to rebalance",
                verify,
            )


def _of_status(znodes: GroupZnodes, coordinator: GroupCoordinator, status: Status) -> Iterator[Finding]:
    if status.refused:
        yield Finding(
            "coordinator-refuses",
            str(coordinator.leader),
            f"it commands no member: {status.refused}",
            "remove that cause; the coordinator continues by itself",
        )
    slow: dict[str, list[TopicPartition]] = {}
    for partition in status.awaited:
        owner = znodes.owners.get(partition)
        if owner is not None:
            slow.setdefault(PartitionOwnerNode.consumer_of(owner) or owner, []).append(partition)
    for member, partitions in sorted(slow.items()):
        yield Finding(
            "slow-release",
            member,
            f"it has to release {format_partitions(partitions)}, and still owns them",
            "check whether its rebalance listener or before_commit hangs; an owner that does not hang needs a moment. "
            "coordinator.evict.slow.ms lets the coordinator take the partitions of one that hangs",
        )
