"""Assignors: who in the group consumes which partition. Every member computes this alone, so it is law (SPEC 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import cycle

from zkconsumer.core.javastring import java_hash, java_order
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
    """Per topic, consecutive shares of partitions in thread order; the first threads take the remainder (SPEC 5)."""
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
    """All partitions in hash order dealt to all threads in turn; a thread that lacks the topic loses its turn (SPEC 5).

    Args:
        threads: see :data:`Threads`.
        partitions: see :data:`Partitions`.
        hash_era: release of the JVM members to agree with, a key of :data:`HASH_TEXTS` (KAFKA-5822).

    Equal hashes are ordered by topic and partition; the JVM's own order of them is not specified.
    """
    text = HASH_TEXTS[hash_era]
    return _deal(sorted(_deck(threads, partitions), key=lambda each: (java_hash(text.format(each)), each)), threads)


def natural_roundrobin_assignor(threads: Threads, partitions: Partitions) -> Assignment:
    """The same deal with the partitions in their natural order, as Kafka's newer clients do it."""
    return _deal(sorted(_deck(threads, partitions)), threads)


def _deck(threads: Threads, partitions: Partitions) -> list[TopicPartition]:
    return [each for topic in threads for each in _of_topic(topic, tuple(partitions.get(topic, ())))]


def _in_order(threads: Threads) -> list[ConsumerThreadId]:
    distinct = {id(of_topic): of_topic for of_topic in threads.values()}  # topics share lists, see GroupView
    everyone = {thread for of_topic in distinct.values() for thread in of_topic}
    return sorted(everyone, key=lambda thread: java_order(str(thread)))


def _deal(deck: Sequence[TopicPartition], threads: Threads) -> Assignment:
    sets = {id(of_topic): frozenset(of_topic) for of_topic in {id(one): one for one in threads.values()}.values()}
    subscribed = {topic: sets[id(of_topic)] for topic, of_topic in threads.items()}
    turn = cycle(_in_order(threads))
    return {
        partition: next(thread for thread in turn if thread in subscribed[partition.topic])
        for partition in deck
        if subscribed[partition.topic]
    }


def sticky_assignor(
    threads: Threads, partitions: Partitions, previous: Mapping[TopicPartition, ConsumerThreadId]
) -> Assignment:
    """As balanced as the subscriptions allow, and with that as close to ``previous`` as possible.

    Balanced means that no partition could move to a subscribed thread that has at least two partitions fewer. Not
    offered at run time: in ZooKeeper mode every member would have to know the same previous assignment (DESIGN 4.13).

    Args:
        threads: see :data:`Threads`.
        partitions: see :data:`Partitions`.
        previous: the assignment to stay close to; partitions and threads in it that are gone are ignored.
    """
    rank = {thread: position for position, thread in enumerate(_in_order(threads))}
    candidates = {
        partition: sorted(threads[partition.topic], key=rank.__getitem__)
        for partition in sorted(_deck(threads, partitions))
        if threads[partition.topic]
    }
    assignment = {p: previous[p] for p, able in candidates.items() if p in previous and previous[p] in able}
    load = dict.fromkeys(rank, 0)
    for thread in assignment.values():
        load[thread] += 1
    # Those with the fewest candidates first: the others can still make room for them.
    for partition in sorted(candidates.keys() - assignment.keys(), key=lambda each: (len(candidates[each]), each)):
        thread = min(candidates[partition], key=lambda each: (load[each], rank[each]))
        assignment[partition] = thread
        load[thread] += 1
    _even_out(assignment, candidates, load, previous)
    return assignment


def _even_out(
    assignment: Assignment,
    candidates: Mapping[TopicPartition, Sequence[ConsumerThreadId]],
    load: dict[ConsumerThreadId, int],
    previous: Mapping[TopicPartition, ConsumerThreadId],
) -> None:
    """Move partitions from fuller to emptier threads until none gains; each move makes the loads strictly more even.

    Always from the fullest thread that can give: otherwise one is emptied below what balance asks for, and another has
    to give too.
    """
    held: dict[ConsumerThreadId, list[TopicPartition]] = {thread: [] for thread in load}
    # Partitions that are away from their former thread anyway move first: that costs no stickiness.
    for partition in sorted(candidates, key=lambda each: (assignment[each] == previous.get(each), each)):
        held[assignment[partition]].append(partition)
    moved = True
    while moved:
        moved = False
        for owner in sorted(load, key=load.__getitem__, reverse=True):
            gain = _first_gain(held[owner], candidates, load, owner)
            if gain is not None:
                partition, emptiest = gain
                assignment[partition] = emptiest
                held[owner].remove(partition)
                held[emptiest].insert(0, partition)
                load[owner] -= 1
                load[emptiest] += 1
                moved = True
                break


def _first_gain(
    held: Sequence[TopicPartition],
    candidates: Mapping[TopicPartition, Sequence[ConsumerThreadId]],
    load: Mapping[ConsumerThreadId, int],
    owner: ConsumerThreadId,
) -> tuple[TopicPartition, ConsumerThreadId] | None:
    for partition in held:
        emptiest = min(candidates[partition], key=load.__getitem__)
        if load[owner] > load[emptiest] + 1:
            return partition, emptiest
    return None


ASSIGNORS: Mapping[str, Assignor] = {
    "range": range_assignor,
    "roundrobin": roundrobin_assignor,
    "roundrobin-0.8": partial(roundrobin_assignor, hash_era="0.8"),
    "roundrobin-natural": natural_roundrobin_assignor,
}
"""Assignors by name."""

TOPIC_BY_TOPIC = frozenset({"range"})
"""Names of those that assign each topic by itself: topics that a member does not subscribe to do not concern it."""

SHARED_WITH_JVM = frozenset({"range", "roundrobin", "roundrobin-0.8"})
"""Names of those that some release of the JVM consumer computes alike."""


def assignor_name(strategy: str, hash_era: str) -> str:
    """Name of the assignor that ``partition.assignment.strategy`` and ``roundrobin.hash.era`` choose."""
    return "roundrobin-0.8" if strategy == "roundrobin" and hash_era == "0.8" else strategy
