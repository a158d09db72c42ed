"""ZnodeWrites: writes a group's znodes under its hold, each only if it is as it was planned, and reads them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from zkconsumer.errors import ZkConsumerError, name_some
from zkconsumer.operate.offsets.patience import until_reconnected
from zkconsumer.operate.offsets.rules.restoredrecords import TO_BE_CREATED, below_parent
from zkconsumer.operate.offsets.snapshot import NodeChange, NodeState
from zkconsumer.operate.offsets.writereport import UnderHold
from zkconsumer.zookeeper.fencedtransaction import Operation, in_transactions
from zkconsumer.zookeeper.reads import Znode
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.session import ZkSession

_READ_BACK_ROUNDS: Final = 3


class ZnodeWrites:
    """The znodes of one group.

    Args:
        session: an open session.
        nodes: what changes.
        under: the group, which is held when a method is called.

    Attributes:
        closing: deletions of parents of the hold, which its release does.
    """

    def __init__(self, session: ZkSession, nodes: Sequence[NodeChange], under: UnderHold) -> None:
        self._session = session
        self._wanted = {node.path: node.after for node in nodes}
        self._under = under
        self._report = under.report
        self._now, self.closing = _in_order(under.group, nodes)

    def write(self) -> None:
        """Write what is possible while the group is held; a fault ends it."""
        changes = self._now
        made = self._under.hold.created & {change.path for change in changes}
        self._under.hold.keep(made)
        self._report.written += sorted(made)
        todo = [change for change in changes if change.path not in made]
        above = _parents_of_records(self._under.group)
        parents = [change for change in todo if change.path in above and change.kind != "delete"]
        parts = [*in_transactions(parents), *in_transactions(todo[len(parents) :])]
        for number, part in enumerate(parts):
            if not self._write_part(part):
                self._report.not_written += [change.path for late in parts[number + 1 :] for change in late]
                return

    def _write_part(self, part: Sequence[Operation]) -> bool:
        paths = [change.path for change in part]
        if self._under.is_too_late(paths):
            return False
        try:
            part = self._below_parent(part)
        except ZkConsumerError as error:
            self._report.faults.append(f"{error}; check ZooKeeper, then {self._under.plan.resume}")
            self._report.not_written += paths
            return False
        try:
            conflict = self._session.commit_changes(self._under.hold.fence, part)
        except ZkConsumerError as error:
            self._report.faults.append(f"{error}; check ZooKeeper, then {self._under.plan.resume}")
            self._look_again(part)
            return False
        if conflict is not None:
            self._report.faults.append(f"{conflict.operation.path} was not written: {conflict.reason}")
            self._report.not_written += paths
            return False
        self._report.written += paths
        self._under.show_progress()
        return True

    def _below_parent(self, part: Sequence[Operation]) -> Sequence[Operation]:
        """The changes, with records of topics that name the parent which was created before them."""
        topics = GroupPaths(self._under.group).topics
        records = {change.path for change in part if change.path.startswith(f"{topics}/") and change.kind == "create"}
        if not records:
            return part
        parent = until_reconnected().ask(lambda: self._session.get(topics))
        if parent is None:  # another client has deleted it, which the transaction reports
            return part
        named = []
        for change in part:
            if change.path in records:
                data = below_parent(change.path, change.data, TO_BE_CREATED, parent.czxid)
                self._wanted[change.path] = NodeState(data)
                named.append(change._replace(data=data))
            else:
                named.append(change)
        return named

    def _look_again(self, part: Sequence[Operation]) -> None:
        """Read what became of a transaction without an answer: its first change shows it, since it is all or none.

        1. The transaction is done, and its answer is lost; 2. a client that knows no hold, such as a JVM member whose
        session has expired, writes the same znode. So only a znode that is as it was before shows that it is not done.
        """
        paths, first = [change.path for change in part], part[0]
        try:
            node = until_reconnected().ask(lambda: self._session.get_many_synced([first.path])[first.path])
        except ZkConsumerError as error:
            self._report.leave_unknown(paths, "written", error)
            return
        if _is_done(first, node):
            self._report.written += paths
        elif _is_as_planned(first, node):
            self._report.not_written += paths
        else:
            self._report.leave_unknown(paths, "written", f"another client has written {first.path} since")

    def read_back(self) -> None:
        """Wait until members continue at what was written, which another client may have overwritten meanwhile.

        A member whose session has just expired may commit once more. 1. Offsets are written here; 2. the member, in a
        new session, writes the offset of before; 3. it tries to claim, and reads that offset first; 4. it is found and
        set again here. The attempt of step 3 must fail, too, so each time that something was set again attempts are
        outlasted again.

        Raises:
            ZkConsumerError: it cannot be read.
        """
        sets_again = self._under.plan.sets_again
        for _ in range(_READ_BACK_ROUNDS if sets_again else 1):
            self._under.hold.outlast_attempts()
            lost = self._lost()
            if not lost:
                return
            if sets_again:
                self._set_again(lost)
        self._report.faults.append(
            f"another client {'keeps writing' if sets_again else 'wrote'} {name_some(lost)}, right after it was "
            "written here; stop it, and try again"
        )

    def _lost(self) -> dict[str, Znode | None]:
        """What another client has overwritten, or created again, by path.

        ``ids`` comes back with a member, whose registration is not deleted; the release reports it.
        """
        written = set(self._report.written) - {GroupPaths(self._under.group).ids}
        nodes = self._session.get_many(path for path in self._wanted if path in written)
        return {path: node for path, node in sorted(nodes.items()) if not _is_as(node, self._wanted[path])}

    def _set_again(self, lost: Mapping[str, Znode | None]) -> None:
        """Set what another client has overwritten, and delete what it has created again."""
        again = []
        for path, node in lost.items():
            after = self._wanted[path]
            self._report.warnings.append(
                f"{path} was written by another client right after it was "
                f"{'deleted' if after is None else 'written'} here, as {node.data if node else None!r}; it is "
                f"{'deleted' if after is None else 'set'} again"
            )
            if node is not None:
                kind: Literal["delete", "set"] = "delete" if after is None else "set"
                again.append(Operation(kind, path, None if after is None else after.data, node.version))
        again.sort(key=lambda change: (change.kind == "delete", -change.path.count("/")))
        for part in in_transactions(again):
            self._session.commit_changes(self._under.hold.fence, part)

    def note_closing(self) -> None:
        """What has become of the deletions of the release, which a member or another client may have prevented."""
        report, paths = self._report, [change.path for change in self.closing]
        if not paths:
            return
        if report.faults:  # then they were not tried
            report.not_written += paths
            return
        try:
            nodes = self._session.get_many(paths)
        except ZkConsumerError as error:
            report.leave_unknown(paths, "deleted", error)
            return
        left = [path for path in paths if nodes[path] is not None]
        report.written += [path for path in paths if nodes[path] is None]
        report.not_written += left
        if left:
            reasons = report.warnings if self._under.hold.live else report.faults
            reasons.append(f"{name_some(left)} could not be deleted: a member or another client uses what is below")


def _in_order(group: str, nodes: Sequence[NodeChange]) -> tuple[list[Operation], list[Operation]]:
    """Changes that are possible while the group is held, and deletions of parents of the hold.

    Parents are created before what is below them, and deleted after it. Records of topics come before the offsets:
    one that is newer than an offset may make it one of an earlier topic. ``ids`` is deleted first of all: it cannot be
    if a member has registered, and then nothing is.
    """
    paths, above = GroupPaths(group), _parents_of_records(group)

    def place(node: NodeChange) -> tuple[bool, bool, str]:
        return node.path not in above, not node.path.startswith(f"{paths.topics}/"), node.path

    writes = sorted((node for node in nodes if node.after is not None), key=place)
    deletions = sorted((node for node in nodes if node.after is None), key=_depth, reverse=True)
    parents = (paths.root, paths.ours, paths.owners)
    closing = [n for n in deletions if n.path in parents or n.path.startswith(f"{paths.owners}/")]
    later = {node.path for node in closing}
    now = [node for node in deletions if node.path not in later]
    now.sort(key=lambda node: node.path != paths.ids)
    return [_as_change(node) for node in (*writes, *now)], [_as_change(node) for node in closing]


def _parents_of_records(group: str) -> tuple[str, ...]:
    paths = GroupPaths(group)
    return paths.root, paths.ours, paths.topics


def _depth(node: NodeChange) -> tuple[int, str]:
    return node.path.count("/"), node.path


def _is_done(change: Operation, node: Znode | None) -> bool:
    if change.kind == "delete":
        return node is None
    version = 0 if change.kind == "create" else change.version + 1
    return node is not None and (node.data, node.version) == (change.data, version)


def _is_as_planned(change: Operation, node: Znode | None) -> bool:
    """True if a node is as it was when its change was planned."""
    return node is None if change.kind == "create" else node is not None and node.version == change.version


def _is_as(node: Znode | None, wanted: NodeState | None) -> bool:
    """True if a node is as it was written, or gone as it was deleted."""
    return node is None if wanted is None else node is not None and node.data == wanted.data


def _as_change(node: NodeChange) -> Operation:
    """The conditional write that a change of a znode needs."""
    before, after = node.before, node.after
    if after is None:
        return Operation("delete", node.path, version=-1 if before is None else before.version)
    if before is None:
        return Operation("create", node.path, after.data, access=after.access)
    return Operation("set", node.path, after.data, before.version)
