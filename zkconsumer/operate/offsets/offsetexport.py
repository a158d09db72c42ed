"""``offsets export``: the offsets of groups, to be written to a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import GroupMissing, ZkConsumerError, ZooKeeperRefused
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.operate.groups.brokergroups import BrokerGroups
from zkconsumer.operate.groups.observedgroup import unread_groups
from zkconsumer.operate.offsets.offsetfiles import GroupOffset
from zkconsumer.operate.offsets.offsetnodes import offset_nodes
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.session import ZkSession


@dataclass(frozen=True, slots=True)
class Export:
    """Offsets of groups.

    Attributes:
        offsets: by group, topic and partition.
        problems: groups and znodes that hold no offset, or may not be read, and are not in the export, one sentence
            each.
    """

    offsets: tuple[GroupOffset, ...]
    problems: tuple[str, ...]


def export_broker_offsets(config: ConsumerConfig, groups: Sequence[str]) -> Export:
    """Read the offsets that groups have committed to Kafka, without any ZooKeeper; it writes nothing.

    Args:
        config: how brokers are reached.
        groups: names of groups; none stands for all.

    Raises:
        ZkConsumerError: none of ``groups`` exists and can be read, or no broker answers.
    """
    with BrokerGroups(config) as brokers:
        found, failures = brokers.read(sorted(set(groups)) or brokers.names())
        unlisted = brokers.unlisted
    unread = unread_groups(found, failures, groups)
    rows = [
        GroupOffset(name, partition, stored.offset)
        for name, group in found.items()
        for partition, stored in sorted(group.offsets.items())
        if stored.offset is not None
    ]
    problems = (problem for group in found.values() for problem in group.problems)
    return Export(tuple(rows), (*unlisted, *unread, *problems))


def export_offsets(
    session: ZkSession, groups: Sequence[str], *, advance: Callable[[int, int], None] = lambda _done, _total: None
) -> Export:
    """Read the offsets that ZooKeeper stores; it writes nothing.

    A group without offsets has no rows; ExportZkOffsets ends at such a group.

    Args:
        session: an open session.
        groups: names of groups; none stands for all.
        advance: called with the number of groups read, and that of all.

    Raises:
        ZkConsumerError: none of ``groups`` exists and can be read, or ZooKeeper cannot be reached.
    """
    group_reader = GroupReader(session)
    rows: list[GroupOffset] = []
    problems: list[str] = []
    failures: dict[str, ZkConsumerError] = {}
    names = sorted(set(groups)) or group_reader.groups()
    for number, group in enumerate(names):
        advance(number, len(names))
        try:
            stored = offset_nodes(session, group, without_refused=True)
            if not stored.nodes and groups and not group_reader.group_exists(group):
                raise GroupMissing(f"group {group} does not exist in ZooKeeper; check its name and the chroot")
        except (GroupMissing, ZooKeeperRefused) as error:
            failures[group] = error
            continue
        offsets = stored.offsets()
        none = stored.nodes.keys() - offsets.keys() - stored.unreadable.keys()
        problems += stored.problems
        problems += (
            f"znode {GroupPaths(group).offset(p)} holds a negative number, which is no offset" for p in sorted(none)
        )
        rows += [GroupOffset(group, partition, offset) for partition, offset in offsets.items()]
    found = [group for group in names if group not in failures]
    return Export(tuple(rows), (*unread_groups(found, failures, groups), *problems))
