"""The next step of a group whose members move their offsets to Kafka by themselves, with two rolling restarts.

The JVM consumer and zkconsumer store offsets in ZooKeeper (``offsets.storage=zookeeper``), in both stores
(``offsets.storage=kafka``, ``dual.commit.enabled=true``) or in Kafka (``dual.commit.enabled=false``). A registration
does not show which: what a member commits does. A member with storage Kafka commits all of its partitions in each
``auto.commit.interval.ms``, idle ones, too (KAFKA-1510). With dual commit the JVM's write to ZooKeeper after Kafka has
accepted the commit, and zkconsumer's write to ZooKeeper first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import name_some
from zkconsumer.model import TopicPartition
from zkconsumer.operate.offsets.rules.offsetmoves import LogRange, how_far


class Evidence(Enum):
    """Whether the owner of a partition commits to Kafka.

    PROVEN: it committed to Kafka while it was watched. CONTRADICTED: it committed to ZooKeeper what it did not commit
    to Kafka, within a look more. NONE: neither, or the partition has no owner, or another one than at the beginning.
    """

    PROVEN = "proven"
    CONTRADICTED = "contradicted"
    NONE = "no evidence yet"


class WatchedPartition(NamedTuple):
    """What was seen of a partition from the beginning of the watch to its end.

    Attributes:
        partition: which one.
        owner: the consumer thread that owned it all the time; None if there was none, or if it changed.
        znode: offset in ZooKeeper at the end; None if there is none.
        is_znode_written: whether the znode was written meanwhile.
        in_kafka: offset in Kafka, read after ``znode``; None if there is none.
        commits: offsets that were committed to Kafka meanwhile, the oldest first.
        log: the offsets of its log, read after all others; None if unknown.
        former_znode: what the look before the last one found in the znode, if it was written by then; None otherwise.
    """

    partition: TopicPartition
    owner: str | None
    znode: int | None
    is_znode_written: bool
    in_kafka: int | None
    commits: tuple[int, ...]
    log: LogRange | None = None
    former_znode: int | None = None

    @property
    def evidence(self) -> Evidence:
        """Whether its owner commits to Kafka."""
        if self.owner is None:
            return Evidence.NONE
        if self.needs_another_look:
            return Evidence.NONE
        if self._is_only_in_zookeeper(self.znode):
            return Evidence.CONTRADICTED
        return Evidence.PROVEN if self.commits else Evidence.NONE

    @property
    def needs_another_look(self) -> bool:
        """Whether its znode has a commit that Kafka does not have, and that may be on its way there."""
        is_new = self._is_only_in_zookeeper(self.znode) and not self._is_only_in_zookeeper(self.former_znode)
        return self.owner is not None and is_new

    def _is_only_in_zookeeper(self, offset: int | None) -> bool:
        """Whether Kafka does not have the commit in the znode, which was written meanwhile; ``offset`` is what it held.

        A greater offset in Kafka is that of a newer commit only if one was seen. Without one it is of an earlier time,
        or the commit of a dual member that reached Kafka before the watch began, and then both stores have the same.
        """
        if not self.is_znode_written or offset is None:
            return False
        return self.in_kafka is None or offset > self.in_kafka or (offset != self.in_kafka and not self.commits)

    @property
    def is_dual(self) -> bool | None:
        """Whether its owner, which commits to Kafka, commits to ZooKeeper as well; None if that is not known yet.

        A member of the JVM writes to ZooKeeper a moment after Kafka has accepted a commit, so the newest commit shows
        nothing.
        """
        if self.is_znode_written or self.znode == self.in_kafka:
            return True
        earlier = self.commits[:-1]
        return False if earlier and self.znode != earlier[-1] else None


class Stage(Enum):
    """Where the group stores its offsets: what its members do, not what their configuration is."""

    ZOOKEEPER = "zookeeper"
    MIXED = "mixed"
    DUAL = "dual"
    KAFKA = "kafka"
    UNKNOWN = "unknown"


class Guidance(NamedTuple):
    """The result.

    Attributes:
        stage: see :class:`Stage`.
        step: the one next step, a sentence.
        back: the way back from here, a sentence; empty if nothing was changed yet.
        obstacles: what has to be fixed before the step, one sentence each; the step must not be taken with one.
        warnings: what is in the way of the way back, one sentence each.
        left_behind: owners that have not taken the last step while others have.
    """

    stage: Stage
    step: str
    back: str = ""
    obstacles: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()


_ENABLE: Final = "offsets.storage=kafka and dual.commit.enabled=true"
_BACK_TO_ZOOKEEPER: Final = (
    "restart each member with offsets.storage=zookeeper: ZooKeeper has had every commit since dual commit is enabled"
)


def guide(partitions: Sequence[WatchedPartition]) -> Guidance:
    """What to do next, from all partitions of the group."""
    match _stage(partitions):
        case Stage.ZOOKEEPER:
            step = f"restart each member with {_ENABLE}, one after the other; then run this command again"
            return Guidance(Stage.ZOOKEEPER, step, obstacles=tuple(_kafka_ahead(partitions)))
        case Stage.MIXED:
            behind = _owners(_with(partitions, Evidence.CONTRADICTED))
            step = f"restart {name_some(behind)} with {_ENABLE}: the others commit to Kafka already"
            ahead = tuple(_kafka_ahead(partitions))
            return Guidance(Stage.MIXED, step, _BACK_TO_ZOOKEEPER, ahead, left_behind=behind)
        case Stage.DUAL:
            return _guide_dual(partitions)
        case Stage.KAFKA:
            step = "stop the members, and start the next consumers with the same group: its offsets are in Kafka"
            back = (
                "restart each member with dual.commit.enabled=true and run this command until the stage is dual; then "
                "restart each with offsets.storage=zookeeper"
            )
            return Guidance(Stage.KAFKA, step, back, warnings=tuple(_znode_ahead(partitions)))
        case _:
            return Guidance(Stage.UNKNOWN, _why_unknown(partitions))


def _guide_dual(partitions: Sequence[WatchedPartition]) -> Guidance:
    done = [watched for watched in partitions if watched.is_dual is False]
    behind = _owners(watched for watched in partitions if watched.is_znode_written) if done else ()
    who = f"{name_some(behind)}, which still commits to both stores," if behind else "each member"
    step = f"restart {who} with dual.commit.enabled=false, one after the other; then run this command again"
    back = _BACK_TO_ZOOKEEPER
    if done:
        back = "restart each member with dual.commit.enabled=true and run this command again"
    return Guidance(Stage.DUAL, step, back, left_behind=behind)


def _owners(partitions: Iterable[WatchedPartition]) -> tuple[str, ...]:
    return tuple(sorted({watched.owner for watched in partitions if watched.owner is not None}))


def _stage(partitions: Sequence[WatchedPartition]) -> Stage:
    evidence = {watched.evidence for watched in partitions if watched.owner is not None}
    if Evidence.CONTRADICTED in evidence:
        # Members with storage ZooKeeper do not commit idle partitions, which therefore give no evidence.
        return Stage.MIXED if Evidence.PROVEN in evidence else Stage.ZOOKEEPER
    dual = {watched.is_dual for watched in partitions}
    if evidence != {Evidence.PROVEN} or any(watched.owner is None for watched in partitions) or None in dual:
        return Stage.UNKNOWN
    is_written = any(watched.is_znode_written for watched in partitions)
    return Stage.KAFKA if False in dual and not is_written else Stage.DUAL


def _why_unknown(partitions: Sequence[WatchedPartition]) -> str:
    without = [watched.partition for watched in partitions if watched.owner is None]
    if len(without) == len(partitions):
        return "start members of the group: only what they commit shows where they store offsets"
    if without:
        return (
            f"wait until {name_some(without)} have had the same owner for a whole watch; `zkconsumer groups explain` "
            "reports why a partition has none"
        )
    silent = [
        watched.partition for watched in partitions if watched.evidence is Evidence.NONE or watched.is_dual is None
    ]
    return (
        f"watch longer: {name_some(silent)} were not committed twice; --watch must exceed twice "
        f"auto.commit.interval.ms of the members ({ConsumerConfig.auto_commit_interval_ms // 1000} s by default), and "
        "members without automatic commits must commit"
    )


def _kafka_ahead(partitions: Iterable[WatchedPartition]) -> Iterator[str]:
    """Under dual commit the greater offset counts, and what ZooKeeper has is right as long as it is the store."""
    for watched in _with(partitions, Evidence.CONTRADICTED, Evidence.NONE):
        if (skipped := how_far([watched.znode], watched.in_kafka, watched.log) or 0) > 0:
            yield (
                f"{watched.partition}: Kafka has offset {watched.in_kafka} of an earlier time, ZooKeeper "
                f"{watched.znode}; with "
                f"dual commit the greater one counts, and {skipped} records would be skipped. Delete the group's "
                "offsets in Kafka first (`zkconsumer groups delete --store kafka --force-live`), or set "
                "dual.read=zookeeper where members are zkconsumer's"
            )


def _znode_ahead(partitions: Iterable[WatchedPartition]) -> Iterator[str]:
    """The same on the way back, where what Kafka has is right."""
    for watched in partitions:
        if (skipped := how_far([watched.in_kafka], watched.znode, watched.log) or 0) > 0:
            yield (
                f"{watched.partition}: ZooKeeper has offset {watched.znode} of an earlier time, Kafka "
                f"{watched.in_kafka}; do not "
                f"enable dual commit again before it is lowered, or {skipped} records would be skipped"
            )


def _with(partitions: Iterable[WatchedPartition], *evidence: Evidence) -> list[WatchedPartition]:
    return [watched for watched in partitions if watched.evidence in evidence]
