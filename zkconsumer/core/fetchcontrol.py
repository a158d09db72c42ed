"""FetchControl: the interface between the control plane (group) and a data plane (fetching).

A consumer process plugs in local fetchers (``fetch/localfetchcontrol.py``), the Spark driver a planner
(``spark/driver.py``). All calls come from the rebalance thread, except :meth:`FetchControl.positions` and
:meth:`FetchControl.withhold`, which any thread may call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from zkconsumer.core.groupview import Topic
from zkconsumer.core.offsets import StoredOffset
from zkconsumer.errors import TopicUnreadable
from zkconsumer.model import ConsumerThreadId, TopicPartition


class Refused(NamedTuple):
    """An owned partition that is not fetched, since Kafka refuses to return its stored offset.

    Attributes:
        thread: the consumer thread that it belongs to.
        error: the reason, to be raised in the application.
    """

    thread: ConsumerThreadId
    error: TopicUnreadable


@dataclass(frozen=True, slots=True)
class FetchAssignment:
    """What one member fetches from one rebalance to the next.

    Attributes:
        generation: rises by one with every assignment of this member.
        threads: each owned partition and the consumer thread whose queue it fills.
        offsets: where to start each partition that is not fetched already; None means that no offset is stored: apply
            ``auto.offset.reset``.
        earliest: those without an offset that start at the beginning of the log, whatever ``auto.offset.reset`` is:
            their stored offset is one of an earlier topic of the same name.
        origins: for offsets that were read from a store, their location in it, for messages.
        stored: what the store held for each partition when it was read, after claiming.
        refused: owned partitions that are not fetched, since a permission on their topics is missing.
        moved: partitions whose stored offset another client wrote since this member last read or wrote it: what was
            handed out of them before does not belong to this assignment, even if it ends where this one starts.
        topics: the topics that this member subscribes to, owned partitions or not, as the assignment was computed;
            may be empty where :attr:`FetchControl.needs_topics` is False.
    """

    generation: int
    threads: Mapping[TopicPartition, ConsumerThreadId]
    offsets: Mapping[TopicPartition, int | None]
    origins: Mapping[TopicPartition, str] = field(default_factory=dict)
    stored: Mapping[TopicPartition, StoredOffset] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    refused: Mapping[TopicPartition, Refused] = field(default_factory=dict)
    moved: Set[TopicPartition] = frozenset()
    earliest: Set[TopicPartition] = frozenset()


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

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        """Next offset to consume of each partition of the newest assignment, where it is known.

        Args:
            handed_out: True counts everything that was given to the user; False only what the user released by
                asking for more (``commit.on``, delivery.md#what-a-commit-covers). A partition that still waits for its
                reset is absent.
        """

    def superseded(self) -> Collection[tuple[TopicPartition, int]]:
        """Records that the user holds and that no position covers any more: each partition and the offset after them.

        Their partition was given up, and the newest assignment lacks it or does not continue after these records, so
        its next owner may read them again. They are forgotten when the user asks for more.
        """
