"""Which broker a partition is fetched from: its leader, or the follower that the leader has named (KIP-392).

A leader answers a request that carries ``client.rack`` without records, and names a replica in that rack. The client
fetches from it for a while, and then asks the leader again. Positions are looked up at the leader alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from zkconsumer.model import Broker

NO_REPLICA: Final = -1
"""What a broker names if records are to be fetched from itself."""


def names_another(named: int, broker: int) -> bool:
    """True if a broker has sent no records of a partition, but the id of another broker to fetch them from.

    Args:
        named: the id in the answer, or :data:`NO_REPLICA`.
        broker: id of the broker that has answered.

    >>> names_another(2, 1), names_another(1, 1), names_another(NO_REPLICA, 1)
    (True, False, False)
    """
    return named not in (NO_REPLICA, broker)


class ReadReplica(NamedTuple):
    """Where one partition is fetched from.

    Attributes:
        follower: id of the broker that the leader has named; None for the leader.
        until: clock reading in seconds at which the leader has to be asked again, or, without a follower, from which on
            it may name one.
    """

    follower: int | None = None
    until: float = -inf

    def is_over(self, now: float) -> bool:
        """True if the leader has to be asked again."""
        return self.follower is not None and now >= self.until

    def may_move(self, now: float) -> bool:
        """True if the leader may name another broker: a request without the rack makes it send the records.

        The rack belongs to the request. So one with a partition that may not move is sent without it, and the leader
        sends the records of the other partitions, too.
        """
        return self.follower is not None or now >= self.until

    def named(self, broker: int, now: float, max_age_s: float) -> ReadReplica:
        """The same after the leader has named a broker."""
        return ReadReplica(broker, now + max_age_s)

    def failed(self, now: float, max_age_s: float) -> ReadReplica:
        """The same after the follower could not be fetched from: the leader has to send the records for a while.

        Otherwise it would name the same follower again, until the cluster has noticed that this one is gone.
        """
        return ReadReplica(None, now + max_age_s)

    def at_leader(self) -> ReadReplica:
        """The same after the leader has to be asked, which may name a follower again."""
        return self if self.follower is None else ReadReplica()

    def broker(
        self, leader: Broker, brokers: Mapping[int, Broker], now: float, max_age_s: float, *, needs_leader: bool
    ) -> tuple[Broker, ReadReplica]:
        """The broker to fetch from now, and the state after that choice.

        Args:
            leader: of the partition.
            brokers: live brokers by id.
            now: clock reading in seconds.
            max_age_s: ``metadata.max.age.ms``, in seconds.
            needs_leader: True if a position has to be looked up, or compared with the leader's log.
        """
        if self.follower is None:
            return leader, self
        if needs_leader or self.is_over(now) or self.follower == leader.id:
            return leader, self.at_leader()
        follower = brokers.get(self.follower)
        return (leader, self.failed(now, max_age_s)) if follower is None else (follower, self)


AT_LEADER: Final = ReadReplica()
"""Of a partition whose leader has named no follower."""
