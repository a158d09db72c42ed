"""Followers: thousands of members that obey a coordinator, on few ZooKeeper sessions, in child processes.

Each has a member's own registration, command, claims and offsets (:class:`CoordinatorGroup`, :class:`Rebalancer`), on
real znodes. What a whole member has besides, and 5,000 of them could not have on one machine: a session, five threads,
fetchers. One thread of each session lets the followers of that session react.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, NamedTuple

from benchmarks.hostprocess import HostProcess
from zkconsumer.assembly.memberassembly import assemble_member
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import CoordinatorUnknown, ShareChanged
from zkconsumer.fetch.rules.fetchcontrol import FetchAssignment
from zkconsumer.group.committer import OffsetCommitter
from zkconsumer.group.consumerid import new_consumer_id
from zkconsumer.group.coordinator.coordinatorgroup import CoordinatorGroup
from zkconsumer.group.coordinator.rules.candidacy import looks_at_once
from zkconsumer.group.rebalancer import Rebalancer
from zkconsumer.group.rebalancesignal import RebalanceSignal
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.offsets.zookeeperstore import ZooKeeperOffsetStore
from zkconsumer.zookeeper.session import ZkSession

_JOIN_S: Final = 120.0


class Held(NamedTuple):
    """What the members of one process have.

    Attributes:
        partitions: number of partitions that each member owns, in the order in which they joined.
        stops: how often a member stopped fetching something so far.
    """

    partitions: tuple[int, ...]
    stops: int


class CountingFetch:
    """A data plane without records: it counts how often something stops."""

    needs_topics = False

    def __init__(self) -> None:
        self.stops = 0
        self._fetched: Collection[TopicPartition] = ()

    def stop(self, *, drain: bool = True) -> None:  # noqa: ARG002 - there is nothing to wait for
        """Count it if something was fetched."""
        self.stops += bool(self._fetched)
        self._fetched = ()

    def release(self, partitions: Collection[TopicPartition], *, drain: bool = True) -> None:  # noqa: ARG002
        """Count it if something was fetched."""
        self.stops += bool(partitions)

    def start(self, assignment: FetchAssignment) -> None:
        """Record what is fetched."""
        self._fetched = assignment.threads.keys()

    def withhold(self) -> None:
        """There are no records."""

    def deliver(self) -> None:
        """There are no records."""

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:  # noqa: ARG002 - nothing is handed out
        """None is known."""
        return {}

    def superseded(self) -> Collection[tuple[TopicPartition, int]]:
        """There are no records."""
        return ()


class _QueuedSignal(RebalanceSignal):
    """A rebalance signal that lets the thread of a session serve its follower."""

    def __init__(self, served: queue.SimpleQueue[Callable[[], None] | None], serve: Callable[[], None]) -> None:
        super().__init__()
        self._served, self._serve = served, serve

    def raise_flag(self) -> None:
        super().raise_flag()
        self._served.put(self._serve)


class _FollowerGroup(CoordinatorGroup):
    """It is not opened: its session is open already, and it has no thread whose state is read."""

    def join(self, subscription: Subscription) -> None:
        """Register, without the states and waits of a member's own thread."""
        self._register(subscription)


class _Follower:
    """One member without a session and without threads of its own."""

    def __init__(
        self, config: ConsumerConfig, session: ZkSession, served: queue.SimpleQueue[Callable[[], None] | None]
    ) -> None:
        consumer_id = new_consumer_id(config)
        self.fetch = CountingFetch()
        self.error: Exception | None = None
        self._subscription = Subscription.static({})
        self._signal = _QueuedSignal(served, self.react)
        self.group = _FollowerGroup(config, consumer_id, self._signal, zk=session)
        store = ZooKeeperOffsetStore(session, config.group_id, self.group.fence)
        committer = OffsetCommitter(config, consumer_id, self.group, self.fetch, store, self._signal)
        self._rebalancer = Rebalancer(config, consumer_id, self.group, committer, self.fetch, lambda _: None)

    def join(self, subscription: Subscription) -> None:
        """Register, look at the candidates where a member does that at once, and read the command."""
        self.group.join(subscription)
        if looks_at_once(self.group.obeying):
            self.group.coordinator.act()
        self._signal.raise_flag()

    def react(self) -> None:
        """One attempt, if anything has changed."""
        if not self._signal.take():
            return
        error = self._rebalancer.rebalance().error
        if error is not None and not isinstance(error, (CoordinatorUnknown, ShareChanged)):
            self.error = error


class _Hosted:
    """The members of a child process."""

    def __init__(self, properties: dict[str, str], sessions: int) -> None:
        self._properties = properties
        self._followers: list[_Follower] = []
        self._sessions: list[tuple[ZkSession, queue.SimpleQueue[Callable[[], None] | None]]] = []
        for number in range(sessions):
            session = ZkSession.from_config(ConsumerConfig.from_properties(properties))
            session.open()
            served: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
            self._sessions.append((session, served))
            threading.Thread(target=_serve_session, args=(served,), name=f"followers-{number}", daemon=True).start()

    def join(self, consumers: list[str], topic: str) -> float:
        """Let all join; returns when they began, by ``time.monotonic()``."""
        subscription = Subscription.static({topic: 1})
        began = time.monotonic()
        for number, consumer in enumerate(consumers):
            session, served = self._sessions[number % len(self._sessions)]
            config = ConsumerConfig.from_properties(self._properties, consumer_id=consumer)
            self._followers.append(one := _Follower(config, session, served))
            served.put(partial(one.join, subscription))
        return began

    def held(self) -> Held:
        """What they own now."""
        for one in self._followers:
            if one.error is not None:
                raise one.error
        partitions = tuple(len(one.group.held.partitions) for one in self._followers)
        return Held(partitions, sum(one.fetch.stops for one in self._followers))

    def close(self) -> None:
        """End all sessions."""
        for session, served in self._sessions:
            served.put(None)
            session.close()


class _HostedMember:
    """One whole member in a child process: it may lead, and may be killed."""

    def __init__(self, properties: dict[str, str]) -> None:
        config = ConsumerConfig.from_properties(properties)
        self._fetch = CountingFetch()
        self._member = assemble_member(config, new_consumer_id(config), self._fetch)
        self._member.open()

    def join(self, topic: str) -> float:
        """Join; returns when that began, by ``time.monotonic()``."""
        began = time.monotonic()
        self._member.join(Subscription.static({topic: 1}))
        return began

    def held(self) -> Held:
        """What it owns now."""
        return Held((len(self._member.ownership()),), self._fetch.stops)

    def close(self) -> float:
        """Leave; returns when that began, by ``time.monotonic()``."""
        began = time.monotonic()
        self._member.leave()
        return began


def _serve_session(served: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (task := served.get()) is not None:
        try:
            task()
        except Exception:  # noqa: BLE001 - the others of this session continue; the missing shares are reported
            traceback.print_exc()


class Host(HostProcess):
    """A child process with members, which leave their group at its end.

    Args:
        make: makes what is hosted, in the child process, out of the other arguments.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        super().__init__("members", make, *arguments)
        self.answer()

    @classmethod
    def of_followers(cls, properties: dict[str, str], sessions: int) -> Host:
        """A process with followers on so many sessions."""
        return cls(_Hosted, properties, sessions)

    @classmethod
    def of_member(cls, properties: dict[str, str]) -> Host:
        """A process with one whole member."""
        return cls(_HostedMember, properties)

    def close(self) -> None:
        """End the process. Idempotent."""
        if self.runs:
            try:
                self.call("close")
            finally:
                super().close()
