"""ConsumerRebalanceListener: the methods of an application that a rebalance calls (jvm-consumer.md#listener)."""

from __future__ import annotations

from collections.abc import Mapping, Set

from zkconsumer.group.controlthread import ControlThread
from zkconsumer.group.usercode import user_code
from zkconsumer.model import ConsumerThreadId, TopicPartition


class ConsumerRebalanceListener:
    """Override the methods that are needed. The rebalance thread calls both; an exception fails the attempt.

    They may commit, and may wait for another thread that commits. They may call ``shutdown``, which then takes place
    when they have returned. They must not wait for another rebalance. If they wait for a thread that
    calls ``shutdown``, the consumer leaves after a session timeout, without its last commit.
    """

    def before_releasing_partitions(self, owned: Set[TopicPartition]) -> None:
        """Fetching has stopped and automatic commits are done; the partitions in ``owned`` are released next.

        If ``group.protocol`` is not ``zookeeper``, ``owned`` has only the partitions that this member gives up; the
        others are fetched all the time.

        Called with an empty set when nothing is released: at the start, after a failed attempt or a lost session, and
        if ``group.protocol`` is not ``zookeeper``, also when partitions are only added.
        """

    def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[TopicPartition, ConsumerThreadId]
    ) -> Mapping[TopicPartition, int] | None:
        """All partitions of this member are owned and fetching is about to start.

        Args:
            consumer_id: id of this member.
            assignment: the partitions of all members, as this member computed them; if ``group.protocol`` is not
                ``zookeeper``, only those of this member.

        Returns:
            Offsets to start from instead of the stored ones, for some of this member's partitions; None for none.
        """


class CalledOutListener(ConsumerRebalanceListener):
    """Calls an application's listener so that its other threads can commit meanwhile.

    Both methods raise UserCodeFailed with what the listener raised, and ConsumerClosed if this consumer was closed
    meanwhile without waiting for it.
    """

    def __init__(self, listener: ConsumerRebalanceListener, thread: ControlThread) -> None:
        self._listener = listener
        self._thread = thread

    def before_releasing_partitions(self, owned: Set[TopicPartition]) -> None:
        """See :class:`ConsumerRebalanceListener`."""
        with self._thread.calling_out(), user_code():
            self._listener.before_releasing_partitions(owned)

    def before_starting_fetchers(
        self, consumer_id: str, assignment: Mapping[TopicPartition, ConsumerThreadId]
    ) -> Mapping[TopicPartition, int] | None:
        """See :class:`ConsumerRebalanceListener`."""
        with self._thread.calling_out(), user_code():
            return self._listener.before_starting_fetchers(consumer_id, assignment)
