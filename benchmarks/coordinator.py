"""The benchmark of groups with a coordinator: cold start, one member leaves, fail-over, the assignor (adr/0017)."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from benchmarks.contest import OURS, Contest
from benchmarks.followers import Held, Host
from benchmarks.zktrace import Settling, ZooKeeperTrace, settling
from zkconsumer.errors import SandboxError
from zkconsumer.group.coordinator.rules.coordinatorznodes import LeaderNode, StatusNode
from zkconsumer.group.rules.assignors import Partitions, Threads
from zkconsumer.group.rules.groupview import GroupView
from zkconsumer.group.rules.stickyassignor import sticky_assignor
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.sandbox.progress import Progress
from zkconsumer.sandbox.zookeeper import ZooKeeperServer
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths
from zkconsumer.zookeeper.rules.znodes import BROKER_TOPICS, TopicNode
from zkconsumer.zookeeper.session import ZkSession

_SESSION_MS: Final = 6000
_SHARED_SESSION_MS: Final = 20_000
"""Session timeout of followers: what these sessions send to stay alive becomes rarer with it."""
_OBSERVER_MS: Final = 20_000
_TICK_MS: Final = 1000
_PROCESSES: Final = 2
_QUIET_S: Final = 4.0
"""Longer than members that join may be put off: half a session timeout."""
_LIMIT_S: Final = 300.0
_PARTITIONS_EACH: Final = 2
_WHOLE_MEMBERS: Final = 3
"""As many as there are places for candidates: one of them leads."""
_POLL_S: Final = 0.01
_MIXED_TOPICS: Final = 100
_MIXED_SUBSCRIPTIONS: Final = 10


@dataclass(frozen=True)
class CoordinatorSizes:
    """The sizes of the measurements.

    Attributes:
        rounds: measurements of each kind.
        members: numbers of members, of which each owns two partitions.
        sessions: number of ZooKeeper sessions that the followers share.
        failover: number of members of the group whose leader ends.
        cold: numbers of members that start together on the most partitions of all.
    """

    rounds: int = 1
    members: tuple[int, ...] = (50, 500, 5000)
    sessions: int = 50
    failover: int = 500
    cold: tuple[int, ...] = (500, 5000)


class CoordinatorField:
    """A ZooKeeper server, and groups on topics that no broker has.

    Args:
        ask: returns the server's answer to a four-letter word.
        session: an open session to observe it.
        sessions: number of sessions that the followers of a group share.
    """

    def __init__(self, ask: Callable[[str], str], session: ZkSession, sessions: int) -> None:
        self._ask, self.session, self._sessions = ask, session, sessions
        self._groups = count()

    def create_topic(self, name: str, partitions: int) -> str:
        """A topic that is nothing but its znode."""
        described = ",".join(f'"{number}":[1]' for number in range(partitions))
        self.session.ensure_path(BROKER_TOPICS, b"")
        self.session.ensure_path(TopicNode.path(name), f'{{"version":1,"partitions":{{{described}}}}}'.encode())
        return name

    @contextmanager
    def group(self) -> Iterator[_Group]:
        """A new group, whose processes end with it."""
        with ExitStack() as stack:
            yield _Group(self, f"bench-{next(self._groups)}", stack, self._sessions)

    def disturb(self, event: Callable[[], float]) -> Settling:
        """Trigger an event, which returns its time, and wait until nothing is written any more."""
        with ZooKeeperTrace(self._ask) as trace:
            since = event()
            return settling(trace.wait_until_quiet(_QUIET_S, _LIMIT_S), since)


class _Group:
    """One group: some whole members, of which one leads, and followers."""

    def __init__(self, field: CoordinatorField, name: str, stack: ExitStack, sessions: int) -> None:
        self._field, self.name, self._stack, self._sessions = field, name, stack, sessions
        self._properties = {
            "zookeeper.connect": field.session.address,
            "group.id": name,
            "group.protocol": "coordinator",
            "zookeeper.session.timeout.ms": str(_SESSION_MS),
        }
        self.whole: dict[str, Host] = {}
        self._followers: list[Host] = []

    def prepare(self) -> None:
        """Start the processes and their sessions."""
        for number in range(_WHOLE_MEMBERS):
            host = Host.of_member({**self._properties, "consumer.id": f"whole-{number}"})
            self.whole[f"{self.name}_whole-{number}"] = self._stack.enter_context(closing(host))
        shared = {**self._properties, "zookeeper.session.timeout.ms": str(_SHARED_SESSION_MS)}
        sessions = max(1, self._sessions // _PROCESSES)
        for _ in range(_PROCESSES):
            self._followers.append(self._stack.enter_context(closing(Host.of_followers(shared, sessions))))

    def lead(self, topic: str) -> None:
        """Let the whole members join; the first one leads."""
        for member in self.whole.values():
            member.call("join", topic)

    def join(self, topic: str, members: int) -> float:
        """Let all others join, so that the group has so many members; returns when they began."""
        ids = [f"follower-{number:05}" for number in range(members - len(self.whole))]
        for number, host in enumerate(self._followers):
            host.ask("join", ids[number::_PROCESSES], topic)
        return min(float(host.answer()) for host in self._followers)

    def held(self) -> list[Held]:
        """What each process has."""
        return [host.call("held") for host in [*self.whole.values(), *self._followers]]

    def stops(self) -> int:
        """How often members stopped fetching something so far."""
        return sum(held.stops for held in self.held())

    def expect(self, partitions: int) -> None:
        """Raise SandboxError unless all partitions are owned, evenly."""
        owned = [number for held in self.held() for number in held.partitions]
        if sum(owned) != partitions or max(owned) - min(owned) > 1:
            raise SandboxError(
                f"group {self.name}: {sum(owned)} of {partitions} partitions are owned, {min(owned)} to {max(owned)} "
                "by each member"
            )

    def leader(self) -> str:
        """Consumer id of the member that leads, which is a whole one: these have taken all places of candidates."""
        path = CoordinatorPaths(self.name).leader
        node = self._field.session.get(path)
        if node is None:
            raise SandboxError(f"group {self.name} has no leader")
        return LeaderNode.decode(path, node.data)[0]

    def planned_epoch(self) -> int:
        """The epoch of the last leader that has planned; 0 if there is none."""
        path = CoordinatorPaths(self.name).status
        node = self._field.session.get(path)
        return 0 if node is None else StatusNode.decode(path, node.data).epoch

    def await_epoch(self, epoch: int) -> float:
        """Wait until a leader has planned in an epoch; returns that time."""
        deadline = time.monotonic() + _LIMIT_S
        while self.planned_epoch() < epoch:
            if time.monotonic() > deadline:
                raise SandboxError(f"group {self.name}: no leader has planned in epoch {epoch}")
            time.sleep(_POLL_S)  # the observer's session has no watch to wait for: it must not disturb the figures
        return time.monotonic()


def run_coordinator_contests(sizes: CoordinatorSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Run all measurements and return them.

    Args:
        sizes: sizes of the measurements.
        directory: directory for the server's files.
        progress: reports the steps.

    Raises:
        SandboxError: the server did not start, or a group did not settle.
    """
    contests: list[Contest] = []
    server = ZooKeeperServer(directory, tick_time_ms=_TICK_MS)
    server.start()
    try:
        session = ZkSession(server.address, session_timeout_ms=_OBSERVER_MS, connection_timeout_ms=_OBSERVER_MS)
        session.open()
        with closing(session):
            field = CoordinatorField(server.ask, session, sizes.sessions)
            partitions = _PARTITIONS_EACH * max(sizes.cold, default=0)
            for members in sizes.cold:
                contests += cold_start(field, members, partitions, sizes.rounds, progress)
            for members in sizes.members:
                contests += one_leaves(field, members, sizes.rounds, progress)
            contests += fail_over(field, sizes.failover, sizes.rounds, progress)
    finally:
        server.stop()
    return contests + _assignor(max(sizes.members), sizes.rounds, progress)


