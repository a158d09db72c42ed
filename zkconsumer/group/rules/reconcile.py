"""Reconciliation: which partitions a member gives up, keeps and takes to own exactly its share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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


def reconcile(
    held: Share, target: Share, *, incremental: bool, renewed: Collection[TopicPartition] = ()
) -> Reconciliation:
    """Compare the partitions that are held with those that should be.

    Args:
        held: partitions that are held, and their consumer threads.
        target: partitions that should be held, and their consumer threads.
        incremental: False gives up everything, and takes everything again.
        renewed: partitions that are given up and taken again in any case.

    >>> from zkconsumer.model import ConsumerThreadId, TopicPartition
    >>> a, b, c = (TopicPartition("t", number) for number in range(3))
    >>> thread = ConsumerThreadId("g_c", 0)
    >>> some = reconcile({a: thread, b: thread}, {b: thread, c: thread}, incremental=True)
    >>> some.revoked == {a}, some.kept == {b}, some.gained == {c}
    (True, True, True)
    >>> reconcile({a: thread}, {a: thread}, incremental=False).revoked == {a}
    True
    >>> again = reconcile({a: thread, b: thread}, {a: thread, b: thread}, incremental=True, renewed=[a])
    >>> again.revoked == {a} == again.gained, again.kept == {b}
    (True, True)
    """
    kept = frozenset(p for p, thread in target.items() if incremental and held.get(p) == thread) - frozenset(renewed)
    return Reconciliation(frozenset(held) - kept, kept, frozenset(target) - kept)
