"""The mark of a migrated group (adr/0037): written and removed around the writes of a migration and of a way back."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from zkconsumer.errors import ZkConsumerError
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan
from zkconsumer.operate.offsets.writereport import WriteReport
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import MarkState, MigratedNode, MigrationMark
from zkconsumer.zookeeper.session import ZkSession
from zkconsumer.zookeeper.transaction import Operation

_log = logging.getLogger(__name__)

_ANY_NODE = "/"


def read_mark(session: ZkSession, group: str) -> MigrationMark | None:
    """The mark of a group; None if it has none.

    Raises:
        ZkConsumerError: ZooKeeper cannot be read.
    """
    path = GroupPaths(group).migrated
    node = session.get(path)
    return None if node is None else MigratedNode.decode(path, node.data)


def write_mark(session: ZkSession, group: str, state: MarkState, target: str) -> None:
    """Mark a group; replaces an earlier mark.

    Raises:
        ZkConsumerError: ZooKeeper refuses it, or does not answer; then whether it is marked is unknown.
    """
    paths = GroupPaths(group)
    data = MigratedNode.encode(MigrationMark(state, target, int(time.time() * 1000)))
    session.ensure_path(paths.ours, b"", open_to_all=True)
    done = session.transact(_ANY_NODE, [Operation("create", paths.migrated, data)])
    if done.get(paths.migrated) == "exists":
        session.transact(_ANY_NODE, [Operation("set", paths.migrated, data)])


def remove_mark(session: ZkSession, group: str) -> None:
    """Remove the mark of a group, if it has one, and its parent if that is empty; raises as :func:`write_mark`."""
    paths = GroupPaths(group)
    session.transact(_ANY_NODE, [Operation("delete", paths.migrated)])
    session.try_transact(_ANY_NODE, [Operation("delete", paths.ours)])  # whoever needs it creates it again


def marked_group(plan: MigrationPlan) -> str | None:
    """The group in ZooKeeper whose consumers a plan sends to Kafka, or calls back from there; None for other plans."""
    kinds = {plan.source.kind: plan.source.group, plan.target.kind: plan.target.group}
    return kinds.get("zookeeper") if "kafka" in kinds else None


@contextmanager
def marking(session: ZkSession, plan: MigrationPlan, *, undoing: bool = False) -> Iterator[MarkedWrite]:
    """Mark the group of a plan around its writes.

    1. It is marked before the first offset is written; 2. offsets are written; 3. the mark says that this is done, or
    is removed after a way back. A tool that is killed leaves the mark of step 1, and the same command goes on. If
    nothing was written the mark is what it was before. A group without a mark is marked by a run to Kafka alone.

    Args:
        session: an open session.
        plan: that is run, or undone.
        undoing: the plan is undone.

    Raises:
        ZkConsumerError: the mark cannot be written.
    """
    write = MarkedWrite()
    group = marked_group(plan)
    before = None if group is None else read_mark(session, group)
    is_run_to_kafka = plan.target.kind == "kafka" and not undoing
    if group is None or (before is None and not is_run_to_kafka):
        yield write
        return
    to_kafka = (plan.target.kind == "kafka") is not undoing
    elsewhere = str(plan.target if plan.target.kind == "kafka" else plan.source)
    write_mark(session, group, "migrating" if to_kafka else "undoing", elsewhere)
    try:
        yield write
    except (ZkConsumerError, OSError):  # nothing was written
        _restore(session, group, before)
        raise
    if write.is_void:
        _restore(session, group, before)
    elif write.is_complete and to_kafka:
        write_mark(session, group, "migrated", elsewhere)
    elif write.is_complete:
        remove_mark(session, group)


class MarkedWrite:
    """What is known of the writes inside :func:`marking`.

    Attributes:
        is_complete: everything is written.
        is_void: nothing was written.
    """

    is_complete = False
    is_void = False

    def report(self, report: WriteReport) -> None:
        """Take over what a write reports."""
        self.is_complete = not report.faults
        self.is_void = bool(report.faults) and not (report.written or report.unknown)


def _restore(session: ZkSession, group: str, before: MigrationMark | None) -> None:
    try:
        if before is None:
            remove_mark(session, group)
        else:
            write_mark(session, group, before.state, before.target)
    except ZkConsumerError as error:
        _log.warning("the mark of group %s stays, so that no member registers: %s; run the command again", group, error)
