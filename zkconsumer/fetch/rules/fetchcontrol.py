"""FetchControl: the interface between the control plane (group) and a data plane (fetching).

A consumer process plugs in local fetchers (``fetch/localfetchcontrol.py``), the Spark driver a planner
(``spark/driver.py``). All calls come from the rebalance thread, except :meth:`FetchControl.positions` and
:meth:`FetchControl.withhold` and :meth:`FetchControl.deliver`, which any thread may call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from zkconsumer.errors import TopicUnreadable
from zkconsumer.model import ConsumerThreadId, Topic, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import NO_OFFSET, StoredOffset


class AssignedPartition(NamedTuple):
    """One owned partition of an assignment.

    Attributes:
        thread: the consumer thread whose queue it fills.
        offset: where to start, unless it is fetched already; None means that no offset is stored: apply
            ``auto.offset.reset``.
        stored: what the store held when it was read, after claiming.
        location: of the stored offset in its store, for messages.
        outdated: True if the stored offset is one of an earlier topic of the same name.
        moved: True if another client wrote the stored offset since this member last read or wrote it: what was handed
            out before does not belong to this assignment, even if it ends where this one starts.
        error: why the partition is not fetched, to be raised in the application: a permission on its topic is missing.
    """

    thread: ConsumerThreadId
    offset: int | None = None
    stored: StoredOffset = NO_OFFSET
    location: str = ""
    outdated: bool = False
    moved: bool = False
    error: TopicUnreadable | None = None

    @property
    def earliest(self) -> bool:
        """True if it starts at the beginning of the log, whatever ``auto.offset.reset`` is."""
        return self.outdated and self.offset is None

    @property
    def origin(self) -> str | None:
        """The location of the offset that it starts from; None if that is not the stored one."""
        return self.location if self.offset is not None and self.offset == self.stored.offset else None


@dataclass(frozen=True)
class FetchAssignment:
    """What one member fetches from one rebalance to the next.

    Attributes:
        generation: rises by one with every assignment of this member.
        partitions: the owned partitions whose stored offset can be read, or is refused.
        topics: the topics that this member subscribes to, owned partitions or not, as the assignment was computed;
            may be empty where :attr:`FetchControl.needs_topics` is False.
    """

    generation: int
    partitions: Mapping[TopicPartition, AssignedPartition]
    topics: Mapping[str, Topic] = field(default_factory=dict)

    @cached_property
    def threads(self) -> Mapping[TopicPartition, ConsumerThreadId]:
        """The partitions that are fetched, and their consumer threads."""
        return {p: assigned.thread for p, assigned in self.partitions.items() if assigned.error is None}

    @cached_property
    def refused(self) -> Mapping[TopicPartition, TopicUnreadable]:
        """The partitions that are not fetched, and why."""
        return {p: assigned.error for p, assigned in self.partitions.items() if assigned.error is not None}


class StreamPartitions(NamedTuple):
    """What a commit of one stream covers.

    Attributes:
        fetched: the partitions of the newest assignment that fill its queue.
        held: one that was taken away, or moved to another stream, while its user holds records of it.
    """

    fetched: Collection[TopicPartition]
    held: TopicPartition | None = None


class FetchControl(Protocol):
    """Starts and stops the fetching of this member's partitions.

    Attributes:
        needs_topics: True if it uses :attr:`FetchAssignment.topics`.
    """

    needs_topics: bool

    def stop(self, *, drain: bool = True) -> None:
        """Stop fetching, and handing out records of the present assignment; return when that is done.

        Then :meth:`positions` still returns those of the stopped assignment. Idempotent. Must return in bounded time.

        Args:
            drain: may wait for work that was handed out to finish, so that a commit can cover it. False where the
                partitions are lost already, and no commit can follow.
        """

    def release(self, partitions: Collection[TopicPartition], *, drain: bool = True) -> None:
        """As :meth:`stop`, for some partitions; the others continue. Partitions that are not fetched are ignored."""

    def start(self, assignment: FetchAssignment) -> None:
        """Fetch the partitions of ``assignment`` and no others.

        Those that are fetched for the same consumer thread and were not released continue as they are; the others begin
        at their offset in ``assignment``. If it raises, none of those has begun.
        """

    def withhold(self) -> None:
        """Take back records that are being handed out, without waiting: the member's lease lapsed.

        See architecture.md#lease.

        Nothing more is handed out until the member's ``may_deliver`` returns True again.
        """

    def deliver(self) -> None:
        """Hand out again what was withheld: the member's lease holds again. Never blocks."""

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        """Next offset to consume of each partition of the newest assignment, where it is known.

        Args:
            handed_out: True counts everything that was given to the user; False only what the user released by
                asking for more, or with ``commit.on=done`` what is before the first record that is not done
                (delivery.md#what-a-commit-covers). A partition that still waits for its reset is absent.
        """

    def superseded(self) -> Collection[tuple[TopicPartition, int]]:
        """Records that the user holds and that no position covers any more: each partition and the offset after them.

        Their partition was given up, and the newest assignment lacks it or does not continue after these records, so
        its next owner may read them again. They are forgotten when the user asks for more.
        """