def _contest(title: str, unit: str, target: str = "") -> Contest:
    return Contest(title, unit, OURS, target)


def cold_start(
    field: CoordinatorField, members: int, partitions: int, rounds: int, progress: Progress
) -> list[Contest]:
    """All but the whole members of a new group start together: seconds and requests until each owns its share."""
    title = f"Cold start, {members:,} members on {partitions:,} partitions"
    seconds, requests = _contest(title, "s"), _contest(f"{title}: per member", "ZooKeeper requests", "8")
    topic = field.create_topic(f"cold-{partitions}", partitions)
    with progress.step(title, rounds) as advance:
        for number in range(rounds):
            advance(number, "rounds")
            with field.group() as group:
                group.prepare()
                group.lead(topic)
                settled = field.disturb(partial(group.join, topic, members))
                group.expect(partitions)
                seconds.add(OURS, settled.seconds)
                requests.add(OURS, settled.packets / members)
    return [seconds, requests]


def one_leaves(field: CoordinatorField, members: int, rounds: int, progress: Progress) -> list[Contest]:
    """A member that does not lead leaves a group: seconds, requests, and what else stops."""
    title = f"One of {members:,} members leaves"
    contests = [
        _contest(title, "s", "0.5"),
        _contest(f"{title}: requests", "ZooKeeper requests", "within 10 %"),
        _contest(f"{title}: members that stopped fetching something", "members", "0"),
    ]
    partitions = _PARTITIONS_EACH * members
    topic = field.create_topic(f"wide-{partitions}", partitions)
    with progress.step(title, rounds) as advance:
        for number in range(rounds):
            advance(number, "rounds")
            with field.group() as group:
                group.prepare()
                group.lead(topic)
                field.disturb(partial(group.join, topic, members))
                group.expect(partitions)
                leaver = group.whole.pop(next(name for name in group.whole if name != group.leader()))
                before = group.stops()
                settled = field.disturb(partial(_leave, leaver))
                group.expect(partitions)
                for contest, value in zip(
                    contests, (settled.seconds, settled.packets, group.stops() - before), strict=True
                ):
                    contest.add(OURS, value)
    return contests


