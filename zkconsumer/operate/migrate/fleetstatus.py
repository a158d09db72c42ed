"""Reads how far the groups of a fleet have come: their files, their znodes, and their groups in Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from zkconsumer.errors import GroupMissing, ZkConsumerError
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.rules.storedoffsets import StoredOffset, offsets_of, usable_offset
from zkconsumer.operate.groups.groupznodes import GroupReads, read_groups
from zkconsumer.operate.migrate.fleetfiles import GroupFiles, Job
from zkconsumer.operate.migrate.mirror import mirrored
from zkconsumer.operate.migrate.rules.fleetfacts import FleetFacts, FleetState, Judged
from zkconsumer.operate.migrate.rules.fleetfile import FleetGroup
from zkconsumer.operate.migrate.rules.fleetstate import in_file, judge
from zkconsumer.operate.migrate.rules.migrationplan import MigrationPlan, beyond_plan
from zkconsumer.operate.offsets.brokeroffsets import BrokersAnswer, ExistingTopics
from zkconsumer.operate.offsets.groupstores import Cluster
from zkconsumer.operate.offsets.rules.writestate import WriteState
from zkconsumer.operate.offsets.snapshot import OF_MIRROR, snapshot_of_plan
from zkconsumer.wire.rules.describedgroup import KafkaGroup
from zkconsumer.zookeeper.session import ZkSession


class FleetRow(NamedTuple):
    """One group of a fleet.

    Attributes:
        cluster: name of its cluster.
        group: what is wanted of it.
        judged: how far it has come.
        members: how many it has in ZooKeeper; None if that is unknown.
        partitions: of its plan; None without one.
    """

    cluster: str
    group: FleetGroup
    judged: Judged
    members: int | None
    partitions: int | None

    @property
    def state(self) -> FleetState:
        """How far it has come."""
        return self.judged.state

    @property
    def reason(self) -> str:
        """Why, in words; empty where nothing has to be said."""
        return self.judged.reason


class _Files(NamedTuple):
    plan: MigrationPlan | None = None
    run: WriteState | None = None
    back: WriteState | None = None
    beyond: Mapping[TopicPartition, int] = {}
    mirrored: Mapping[TopicPartition, frozenset[int | None]] = {}
    back_plan: MigrationPlan | None = None
    problem: str | None = None

    @property
    def planned(self) -> list[TopicPartition]:
        plans = [plan for plan in (self.plan, self.back_plan) if plan is not None]
        return [row.partition for plan in plans for row in plan.partitions]


def read_status(
    session: ZkSession, cluster: Cluster, jobs: Sequence[Job], *, now: datetime | None = None
) -> list[FleetRow]:
    """The rows of groups of one cluster, in the order given. Nothing is written.

    Args:
        session: an open session.
        cluster: its brokers.
        jobs: the groups.
        now: with a zone: closed windows of planned groups, and wave 0, are reasons; without it neither is looked at.

    Raises:
        ZkConsumerError: ZooKeeper cannot be read.
    """
    files = {job.group.group: _read_files(job.files) for job in jobs}
    group_reader = cluster.open_reader(session, without_brokers=True)
    reads = read_groups(session, group_reader, [job.group.group for job in jobs])
    planned: dict[str, Sequence[TopicPartition]] = {}
    for job in jobs:
        of_job, znodes = files[job.group.group], reads.groups.get(job.group.group)
        without_plan = () if znodes is None else znodes.partitions
        planned[job.group.target.group] = without_plan if of_job.plan is None else of_job.planned
    described: Mapping[str, KafkaGroup | ZkConsumerError]
    try:
        described = cluster.describe_all(planned)
        committed = cluster.committed_by_groups(planned)
        partitions = {p for known in planned.values() for p in known}.union(
            *(znodes.offsets for znodes in reads.groups.values()), *(answer.found for answer in committed.values())
        )
        existing = cluster.existing({p.topic for p in partitions}).found
    except ZkConsumerError as error:  # a further question would wait for silent brokers once more
        described, committed = dict.fromkeys(planned, error), {}
        existing = ExistingTopics(set(), {})
    rows = [_row(job, files[job.group.group], reads, described, committed, existing) for job in jobs]
    return rows if now is None else [row._replace(judged=in_file(row.judged, row.group, now)) for row in rows]


def unknown_rows(jobs: Sequence[Job], reason: str) -> list[FleetRow]:
    """The rows of groups whose servers cannot be reached."""
    return [FleetRow(job.fleet.name, job.group, Judged(FleetState.UNKNOWN, reason), None, None) for job in jobs]


def _read_files(files: GroupFiles) -> _Files:
    try:
        plan = files.plan()
        if plan is None:
            return _Files()
        of_mirror = mirrored(snapshot_of_plan(plan, files.plan_file, OF_MIRROR))
        run = snapshot_of_plan(plan, files.plan_file)
        back, state = files.back(), files.back_state()
        newest = run if back is None or state is None else snapshot_of_plan(back, files.back_file)
        beyond = {} if newest.snapshot is None else newest.snapshot.beyond
        return _Files(plan, run.state, state, beyond, of_mirror, back)
    except (ZkConsumerError, OSError) as error:
        return _Files(problem=str(error))


def _added(plan: MigrationPlan, existing: ExistingTopics) -> list[TopicPartition]:
    topics = {row.partition.topic for row in plan.partitions}
    return beyond_plan(plan, (p for p in existing.partitions if p.topic in topics))


def _row(
    job: Job,
    files: _Files,
    reads: GroupReads,
    described: Mapping[str, KafkaGroup | ZkConsumerError],
    committed: Mapping[str, BrokersAnswer[dict[TopicPartition, StoredOffset]]],
    existing: ExistingTopics,
) -> FleetRow:
    group, target = job.group.group, job.group.target.group
    znodes, failure = reads.groups.get(group), reads.failures.get(group)
    kafka, stored = described.get(target), committed.get(target)
    problems = [] if files.problem is None else [files.problem]
    if failure is not None and not isinstance(failure, GroupMissing):
        problems.append(str(failure))
    if isinstance(kafka, ZkConsumerError):
        problems.append(str(kafka))
    problems += () if stored is None else stored.problems
    in_zookeeper = {} if znodes is None else {p: usable_offset(node.offset) for p, node in znodes.offsets.items()}
    in_kafka = {} if stored is None else offsets_of(stored.found)
    if znodes is not None:  # without a plan, such a znode hides whether all offsets are in Kafka
        asked = {*files.planned} if files.plan is not None else znodes.unreadable.keys() if in_kafka else ()
        problems += (str(znodes.unreadable[p]) for p in sorted(asked) if p in znodes.unreadable)
    facts = FleetFacts(
        plan=files.plan,
        target=job.group.target,
        run=files.run,
        back=files.back,
        back_plan=files.back_plan,
        beyond=files.beyond,
        gone={p for p in files.planned if not existing.may_exist(p)},
        added=() if files.plan is None else _added(files.plan, existing),
        mirrored=files.mirrored,
        exists=znodes is not None,
        members=() if znodes is None else tuple(sorted(znodes.live)),
        mark=None if znodes is None else znodes.mark,
        in_zookeeper={p: offset for p, offset in in_zookeeper.items() if existing.may_exist(p)},
        kafka=None if isinstance(kafka, ZkConsumerError) else kafka,
        in_kafka={p: offset for p, offset in in_kafka.items() if existing.may_exist(p)},
        problems=tuple(problems),
    )
    return FleetRow(
        job.fleet.name,
        job.group,
        judge(facts),
        None
        if znodes is None and failure is not None and not isinstance(failure, GroupMissing)
        else len(facts.members),
        None if files.plan is None else len(files.plan.partitions),
    )
