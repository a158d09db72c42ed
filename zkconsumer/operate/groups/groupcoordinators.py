"""Coordinators of groups as their znodes show them: who leads, and what each member is commanded to own (adr/0017)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from zkconsumer.errors import MalformedZnode
from zkconsumer.group.coordinator.rules.coordinatorznodes import (
    Command,
    CommandNode,
    LeaderNode,
    Status,
    StatusNode,
    newest_commands,
)
from zkconsumer.zookeeper.reads import Reads
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths
from zkconsumer.zookeeper.session import ZkSession


@dataclass(frozen=True, slots=True)
class GroupCoordinator:
    """The coordinator of one group.

    Attributes:
        leader: consumer id of the member that leads, None if no member does.
        epoch: of the leader, None without one.
        status: what the leader last published; None if it has not published anything.
        commands: the command of each member that obeys a coordinator, None where none has been written yet, or it
            cannot be decoded.
        problems: what cannot be read, one sentence each.
    """

    leader: str | None = None
    epoch: int | None = None
    status: Status | None = None
    commands: Mapping[str, Command | None] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def read_coordinators(session: ZkSession, groups: Collection[str]) -> dict[str, GroupCoordinator]:
    """The coordinators of those groups that have members with ``group.protocol=coordinator``, in two requests.

    Args:
        session: an open session.
        groups: names of groups.

    Raises:
        ZooKeeperUnavailable, SessionExpired: they cannot be read.
    """
    if not groups:
        return {}
    paths = {group: CoordinatorPaths(group) for group in groups}
    children = session.children_of(group_paths.commands for group_paths in paths.values())
    names = {group: children.names.get(group_paths.commands) or () for group, group_paths in paths.items()}
    wanted = {
        group: (
            group_paths.leader,
            group_paths.status,
            *(f"{group_paths.commands}/{name}" for name in sorted(names[group])),
        )
        for group, group_paths in paths.items()
        if names[group]
    }
    reads = session.read_many(path for group_wanted in wanted.values() for path in group_wanted)
    coordinators = {group: _coordinator(paths[group], group_wanted, reads) for group, group_wanted in wanted.items()}
    for group, group_paths in paths.items():
        if group_paths.commands in children.refused:
            coordinators[group] = GroupCoordinator(problems=(str(children.refused[group_paths.commands]),))
    return coordinators


def _coordinator(paths: CoordinatorPaths, wanted: Iterable[str], reads: Reads) -> GroupCoordinator:
    problems = [str(reads.refused[path]) for path in wanted if path in reads.refused]
    leader: tuple[str | None, int | None] = (None, None)
    status: Status | None = None
    commands: dict[str, Command | None] = {}
    created: dict[str, int] = {}
    for path in wanted:
        node = reads.nodes.get(path)
        if node is None:
            continue
        try:
            if path == paths.leader:
                leader = LeaderNode.decode(path, node.data)
            elif path == paths.status:
                status = StatusNode.decode(path, node.data)
            else:
                created[path] = node.czxid
                commands[path] = CommandNode.decode(path, node.data)
        except MalformedZnode as error:
            problems.append(str(error))
    newest = {name: commands.get(path) for name, path in sorted(newest_commands(created).items())}
    return GroupCoordinator(*leader, status, newest, tuple(problems))
