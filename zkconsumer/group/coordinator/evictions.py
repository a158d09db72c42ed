"""Evictions: takes partitions from members of a group that do not obey their commands (adr/0018)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.group.coordinator.commands import CommandNodes
from zkconsumer.group.coordinator.rules.coordinatorplan import Awaited, NextTurn, Owners, earliest
from zkconsumer.group.coordinator.rules.eviction import evicted_after_seconds, owned_by, reason_to_evict, slow_members
from zkconsumer.model import TopicPartition

_log: Final = logging.getLogger("zkconsumer.events")


class Evictions:
    """Members that are evicted, and those that will be. Used by the coordinator's thread only.

    1. The session node of a slow member is deleted: it is fenced. 2. A session timeout later its lease has lapsed.
    3. Its owner znodes are deleted. The command of the member records the first step, so that another leader can
    continue; it waits a whole session timeout again.

    Args:
        config: the properties of the member that leads.
        consumer_id: of that member.
        commands: of the group.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, config: ConsumerConfig, consumer_id: str, commands: CommandNodes, clock: Callable[[], float]
    ) -> None:
        self._group = config.group_id
        self._evict_slow_ms = config.coordinator_evict_slow_ms
        self._consumer_id = consumer_id
        self._commands = commands
        self._clock = clock
        self._since: dict[str, float] = {}  # name of the command of an evicted member: when this leader saw that
        self._evicted: set[str] = set()
        self._session_ms: dict[str, int] = {}  # name of a command: session timeout of that registration
        self._returned: dict[str, float] = {}  # consumer id of one that has been evicted: when it had registered again

    def _after_seconds(self, session_timeout_s: float) -> float | None:
        """See :func:`~zkconsumer.group.coordinator.rules.eviction.evicted_after_seconds`."""
        return evicted_after_seconds(self._evict_slow_ms, session_timeout_s)

    def refusals(self) -> dict[str, str]:
        """Evicted members, which own nothing until they have registered again, and why."""
        return {consumer_id: command.refused for consumer_id, (_, command) in self._commands.evicted().items()}

    def advance(
        self,
        awaited: Mapping[TopicPartition, Awaited],
        owners: Owners,
        session_ms: Mapping[str, int],
        session_timeout_s: float,
    ) -> NextTurn:
        """Do what is due; returns when this is to be called again.

        Args:
            awaited: partitions that are not released or claimed yet.
            owners: owner znodes of those that are not released.
            session_ms: session timeouts of the members, by consumer id.
            session_timeout_s: that of the leader.

        Raises:
            EpochEnded, SessionExpired, ZooKeeperUnavailable, ZooKeeperRefused: as of :meth:`CommandNodes.evict`.
        """
        freed = self._free(owners)
        if freed.at_once:
            return freed
        evicted = self._evict(awaited, session_ms, session_timeout_s)
        return NextTurn(evicted.at_once, earliest([freed.due_at, evicted.due_at]))

    def _free(self, owners: Owners) -> NextTurn:
        """Free the partitions of evicted members whose lease has lapsed."""
        now, due_at = self._clock(), None
        evicted = self._commands.evicted()
        self._since = {name: self._since.get(name, now) for name, _ in evicted.values()}
        for consumer_id, (name, command) in evicted.items():
            ends = self._since[name] + command.evicted_ms / 1000
            partitions = owned_by(consumer_id, owners)
            if partitions and now >= ends:
                if self._commands.free(consumer_id, partitions):
                    _log.warning("group %s: %d partitions of %s are free", self._group, len(partitions), consumer_id)
                    return NextTurn(at_once=True)
                self._since[name] = now  # it registers again, or has left; otherwise after another session timeout
                ends = now + command.evicted_ms / 1000
            if partitions:
                due_at = earliest([due_at, ends])
        return NextTurn(at_once=False, due_at=due_at)

    def times(
        self, awaited: Mapping[TopicPartition, Awaited], session_ms: Mapping[str, int], session_timeout_s: float
    ) -> dict[str, float]:
        """When each member is evicted if it does not act, by the leader's clock; for the arguments see :meth:`advance`.

        Members that are not evicted are absent: those that have been, and those of former versions.
        """
        after_s = self._after_seconds(session_timeout_s)
        if after_s is None:
            return {}
        times: dict[str, float] = {}
        for waiting in self._evictable(awaited, session_ms).values():
            if waiting.by is not None:
                times[waiting.by] = min(times.get(waiting.by, inf), waiting.since + after_s)
        return times

    def _evict(
        self,
        awaited: Mapping[TopicPartition, Awaited],
        session_ms: Mapping[str, int],
        session_timeout_s: float,
    ) -> NextTurn:
        after_s = self._after_seconds(session_timeout_s)
        if after_s is None:
            return NextTurn(at_once=False)
        slow = slow_members(self._evictable(awaited, session_ms), self._clock(), after_s)
        for consumer_id, partitions in slow.partitions.items():
            reason = reason_to_evict(partitions, after_s)
            _log.warning("group %s: %s is evicted, since %s", self._group, consumer_id, reason)
            own = consumer_id == self._consumer_id
            timeout_ms = self._session_ms[self._commands.nodes[consumer_id]]
            self._commands.evict(consumer_id, reason, timeout_ms, itself=own)
            return NextTurn(at_once=True)
        return NextTurn(at_once=False, due_at=slow.next_at)

    def _evictable(
        self, awaited: Mapping[TopicPartition, Awaited], session_ms: Mapping[str, int]
    ) -> dict[TopicPartition, Awaited]:
        """Since when the present registration of members has not obeyed that may be evicted, and are not.

        A member that registers again after an eviction releases what it had, and has as long for that as any other. A
        member that never wrote its timeout is of a former version, whose lease does not depend on the session node;
        one whose session node another client has deleted is fenced, and not evicted by that.
        """
        names = self._commands.nodes
        self._session_ms = {n: ms for n, ms in self._session_ms.items() if n in names.values()}
        self._session_ms.update((names[member], ms) for member, ms in session_ms.items() if member in names)
        evicted = self._commands.evicted().keys()
        self._returned.update(dict.fromkeys(self._evicted - evicted, self._clock()))
        self._evicted = set(evicted)
        return {
            partition: waiting._replace(since=max(waiting.since, self._returned.get(waiting.by, waiting.since)))
            for partition, waiting in awaited.items()
            if waiting.by is not None and names.get(waiting.by) in self._session_ms and waiting.by not in evicted
        }
