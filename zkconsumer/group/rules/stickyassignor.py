"""The sticky assignor: as balanced as the subscriptions allow, and with that as close as possible to what is held.

Only one member computes it (``group.protocol=coordinator``): all others would have to know the same previous
assignment.

Topics with the same subscribers form a *class*: their partitions can be exchanged for each other. All threads of a
class are in one heap by their load, so an assignment of P partitions takes P log T steps, and not P T.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from zkconsumer.group.rules.assignors import Assignment, Partitions, Threads
from zkconsumer.java.javastring import java_order
from zkconsumer.model import ConsumerThreadId, TopicPartition


def sticky_assignor(
    threads: Threads, partitions: Partitions, previous: Mapping[TopicPartition, ConsumerThreadId]
) -> Assignment:
    """As balanced as the subscriptions allow, and with that as close to ``previous`` as possible.

    Balanced means that no partition could move to a subscribed thread that has at least two partitions fewer.

    Args:
        threads: see :data:`~zkconsumer.group.rules.assignors.Threads`.
        partitions: see :data:`~zkconsumer.group.rules.assignors.Partitions`.
        previous: the assignment to stay close to; partitions and threads in it that are gone are ignored.
    """
    everyone = sorted(
        {thread for of_topic in _distinct(threads.values()) for thread in of_topic},
        key=lambda thread: java_order(str(thread)),
    )
    loads = _Loads(everyone, _classes(threads, partitions))
    loads.keep(previous)
    loads.place()
    loads.even_out()
    return loads.assignment()


def divide(
    consumer_id: str,
    partitions: Collection[TopicPartition],
    streams: Mapping[str, int],
    held: Mapping[TopicPartition, ConsumerThreadId],
) -> dict[TopicPartition, ConsumerThreadId]:
    """Divide the partitions of one member over its consumer threads, as evenly as possible.

    Args:
        consumer_id: id of the member.
        partitions: assigned to it; those of other topics than ``streams`` has are ignored.
        streams: topic to its number of threads.
        held: partitions that stay with their thread, if that keeps the division even.
    """
    numbers: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        if partition.topic in streams:
            numbers[partition.topic].append(partition.partition)
    lists = {count: [ConsumerThreadId(consumer_id, n) for n in range(count)] for count in set(streams.values())}
    return sticky_assignor({topic: lists[streams[topic]] for topic in numbers}, numbers, held)


class _Class(NamedTuple):
    """Topics with the same subscribers.

    Attributes:
        threads: the subscribers.
        partitions: of these topics, ascending.
    """

    threads: Sequence[ConsumerThreadId]
    partitions: Sequence[TopicPartition]


def _distinct(lists: Iterable[Sequence[ConsumerThreadId]]) -> list[Sequence[ConsumerThreadId]]:
    return list({id(subscribers): subscribers for subscribers in lists}.values())  # topics share lists, see GroupView


def _classes(threads: Threads, partitions: Partitions) -> list[_Class]:
    """Classes with the fewest subscribers first: the others can still make room for them."""
    topics: dict[int, list[str]] = {}
    for topic in sorted(threads):
        if threads[topic] and partitions.get(topic):
            topics.setdefault(id(threads[topic]), []).append(topic)
    classes = [
        _Class(threads[names[0]], [TopicPartition(topic, n) for topic in names for n in partitions[topic]])
        for names in topics.values()
    ]
    return sorted(classes, key=lambda topics_alike: (len(topics_alike.threads), topics_alike.partitions[0]))


class _Loads:
    """An assignment under construction. Threads and classes are numbers, in the order in which they were given.

    Heaps have outdated entries. A thread's entry in the heap of a class may name a load that is too low, which is
    corrected where it is found; a load that decreases gets another entry, so none that is too high is needed.

    Args:
        threads: all threads; of equally loaded ones the first gets a partition.
        classes: see :class:`_Class`.
    """

    def __init__(self, threads: Sequence[ConsumerThreadId], classes: Sequence[_Class]) -> None:
        self._threads = threads
        self._classes = classes
        number = {thread: position for position, thread in enumerate(threads)}
        self._number = number
        self._load = [0] * len(threads)
        self._classes_of: list[list[int]] = [[] for _ in threads]
        self._lightest: list[list[tuple[int, int]]] = []
        for class_index, topics_alike in enumerate(classes):
            heap = [(0, number[thread]) for thread in topics_alike.threads]
            heapify(heap)
            self._lightest.append(heap)
            for _, thread in heap:
                self._classes_of[thread].append(class_index)
        # By thread and class; the last partition of a list is given away first.
        self._held: list[dict[int, list[TopicPartition]]] = [{} for _ in threads]
        self._homeless: list[list[TopicPartition]] = [[] for _ in classes]

    def keep(self, previous: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Leave each partition where it was, if that thread still subscribes to its topic."""
        for class_index, topics_alike in enumerate(self._classes):
            able = {self._number[thread] for thread in topics_alike.threads}
            for partition in reversed(topics_alike.partitions):
                thread = self._number.get(previous[partition]) if partition in previous else None
                if thread is not None and thread in able:
                    self._hold(thread, class_index, partition)
                else:
                    self._homeless[class_index].append(partition)

    def place(self) -> None:
        """Give each of the other partitions to the emptiest thread."""
        for class_index, partitions in enumerate(self._homeless):
            for partition in reversed(partitions):
                self._hold(self._emptiest(class_index), class_index, partition)

    def even_out(self) -> None:
        """Move partitions from fuller to emptier threads until none gains; each move makes the loads more even.

        A partition is always taken from the fullest thread that can give one: otherwise a thread could drop below the
        balanced load, and another would have to give one, too.
        """
        givers = [(-load, thread) for thread, load in enumerate(self._load) if load > 1]
        heapify(givers)
        # Threads that cannot give now, by the classes that they hold: when another thread of the class gives, they may.
        waiting: list[list[tuple[int, int]]] = [[] for _ in self._classes]
        while givers:
            load, giver = heappop(givers)
            if -load != self._load[giver]:
                continue
            class_index, taker = min(
                ((class_index, self._emptiest(class_index)) for class_index, held in self._held[giver].items() if held),
                key=lambda choice: (self._load[choice[1]], choice),
            )
            if self._load[giver] < self._load[taker] + 2:
                for held_class, held in self._held[giver].items():
                    if held:
                        heappush(waiting[held_class], (load, giver))
                continue
            self._move(giver, taker, class_index)
            for thread in (giver, taker):
                heappush(givers, (-self._load[thread], thread))
            self._wake(giver, waiting, givers)

    def assignment(self) -> Assignment:
        """The partitions and their threads."""
        return {
            partition: self._threads[thread]
            for thread, by_class in enumerate(self._held)
            for held in by_class.values()
            for partition in held
        }

    def _hold(self, thread: int, class_index: int, partition: TopicPartition) -> None:
        self._held[thread].setdefault(class_index, []).append(partition)
        self._load[thread] += 1

    def _emptiest(self, class_index: int) -> int:
        heap = self._lightest[class_index]
        while True:
            load, thread = heap[0]
            present = self._load[thread]
            if load == present:
                return thread
            heapreplace(heap, (present, thread))

    def _move(self, giver: int, taker: int, class_index: int) -> None:
        self._hold(taker, class_index, self._held[giver][class_index].pop())
        self._load[giver] -= 1
        for held_class in self._classes_of[giver]:
            heappush(self._lightest[held_class], (self._load[giver], giver))

    def _wake(self, giver: int, waiting: list[list[tuple[int, int]]], givers: list[tuple[int, int]]) -> None:
        """Let threads try again that may give to ``giver`` what it has room for now."""
        for class_index in self._classes_of[giver]:
            heap = waiting[class_index]
            while heap and -heap[0][0] >= self._load[giver] + 2:
                heappush(givers, heappop(heap))
