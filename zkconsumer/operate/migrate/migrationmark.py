"""The mark of a migrated group (adr/0037): written and removed around the writes of a migration and of a way back."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from zkconsumer.errors import ZkConsumerError
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan
from zkconsumer.operate.migrate.rules.planfile import plan_digest
from zkconsumer.operate.offsets.groupinuse import read_mark
from zkconsumer.operate.offsets.writereport import WriteReport
from zkconsumer.zookeeper.fencedtransaction import NO_FENCE, Operation
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths
from zkconsumer.zookeeper.rules.znodes import MarkState, MigratedNode, MigrationMark
from zkconsumer.zookeeper.session import ZkSession

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 5


def write_mark(session: ZkSession, group: str, mark: MigrationMark, fence: str = NO_FENCE) -> None:
    """Mark a group; replaces an earlier mark.

    Args:
        session: an open session.
        group: consumer group.
        mark: to write.
        fence: a node without which nothing is written.

    Raises:
        SessionExpired: the fence is gone; the mark is as it was.
        ZkConsumerError: ZooKeeper refuses it, or does not answer; then whether it is marked is unknown.
    """
    paths = GroupPaths(group)
    data = MigratedNode.encode(mark)
    for _ in range(_ATTEMPTS):  # a tool that ends may remove the parent, and another one the mark
        session.ensure_path(paths.ours, b"", open_to_all=True)
        for write in (Operation("create", paths.migrated, data), Operation("set", paths.migrated, data)):
            if session.transact(fence, [write]).get(paths.migrated) == "done":
                return
    raise ZkConsumerError(
        f"{paths.migrated} cannot be written: other clients keep deleting it, or its parent; stop them, and try again"
    )


def remove_mark(session: ZkSession, group: str) -> None:
    """Remove the mark of a group, if it has one, and its parent if that is empty; raises as :func:`write_mark`."""
    paths = GroupPaths(group)
    session.transact(NO_FENCE, [Operation("delete", paths.migrated)])
    session.try_transact(NO_FENCE, [Operation("delete", paths.ours)])  # whoever needs it creates it again


def marked_group(plan: MigrationPlan) -> str | None:
    """The group in ZooKeeper whose consumers a plan sends to Kafka, or calls back from there; None for other plans."""
    kinds = {plan.source.kind: plan.source.group, plan.target.kind: plan.target.group}
    return kinds.get("zookeeper") if "kafka" in kinds else None


def mark_of(session: ZkSession, plan: MigrationPlan) -> MigrationMark | None:
    """The mark of the group of a plan, whichever command has written it; raises as :func:`read_mark`."""
    group = marked_group(plan)
    return None if group is None else read_mark(session, group)


@contextmanager
def marking(session: ZkSession, plan: MigrationPlan, *, undoing: bool = False) -> Iterator[MarkedWrite]:
    """Mark the group of a plan around its writes.

    1. The group is held, and every guard has passed; 2. :meth:`MarkedWrite.begin` marks it; 3. offsets are written;
    4. the mark shows that this is done, or is removed after a way back. A tool that is killed leaves the mark of step
    2, and the same command completes it; so does one that cannot do step 4, which its report has as a fault. If nothing
    was written the mark is what it was before. A group without a mark
    is marked by a run to Kafka alone; a way back leaves the mark of a migration to another group, whose consumers are
    there. A write that is refused never marks the group: a member that registers meanwhile would end for good.

    Args:
        session: an open session.
        plan: that is run, or undone.
        undoing: the plan is undone.

    Raises:
        ZkConsumerError: the mark cannot be written, and no offset was.
    """
    marked = MarkedWrite(session, plan, undoing=undoing)
    try:
        yield marked
    except (ZkConsumerError, OSError):  # nothing was written
        marked.restore()
        raise
    try:
        marked.settle()
    except ZkConsumerError as error:
        if not marked.note(error):
            raise


class MarkedWrite:
    """The mark of a group while the offsets of a plan are written; see :func:`marking`.

    Attributes:
        is_complete: everything is written.
        is_void: nothing was written.
    """

    def __init__(self, session: ZkSession, plan: MigrationPlan, *, undoing: bool = False) -> None:
        self._session = session
        self._group = marked_group(plan)
        self._to_kafka = (plan.target.kind == "kafka") is not undoing
        self._under_way: MarkState = "migrating" if self._to_kafka else "undoing"
        self._marks_first = plan.target.kind == "kafka" and not undoing
        self._target = str(plan.target if plan.target.kind == "kafka" else plan.source)
        self._plan = plan
        self._before: MigrationMark | None = None
        self._begun: MigrationMark | None = None  # what begin() wrote
        self._resume = "roll back again" if undoing else "run the plan again"
        self._report: WriteReport | None = None
        self.is_complete = False
        self.is_void = False

    def begin(self, fence: str) -> None:
        """Mark the group, right before the first offset is written.

        Args:
            fence: of the hold. Otherwise: 1. the tool is stopped, and its session ends; 2. members start; 3. the tool
                continues and marks the group, and a member that registers before it notices ends for good.

        Raises:
            ZkConsumerError: the mark cannot be written.
        """
        if self._group is None:
            return
        self._before = self._present()
        if self._before is None and not self._marks_first:
            return
        self._begun = self._mark(self._under_way)
        write_mark(self._session, self._group, self._begun, fence)

    def lacks(self, mark: MigrationMark | None) -> bool:
        """True if the group has no mark, and a complete write would make one."""
        return mark is None and self._marks_first and self._group is not None

    def report(self, report: WriteReport) -> None:
        """Take over what a write reports."""
        self._report = report
        self.is_complete = report.is_complete
        self.is_void = report.is_void and not report.is_complete

    def note(self, error: ZkConsumerError) -> bool:
        """Add to the report that the mark does not show what was written; False if nothing was."""
        if self._report is None or self._report.is_void:
            return False
        self._report.faults.append(
            f"all is written, and the mark of group {self._group} does not show it: {error}; {self._resume}"
        )
        return True

    def settle(self) -> None:
        """After the write: the mark is that of what is reported; raises as :func:`write_mark`."""
        if self._group is None:
            return
        if self.is_void:
            self.restore()
        elif self.is_complete and self._to_kafka:
            if self._marks_first or self._present() is not None:
                write_mark(self._session, self._group, self._mark("migrated"))
        elif self.is_complete and self._present() is not None:
            remove_mark(self._session, self._group)

    def _present(self) -> MigrationMark | None:
        """The mark, unless it is one that this write leaves as it is."""
        mark = mark_of(self._session, self._plan)
        is_other = mark is not None and not self._marks_first and not mark.may_be_of(self._target)
        return None if is_other else mark

    def restore(self) -> None:
        """Nothing was written: the mark is what it was, unless another tool has written one since."""
        if self._group is None or self._begun is None:
            return
        try:
            if read_mark(self._session, self._group) != self._begun:
                return
            if self._before is None:
                remove_mark(self._session, self._group)
            else:
                write_mark(self._session, self._group, self._before)
        except ZkConsumerError as error:
            _log.warning(
                "the mark of group %s stays, so that no member registers: %s; run the command again", self._group, error
            )

    def _mark(self, state: MarkState) -> MigrationMark:
        return MigrationMark(state, self._target, int(time.time() * 1000), plan_digest(self._plan))
