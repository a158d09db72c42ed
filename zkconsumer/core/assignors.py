"""Assignors: who in the group consumes which partition. Every member computes this alone, so it is law (SPEC 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

from zkconsumer.core.javastring import java_hash, java_order
from zkconsumer.model import ConsumerThreadId, TopicPartition

Threads = Mapping[str, Sequence[ConsumerThreadId]]
"""Topic to the consumer threads subscribed to it, in the JVM's order."""

Partitions = Mapping[str, Sequence[int]]
"""Topic to its partition numbers, ascending; topics that do not exist are absent."""

Assignment = dict[TopicPartition, ConsumerThreadId]

Assignor = Callable[[Threads, Partitions], Assignment]


def range_assignor(threads: Threads, partitions: Partitions) -> Assignment:
    """Per topic, consecutive shares of partitions in thread order; the first threads take the remainder (SPEC 5)."""
    assignment: Assignment = {}
    for topic, of_topic in threads.items():
        numbers = partitions.get(topic, ())
        share, extra = divmod(len(numbers), len(of_topic))
        for position, thread in enumerate(of_topic):
            start = share * position + min(position, extra)
            for number in numbers[start : start + share + (position < extra)]:
                assignment[TopicPartition(topic, number)] = thread
    return assignment


def roundrobin_assignor(
    threads: Threads, partitions: Partitions, *, hash_text: str = "{0.topic}-{0.partition}"
) -> Assignment:
    """All partitions in hash order dealt to all threads in turn; a thread that lacks the topic loses its turn (SPEC 5).

    Args:
        threads: see :data:`Threads`.
        partitions: see :data:`Partitions`.
        hash_text: text whose Java hash orders the partitions; ``[{0.topic},{0.partition}]`` in JVM members before 1.0.

    Equal hashes are ordered by topic and partition; the JVM's own order of them is not specified.
    """
    subscribed = {topic: set(of_topic) for topic, of_topic in threads.items()}
    deck = sorted(
        (TopicPartition(topic, number) for topic in threads for number in partitions.get(topic, ())),
        key=lambda partition: (java_hash(hash_text.format(partition)), partition),
    )
    everyone = {thread for of_topic in threads.values() for thread in of_topic}
    turn = cycle(sorted(everyone, key=lambda thread: java_order(str(thread))))
    assignment: Assignment = {}
    for partition in deck:
        assignment[partition] = next(thread for thread in turn if thread in subscribed[partition.topic])
    return assignment


ASSIGNORS: Mapping[str, Assignor] = {"range": range_assignor, "roundrobin": roundrobin_assignor}
"""Assignors by the value of ``partition.assignment.strategy``."""
