"""The one engine that writes offsets: hold, snapshot, compare-and-set, read back, release, mark as complete.

Every command that writes makes a :class:`~zkconsumer.operate.offsets.writeplan.WritePlan`, which :func:`execute`
carries out: reset, import, copy, rename, delete, restore, and a migration's run, rollback and mirror.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.errors import WriteRefused, ZkConsumerError, ZooKeeperRefused, name_some
from zkconsumer.group.zookeeper.topicrecords import replace_records
from zkconsumer.model import TopicIdentity
from zkconsumer.operate.offsets.grouphold import GroupHold, HoldEnd, NoHold
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.judgedoffsets import known_identities
from zkconsumer.operate.offsets.kafkawrites import KafkaWrites
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import Snapshot, SnapshotFile, partition_of
from zkconsumer.operate.offsets.wholefiles import write_whole
from zkconsumer.operate.offsets.writeplan import GroupPlan, WritePlan
from zkconsumer.operate.offsets.writereport import UnderHold, WriteReport, name_in_kafka
from zkconsumer.operate.offsets.znodewrites import ZnodeWrites
from zkconsumer.zookeeper.session import ZkSession


def execute(
    session: ZkSession,
    cluster: Cluster,
    plan: WritePlan,
    file: SnapshotFile,
    *,
    long_hold: bool = False,
    announce: Callable[[Path], None] = lambda _: None,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
    clock: Callable[[], float] = time.monotonic,
) -> WriteReport:
    """Write what is planned, one group after the other; a fault ends it.

    Args:
        session: an open session.
        cluster: for offsets in Kafka.
        plan: what to write.
        file: gets what is changed under the hold, before the first write, and is marked as complete at the end.
        long_hold: see :class:`~zkconsumer.operate.offsets.grouphold.GroupHold`.
        announce: called with the path when the snapshot is on the disk, before the first write.
        advance: called after each transaction with the number of writes done, and that of all.
        clock: monotonic, in seconds; limits the hold.

    Raises:
        ZkConsumerError: a guard refuses, or the group cannot be held; nothing was written, and the file is as before.
        OSError: the snapshot cannot be written, so nothing was.
    """
    if plan.refusals:
        raise WriteRefused(plan.refusals)
    groups = plan.to_hold
    report = WriteReport()
    if not groups:
        return report
    identities = _identities(session, cluster, plan, groups, report)
    snapshot = plan.snapshot or _snapshot_of(session, plan.command, groups, identities)
    total = sum(len(_names(group)) for group in groups)
    with file.prepared(snapshot) as begin:  # before the hold, which is short
        writer = _Writer(
            session=session,
            cluster=cluster,
            plan=plan,
            path=file.path,
            begin_file=begin,
            identities={topic: one for topic, one in identities.items() if one is not None},
            report=report,
            total=total,
            long_hold=long_hold,
            announce=announce,
            advance=advance,
            clock=clock,
        )
        for group in groups:
            if report.faults:
                report.not_written += _names(group)
                continue
            try:
                _write_group(writer, group)
            except ZkConsumerError as error:
                if report.snapshot is None:
                    raise
                report.faults += error.reasons if isinstance(error, WriteRefused) else [str(error)]
                report.not_written += _names(group)
    _mark_complete(file, plan, report)
    return report


def _mark_complete(file: SnapshotFile, plan: WritePlan, report: WriteReport) -> None:
    if not report.is_complete:
        return
    try:
        file.mark(WriteState.COMPLETE)
    except OSError as error:
        report.faults.append(f"all is written, and {file.path} does not record it: {error}; {plan.resume}")


def _identities(
    session: ZkSession, cluster: Cluster, plan: WritePlan, groups: Sequence[GroupPlan], report: WriteReport
) -> dict[str, TopicIdentity | None]:
    """As :func:`known_identities` has those of the topics whose offsets are written; empty if they cannot be read.

    They are read before the hold, which is short. What is written for a topic that is created again after that counts
    as an offset of an earlier one.
    """
    topics = {topic for group in groups for topic in _topics_of(group)}
    if plan.snapshot is None:
        topics |= {row.partition.topic for group in groups for row in group.rows}
    try:
        return known_identities(cluster.open_reader(session), topics)
    except ZkConsumerError as error:
        report.warnings.append(f"topics that are created again cannot be distinguished from earlier ones: {error}")
    return {}


def _topics_of(group: GroupPlan) -> set[str]:
    """The topics whose offsets get a znode, or new data of it."""
    written = (partition_of(node.path) for node in group.change.nodes if node.after is not None)
    return {partition.topic for partition in written if partition is not None}


def _snapshot_of(
    session: ZkSession, command: str, groups: Sequence[GroupPlan], identities: Mapping[str, TopicIdentity | None]
) -> Snapshot:
    """What the file gets, with the identities of the topics: their names may belong to other topics one day."""
    topics = {row.partition.topic for group in groups for row in group.rows} & identities.keys()
    recorded = {topic: None if (one := identities[topic]) is None else one.recorded for topic in topics}
    changes = tuple(group.change for group in groups)
    return Snapshot(command, session.address, int(time.time() * 1000), changes, identities=recorded)


@dataclass(frozen=True, slots=True)
class _Writer:
    """What the groups of one plan have in common."""

    session: ZkSession
    cluster: Cluster
    plan: WritePlan
    path: Path
    begin_file: Callable[[], None]
    identities: Mapping[str, TopicIdentity]
    report: WriteReport
    total: int
    long_hold: bool
    announce: Callable[[Path], None]
    advance: Callable[[int, int], None]
    clock: Callable[[], float]

    def begin(self, fence: str) -> None:
        """Put what is changed on the disk, before the first write of all groups."""
        if self.report.snapshot is not None:
            return
        self.plan.begins(fence)
        self.begin_file()
        self.report.snapshot = self.path
        self.announce(self.path)

    def show_progress(self) -> None:
        self.advance(len(self.report.written), self.total)

    def hold_of(self, group: GroupPlan) -> GroupHold | NoHold:
        """The hold of a group, which is not taken yet."""
        held = group.change.held_group
        if held is None:
            return NoHold()
        parents = {n.path: n.after for n in group.change.nodes if n.before is None and n.after is not None}
        return GroupHold(
            self.session,
            held,
            group.hold,
            parents=parents,
            live=self.plan.live,
            long=self.long_hold,
            forceable=self.plan.forceable,
            clock=self.clock,
        )


def _names(group: GroupPlan) -> list[str]:
    files = [] if group.file is None else [str(group.file[0])]
    in_kafka = (name_in_kafka(group.change.group, change.partition) for change in group.change.kafka)
    return [*(change.path for change in group.change.nodes), *in_kafka, *files]


def _write_group(writer: _Writer, group: GroupPlan) -> None:
    """Hold the group, write, read back and release.

    Raises:
        WriteRefused: the group cannot be held; nothing of it was written.
    """
    report, hold = writer.report, writer.hold_of(group)
    under = UnderHold(group.change.group, writer.plan, hold, report, writer.show_progress)
    znodes = ZnodeWrites(writer.session, group.change.nodes, under)
    kafka = KafkaWrites(writer.cluster, group.change.kafka, under)
    try:
        hold.take()
        if reasons := (*writer.plan.still_refused(False), *group.still_refused()):
            raise WriteRefused(reasons)
        writer.begin(hold.fence)
        _replace_records(writer, group, under)
        writer.show_progress()
        for write in (znodes.write, kafka.write, lambda: _write_file(group, under)):
            if not report.faults:
                write()
        if report.written:
            _read_back(znodes, kafka, under)
        released = hold.release([] if report.faults else znodes.closing)
    finally:
        hold.release()  # of what an interrupt has left
    _note_release(released, under)
    znodes.note_closing()


def _replace_records(writer: _Writer, group: GroupPlan, under: UnderHold) -> None:
    """Let the offsets to write be those of the topics that exist now; see :func:`replace_records`.

    Killed after it, nothing has changed for members: the offsets that are stored were those of earlier topics before,
    too. Members that run write their records themselves.
    """
    topics = _topics_of(group) & writer.identities.keys()
    if not topics or (under.hold.live and under.hold.members()):
        return
    identities = {topic: writer.identities[topic] for topic in topics}
    try:
        replace_records(writer.session, under.group, under.hold.fence, identities)
    except ZooKeeperRefused as refusal:
        under.report.warnings.append(f"{refusal}: members may take what is written for offsets of earlier topics")


def _write_file(group: GroupPlan, under: UnderHold) -> None:
    """A file of another program, in one piece."""
    if group.file is None or under.is_too_late([str(group.file[0])]):
        return
    path, text = group.file
    try:
        write_whole(path, text)
    except OSError as error:
        under.report.faults.append(f"{path} was not written: {error}")
        under.report.not_written.append(str(path))
        return
    under.report.written.append(str(path))
    under.show_progress()


def _read_back(znodes: ZnodeWrites, kafka: KafkaWrites, under: UnderHold) -> None:
    try:
        znodes.read_back()
        kafka.read_back()
        if not under.report.faults:
            under.report.faults += under.plan.still_refused(True)
    except ZkConsumerError as error:
        under.report.faults.append(f"what was written could not be read again: {error}")


def _note_release(released: HoldEnd, under: UnderHold) -> None:
    """Members that registered under the hold continue at what was written, or have given up."""
    report, source = under.report, under.plan.source
    report.warnings += released.problems
    members = [*released.nudged, *released.gave_up]
    report.members += members
    if source and members:
        report.faults.append(
            f"consumers of {source} were started during the migration ({name_some(members)}); stop them, and plan again"
        )
        return
    if released.unread:
        if source:  # the next run refuses, should there be any
            report.faults.append(
                f"whether consumers of {source} were started during the migration is unknown: {released.unread}; "
                f"{under.plan.resume}"
            )
        else:
            report.warnings.append(
                f"whether members of group {under.group} registered meanwhile is unknown: {released.unread}; restart "
                "those that own nothing"
            )
    if released.nudged:
        report.warnings.append(f"members registered meanwhile, and continue now: {name_some(released.nudged)}")
    if released.gave_up:
        report.warnings.append(
            f"members registered so early in the hold that they may have given up; restart those that own nothing: "
            f"{name_some(released.gave_up)}"
        )
