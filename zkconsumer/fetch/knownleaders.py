"""KnownLeaders: leaders that brokers have named, for partitions that begin to be fetched later."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from zkconsumer.model import Broker, TopicPartition
from zkconsumer.wire.metadatamessages import Metadata
from zkconsumer.wire.rules.leaderepochs import UNKNOWN_EPOCH


class KnownLeader(NamedTuple):
    """A leader, the epoch to name in requests to it, and when a broker named it, in seconds."""

    broker: Broker
    epoch: int
    since: float


class KnownLeaders:
    """What a broker answered about all partitions of a topic; the answer may be outdated.

    An outdated leader refuses a partition, which then comes back. It must not be a broker that has gone, for which a
    fetcher would wait: so only brokers count that are being fetched from.

    One thread uses it.

    Args:
        valid_s: how long an answer is used, in seconds.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, valid_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._valid_s, self._clock = valid_s, clock
        self._leaders: dict[TopicPartition, KnownLeader] = {}

    def learn(self, metadata: Metadata) -> None:
        """A broker has answered."""
        now = self._clock()
        for partition, leader in metadata.leaders.items():
            self._leaders[partition] = KnownLeader(leader, metadata.epochs.get(partition, UNKNOWN_EPOCH), now)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Their leaders are others, or cannot be reached."""
        for partition in partitions:
            self._leaders.pop(partition, None)

    def find(
        self, partitions: Iterable[TopicPartition], fetched_from: Collection[Broker]
    ) -> dict[TopicPartition, KnownLeader]:
        """The leaders of these partitions that are known, among the brokers that are being fetched from."""
        oldest = self._clock() - self._valid_s
        known = ((partition, self._leaders.get(partition)) for partition in partitions)
        return {
            partition: leader
            for partition, leader in known
            if leader is not None and leader.since > oldest and leader.broker in fetched_from
        }
