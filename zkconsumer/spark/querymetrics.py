"""The states of Spark queries, and their metrics in a registry of ``prometheus_client``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.model import TopicPartition


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of one query in one group, at its newest progress.

    Attributes:
        query: the query's name, or its id if it has none.
        group: consumer group.
        batch: id of the newest batch.
        rows: rows read since this monitor first saw the query.
        lag: for each owned partition, the number of offsets after the batch when it was planned. Partitions without a
            leader at that time are missing.
        owned: the owned partitions.
        rebalances: how many this run of the query has seen, with that of its joining.
    """

    query: str
    group: str
    batch: int
    rows: int
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    owned: Set[TopicPartition] = frozenset()
    rebalances: int = 0


class StateCollector:
    """Creates metric families at each scrape, so that none outlives its query.

    Args:
        states: returns the current states; called on the scraping thread.
    """

    def __init__(self, states: Callable[[], Sequence[SourceState]]) -> None:
        self._states = states

    def describe(self) -> list[Any]:
        """Declare no metrics in advance, since their labels are known only at a scrape."""
        return []

    def collect(self) -> Iterator[Any]:
        """Return the metric families for the registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        labels = ["query", "group"]
        lag = GaugeMetricFamily(
            "zkconsumer_spark_lag", "Offsets behind the end of the log.", labels=[*labels, "topic", "partition"]
        )
        owned = GaugeMetricFamily("zkconsumer_spark_owned_partitions", "Partitions that the query owns.", labels=labels)
        rows = CounterMetricFamily("zkconsumer_spark_rows", "Rows read.", labels=labels)
        rebalances = CounterMetricFamily(
            "zkconsumer_spark_rebalances", "Rebalances that this run of the query has seen.", labels=labels
        )
        for state in self._states():
            owned.add_metric([state.query, state.group], len(state.owned))
            rebalances.add_metric([state.query, state.group], state.rebalances)
            rows.add_metric([state.query, state.group], state.rows)
            for partition, offsets in state.lag.items():
                lag.add_metric([state.query, state.group, partition.topic, str(partition.partition)], offsets)
        yield from (lag, owned, rows, rebalances)


@functools.cache
def expose(states: Callable[[], Sequence[SourceState]]) -> None:
    """Expose states in the default registry; later calls in the process have no effect."""
    from prometheus_client import REGISTRY

    REGISTRY.register(StateCollector(states))
