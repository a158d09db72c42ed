"""The position of a query in each partition of a new assignment, as pure functions.

The rules: spark.md#offsets-and-the-checkpoint.

:func:`choose_starts` decides by the group's stored offset and the checkpoint, :func:`locate` adapts the choice to the
log. Between the two the caller requests log ends and offsets of times from the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum
from typing import NamedTuple

from zkconsumer.model import Topic, TopicPartition
from zkconsumer.offsets.rules.storedoffsets import NO_OFFSET, StoredOffset, is_migrated, is_same_write, usable_offset
from zkconsumer.offsets.rules.topicorigins import TopicOrigin, WrittenFor
from zkconsumer.ranges.rules.rangepositions import EARLIEST, LATEST, NAMED, AtTime, Wanted
from zkconsumer.spark.rules.options import Position, Timestamps
from zkconsumer.spark.rules.sourceoffset import SourceOffset

_NAMED = {**NAMED, "smallest": EARLIEST, "largest": LATEST}


class Reason(Enum):
    """The reason for the start of a partition; the value completes the sentence "starts there because ..."."""

    OPTION = "a starting... option specifies it"
    GROUP = "it is the group's offset"
    RESET = "the group has no offset, and auto.offset.reset specifies it"
    APPEARED = "the partition appeared after the query's first batch"
    FINISHED = "the checkpoint and the group's offset agree"
    UNCOMMITTED = "the query's own commit of its last batch did not arrive"
    NOT_STORED = "the checkpoint names it, and the group has no offset: it was deleted, or its store is a new one"
    REWOUND = "the query committed the group's offset later than this checkpoint was written: it was restored"
    MOVED = "another consumer or an operator moved the group's offset"
    RECREATED = "the topic was deleted and created again"
    OLDER_THAN_TOPIC = "the group's offset was stored before the topic was created, so it belongs to an earlier one"


class Choice(NamedTuple):
    """The start of one partition, and its reason."""

    place: Wanted
    reason: Reason

    @property
    def varies(self) -> bool:
        """True if the same choice would be another offset at a later time, although nothing was read meanwhile.

        A plan without rows is not recorded in the checkpoint, so such a start is committed to the group's store, where
        a restart finds it.
        """
        return self.place == LATEST or isinstance(self.place, AtTime)


def choose_starts(
    stored: Mapping[TopicPartition, StoredOffset],
    topics: Mapping[str, Topic],
    finished: SourceOffset,
    *,
    starting: Position,
    reset: str,
    outdated: Set[TopicPartition] = frozenset(),
) -> dict[TopicPartition, Choice]:
    """Decide where newly claimed partitions start, after a restart and whenever partitions are gained.

    Args:
        stored: stored offset of each claimed partition, read after claiming.
        topics: the subscribed topics from which the assignment was computed.
        finished: the last batch that Spark finished.
        starting: the ``starting...`` option. It applies to the partitions owned at the first plan of a query, and later
            to partitions that existed then, were never owned by this query, and have no stored offset.
        reset: ``auto.offset.reset``.
        outdated: partitions whose stored offset was written for an earlier topic, as the member has found.
    """
    recreated = finished.recreated(topics)
    choices = {}
    for partition, read in stored.items():
        offset = read if read.offset == usable_offset(read.offset) else NO_OFFSET
        if partition.topic in recreated:
            choices[partition] = Choice(EARLIEST, Reason.RECREATED)
        elif partition in finished.spans and partition in outdated and offset.offset is not None:
            choices[partition] = Choice(finished.spans[partition].until, Reason.OLDER_THAN_TOPIC)
        elif partition in finished.spans:
            choices[partition] = _after_a_batch(offset, partition, finished)
        else:
            choices[partition] = _for_the_first_time(partition, offset, finished, starting, reset)
            if choices[partition].reason is Reason.GROUP and (
                partition in outdated or _is_older_than_topic(partition, offset, topics, finished)
            ):
                choices[partition] = Choice(EARLIEST, Reason.OLDER_THAN_TOPIC)
    return choices


def _is_older_than_topic(
    partition: TopicPartition, stored: StoredOffset, topics: Mapping[str, Topic], finished: SourceOffset
) -> bool:
    """True if the offset was written for an earlier topic of the name, as far as its topic's creation shows that.

    Used only for topics that appeared, or were created again, while the query existed, which include those that the
    checkpoint does not know: otherwise a ZooKeeper that was restored in pieces may have the znodes of the offset and of
    the topic in any order. There the group may have no record of the topic (adr/0025): 1. JVM members commit; 2. the
    topic is deleted, its offset znodes stay; 3. it is created, and appears to the query.
    """
    known, topic = finished.known.get(partition.topic), topics.get(partition.topic)
    if finished.is_initial or topic is None or (known is not None and known.partitions):
        return False
    return TopicOrigin(topic.identity).judge(stored.mark) in (WrittenFor.EARLIER, WrittenFor.BEFORE)


def _after_a_batch(stored: StoredOffset, partition: TopicPartition, finished: SourceOffset) -> Choice:
    """The start of a partition in the checkpoint: its offset, unless another client wrote the group's offset since."""
    span = finished.spans[partition]
    if stored.offset is None:
        return Choice(span.until, Reason.NOT_STORED)
    if stored.offset == span.until:
        return Choice(span.until, Reason.FINISHED)
    before = finished.stored.get(partition, NO_OFFSET)
    # 1. Spark finishes a batch; 2. the query is killed before its commit; 3. a migration copies the offset before that.
    if is_same_write(stored, before) or is_migrated(stored, before):
        return Choice(span.until, Reason.UNCOMMITTED)
    if stored.stamp is None or stored.stamp.query != finished.query or stored.stamp.plan == finished.number:
        return Choice(stored.offset, Reason.MOVED)
    # 1. The store refuses the commit of a batch; 2. the next batch is planned, and finished; 3. the member's timer
    # commits the first one; 4. the query is killed.
    reason = Reason.REWOUND if stored.stamp.plan > finished.number else Reason.UNCOMMITTED
    return Choice(span.until, reason)