def fail_over(field: CoordinatorField, members: int, rounds: int, progress: Progress) -> list[Contest]:
    """The leader leaves, and the next one is killed: seconds until another one has planned, and what else stops."""
    timeout_s = _SESSION_MS / 1000
    title = f"A new leader of {members:,} members has planned"
    contests = [
        _contest(f"{title}: the former one left", "s", "1"),
        _contest(f"{title}: the former one was killed", "s", f"{timeout_s + 1:g}"),
        _contest(f"{title}: members that stopped fetching something", "members", "0"),
    ]
    topic = field.create_topic(f"failover-{_PARTITIONS_EACH * members}", _PARTITIONS_EACH * members)
    with progress.step(title, rounds) as advance:
        for number in range(rounds):
            advance(number, "rounds")
            with field.group() as group:
                group.prepare()
                group.lead(topic)
                field.disturb(partial(group.join, topic, members))
                for contest, end in zip(contests, (_leave, _kill), strict=False):
                    leader = group.leader()
                    host = group.whole.pop(leader)
                    epoch, before = group.planned_epoch(), group.stops()
                    ended = end(host)
                    contest.add(OURS, group.await_epoch(epoch + 1) - ended)
                    contests[2].add(OURS, group.stops() - before)
    return contests


def _leave(host: Host) -> float:
    """Let a member leave; returns when it began to."""
    return float(host.call("close"))


def _kill(host: Host) -> float:
    at = time.monotonic()
    host.kill()
    return at


def _assignor(members: int, rounds: int, progress: Progress) -> list[Contest]:
    """The sticky assignor alone, each time in a new process, whose whole memory counts."""
    title = f"Sticky assignor, {members:,} members, {_PARTITIONS_EACH * members:,} partitions"
    contests = [_contest(f"{title}: one subscription", "s", "1"), _contest(f"{title}: mixed subscriptions", "s", "5")]
    with progress.step(title, rounds) as advance:
        for number in range(rounds):
            advance(number, "rounds")
            for contest, mixed in zip(contests, (False, True), strict=True):
                with get_context("spawn").Pool(1) as pool:
                    seconds, mebibytes = pool.apply(timed_assignment, (members, mixed))
                contest.add(OURS, seconds)
                contest.note_memory(OURS, mebibytes)
    return contests


def timed_assignment(members: int, mixed: bool) -> tuple[float, float]:
    """Seconds that the assignor needs, and the peak memory of the process in MiB.

    Args:
        members: number of members, with one thread each; there are two partitions for each.
        mixed: each member subscribes to ten of a hundred topics; otherwise all to one.
    """
    threads, partitions = _problem(members, mixed)
    began = time.monotonic()
    sticky_assignor(threads, partitions, {})
    seconds = time.monotonic() - began
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _problem(members: int, mixed: bool) -> tuple[Threads, Partitions]:
    topics = _MIXED_TOPICS if mixed else 1
    names = [f"topic-{number}" for number in range(topics)]
    each = _PARTITIONS_EACH * members // topics
    wanted = _MIXED_SUBSCRIPTIONS if mixed else 1
    view = GroupView(
        members={
            f"g_{member:05}": Subscription.static(
                {names[(member * 7 + 13 * number) % topics]: 1 for number in range(wanted)}
            )
            for member in range(members)
        },
        partitions={name: tuple(range(each)) for name in names},
    )
    return view.threads_by_topic(exclude_internal=True), view.partitions
