"""SparkFetchControl: the one lock around the state of a query.

Spark calls the source on the main thread of its process; the member's rebalance thread starts and stops partitions;
acknowledgements arrive on a third. They meet only here, under one condition that is never held across I/O. What their
events change is decided by :class:`~zkconsumer.spark.rules.querystate.QueryState`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ConsumerClosed, ZkConsumerError
from zkconsumer.fetch.rules.fetchcontrol import FetchAssignment
from zkconsumer.model import Stamp, TopicPartition
from zkconsumer.spark.rules.querystate import QueryState

_log = logging.getLogger(__name__)


def drain_remedy(config: ConsumerConfig) -> str:
    """What to change where batches take longer, as text for the log."""
    if config.brokers_coordinate:
        return "raise max.poll.interval.ms of this query (session.timeout.ms if its brokers are older than 0.10.1)"
    return "raise rebalance.max.retries and rebalance.backoff.ms in all members"


class SparkFetchControl:
    """A :class:`~zkconsumer.fetch.rules.fetchcontrol.FetchControl` for which Spark's tasks do the fetching.

    Only what Spark has finished may be committed, so each commit by timer, rebalance or leaving follows the checkpoint.

    Args:
        drain_timeout_s: returns how long :meth:`stop` waits for a batch in flight, in seconds: the member's
            :attr:`~zkconsumer.group.member.GroupMember.release_s`.
        remedy: see :func:`drain_remedy`.
    """

    needs_topics = True

    def __init__(self, drain_timeout_s: Callable[[], float], remedy: str = "") -> None:
        self._drain_timeout_s = drain_timeout_s
        self._remedy = remedy
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._query = QueryState()
        self._failure: BaseException | None = None
        self._refusal: ZkConsumerError | None = None

    # -- any thread -------------------------------------------------------------------------------------------------

    @property
    def query(self) -> QueryState:
        """The newest state, which a rebalance may be about to change."""
        return self._query

    @property
    def refusal(self) -> ZkConsumerError | None:
        """Why the group may not be used, after as many refusals in a row as a stream awaits; None if it may."""
        return self._refusal

    def update(self, event: Callable[[QueryState], QueryState]) -> QueryState:
        """Replace the state by the one that follows an event.

        Raises:
            GenerationEnded: see :class:`~zkconsumer.spark.rules.querystate.QueryState`.
        """
        with self._lock:
            self._query = event(self._query)
            self._changed.notify_all()
            return self._query

    def acknowledge(self, number: int) -> bool:
        """Spark has finished the batch of a plan, and has not triggered the next one; False if that is no news."""
        with self._lock:
            before = self._query
            return self.update(lambda query: query.acknowledged(number)) is not before

    def stamp(self) -> Stamp | None:
        """The stamp of the offsets that may be committed."""
        return self._query.stamp

    # -- the rebalance thread ---------------------------------------------------------------------------------------

    def stop(self, *, drain: bool = True) -> None:
        """Stop planning, and wait for the batch in flight if it reads assigned partitions; see :meth:`release`."""
        self.release(self._query.owned.keys(), drain=drain)

    def release(self, partitions: Collection[TopicPartition], *, drain: bool = True) -> None:
        """Stop planning until :meth:`start`; wait for the batch in flight only if it reads these partitions.

        At most the drain timeout: after it the partitions are released with the offset before the batch, and their next
        owner reads it again. That is decided once for each batch: a later attempt of the same rebalance does not wait
        again.

        Whether it reads them is decided when no further batch can be planned. Otherwise: 1. no batch is in flight;
        2. one is planned that reads these partitions; 3. they are released at once.
        """
        timeout_s = self._drain_timeout_s() if drain else 0.0  # without the lock: it takes the membership's
        with self._lock:
            awaited = self.update(lambda query: query.releasing(partitions)).awaited(partitions)
            if not drain or not awaited:
                return
            if self._changed.wait_for(lambda: not self._query.awaited(partitions), timeout_s):
                return
            self.update(QueryState.given_up)
        _log.warning(
            "a batch of %d partitions did not finish within %.1f s; the next owners of its partitions read them again "
            "from its start. If batches take longer, %s",
            len(awaited),
            timeout_s,
            self._remedy,
        )

    def start(self, assignment: FetchAssignment) -> None:
        """Let Spark's thread plan with a new assignment."""
        self.update(lambda query: query.assigned(assignment))

    def withhold(self) -> None:
        """Do nothing: the planner checks the member's lease before it plans, and tasks cannot be recalled."""

    def deliver(self) -> None:
        """Do nothing; see :meth:`withhold`."""

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:  # noqa: ARG002  see below
        """Ends of finished batches, even if ``commit.on=delivery`` requests handed-out positions.

        Spark repeats a failed batch, which is possible only if the batch was not committed.
        """
        return self._query.committable

    def superseded(self) -> Collection[tuple[TopicPartition, int]]:
        """Nothing: Spark commits explicit offsets of a generation."""
        return ()

    def fail(self, error: BaseException) -> None:
        """Record that the rebalance thread died; Spark's thread raises the error when it needs the assignment."""
        with self._lock:
            self._failure = error
            self._changed.notify_all()

    def refuse(self, error: ZkConsumerError | None) -> None:
        """Record that this member's group may not be used, and why; None: that has ended."""
        with self._lock:
            self._refusal = error
            self._changed.notify_all()

    # -- Spark's thread ---------------------------------------------------------------------------------------------

    def await_assignment(self, timeout_s: float) -> QueryState | None:
        """Wait until no rebalance is in progress; None if that takes longer than ``timeout_s`` seconds.

        Raises:
            ConsumerClosed: the rebalance thread has died.
            TopicUnreadable: a permission for an offset stored in Kafka is missing.
            NEEDS_AN_OPERATOR: the :attr:`refusal`.
        """
        query = self._await(lambda query: not query.is_stopped, timeout_s)
        if self._failure is not None:
            raise ConsumerClosed("the query's membership in its group ended with an error") from self._failure
        if self._refusal is not None:
            raise self._refusal
        if query.is_stopped:
            return None
        if query.unreadable is not None:
            raise query.unreadable
        return query

    def await_partitions(self, timeout_s: float) -> None:
        """Wait until the query owns a partition, at most ``timeout_s`` seconds; an error ends the wait.

        The first assignment of a member of a cooperative group has none: 1. it joins; 2. the others release partitions
        for it; 3. they are assigned to it. It is not awaited where the subscribed topics have no partitions.
        """
        self._await(
            lambda query: (
                not query.is_stopped and bool(query.owned or query.unreadable is not None or not query.subscribed)
            ),
            timeout_s,
        )

    def await_newer(self, generation: int, timeout_s: float) -> None:
        """Wait until there is another generation than this one, at most ``timeout_s`` seconds; an error ends the wait.

        There may never be one: a rebalance that gives the query what it has makes none.
        """
        self._await(lambda query: query.generation != generation, timeout_s)

    def _await(self, condition: Callable[[QueryState], bool], timeout_s: float) -> QueryState:
        """Wait for a state, at most ``timeout_s`` seconds; an error ends the wait. Returns the newest state."""
        with self._lock:
            self._changed.wait_for(lambda: self._failure or self._refusal or condition(self._query), timeout_s)
            return self._query
