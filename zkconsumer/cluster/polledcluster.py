"""PolledCluster: notices changes of brokers, topics and partitions by asking brokers at an interval.

ZooKeeper notifies its clients of changes; brokers do not.

Members must not disagree about a topic for as long as the interval. A member claims all partitions of its share or
none, and one that knows of new partitions may have to wait for one that does not:

1. topic t grows from 2 to 4 partitions; members A and B own partition 0 and 1.
2. A asks by timer, and the answer has the 4 partitions. The signal of A is raised.
3. A reads the group. The cluster has changed and no event of the group announced it, so A nudges the group
   (:class:`~zkconsumer.group.zookeeper.rules.clusterchanges.ClusterChanges`). Its share is now 0 and 1, and B still
   owns 1.
4. The nudge makes B read the group. Every reading of the group asks a broker first (:meth:`PolledCluster.read`), so B
   learns of the partitions, too. Its share is 2 and 3, and it releases 1.
5. If the broker that answered B has not yet learned of the new partitions, B asks once more a second later, by timer,
   and continues at step 3 in the place of A.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from zkconsumer.cluster.brokercatalog import TIMEOUT_MS, CatalogAnswer, ask_for_catalog
from zkconsumer.cluster.rules.clustercatalog import ClusterSnapshot, next_snapshot, poll_seconds
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import NEEDS_AN_OPERATOR, BrokerUnavailable, ZkConsumerError
from zkconsumer.model import Broker
from zkconsumer.process.threads import start_thread
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.connectionpool import ConnectionPool
from zkconsumer.wire.errorcodes import is_refusal
from zkconsumer.wire.refusals import DESCRIBE, topic_refused
from zkconsumer.wire.rules.outage import Outage

_log: Final = logging.getLogger(__name__)

_PATIENCE_S: Final = 2.0
"""How long a reading of the group waits for a broker; then what was known before is used."""
_END_S: Final = 2.0


class PolledCluster:
    """A ``ClusterSource``: asks the brokers from ``bootstrap.servers`` on.

    One thread asks, and it alone writes the snapshot, which is immutable. An answer that differs calls ``changed``; the
    first one does not if a reading of the group waits for it. When no broker answers, the last snapshot stays, and when
    none of its brokers answers, those of ``bootstrap.servers`` are asked again.

    Args:
        config: has ``bootstrap.servers``, ``metadata.max.age.ms``, and specifies how brokers are reached.
        owner: the consumer, as part of the thread's name.
        pool: connections that it shares with the member's other clients; its own if None.
    """

    def __init__(self, config: ConsumerConfig, owner: str, pool: ConnectionPool | None = None) -> None:
        self._group = config.group_id
        self._interval_s = config.metadata_max_age_ms / 1000
        self._bootstrap = bootstrap_brokers(config.bootstrap_servers)
        self._to_ask: Sequence[Broker] = self._bootstrap
        timeout_ms = min(TIMEOUT_MS, config.socket_timeout_ms)
        self._client = BrokerClient.from_config(lambda: self._to_ask, config, timeout_ms=timeout_ms, pool=pool)
        self._thread = threading.Thread(target=self._run, name=f"{owner}-metadata", daemon=True)
        self._changed: Callable[[], None] = lambda: None
        self._outage = Outage()
        self._reported: dict[str, int] = {}
        self._snapshot = ClusterSnapshot()
        self._failure: ZkConsumerError | None = None
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        # Guarded by the lock:
        self._wanted: frozenset[str] | None = frozenset()  # topics to ask for; None for all
        self._requests = 0
        self._for_others = False
        self._answered = 0
        self._waiting = 0
        self._closed = False

    def open(self, changed: Callable[[], None]) -> None:
        """See :class:`~zkconsumer.cluster.rules.clustercatalog.ClusterSource`; to be called once."""
        self._changed = changed
        start_thread(self._thread)

    def live_brokers(self) -> tuple[Broker, ...]:
        """The brokers as last known; those of ``bootstrap.servers`` before the first answer."""
        return self._snapshot.brokers or self._bootstrap

    def read(self, topics: Collection[str] | None, *, for_others: bool = True) -> ClusterSnapshot:
        """Ask a broker now, and wait for the answer, at most 2 seconds; the last snapshot if none answers.

        Args:
            topics: names of the topics to describe; None for all topics.
            for_others: True if members share partitions by it. Then another broker is asked a second later, as one is
                if the answer lacks a topic: brokers learn of changes one after the other.

        Raises:
            AuthenticationFailed, ConfigError: no broker has ever answered, for this reason.
        """
        with self._lock:
            self._wanted = None if topics is None or self._wanted is None else self._wanted | frozenset(topics)
            self._requests += 1
            request = self._requests
            self._for_others = self._for_others or for_others
            self._waiting += 1
            self._condition.notify_all()
            try:
                self._condition.wait_for(lambda: self._closed or self._answered >= request, _PATIENCE_S)
            finally:
                self._waiting -= 1
            snapshot, failure = self._snapshot, self._failure
        if not snapshot.brokers and isinstance(failure, NEEDS_AN_OPERATOR):
            raise failure
        return snapshot

    def close(self) -> None:
        """End the thread; idempotent, from any thread."""
        with self._lock:
            self._closed = True
            self._condition.notify_all()
        self._client.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_END_S)

    # -- on the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures, pause_s = 0, self._interval_s
        while (taken := self._next_request(pause_s)) is not None:
            was_asked, for_others, request, wanted = taken
            answer, failure = self._poll(wanted)
            failures = 0 if failure is None else failures + 1
            self._store(request, answer, failure)
            may_be_outdated = was_asked and self._snapshot.may_be_outdated(wanted, for_others=for_others)
            soon = may_be_outdated or bool(self._snapshot.denied)
            pause_s = poll_seconds(self._interval_s, failures=failures, soon=soon)

    def _next_request(self, pause_s: float) -> tuple[bool, bool, int, frozenset[str] | None] | None:
        """Wait for a reading of the group or the timer.

        Returns:
            Whether it was a reading, whether it was one for others, its number, the topics to ask for; None when this
            is closed.
        """
        with self._lock:
            asked = self._condition.wait_for(lambda: self._closed or self._requests > self._answered, pause_s)
            for_others, self._for_others = self._for_others, False
            return None if self._closed else (asked, for_others, self._requests, self._wanted)

    def _poll(self, wanted: frozenset[str] | None) -> tuple[CatalogAnswer | None, ZkConsumerError | None]:
        try:
            answer = self._ask(wanted)
        except ZkConsumerError as error:
            self._report(error)
            return None, error
        except Exception as error:  # noqa: BLE001 - without this thread no change would be noticed any more
            _log.exception("group %s: unexpected error while brokers were asked for the topics", self._group)
            return None, BrokerUnavailable(f"unexpected error: {error!r}")
        lasted = self._outage.end(time.monotonic())
        if lasted is not None:
            _log.info("group %s: brokers answer again after %.1f s", self._group, lasted)
        self._report_undescribed(answer)
        return answer, None

    def _ask(self, wanted: frozenset[str] | None) -> CatalogAnswer:
        question = partial(ask_for_catalog, topics=wanted, known=self._snapshot.described)
        self._to_ask = self._snapshot.brokers
        if self._to_ask:
            try:
                return self._client.ask_any(question)
            except BrokerUnavailable as error:
                _log.debug("group %s: asking bootstrap.servers, since %s", self._group, error)
        self._to_ask = self._bootstrap
        return self._client.ask_any(question)

    def _store(self, request: int, answer: CatalogAnswer | None, failure: ZkConsumerError | None) -> None:
        before = self._snapshot
        now = before
        if answer is not None:
            now = next_snapshot(before, answer.snapshot, now=time.monotonic())
        with self._lock:
            self._snapshot, self._failure = now, failure
            self._answered = request
            is_awaited = self._waiting > 0
            self._condition.notify_all()
        if now.differs(before) and (before.brokers or not is_awaited):
            self._changed()

    def _report(self, error: ZkConsumerError) -> None:
        if not self._is_closed() and self._outage.is_news(str(error), time.monotonic()):
            _log.warning(
                "group %s: brokers and topics cannot be read, what was known before is used: %s; check that brokers "
                "run, and bootstrap.servers",
                self._group,
                error,
            )

    def _is_closed(self) -> bool:
        with self._lock:
            return self._closed

    def _report_undescribed(self, answer: CatalogAnswer) -> None:
        """Log each topic once that brokers refuse to describe."""
        failed = {name: answer.failed[name] for name in answer.snapshot.undescribed if is_refusal(answer.failed[name])}
        for name, code in sorted(failed.items()):
            if self._reported.get(name) != code:
                refusal = topic_refused(name, code, DESCRIBE, "a broker", self._client.security)
                _log.error("group %s: %s", self._group, refusal)
        self._reported = failed
