"""MemberDescription: one member at one moment, for operators and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkconsumer.errors import name_some
from zkconsumer.group.rules.groupview import format_partitions
from zkconsumer.group.rules.memberstate import Entered
from zkconsumer.group.rules.rebalancetimes import RebalanceCause
from zkconsumer.model import ConsumerThreadId, TopicPartition


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """The state of a member and what it holds. Values of different attributes may be a moment apart.

    Attributes:
        group: consumer group.
        consumer_id: id of the member.
        protocol: ``group.protocol``, or ``none`` for a consumer of assigned partitions.
        states: the newest states of the member with the monotonic time of each, the present one last.
        generation: number of its assignment; 0 before the first.
        attempts: rebalance attempts, except those that found nothing to do.
        views: how often it has read the group.
        last_cause: cause of its last rebalance; None before the first.
        last_seconds: how long that took, failed attempts and the waits between them included.
        last_finished: when it ended, in seconds since the epoch; 0.0 before the first.
        owned: its partitions and their consumer threads.
        session: id of its ZooKeeper session, 0 without a connection.
        connected: True while the group can be reached.
        lease_s: seconds until records are withheld if ZooKeeper remains silent; 0 or less while they are.
        delivering: True while records may be handed out.
        member_id: what the group knows the member as: the consumer id in ZooKeeper; in a group of brokers the id that
            it has there, "" before it has joined.
        strategy: by which partitions are assigned; "" if unknown.
        coordinator: the broker that coordinates the group, as ``host:port (id 3)``; "" in ZooKeeper, or if unknown.
        leads: True if it assigns the partitions of all members, as far as it knows.
        unfinished: with ``commit.on=done``, the number of records of each partition that were handed out and are not
            done, where there are any.
    """

    group: str
    consumer_id: str
    protocol: str
    states: tuple[Entered, ...]
    generation: int
    attempts: int
    views: int
    last_cause: RebalanceCause | None
    last_seconds: float
    last_finished: float
    owned: Mapping[TopicPartition, ConsumerThreadId]
    session: int
    connected: bool
    lease_s: float
    delivering: bool
    member_id: str = ""
    strategy: str = ""
    coordinator: str = ""
    leads: bool = False
    unfinished: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The present state, such as ``fetching``: a value of :class:`~zkconsumer.MemberState`."""
        return self.states[-1].state.value

    def __str__(self) -> str:
        last = "none yet"
        if self.last_cause is not None:
            last = f"{self.last_cause.value}, {self.last_seconds:.1f} s"
        session = f"session 0x{self.session:x} " if self.session else ""
        return (
            f"group {self.group} consumer {self.consumer_id} ({self.protocol}): {self.state}; generation "
            f"{self.generation}, owns {format_partitions(self.owned)}; last rebalance: {last}; "
            f"{session}{'connected' if self.connected else 'not connected'}, lease {self.lease_s:.1f} s, "
            f"{'delivering' if self.delivering else 'not delivering'}; strategy {self.strategy or 'unknown'}"
            f"{', leads the group' if self.leads else ''}"
            f"{f', member {self.member_id} at {self.coordinator}' if self.coordinator else ''}"
            f"{f'; not done: {_counts(self.unfinished)}' if self.unfinished else ''}"
        )


def _counts(unfinished: Mapping[TopicPartition, int]) -> str:
    return name_some([f"{count} of {partition}" for partition, count in sorted(unfinished.items())])
