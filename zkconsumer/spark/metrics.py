"""The states of Spark queries, and how a registry of ``prometheus_client`` shows them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zkconsumer.model import TopicPartition


@dataclass(frozen=True, slots=True)
class SourceState:
    """One query's reading from one group, at its newest progress.

    Attributes:
        query: the query's name, or its id where it has none.
        group: consumer group.
        batch: id of the newest batch.
        rows: rows read since this monitor first saw the query.
        lag: owned partitions, and for each how many offsets lay behind the batch when it was planned. A partition that
            has no leader just now is missing.
    """

    query: str
    group: str
    batch: int
    rows: int
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that the query owns."""
        return frozenset(self.lag)


class StateCollector:
    """Makes metric families anew at each scrape, so that none outlives its query.

    Args:
        states: tells the states of now; called on the scraping thread.
    """

    def __init__(self, states: Callable[[], Sequence[SourceState]]) -> None:
        self._states = states

    def describe(self) -> list[Any]:
        """Nothing beforehand."""
        return []

    def collect(self) -> Iterator[Any]:
        """Families for the registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        labels = ["query", "group"]
        lag = GaugeMetricFamily(
            "zkconsumer_spark_lag", "Offsets behind the end of the log.", labels=[*labels, "topic", "partition"]
        )
        owned = GaugeMetricFamily("zkconsumer_spark_owned_partitions", "Partitions that the query owns.", labels=labels)
        rows = CounterMetricFamily("zkconsumer_spark_rows", "Rows read.", labels=labels)
        for state in self._states():
            owned.add_metric([state.query, state.group], len(state.lag))
            rows.add_metric([state.query, state.group], state.rows)
            for partition, behind in state.lag.items():
                lag.add_metric([state.query, state.group, partition.topic, str(partition.partition)], behind)
        yield from (lag, owned, rows)


@functools.cache
def expose(states: Callable[[], Sequence[SourceState]]) -> None:
    """Show states in the default registry; once in a process, whoever asks again."""
    from prometheus_client import REGISTRY

    REGISTRY.register(StateCollector(states))
