"""Ledger: what happened in a run of a consumer group, as immutable records; each has a text form of one line.

Several processes can write one ledger, each to a file of its own (:mod:`zkconsumer.testing.ledgerfile`), and a run can
be checked again from its files (:mod:`zkconsumer.testing.checker`). All times are seconds on the monotonic clock of one
machine, which its processes share.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Final, Literal, TypeVar, get_args

from zkconsumer.errors import UsageError
from zkconsumer.model import TopicPartition

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Produced:
    """A record that the brokers acknowledged.

    Attributes:
        number: the record's id, unique in the run.
        topic: where it was appended.
        partition: where it was appended.
        offset: where it was appended.
        at: time of the acknowledgement.
    """

    number: int
    topic: str
    partition: int
    offset: int
    at: float


@dataclass(frozen=True, slots=True)
class Delivered:
    """A record that a consumer handed out, once for each time.

    Attributes:
        number: the record's id.
        topic: where it was read.
        partition: where it was read.
        offset: where it was read.
        owner: consumer id of the member that handed it out.
        session: of that member, 0 if unknown.
        generation: of that member's assignment, 0 if unknown.
        asked: when the application asked for it: it was handed out between ``asked`` and ``at``.
        at: when the application had it.
    """

    number: int
    topic: str
    partition: int
    offset: int
    owner: str
    session: int
    generation: int
    asked: float
    at: float


@dataclass(frozen=True, slots=True)
class Done:
    """A member had processed a record, with ``commit.on=done``. Written before the member calls ``done``.

    Attributes:
        number: the record's id.
        topic: where it was read.
        partition: where it was read.
        offset: where it was read.
        owner: consumer id of the member.
        at: when.
    """

    number: int
    topic: str
    partition: int
    offset: int
    owner: str
    at: float


@dataclass(frozen=True, slots=True)
class Claimed:
    """A member became the owner of a partition.

    Attributes:
        topic: of the partition.
        partition: its number.
        owner: consumer id of the new owner.
        session: of the owner.
        zxid: of the owner znode's creation.
        at: when.
    """

    topic: str
    partition: int
    owner: str
    session: int
    zxid: int
    at: float


@dataclass(frozen=True, slots=True)
class Released:
    """A member ceased to be the owner of a partition. ``zxid`` is that of the end; the rest is as in :class:`Claimed`.

    Attributes:
        expired: True if the end of the session ended the ownership.
    """

    topic: str
    partition: int
    owner: str
    session: int
    zxid: int
    at: float
    expired: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """An offset was stored.

    Attributes:
        topic: of the partition.
        partition: its number.
        offset: the next one to consume.
        store: ``zookeeper`` or ``kafka``.
        writer: consumer id of the member that stored it, empty if unknown.
        session: of the client that stored it, 0 if unknown.
        version: of the offset znode; in Kafka the position in the log of commits.
        mzxid: of the offset znode, 0 in Kafka.
        czxid: of the offset znode, 0 in Kafka.
        at: when.
    """

    topic: str
    partition: int
    offset: int
    store: Literal["zookeeper", "kafka"]
    writer: str
    session: int
    version: int
    mzxid: int
    czxid: int
    at: float


@dataclass(frozen=True, slots=True)
class Registered:
    """A member registered in a session."""

    owner: str
    session: int
    at: float


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A member's session was closed or expired."""

    owner: str
    session: int
    at: float


@dataclass(frozen=True, slots=True)
class Removed:
    """Records of a partition were removed by its broker, so that no member can read them any more.

    Attributes:
        topic: of the partition.
        partition: its number.
        offset: of the first record that is left.
        at: when it was certain.
    """

    topic: str
    partition: int
    offset: int
    at: float


@dataclass(frozen=True, slots=True)
class Gone:
    """No broker has an acknowledged record any more: an unclean election or the end of its topic has removed it.

    Attributes:
        number: the record's id.
        at: when it was certain.
    """

    number: int
    at: float


@dataclass(frozen=True, slots=True)
class Faulted:
    """A fault was injected.

    Attributes:
        kind: what was done.
        owner: consumer id of the member that it was done to, empty for other faults.
        began: when it began; nothing of it happened before.
        ended: when it was over; the same as ``began`` for an event.
        established: from when on it was in force, None for ``began``. Injecting takes a moment, or seconds where the
            machine is busy.
        lifting: until when it was in force, None for ``ended``.
    """

    kind: str
    owner: str
    began: float
    ended: float
    established: float | None = None
    lifting: float | None = None


