"""The group as a :class:`~zkconsumer.spark.planner.BatchPlanner` sees it, without a ZooKeeper."""

import itertools

from zkconsumer.core.offsets import StoredOffset
from zkconsumer.errors import GenerationEnded

TRANSACTIONS = itertools.count(1000)
"""Numbers of ZooKeeper's transactions: czxid and mzxid of what is created and written."""


class Member:
    """Owns what a test gives it, and records each commit with a mark of its own."""

    def __init__(self):
        self.commits = []
        self.generation = 0
        self.stored = {}

    def may_deliver(self):
        return True

    def live_brokers(self):
        return ()

    def commit(self, offsets, *, generation):
        self._require(generation)
        self.commits.append(dict(offsets))
        for partition, offset in offsets.items():
            if self.stored.get(partition, StoredOffset(None)).offset != offset:
                self.stored[partition] = StoredOffset(offset, next(TRANSACTIONS))

    def marks(self, partitions, generation):
        self._require(generation)
        return {partition: self.stored[partition].mark for partition in partitions}

    def leave(self):
        pass

    def _require(self, generation):
        if generation != self.generation:
            raise GenerationEnded(f"not {self.generation}")
