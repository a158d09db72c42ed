"""Reconciliation: which partitions a member gives up, keeps and takes to own exactly its share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zkconsumer.model import ConsumerThreadId, TopicPartition

Share = Mapping[TopicPartition, ConsumerThreadId]


class Reconciliation(NamedTuple):
    """The changes from one share to another.

    Attributes:
        revoked: partitions to be given up.
        kept: partitions that continue as they are.
        gained: partitions to be claimed.
    """

    revoked: frozenset[TopicPartition]
    kept: frozenset[TopicPartition]
    gained: frozenset[TopicPartition]


def reconcile(held: Share, target: Share, *, incremental: bool) -> Reconciliation:
    """Compare the partitions that are held with those that should be.

    Args:
        held: partitions that are held, and their consumer threads.
        target: partitions that should be held, and their consumer threads.
        incremental: False gives up everything, and takes everything again.

    >>> from zkconsumer.model import ConsumerThreadId, TopicPartition
    >>> a, b, c = (TopicPartition("t", number) for number in range(3))
    >>> thread = ConsumerThreadId("g_c", 0)
    >>> some = reconcile({a: thread, b: thread}, {b: thread, c: thread}, incremental=True)
    >>> some.revoked == {a}, some.kept == {b}, some.gained == {c}
    (True, True, True)
    >>> reconcile({a: thread}, {a: thread}, incremental=False).revoked == {a}
    True
    """
    kept = frozenset(p for p, thread in target.items() if incremental and held.get(p) == thread)
    return Reconciliation(frozenset(held) - kept, kept, frozenset(target) - kept)
