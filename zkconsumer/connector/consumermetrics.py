"""Metrics of one consumer: read from its parts at each request, so that they cost nothing between requests.

The JVM's metrics (jvm-consumer.md#metrics) under Prometheus names, and some that the JVM lacks. Prometheus's rule is to
publish counts and let the reader compute rates; so a JVM meter ``...PerSec`` is a counter here.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Final, Literal, NamedTuple

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import UsageError
from zkconsumer.fetch.chunkqueue import ChunkQueue
from zkconsumer.fetch.localfetchcontrol import FetchPosition
from zkconsumer.group.memberstats import MemberStats
from zkconsumer.offsets.rules.lag import lag
from zkconsumer.process.forks import Owner, call_in_child
from zkconsumer.wire.throttletimes import THROTTLE_TIMES

_STATES: Final = ("latent", "joined", "rebalancing", "closed")
_MINUTE_S: Final = 60.0


class Metric(NamedTuple):
    """One row of the reference: ``jvm`` is the JVM's name, "" for none; all have client and group as labels, too."""

    name: str
    kind: Literal["gauge", "counter", "summary"]
    jvm: str
    labels: tuple[str, ...]
    doc: str


class Sample(NamedTuple):
    """One value of one metric; a summary has two, whose names end in ``_count`` and ``_sum``."""

    name: str
    labels: Mapping[str, str]
    value: float


METRICS: Final = (
    Metric("zkconsumer_max_lag", "gauge", "MaxLag", (),
           "Largest lag of an owned partition: high watermark minus next offset to fetch, without queued records."),
    Metric("zkconsumer_consumer_lag", "gauge", "ConsumerLag", ("topic", "partition"),
           "The lag of one partition, as above; -1 before its first fetch."),
    Metric("zkconsumer_min_fetch_rate", "gauge", "MinFetchRate", (),
           "Fetch requests per second of the slowest fetcher, over about the last minute; 0 without fetchers."),
    Metric("zkconsumer_messages_total", "counter", "MessagesPerSec", ("topic",), "Messages handed out by streams."),
    Metric("zkconsumer_bytes_total", "counter", "BytesPerSec", ("topic",),
           "Bytes put into queues, compressed as brokers sent them."),
    Metric("zkconsumer_fetch_queue_size", "gauge", "FetchQueueSize", ("topic", "thread_id"),
           "Chunks in the queue of one stream; topic is empty for streams of a filter, which carry many topics."),
    Metric("zkconsumer_throttle_seconds_total", "counter", "", (),
           "Time for which quotas held up requests of this client id in this process, all connections added."),
    Metric("zkconsumer_kafka_commits_total", "counter", "KafkaCommitsPerSec", (), "Offsets written to Kafka."),
    Metric("zkconsumer_zookeeper_commits_total", "counter", "ZooKeeperCommitsPerSec", (),
           "Offsets written to ZooKeeper."),
    Metric("zkconsumer_rebalance_seconds", "summary", "RebalanceRateAndTime", (),
           "Finished rebalances and the time they took, failed attempts and waits between them included."),
    Metric("zkconsumer_owned_partitions", "gauge", "OwnedPartitionsCount", ("topic",),
           "Owned partitions of a topic; the sum is the JVM's count for the group."),
    Metric("zkconsumer_rebalances_total", "counter", "", ("cause",),
           "Finished rebalances by cause: start, session, members, topics, ownership."),
    Metric("zkconsumer_rebalance_failures_total", "counter", "", ("step",), "Failed attempts, by step."),
    Metric("zkconsumer_last_rebalance_timestamp_seconds", "gauge", "", ("cause",),
           "When the last rebalance finished, in seconds since the epoch, and its cause."),
    Metric("zkconsumer_member_state", "gauge", "", ("state",),
           "1 for the present state (latent, joined, rebalancing or closed), 0 for the others."),
    Metric("zkconsumer_zookeeper_connected", "gauge", "", (),
           "1 while ZooKeeper (with group.protocol kafka or consumer: the coordinator) can be reached, else 0."),
    Metric("zkconsumer_delivering", "gauge", "", (),
           "0 while no record is delivered because ZooKeeper (or the coordinator) was silent for too long, else 1."),
    Metric("zkconsumer_lease_lapses_total", "counter", "", (),
           "How often delivery stopped because ZooKeeper (or the coordinator) did not answer."),
    Metric("zkconsumer_session_expiries_total", "counter", "", (), "ZooKeeper sessions lost while in the group."),
    Metric("zkconsumer_lost_partitions_total", "counter", "", (),
           "Partitions given up because their owner znode was deleted or belonged to another member."),
)  # fmt: skip


class MinuteRates:
    """Rates of counters that are read at irregular times: since the last reading that is at least a minute old."""

    def __init__(self) -> None:
        self._looks: dict[str, deque[tuple[float, int]]] = {}

    def slowest(self, counts: Mapping[str, tuple[float, int]], now: float) -> float:
        """Smallest rate per second, 0 without counters.

        Args:
            counts: by name, when the counter was zero, in seconds, and its value now.
            now: the present time on the same clock.
        """
        looks: dict[str, deque[tuple[float, int]]] = {}
        for name, (began, count) in counts.items():
            before = self._looks.get(name)
            looks[name] = deque([(began, 0)]) if before is None or before[-1][0] < began else before
            while len(looks[name]) > 1 and looks[name][1][0] <= now - _MINUTE_S:
                looks[name].popleft()
            looks[name].append((now, count))
        self._looks = looks
        return min((_rate(look[0], look[-1]) for look in looks.values()), default=0.0)


def _rate(first: tuple[float, int], last: tuple[float, int]) -> float:
    return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else 0.0


