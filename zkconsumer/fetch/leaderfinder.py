"""LeaderFinder: partitions wait here until they have a leader, and return here when they lose it.

See jvm-consumer.md#threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ThreadLimit, ZkConsumerError
from zkconsumer.fetch.fetcher import FetcherThread
from zkconsumer.fetch.knownleaders import KnownLeaders
from zkconsumer.fetch.partitioninfo import PartitionInfo
from zkconsumer.java.javastring import java_abs_mod, java_hash
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.process.threads import start_thread
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.connectionpool import ConnectionPool
from zkconsumer.wire.errorcodes import error_name, is_refusal
from zkconsumer.wire.refusals import DESCRIBE, topic_refused
from zkconsumer.wire.rules.leaderepochs import UNKNOWN_EPOCH, KnownEpochs
from zkconsumer.wire.rules.outage import Outage

_log = logging.getLogger(__name__)
_events = logging.getLogger("zkconsumer.events")

_HASH_STEP = 31
_VALID_S = 300.0
"""How long a known leader is used: as long as Kafka's clients keep metadata (``metadata.max.age.ms``)."""


def fetcher_number(partition: TopicPartition, fetchers: int) -> int:
    """The number of the broker's fetcher that gets a partition: the JVM's formula in 32-bit arithmetic.

    See jvm-consumer.md#threads.

    >>> fetcher_number(TopicPartition("t8", 7), 4), fetcher_number(TopicPartition("orders", 2), 3)
    (3, 0)
    """
    return java_abs_mod(_HASH_STEP * java_hash(partition.topic) + partition.partition, fetchers)


def join_until(
    deadline: float, threads: Iterable[threading.Thread], clock: Callable[[], float] = time.monotonic
) -> list[str]:
    """Wait for threads to end, with one deadline for all; returns the names of those still alive."""
    alive = []
    for thread in threads:
        thread.join(max(0.0, deadline - clock()))
        if thread.is_alive():
            alive.append(thread.name)
    return alive