@dataclass(frozen=True, slots=True)
class Stalled:
    """A process was not run for a while, by a fault or because the machine was busy or stood still.

    Attributes:
        owner: consumer id of the member whose process it was, empty for the process that injects faults.
        began: when it ran last before.
        ended: when it ran again.
    """

    owner: str
    began: float
    ended: float


Record = (
    Produced
    | Delivered
    | Done
    | Claimed
    | Released
    | Committed
    | Registered
    | SessionEnded
    | Removed
    | Gone
    | Faulted
    | Stalled
)

_KINDS: Final[Mapping[str, type[Record]]] = {kind.__name__.lower(): kind for kind in get_args(Record)}


def encode(record: Record) -> str:
    """One line of JSON, without its end."""
    return json.dumps({"record": type(record).__name__.lower(), **asdict(record)}, separators=(",", ":"))


def decode(line: str) -> Record:
    """The record of a line.

    Raises:
        UsageError: the line is not one of a ledger.
    """
    try:
        values = json.loads(line)
        return _KINDS[values.pop("record")](**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"not a line of a ledger: {line[:80]!r} ({error!r})") from None


@dataclass(frozen=True, slots=True)
class Tenure:
    """The time in which a partition had one owner.

    Attributes:
        claim: how it began.
        end: how it ended, None if it did not.
    """

    claim: Claimed
    end: Released | None

    @property
    def until(self) -> float:
        """When it ended."""
        return float("inf") if self.end is None else self.end.at

    def overlaps(self, begin: float, end: float, slack: float) -> bool:
        """True if some of the time from ``begin`` to ``end`` is in this tenure, give or take ``slack`` seconds."""
        return self.claim.at - slack <= end and begin <= self.until + slack


class Ledger:
    """All records of one run, by kind and by partition. Immutable.

    Args:
        records: in any order.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self.records: Final = tuple(records)

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """The records of one kind, in the order in which they were given."""
        return tuple(record for record in self.records if isinstance(record, kind))

    @cached_property
    def deliveries(self) -> Mapping[TopicPartition, tuple[Delivered, ...]]:
        """Deliveries of each partition, by time."""
        return _by_partition(sorted(self.of(Delivered), key=lambda delivery: delivery.at))

    @cached_property
    def commits(self) -> Mapping[TopicPartition, tuple[Committed, ...]]:
        """Commits of each partition, as they followed each other in each store."""
        return _by_partition(
            sorted(self.of(Committed), key=lambda commit: (commit.store, commit.mzxid, commit.version, commit.at))
        )

    @cached_property
    def tenures(self) -> Mapping[TopicPartition, tuple[Tenure, ...]]:
        """Owners of each partition, one after the other; empty if ownership was not recorded."""
        changes: list[Claimed | Released] = [*self.of(Claimed), *self.of(Released)]
        # One generation of a group that brokers coordinate takes a partition from one member and gives it to another.
        changes.sort(key=lambda change: (change.zxid, isinstance(change, Claimed)))
        by_partition: dict[TopicPartition, list[Tenure]] = defaultdict(list)
        for change in changes:
            of_partition = by_partition[TopicPartition(change.topic, change.partition)]
            if isinstance(change, Claimed):
                of_partition.append(Tenure(change, None))
            elif of_partition and of_partition[-1].end is None:
                of_partition[-1] = Tenure(of_partition[-1].claim, change)
        return {partition: tuple(tenures) for partition, tenures in by_partition.items()}

    def tenure_at(self, partition: TopicPartition, zxid: int) -> Tenure | None:
        """The tenure in which the transaction ``zxid`` was done, None if the partition had no owner."""
        for tenure in self.tenures.get(partition, ()):
            if tenure.claim.zxid <= zxid and (tenure.end is None or zxid <= tenure.end.zxid):
                return tenure
        return None


D = TypeVar("D", Delivered, Committed)


def _by_partition(records: Iterable[D]) -> dict[TopicPartition, tuple[D, ...]]:
    by_partition: dict[TopicPartition, list[D]] = defaultdict(list)
    for record in records:
        by_partition[TopicPartition(record.topic, record.partition)].append(record)
    return {partition: tuple(of_partition) for partition, of_partition in by_partition.items()}
