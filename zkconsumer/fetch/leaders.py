"""LeaderFinder: partitions wait here until they have a leader, and come back here when they lose it (SPEC 6.1)."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from zkconsumer.config import ConsumerConfig
from zkconsumer.core.javastring import java_abs_mod, java_hash
from zkconsumer.core.outage import Outage
from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetch.fetcher import FetcherThread
from zkconsumer.fetch.partition_info import PartitionInfo
from zkconsumer.kafka.client import BrokerClient
from zkconsumer.kafka.errorcodes import error_name, is_refusal
from zkconsumer.kafka.refusals import DESCRIBE, topic_refused
from zkconsumer.kafka.security import BrokerSecurity
from zkconsumer.model import Broker, TopicPartition

_log = logging.getLogger(__name__)
_events = logging.getLogger("zkconsumer.events")

_HASH_STEP = 31


def fetcher_number(partition: TopicPartition, fetchers: int) -> int:
    """Which of a broker's fetchers gets a partition; the JVM's formula, in its 32-bit arithmetic (SPEC 6.1).

    >>> fetcher_number(TopicPartition("t8", 7), 4), fetcher_number(TopicPartition("orders", 2), 3)
    (3, 0)
    """
    return java_abs_mod(_HASH_STEP * java_hash(partition.topic) + partition.partition, fetchers)


def join_until(
    deadline: float, threads: Iterable[threading.Thread], clock: Callable[[], float] = time.monotonic
) -> list[str]:
    """Wait for threads until one deadline for all; returns the names of those still alive."""
    alive = []
    for thread in threads:
        thread.join(max(0.0, deadline - clock()))
        if thread.is_alive():
            alive.append(thread.name)
    return alive


class LeaderFinder(threading.Thread):
    """Finds leaders and hands partitions to fetchers, which it alone starts and ends.

    Args:
        consumer_id: of the member; part of the threads' names, which are the JVM's.
        config: client id, timeouts, backoff, fetchers per broker.
        live_brokers: brokers to ask; may do I/O and raise, then it is asked again after the backoff.
    """

    def __init__(self, consumer_id: str, config: ConsumerConfig, live_brokers: Callable[[], Sequence[Broker]]) -> None:
        super().__init__(name=f"{consumer_id}-leader-finder-thread", daemon=True)
        self._consumer_id = consumer_id
        self._config = config
        self._backoff_s = config.refresh_leader_backoff_ms / 1000
        self._client = BrokerClient.from_config(live_brokers, config)
        self._changed = threading.Condition(threading.Lock())
        self._waiting: dict[TopicPartition, PartitionInfo] = {}
        self._stopping = False
        self._fetchers: dict[tuple[int, int], FetcherThread] = {}  # written by this thread only
        self._reported: dict[TopicPartition, str] = {}
        self._outage = Outage()

    def add(self, infos: Iterable[PartitionInfo]) -> None:
        """Let partitions wait for their leader; from any thread. Ignored once this is closed, or they are released."""
        with self._changed:
            if not self._stopping:
                self._waiting.update((info.partition, info) for info in infos if not info.released)
                self._changed.notify()

    def remove(self, infos: Collection[PartitionInfo]) -> None:
        """Fetch these no more; from any thread. They are marked as released already.

        None escapes: one that is on its way from here to a fetcher, or back, is found to be released when it arrives.
        """
        with self._changed:
            for info in infos:
                if self._waiting.get(info.partition) is info:
                    del self._waiting[info.partition]
        for fetcher in list(self._fetchers.values()):
            fetcher.remove(infos)

    def close(self) -> None:
        """Tell this thread and all fetchers to end, without waiting for it; harmless when repeated."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._client.close()
        # list() of a dict's values is atomic. A fetcher started after this line is closed by the finder itself.
        for fetcher in list(self._fetchers.values()):
            fetcher.close()

    def join_all(self, timeout_s: float) -> list[str]:
        """Wait, after :meth:`close`, for this thread and the fetchers; returns the names of those still alive.

        Args:
            timeout_s: for all of them together, in seconds.
        """
        deadline = time.monotonic() + timeout_s
        # This one first: until it has ended it may start another fetcher.
        return join_until(deadline, [self]) + join_until(deadline, list(self._fetchers.values()))

    def fetch_requests(self) -> dict[str, tuple[float, int]]:
        """When each fetcher began, by ``time.monotonic``, and how many requests were answered since."""
        return {fetcher.name: (fetcher.began, fetcher.requests) for fetcher in list(self._fetchers.values())}

    def wakeups(self) -> int:
        """How often fetchers were woken while they waited for room."""
        return sum(fetcher.wakeups for fetcher in list(self._fetchers.values()))

    # -- the thread ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Look for leaders whenever a partition waits, at most once per backoff."""
        try:
            while wanted := self._wait_for_wanted():
                try:
                    self._assign(wanted)
                except ZkConsumerError as error:
                    self._report_failure(error)
                    for info in wanted.values():
                        info.report_wrong_settings(error)
                except Exception:  # noqa: BLE001  live_brokers may raise anything, and this thread must go on
                    _log.exception("%s: unexpected error, going on after %.1f s", self.name, self._backoff_s)
                self._end_idle_fetchers()
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, self._backoff_s)
        finally:
            self._client.close()
            for fetcher in self._fetchers.values():
                fetcher.close()

    def _wait_for_wanted(self) -> dict[TopicPartition, PartitionInfo]:
        """Wait until partitions are to be asked for; none at the end. Those that were refused wait longer."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                wanted = {partition: info for partition, info in self._waiting.items() if info.retry_at <= now}
                if wanted:
                    return wanted
                first = min((info.retry_at for info in self._waiting.values()), default=None)
                self._changed.wait(None if first is None else first - now)
            return {}

    def _assign(self, wanted: dict[TopicPartition, PartitionInfo]) -> None:
        metadata = self._client.metadata({partition.topic for partition in wanted})
        seconds = self._outage.end(time.monotonic())
        if seconds is not None:
            _events.info("%s: brokers answer again after %.0f s", self.name, seconds)
        routes: dict[tuple[Broker, int], list[PartitionInfo]] = defaultdict(list)
        for partition, info in wanted.items():
            leader = metadata.leaders.get(partition)
            if leader is not None:
                routes[leader, fetcher_number(partition, self._config.num_consumer_fetchers)].append(info)
                self._reported.pop(partition, None)
            else:
                code = metadata.leaderless.get(partition, metadata.failed_topics.get(partition.topic))
                if code is not None and is_refusal(code):
                    security = BrokerSecurity.from_config(self._config)
                    info.deny(topic_refused(partition.topic, code, DESCRIBE, "a broker", security), self._backoff_s)
                    continue
                self._report(partition, "not known to the brokers" if code is None else error_name(code))
        for (leader, number), infos in routes.items():
            # Out of the waiting set first: the fetcher may give a partition back before the next line is reached.
            with self._changed:
                for info in infos:
                    self._waiting.pop(info.partition, None)
            if not self._fetcher(leader, number).add(infos):
                self.add(infos)

    def _report_failure(self, error: ZkConsumerError) -> None:
        if not self._stopping:  # else close() ended the client in the middle of the question
            reason = str(error)
            if self._outage.is_news(reason, time.monotonic()):
                _log.warning("%s: no leaders found, trying every %.1f s: %s", self.name, self._backoff_s, reason)

    def _report(self, partition: TopicPartition, reason: str) -> None:
        if self._reported.get(partition) != reason:
            self._reported[partition] = reason
            _log.info("%s: %s has no leader yet: %s", self.name, partition, reason)

    def _fetcher(self, broker: Broker, number: int) -> FetcherThread:
        key = (broker.id, number)
        fetcher = self._fetchers.get(key)
        if fetcher is not None and (fetcher.broker != broker or not fetcher.is_alive()):
            fetcher.close()  # gives its partitions back
            fetcher = None
        if fetcher is None:
            name = f"ConsumerFetcherThread-{self._consumer_id}-{number}-{broker.id}"
            fetcher = self._fetchers[key] = FetcherThread(name, broker, self._config, self.add)
            fetcher.start()
        return fetcher

    def _end_idle_fetchers(self) -> None:
        for key, fetcher in list(self._fetchers.items()):
            if fetcher.is_idle():
                fetcher.close()
                del self._fetchers[key]