class LeaderFinder(threading.Thread):
    """Finds leaders and hands partitions to fetchers. Only this thread starts and ends fetchers.

    Args:
        consumer_id: id of the member; part of the threads' names, which equal those of the JVM consumer.
        config: client id, timeouts, backoff, fetchers per broker.
        live_brokers: returns the brokers to ask; may do I/O. If it raises, it is called again after the backoff.
        epochs: the known epochs of leaders, which outlast this finder; only its thread uses them.
        pool: connections that the member's clients share; its own if None.
    """

    def __init__(
        self,
        consumer_id: str,
        config: ConsumerConfig,
        live_brokers: Callable[[], Sequence[Broker]],
        epochs: KnownEpochs | None = None,
        pool: ConnectionPool | None = None,
    ) -> None:
        super().__init__(name=f"{consumer_id}-leader-finder-thread", daemon=True)
        self._consumer_id = consumer_id
        self._config = config
        self._backoff_s = config.refresh_leader_backoff_ms / 1000
        self._max_age_s = config.metadata_max_age_ms / 1000
        self._client = BrokerClient.from_config(live_brokers, config, epochs=epochs, pool=pool)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: dict[TopicPartition, PartitionInfo] = {}
        self._returned: set[TopicPartition] = set()  # by fetchers, since the last look
        self._stopping = False
        self._fetchers: dict[tuple[int, int], FetcherThread] = {}  # written by this thread only
        self._known = KnownLeaders(_VALID_S)
        self._reported: dict[TopicPartition, str] = {}
        self._outage = Outage()

    def add(self, infos: Iterable[PartitionInfo]) -> None:
        """Let partitions wait for their leader; any thread. Ignored once the finder is closed or they are released."""
        with self._lock:
            if not self._stopping:
                self._waiting.update((info.partition, info) for info in infos if not info.released)
                self._changed.notify()

    def take_back(self, infos: Iterable[PartitionInfo]) -> None:
        """As :meth:`add`, of partitions that a fetcher cannot fetch: the leaders that are known may be outdated."""
        returned = list(infos)
        with self._lock:
            self._returned.update(info.partition for info in returned)
        self.add(returned)

    def remove(self, infos: Collection[PartitionInfo]) -> None:
        """Stop fetching these partitions, which are marked as released already; from any thread.

        This covers a partition on its way from here to a fetcher, or back: it is found to be released when it arrives.
        """
        with self._lock:
            for info in infos:
                if self._waiting.get(info.partition) is info:
                    del self._waiting[info.partition]
        for fetcher in list(self._fetchers.values()):
            fetcher.remove(infos)

    def close(self) -> None:
        """Ask this thread and all fetchers to end, without waiting for them. Idempotent."""
        with self._lock:
            self._stopping = True
            self._changed.notify()
        self._client.close()
        # list() of a dict's values is atomic. The finder itself closes a fetcher that it starts after this line.
        for fetcher in list(self._fetchers.values()):
            fetcher.close()

    def join_all(self, timeout_s: float) -> list[str]:
        """Wait, after :meth:`close`, for this thread and the fetchers; returns the names of those still alive.

        Args:
            timeout_s: for all of them together, in seconds.
        """
        deadline = time.monotonic() + timeout_s
        # The finder first: until it has ended it may start another fetcher.
        alive = join_until(deadline, [self])
        return alive + join_until(deadline, list(self._fetchers.values()))

    def fetch_requests(self) -> dict[str, tuple[float, int]]:
        """The start time of each fetcher, by ``time.monotonic``, and the number of requests answered since."""
        return {fetcher.name: (fetcher.began, fetcher.requests) for fetcher in list(self._fetchers.values())}

    # -- the thread ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Look for leaders while partitions wait, at most once per backoff."""
        try:
            while wanted := self._wait_for_wanted():
                try:
                    self._assign(wanted)
                except ZkConsumerError as error:
                    self._report_failure(error)
                    for info in wanted.values():
                        info.report_wrong_settings(error)
                except Exception:  # noqa: BLE001  live_brokers may raise anything, and this thread must continue
                    _log.exception(
                        "%s: unexpected error while looking for leaders; trying again in %.1f s",
                        self.name,
                        self._backoff_s,
                    )
                self._end_idle_fetchers()
                with self._lock:
                    self._changed.wait_for(lambda: self._stopping, self._backoff_s)
        finally:
            self._client.close()
            for fetcher in self._fetchers.values():
                fetcher.close()

    def _wait_for_wanted(self) -> dict[TopicPartition, PartitionInfo]:
        """Wait until leaders of partitions must be looked up; empty at the end. Refused partitions wait longer."""
        with self._lock:
            while not self._stopping:
                now = time.monotonic()
                wanted = {partition: info for partition, info in self._waiting.items() if info.retry_at <= now}
                if wanted:
                    return wanted
                first = min((info.retry_at for info in self._waiting.values()), default=None)
                self._changed.wait(None if first is None else first - now)
            return {}

    def _assign(self, wanted: dict[TopicPartition, PartitionInfo]) -> None:
        self._client.fenced({partition: info.leader_epoch for partition, info in wanted.items() if info.fenced})
        for info in wanted.values():
            info.fenced = False
        unknown = self._hand_over_known(wanted)
        if unknown:
            self._look_up(unknown)

    def _hand_over_known(self, wanted: Mapping[TopicPartition, PartitionInfo]) -> dict[TopicPartition, PartitionInfo]:
        """Give partitions to the fetchers of known leaders; returns the others."""
        with self._lock:
            returned, self._returned = self._returned, set()
        self._known.forget(returned)
        fetched_from = {fetcher.broker for fetcher in self._fetchers.values() if fetcher.is_alive()}
        routes: dict[tuple[Broker, int], list[PartitionInfo]] = defaultdict(list)
        known = self._known.find(wanted, fetched_from)
        for partition, leader in known.items():
            wanted[partition].leader_epoch = leader.epoch
            routes[leader.broker, fetcher_number(partition, self._config.num_consumer_fetchers)].append(
                wanted[partition]
            )
        self._hand_over(routes)
        return {partition: info for partition, info in wanted.items() if partition not in known}

    def _look_up(self, wanted: Mapping[TopicPartition, PartitionInfo]) -> None:
        metadata = self._client.metadata({partition.topic for partition in wanted})
        self._known.learn(metadata)
        seconds = self._outage.end(time.monotonic())
        if seconds is not None:
            _events.info("%s: brokers answer again after %.0f s", self.name, seconds)
        routes: dict[tuple[Broker, int], list[PartitionInfo]] = defaultdict(list)
        for partition, info in wanted.items():
            leader = metadata.leaders.get(partition)
            if leader is not None:
                info.leader_epoch = metadata.epochs.get(partition, UNKNOWN_EPOCH)
                source, info.read_replica = info.read_replica.broker(
                    leader, metadata.brokers, time.monotonic(), self._max_age_s, needs_leader=info.needs_leader()
                )
                routes[source, fetcher_number(partition, self._config.num_consumer_fetchers)].append(info)
                self._reported.pop(partition, None)
            else:
                code = metadata.leaderless.get(partition, metadata.failed_topics.get(partition.topic))
                if code is not None and is_refusal(code):
                    security = BrokerSecurity.from_config(self._config)
                    info.deny(topic_refused(partition.topic, code, DESCRIBE, "a broker", security), self._backoff_s)
                    continue
                self._report(partition, "the brokers do not know it" if code is None else error_name(code))
        self._hand_over(routes)

    def _hand_over(self, routes: Mapping[tuple[Broker, int], list[PartitionInfo]]) -> None:
        """Give partitions to the fetchers of their leaders, or of the followers that these have named.

        Raises:
            ThreadLimit: a fetcher cannot start; its partitions wait on, those of others are fetched.
        """
        failure: ThreadLimit | None = None
        for (leader, number), infos in routes.items():
            try:
                fetcher = self._fetcher(leader, number)
            except ThreadLimit as error:
                failure = error
                continue
            # Remove it from the waiting set first: the fetcher may return a partition before the next line is reached.
            # Not another one of the same name: 1. the leader is looked up; 2. the partition is released, gained again,
            # and waits in its turn; 3. the answer arrives, for the former one.
            with self._lock:
                for info in infos:
                    if self._waiting.get(info.partition) is info:
                        del self._waiting[info.partition]
            if not fetcher.add(infos):
                self.add(infos)
        if failure is not None:
            raise failure

    def _report_failure(self, error: ZkConsumerError) -> None:
        if not self._stopping:  # otherwise close() ended the client during the request
            reason = str(error)
            if self._outage.is_news(reason, time.monotonic()):
                _log.warning(
                    "%s: partitions wait for their leaders, trying every %.1f s: %s", self.name, self._backoff_s, reason
                )

    def _report(self, partition: TopicPartition, reason: str) -> None:
        if self._reported.get(partition) != reason:
            self._reported[partition] = reason
            _log.info("%s: %s has no leader yet: %s", self.name, partition, reason)

    def _fetcher(self, broker: Broker, number: int) -> FetcherThread:
        key = (broker.id, number)
        fetcher = self._fetchers.get(key)
        if fetcher is not None and (fetcher.broker != broker or not fetcher.is_alive()):
            fetcher.close()  # returns its partitions
            fetcher = None
        if fetcher is None:
            name = f"ConsumerFetcherThread-{self._consumer_id}-{number}-{broker.id}"
            fetcher = FetcherThread(name, broker, self._config, self.take_back)
            start_thread(fetcher)
            self._fetchers[key] = fetcher
        return fetcher

    def _end_idle_fetchers(self) -> None:
        for key, fetcher in list(self._fetchers.items()):
            if fetcher.is_idle():
                fetcher.close()
                del self._fetchers[key]
