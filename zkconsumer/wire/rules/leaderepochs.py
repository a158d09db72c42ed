"""Leader epochs (KIP-320): which metadata is outdated, and which positions may be lost.

A partition's leader epoch grows with each election. A client that names it in its requests is not answered by a broker
that does not know yet that it lost the leadership. After an unclean election the log of the new leader may lack records
that were read. It may have grown past the position again, so that no error shows the loss: the client has to ask where
the log of the earlier epoch ends.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from zkconsumer.model import TopicPartition

UNKNOWN_EPOCH: Final = -1
PATIENCE_S: Final = 10.0
"""How long brokers have to repeat an epoch that something contradicts until it is accepted; see `KnownEpochs`."""


class _KnownEpoch:
    __slots__ = ("epoch", "fenced_since", "older_since", "topic_id")

    def __init__(self, topic_id: str | None, epoch: int) -> None:
        self.topic_id = topic_id
        self.epoch = epoch
        self.older_since: float | None = None
        self.fenced_since: float | None = None


class KnownEpochs:
    """The newest leader epoch of each partition that metadata has named. One thread uses it.

    Two contradictions do not end by waiting for newer metadata:

    * Brokers before 2.8 report no topic ids. There an older epoch is outdated, or of a topic that was created again.
    * Brokers before 2.4 may report an outdated epoch during the whole reassignment of a partition (KAFKA-9212), while
      its leader refuses that epoch. The Java client ignores the epochs of all these brokers.

    So after :data:`PATIENCE_S` the older epoch is accepted, and the refused one is not named any more.
    """

    def __init__(self) -> None:
        self._known: dict[TopicPartition, _KnownEpoch] = {}

    def accept(self, partition: TopicPartition, topic_id: str | None, epoch: int, now: float) -> bool:
        """Take note of the epoch in metadata; False if the metadata is outdated, and so is its leader.

        Args:
            partition: the partition that the metadata is about.
            topic_id: id of its topic, None if the broker does not report it.
            epoch: of its leader; :data:`UNKNOWN_EPOCH` if the broker does not report it.
            now: clock reading in seconds.
        """
        if epoch == UNKNOWN_EPOCH:
            return True
        known = self._known.get(partition)
        if known is not None and epoch < known.epoch:
            if topic_id is not None and topic_id == known.topic_id:
                return False
            if topic_id is None or known.topic_id is None:
                if known.older_since is None:
                    known.older_since = now
                if now - known.older_since < PATIENCE_S:
                    return False
        if known is None or (known.topic_id, known.epoch) != (topic_id, epoch):
            self._known[partition] = _KnownEpoch(topic_id, epoch)
        else:
            known.older_since = None
        return True

    def expect(self, partition: TopicPartition, epoch: int) -> bool:
        """Take note of an epoch that another process knows; False if the leader that is known may be outdated.

        Without topic ids, one that is known to be refused stays: 1. the leader has epoch 5, which is expected, and
        metadata says 4 during a whole reassignment; 2. 4 is accepted, and the leader refuses it; 3. each task expects 5
        again, and would begin to wait for metadata of it anew.
        """
        known = self._known.get(partition)
        if known is None or (epoch > known.epoch and (known.fenced_since is None or known.topic_id is not None)):
            self._known[partition] = _KnownEpoch(None if known is None else known.topic_id, epoch)
            return False
        return True

    def fenced(self, partition: TopicPartition, epoch: int, now: float) -> None:
        """Take note that the leader refused this epoch as older than its own.

        It says nothing about another epoch: 1. two partitions of a topic move to a leader of epoch 6; 2. metadata of
        the topic is asked for because of the first one; 3. the refusal of the second one's epoch 5 is noted.
        """
        known = self._known.get(partition)
        if known is not None and known.epoch == epoch and known.fenced_since is None:
            known.fenced_since = now

    def to_name(self, partition: TopicPartition, now: float) -> int:
        """The epoch to name in requests to the leader."""
        known = self._known.get(partition)
        if known is None or (known.fenced_since is not None and now - known.fenced_since >= PATIENCE_S):
            return UNKNOWN_EPOCH
        return known.epoch


def must_ask(seen: int, leader: int) -> bool:
    """True if a leader must be asked if its log contains what was seen in the log of an earlier leader (KIP-320).

    Args:
        seen: epoch of the leader in whose log it was seen; :data:`UNKNOWN_EPOCH` if unknown.
        leader: epoch of the leader that will be asked. If it is older, the topic was created again.

    >>> must_ask(5, 6), must_ask(5, 5), must_ask(5, 4), must_ask(UNKNOWN_EPOCH, 6), must_ask(5, UNKNOWN_EPOCH)
    (True, False, False, False, False)
    """
    return UNKNOWN_EPOCH < seen < leader


class PositionEpochs(NamedTuple):
    """The epochs of the offset to fetch next.

    Attributes:
        leader: epoch of the leader whose log contained everything before it.
        record: epoch of the last record before it, which may be older.
    """

    leader: int = UNKNOWN_EPOCH
    record: int = UNKNOWN_EPOCH

    def to_check(self, leader: int) -> int:
        """The epoch whose end the leader must be asked for before records are fetched; UNKNOWN_EPOCH: no need to ask.

        Args:
            leader: epoch of the leader that will be asked.

        >>> PositionEpochs(5, 3).to_check(6), PositionEpochs(5).to_check(6)
        (3, 5)
        >>> PositionEpochs(5, 3).to_check(5), PositionEpochs().to_check(6), PositionEpochs(5, 3).to_check(-1)
        (-1, -1, -1)
        """
        if not must_ask(self.leader, leader):
            return UNKNOWN_EPOCH
        return self.leader if self.record == UNKNOWN_EPOCH else self.record

    def after(self, leader: int, record: int | None) -> PositionEpochs:
        """The epochs after an answer of the leader.

        No checksum covers the epoch of a batch, so one that cannot be right makes it unknown.

        Args:
            leader: the epoch that the request named.
            record: epoch of the last batch in the answer; None if it has no batch.

        >>> PositionEpochs(5, 3).after(6, None), PositionEpochs(5, 3).after(6, 6), PositionEpochs(5, 3).after(6, 2)
        (PositionEpochs(leader=6, record=3), PositionEpochs(leader=6, record=6), PositionEpochs(leader=6, record=-1))
        >>> PositionEpochs(5, 3).after(-1, 7), PositionEpochs(5, 3).after(2, None)
        (PositionEpochs(leader=-1, record=-1), PositionEpochs(leader=2, record=-1))
        """
        if leader == self.leader and record in (None, self.record):
            return self
        if leader == UNKNOWN_EPOCH:
            return PositionEpochs()
        if record is None:
            return PositionEpochs(leader, self.record if self.record <= leader else UNKNOWN_EPOCH)
        return PositionEpochs(leader, record if self.record <= record <= leader else UNKNOWN_EPOCH)
