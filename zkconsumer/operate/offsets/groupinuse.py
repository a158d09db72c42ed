"""What speaks against a write of a group's offsets: its members, owners, holds of other tools, the mark of a migration.

Asked before a hold is taken, and under it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from zkconsumer.errors import HoldReason, name_some
from zkconsumer.model import TopicPartition
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.rules.grouppaths import HOLD, GroupPaths
from zkconsumer.zookeeper.rules.znodes import MigratedNode, MigrationMark, PartitionOwnerNode, describe_mark
from zkconsumer.zookeeper.session import ZkSession

_HOLDER: Final = "_zkconsumer-hold-"


def registered_members(session: ZkSession, paths: GroupPaths) -> list[str]:
    """Ids of the members of a group that are registered now."""
    return sorted(session.children(paths.ids) or ())


def groups_with_members(session: ZkSession, groups: Iterable[str]) -> frozenset[str]:
    """Those of many groups that have members registered now."""
    ids = {GroupPaths(group).ids: group for group in groups}
    return frozenset(ids[path] for path, names in session.children_of(ids).existing().items() if names)


def why_held(session: ZkSession, paths: GroupPaths, mine: str = "") -> str:
    """Why the offsets of a group are not written that another hold than ``mine`` is of; empty if there is none.

    A hold whose session has not expired yet is one, and so are the owner znodes of one: a :class:`.HoldReason`. What
    was copied to another ensemble has no session, and does not end.
    """
    others = [name for name in session.children(paths.ours) or () if name.startswith(HOLD) and name != mine]
    if not others:
        return ""
    held = f"another tool is writing offsets of group {paths.group} ({', '.join(sorted(others))})"
    nodes = session.get_many(f"{paths.ours}/{name}" for name in others)
    if lasting := [path for path, node in nodes.items() if node is not None and not node.owner_session]:
        return f"{held}; {_without_end(lasting)}"
    return HoldReason(f"{held}; try again when it has ended, or if it was killed, when its session has expired")


def holder_name(group: str, session_id: int) -> str:
    """The consumer as which a hold of this session owns partitions."""
    return f"{group}{_HOLDER}{session_id:016x}"


def are_of_holds(paths: GroupPaths, owners: Mapping[str, Znode]) -> bool:
    """True if owner znodes, by path, are those of holds, which end with their sessions."""
    return all(
        node.owner_session and PartitionOwnerNode.decode(path, node.data).startswith(f"{paths.group}{_HOLDER}")
        for path, node in owners.items()
    )


def why_owned(session: ZkSession, paths: GroupPaths, partitions: Iterable[TopicPartition]) -> str:
    """Why the offsets of a group without members are not written; empty if none of the partitions has an owner."""
    numbers: dict[str, set[str]] = {}
    for partition in partitions:
        numbers.setdefault(paths.owner_topic(partition.topic), set()).add(str(partition.partition))
    owned = session.children_of(sorted(numbers)).existing()
    nodes = session.get_many(
        f"{parent}/{name}" for parent, names in owned.items() for name in sorted(numbers[parent] & set(names), key=int)
    )
    found = {path: node for path, node in nodes.items() if node is not None}
    if not found:
        return ""
    owners = name_some([f"{path} by {PartitionOwnerNode.decode(path, node.data)}" for path, node in found.items()])
    reason = (
        f"partitions of group {paths.group} have owners although no member is registered: {owners}; "
        f"{how_owners_end(found)}"
    )
    return HoldReason(reason) if are_of_holds(paths, found) else reason


def how_owners_end(owners: Mapping[str, Znode]) -> str:
    """What to do about owner znodes, by path, of clients that are not registered."""
    if lasting := [path for path, node in owners.items() if not node.owner_session]:
        return _without_end(lasting)
    return "stop their processes, and wait until their sessions have expired (zookeeper.session.timeout.ms)"


def _without_end(lasting: Sequence[str]) -> str:
    return f"no session ends these: {name_some(lasting)}; stop what writes them, and delete them"


def read_mark(session: ZkSession, group: str) -> MigrationMark | None:
    """The mark of a group; None if it has none.

    Raises:
        ZkConsumerError: ZooKeeper cannot be read.
    """
    path = GroupPaths(group).migrated
    node = session.get(path)
    return None if node is None else MigratedNode.decode(path, node.data)


def marked_since(session: ZkSession, group: str, before: MigrationMark | None) -> list[str]:
    """Why a group's znodes are not written or removed under its hold: a migration has marked it since it was looked at.

    1. The write is planned; 2. `migrate run` writes the group's offsets to Kafka, and marks it; 3. what is written has
    no effect on the consumers, which continue there; without its znodes there is no way back, and under another name
    old consumers read again what the new ones have read.
    """
    mark = read_mark(session, group)
    return [] if mark in (None, before) else [f"a migration began meanwhile: {describe_mark(group, mark)}"]


def live_members(group: str, members: Sequence[str], *, forceable: bool) -> str:
    """Why the offsets of a group with members are not written; ``forceable`` as in :class:`.GroupHold`."""
    live = f"group {group} has {len(members)} live member{'s' if len(members) > 1 else ''}: {name_some(members)}"
    if not forceable:
        return f"{live}; stop them, and try again"
    return f"{live}; their next commit would overwrite what is written. Stop them first, or give --force-live"
