"""DefaultPartitioner: the partition that a JVM producer (0.9 to 2.3) would choose for a record.

For producers that must send a key to the partition to which other producers send it, and for consumers that want to
know which partition has a key.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from zkconsumer.errors import UsageError

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_POSITIVE: Final = 0x7FFFFFFF  # the JVM drops the sign bit; it does not negate

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_WORD: Final = 4


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key: MurmurHash2 with Kafka's seed, as Java's signed 32-bit int.

    >>> murmur2(b"foobar"), murmur2(b"21")
    (-790332482, -973932308)
    """
    value = _SEED ^ len(data)
    whole = len(data) - len(data) % _WORD
    for at in range(0, whole, _WORD):
        word = int.from_bytes(data[at : at + _WORD], "little") * _FACTOR & _MASK
        value = (value * _FACTOR & _MASK) ^ ((word ^ word >> 24) * _FACTOR & _MASK)
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    value ^= value >> 15
    return value - (1 << 32) if value & _SIGN else value


def _random_start() -> int:
    return random.getrandbits(32)


class DefaultPartitioner:
    """Chooses partitions; it only remembers, for each topic, which partition is next. Any thread may use it.

    Args:
        random_start: returns the number at which the turns of a topic begin; called once for each topic. None: a random
            one.
    """

    def __init__(self, random_start: Callable[[], int] | None = None) -> None:
        self._random_start = random_start or _random_start
        self._turns: dict[str, count[int]] = {}

    def partition(
        self,
        topic: str,
        key: bytes | None,
        partitions: Sequence[int],
        available: Sequence[int],
        *,
        explicit: int | None = None,
    ) -> int:
        """The partition of a record.

        Args:
            topic: topic of the record.
            key: its key as bytes. Equal keys get the same partition as long as the number of partitions stays the same;
                records without a key (None) get the partitions in turn.
            partitions: all partitions of the topic, 0 to n - 1.
            available: partitions that have a leader at the moment. Only records without a key avoid the others.
            explicit: the partition that the record specifies; it is used if given.

        Raises:
            UsageError: the topic has no partitions, or does not have the explicit one.
        """
        if not partitions:
            raise UsageError(f"topic {topic} has no partitions; check that it exists")
        if explicit is not None:
            if explicit not in partitions:
                raise UsageError(f"topic {topic} has {len(partitions)} partitions, but no partition {explicit}")
            return explicit
        if key is not None:
            return (murmur2(key) & _POSITIVE) % len(partitions)
        choice = available or partitions
        return choice[(next(self._turns_of(topic)) & _POSITIVE) % len(choice)]

    def _turns_of(self, topic: str) -> count[int]:
        turns = self._turns.get(topic)
        # setdefault: if two threads are the first at the same time, both use one counter.
        return self._turns.setdefault(topic, count(self._random_start())) if turns is None else turns
