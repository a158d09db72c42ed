"""Assignors: which consumer thread of the group consumes which partition (jvm-consumer.md#assignment).

Every member computes the assignment by itself, so all members must get the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import cycle

from zkconsumer.java.javastring import java_hash, java_order
from zkconsumer.model import ConsumerThreadId, TopicPartition

Threads = Mapping[str, Sequence[ConsumerThreadId]]
"""Topic to the consumer threads subscribed to it, in the JVM's order."""

Partitions = Mapping[str, Sequence[int]]
"""Topic to its partition numbers, ascending; topics that do not exist are absent."""

Assignment = dict[TopicPartition, ConsumerThreadId]

Assignor = Callable[[Threads, Partitions], Assignment]

HASH_TEXTS: Mapping[str, str] = {"1.0": "{0.topic}-{0.partition}", "0.8": "[{0.topic},{0.partition}]"}
"""Text whose Java hash orders the partitions, by the first release that used it."""


def range_assignor(threads: Threads, partitions: Partitions) -> Assignment:
    """Per topic, consecutive shares of partitions in thread order; the first threads take the remainder.

    See jvm-consumer.md#assignment.
    """
    assignment: Assignment = {}
    for topic, of_topic in threads.items():
        of_this = _of_topic(topic, tuple(partitions.get(topic, ()))) if of_topic else ()
        share, extra = divmod(len(of_this), max(1, len(of_topic)))
        for position, thread in enumerate(of_topic if share else of_topic[:extra]):
            start = share * position + min(position, extra)
            assignment.update(dict.fromkeys(of_this[start : start + share + (position < extra)], thread))
    return assignment


@lru_cache(maxsize=1024)
def _of_topic(topic: str, numbers: tuple[int, ...]) -> tuple[TopicPartition, ...]:
    """The topic's partitions. Making thousands of them takes most of an assignor's time, and they seldom change."""
    return tuple(TopicPartition(topic, number) for number in numbers)


def roundrobin_assignor(threads: Threads, partitions: Partitions, *, hash_era: str = "1.0") -> Assignment:
    """All partitions in hash order dealt to all threads in turn; a thread that lacks the topic loses its turn.

    See jvm-consumer.md#assignment.

    Args:
        threads: see :data:`Threads`.
        partitions: see :data:`Partitions`.
        hash_era: release of the JVM members to agree with, a key of :data:`HASH_TEXTS` (KAFKA-5822).

    Equal hashes are ordered by topic and partition; the JVM's own order of them is not specified.
    """
    text = HASH_TEXTS[hash_era]
    deck = sorted(_deck(threads, partitions), key=lambda partition: (java_hash(text.format(partition)), partition))
    return _deal(deck, threads)


def natural_roundrobin_assignor(threads: Threads, partitions: Partitions) -> Assignment:
    """The same deal with the partitions in their natural order, as Kafka's newer clients do it."""
    return _deal(sorted(_deck(threads, partitions)), threads)


def _deck(threads: Threads, partitions: Partitions) -> list[TopicPartition]:
    return [partition for topic in threads for partition in _of_topic(topic, tuple(partitions.get(topic, ())))]


def _in_order(threads: Threads) -> list[ConsumerThreadId]:
    distinct = {id(of_topic): of_topic for of_topic in threads.values()}  # topics share lists, see GroupView
    everyone = {thread for of_topic in distinct.values() for thread in of_topic}
    return sorted(everyone, key=lambda thread: java_order(str(thread)))


def _deal(deck: Sequence[TopicPartition], threads: Threads) -> Assignment:
    distinct = {id(of_topic): of_topic for of_topic in threads.values()}
    sets = {key: frozenset(of_topic) for key, of_topic in distinct.items()}
    subscribed = {topic: sets[id(of_topic)] for topic, of_topic in threads.items()}
    turn = cycle(_in_order(threads))
    return {
        partition: next(thread for thread in turn if thread in subscribed[partition.topic])
        for partition in deck
        if subscribed[partition.topic]
    }


ASSIGNORS: Mapping[str, Assignor] = {
    "range": range_assignor,
    "roundrobin": roundrobin_assignor,
    "roundrobin-0.8": partial(roundrobin_assignor, hash_era="0.8"),
    "roundrobin-natural": natural_roundrobin_assignor,
}
"""Assignors by name; the names are those in our session nodes."""

TOPIC_BY_TOPIC = frozenset({"range"})
"""Names of assignors that assign each topic by itself: topics that a member does not subscribe to do not affect it."""

SHARED_WITH_JVM = frozenset({"range", "roundrobin", "roundrobin-0.8"})
"""Names of assignors whose result is that of some release of the JVM consumer."""


def assignor_name(strategy: str, hash_era: str) -> str:
    """Name of the assignor that ``partition.assignment.strategy`` and ``roundrobin.hash.era`` choose."""
    return "roundrobin-0.8" if strategy == "roundrobin" and hash_era == "0.8" else strategy