class ConsumerMetrics:
    """Reads all metrics of one consumer; any thread may call it.

    Args:
        config: the consumer's properties.
        member: returns the counters of the member.
        states: returns the state of each owned partition.
        fetch_requests: returns, by fetcher, when it was started and the number of its requests.
        queues: queues of the streams, by topic (None: streams of a filter) and number of the thread.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        member: Callable[[], MemberStats],
        states: Callable[[], Iterable[FetchPosition]],
        fetch_requests: Callable[[], Mapping[str, tuple[float, int]]],
        queues: Mapping[str | None, Sequence[ChunkQueue]],
    ) -> None:
        self._everywhere = {"client_id": config.client_id, "group_id": config.group_id}
        self._client_id = config.client_id
        self._member = member
        self._states = states
        self._fetch_requests = fetch_requests
        self._queues = queues
        self._rates = MinuteRates()
        self._rates_lock = Lock()

    def samples(self) -> list[Sample]:
        """Every metric that has a value now."""
        return [
            Sample(name, {**self._everywhere, **labels}, float(value))
            for read in (self._of_fetching, self._of_streams, self._of_member, self._of_rebalances)
            for name, labels, value in read()
        ]

    def _of_fetching(self) -> Iterator[tuple[str, dict[str, str], float]]:
        lags = {state.partition: lag(state.fetched, state.high_watermark) for state in self._states()}
        yield "zkconsumer_max_lag", {}, max((known for known in lags.values() if known is not None), default=0)
        for (topic, number), records in lags.items():
            labels = {"topic": topic, "partition": str(number)}
            yield "zkconsumer_consumer_lag", labels, -1 if records is None else records
        with self._rates_lock:
            slowest = self._rates.slowest(self._fetch_requests(), time.monotonic())
        yield "zkconsumer_min_fetch_rate", {}, slowest
        yield "zkconsumer_throttle_seconds_total", {}, THROTTLE_TIMES.seconds(self._client_id)

    def _of_streams(self) -> Iterator[tuple[str, dict[str, str], float]]:
        messages: Counter[str] = Counter()
        fetched_bytes: Counter[str] = Counter()
        for topic, queues in list(self._queues.items()):
            for number, queue in enumerate(queues):
                totals = queue.totals()
                messages.update(totals.messages)
                fetched_bytes.update(totals.fetched_bytes)
                yield "zkconsumer_fetch_queue_size", {"topic": topic or "", "thread_id": str(number)}, len(queue)
        for topic, count in messages.items():
            yield "zkconsumer_messages_total", {"topic": topic}, count
        for topic, count in fetched_bytes.items():
            yield "zkconsumer_bytes_total", {"topic": topic}, count

    def _of_member(self) -> Iterator[tuple[str, dict[str, str], float]]:
        stats = self._member()
        for storage in ("kafka", "zookeeper"):
            yield f"zkconsumer_{storage}_commits_total", {}, stats.commits.get(storage, 0)
        for topic, count in stats.owned.items():
            yield "zkconsumer_owned_partitions", {"topic": topic}, count
        for state in _STATES:
            yield "zkconsumer_member_state", {"state": state}, state == stats.state
        yield "zkconsumer_zookeeper_connected", {}, stats.connected
        yield "zkconsumer_delivering", {}, stats.delivering
        yield "zkconsumer_lease_lapses_total", {}, stats.lease_lapses
        yield "zkconsumer_session_expiries_total", {}, stats.session_expiries
        yield "zkconsumer_lost_partitions_total", {}, stats.lost_partitions

    def _of_rebalances(self) -> Iterator[tuple[str, dict[str, str], float]]:
        counts = self._member().rebalances
        yield "zkconsumer_rebalance_seconds_count", {}, sum(counts.by_cause.values())
        yield "zkconsumer_rebalance_seconds_sum", {}, counts.seconds
        for cause, count in counts.by_cause.items():
            yield "zkconsumer_rebalances_total", {"cause": cause.value}, count
        for step, count in counts.failures.items():
            yield "zkconsumer_rebalance_failures_total", {"step": step}, count
        if counts.last_cause is not None:
            cause_label = {"cause": counts.last_cause.value}
            yield "zkconsumer_last_rebalance_timestamp_seconds", cause_label, counts.last_finished

    def collect(self) -> Iterable[Any]:
        """The same for Prometheus's client: this object can be registered in any registry."""
        from prometheus_client.core import Metric as Family

        families = {metric.name: Family(_family(metric), metric.doc, metric.kind) for metric in METRICS}
        for sample in self.samples():
            name = sample.name.removesuffix("_count").removesuffix("_sum")
            families[name].add_sample(sample.name, dict(sample.labels), sample.value)
        return families.values()


def _family(metric: Metric) -> str:
    return metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name


class Exporter:
    """An HTTP server with one consumer's metrics, on a thread of its own.

    Args:
        metrics: the metrics to serve.
        host: address to bind.
        port: port to bind; 0 for any free one.

    Attributes:
        address: the bound address and port.

    Raises:
        UsageError: the address cannot be bound.
    """

    def __init__(self, metrics: ConsumerMetrics, host: str, port: int) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(metrics)
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise UsageError(
                f"metrics cannot be served on {host}:{port}: {error}; choose another metrics.port or metrics.host"
            ) from error
        self.address: tuple[str, int] = (host, self._server.server_port)
        self._owner = Owner()
        call_in_child(self._forked)

    def _forked(self) -> None:
        """In a child: close its copy of the socket, which nothing serves there and which would keep the port bound."""
        self._server.socket.close()

    def close(self) -> None:
        """Stop listening; idempotent. In a forked child nothing is done."""
        if not self._owner.is_here():
            return
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
