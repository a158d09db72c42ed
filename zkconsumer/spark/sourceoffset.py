"""SourceOffset: the planned and finished offsets of a query, as stored in Spark's checkpoint.

See spark.md#offsets-and-the-checkpoint.

An offset is cumulative: it holds every partition that the query has ever owned, so a restart knows the end of each,
whatever happened to the group meanwhile. Pure values; their JSON is in :mod:`zkconsumer.spark.offsetsjson`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from zkconsumer.core.groupview import Topic
from zkconsumer.core.offsets import Mark
from zkconsumer.model import TopicPartition
from zkconsumer.spark.microbatch import Span


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
        group: consumer group of the query; None in version 1.
        number: number of the plan, counted up, so that no two offsets are equal; 0 before the first plan.
        known: subscribed topics; None in version 1.
        spans: for each partition that the query has ever owned the offsets of the batch, possibly an empty span.
        marks: for each of them the mark of the group's stored offset when the batch was planned.
        epochs: the leader epoch in whose log the end of a span was seen, as far as known (KIP-320).
    """

    group: str | None = None
    number: int = 0
    known: Mapping[str, KnownTopic] | None = None
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    marks: Mapping[TopicPartition, Mark | None] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def is_initial(self) -> bool:
        """True before the first plan of a query."""
        return self.known is not None and self.number == 0

    def recreated(self, topics: Mapping[str, Topic]) -> set[str]:
        """The topics that were deleted and created again since this query first recorded them."""
        known = self.known or {}
        return {
            name
            for name, topic in topics.items()
            if name in known and not topic.identity.is_recorded_as(known[name].identity)
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """The input for the next batch.

    Attributes:
        rows: offsets that it reads, without empty spans.
        starts: position of the query in each owned partition, before this batch.
        marks: current mark of the stored offset of each of these partitions.
        topics: the subscribed topics that exist.
        epochs: see :class:`SourceOffset`.
    """

    rows: Mapping[TopicPartition, Span]
    starts: Mapping[TopicPartition, int]
    marks: Mapping[TopicPartition, Mark | None]
    topics: Mapping[str, Topic]
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


def next_offset(finished: SourceOffset, plan: Plan, group: str) -> SourceOffset:
    """The offset of a plan that follows ``finished``.

    Partitions that other members own by now keep their end, with the mark of the time when this query planned them.
    Topics that were deleted and created again are dropped: their offsets belong to another topic.
    """
    recreated = finished.recreated(plan.topics)
    kept = {p: Span(s.until, s.until) for p, s in finished.spans.items() if p.topic not in recreated}
    starts = {partition: Span(start, start) for partition, start in plan.starts.items()}
    marks = {partition: finished.marks.get(partition) for partition in kept}
    epochs = {p: epoch for p, epoch in finished.epochs.items() if p in kept and p not in starts}
    return SourceOffset(
        group=group,
        number=finished.number + 1,
        known=_known(finished, plan.topics, recreated),
        spans={**kept, **starts, **plan.rows},
        marks={**marks, **{partition: plan.marks.get(partition) for partition in starts}},
        epochs={**epochs, **plan.epochs},
    )


def _known(finished: SourceOffset, topics: Mapping[str, Topic], recreated: Set[str]) -> dict[str, KnownTopic]:
    """Topics of the first plan keep their number of partitions; later ones have 0.

    After version 1, which recorded no topics, all count as new: a partition that the query never owned is then read
    from its beginning if the group has no offset, and not from the position that ``startingOffsets`` specified long
    ago.
    """
    known = dict(finished.known or {})
    for name, topic in topics.items():
        if finished.is_initial:
            partitions = len(topic.partitions)
        else:
            partitions = known[name].partitions if name in known and name not in recreated else 0
        known[name] = KnownTopic(partitions, topic.identity.recorded)
    return known
