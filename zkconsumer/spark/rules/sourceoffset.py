"""SourceOffset: the planned and finished offsets of a query, as stored in Spark's checkpoint.

See spark.md#offsets-and-the-checkpoint.

An offset is cumulative: it holds every partition that the query has ever owned, so a restart knows the end of each,
whatever happened to the group meanwhile. Pure values; their JSON is in :mod:`zkconsumer.spark.rules.offsetsjson`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from zkconsumer.model import Stamp, Topic, TopicPartition, recreated_topics
from zkconsumer.offsets.rules.storedoffsets import StoredOffset
from zkconsumer.ranges.rules.spans import Span


class KnownTopic(NamedTuple):
    """A subscribed topic at the first plan of a query.

    Attributes:
        partitions: its number of partitions; 0 for a topic that appeared later, whose records are all new to the query.
        identity: see :attr:`~zkconsumer.model.TopicIdentity.recorded`.
    """

    partitions: int
    identity: int | str


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The end of one micro-batch.

    Attributes:
        group: consumer group of the query.
        number: number of the plan, counted up, so that no two offsets are equal; 0 before the first plan.
        known: subscribed topics.
        spans: for each partition that the query has ever owned the offsets of the batch, possibly an empty span.
        stored: for each of them the group's stored offset, with its mark, when the batch was planned.
        epochs: the leader epoch in whose log the end of a span was seen, as far as known (KIP-320).
        query: random id of the query; None before its first plan, and in version 2.
    """

    group: str = ""
    number: int = 0
    known: Mapping[str, KnownTopic] = field(default_factory=dict)
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    stored: Mapping[TopicPartition, StoredOffset] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    query: str | None = None

    @property
    def is_initial(self) -> bool:
        """True before the first plan of a query."""
        return self.number == 0

    @property
    def stamp(self) -> Stamp | None:
        """The stamp of commits of this offset; None in version 2."""
        return None if self.query is None else Stamp(self.query, self.number)

    def recreated(self, topics: Mapping[str, Topic]) -> set[str]:
        """The topics that were deleted and created again since this query first recorded them."""
        recorded = {name: topic.identity for name, topic in self.known.items()}
        return recreated_topics(recorded, {name: topic.identity for name, topic in topics.items()})


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The input for the next batch.

    Attributes:
        rows: offsets that it reads, without empty spans.
        starts: position of the query in each owned partition, before this batch.
        stored: the group's stored offset of each of these partitions now.
        topics: the subscribed topics that exist.
        epochs: see :class:`SourceOffset`.
        query: id for a query that has none yet.
        gone: topics that were deleted.
    """

    rows: Mapping[TopicPartition, Span]
    starts: Mapping[TopicPartition, int]
    stored: Mapping[TopicPartition, StoredOffset]
    topics: Mapping[str, Topic]
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    query: str | None = None
    gone: Set[str] = frozenset()


def next_offset(finished: SourceOffset, plan: BatchPlan, group: str) -> SourceOffset:
    """The offset of a plan that follows ``finished``.

    Partitions that other members own by now keep their end, with the stored offset of the time when this query planned
    them.
    Topics that were deleted are dropped, also if they were created again: their offsets belong to another topic.
    """
    dropped = finished.recreated(plan.topics) | plan.gone
    kept = {p: span.until for p, span in finished.spans.items() if p.topic not in dropped}
    stored = {p: offset for p, offset in finished.stored.items() if p in kept}
    epochs = {p: epoch for p, epoch in finished.epochs.items() if p in kept and p not in plan.starts}
    return SourceOffset(
        group=group,
        number=finished.number + 1,
        known=_known(finished, plan.topics, dropped),
        spans={p: plan.rows.get(p) or Span(at, at) for p, at in {**kept, **plan.starts}.items()},
        stored={**stored, **plan.stored},
        epochs={**epochs, **plan.epochs},
        query=finished.query or plan.query,
    )


def _known(finished: SourceOffset, topics: Mapping[str, Topic], dropped: Set[str]) -> dict[str, KnownTopic]:
    """Topics of the first plan keep their number of partitions; later ones have 0."""
    known = {name: topic for name, topic in finished.known.items() if name not in dropped}
    for name, topic in topics.items():
        before = known[name].partitions if name in known else 0
        partitions = len(topic.partitions) if finished.is_initial else before
        known[name] = KnownTopic(partitions, topic.identity.recorded)
    return known