def _for_the_first_time(
    partition: TopicPartition, stored: StoredOffset, finished: SourceOffset, starting: Position, reset: str
) -> Choice:
    """The start of a partition that is not in the checkpoint."""
    option = position_of(partition, starting)
    if finished.is_initial and option is not None:
        return Choice(option, Reason.OPTION)
    if stored.offset is not None:
        return Choice(stored.offset, Reason.GROUP)
    known = finished.known.get(partition.topic)
    if not finished.is_initial and (known is None or partition.partition >= known.partitions):
        return Choice(EARLIEST, Reason.APPEARED)
    return Choice(_NAMED[reset], Reason.RESET) if option is None else Choice(option, Reason.OPTION)


def chosen_by_others(
    choices: Mapping[TopicPartition, Choice],
    stored: Mapping[TopicPartition, StoredOffset],
    before: Mapping[TopicPartition, StoredOffset],
    positions: Mapping[TopicPartition, int],
    query: str | None,
) -> list[TopicPartition]:
    """The partitions that would continue at an offset that another client has stored since this run chose its starts.

    1. A query reads t-0 to 10; 2. another member gets t-0, reads it to 20, commits 20 and leaves; 3. the query gets t-0
    again, before it plans. It would continue at 20, and the stored offset is all that shows the other member.

    Args:
        choices: the starts of this generation.
        stored: the stored offset of each partition.
        before: the stored offsets of the last generation in which this run has chosen its starts.
        positions: the positions of this run in that generation. It may have committed them itself, and without a stamp,
            if its store does not allow stamps.
        query: id of the query; None if it has none yet.
    """
    return sorted(
        partition
        for partition, choice in choices.items()
        if choice.reason in (Reason.GROUP, Reason.MOVED)
        and choice.place != positions.get(partition)
        and not (partition in before and is_same_write(stored[partition], before[partition]))
        and ((stamp := stored[partition].stamp) is None or stamp.query != query)
    )


def position_of(partition: TopicPartition, position: Position) -> Wanted | None:
    """The position that an option specifies for one partition; None if the default applies."""
    if isinstance(position, Timestamps):
        moment = position.given.get(partition, position.everywhere)
        return None if moment is None else AtTime(moment, position.or_latest)
    return position.get(partition) if isinstance(position, Mapping) else _NAMED.get(position)


def group_by_reason(choices: Mapping[TopicPartition, Choice]) -> dict[Reason, list[TopicPartition]]:
    """The partitions by the reason for their start, sorted."""
    reasons: dict[Reason, list[TopicPartition]] = {}
    for partition in sorted(choices):
        reasons.setdefault(choices[partition].reason, []).append(partition)
    return reasons
