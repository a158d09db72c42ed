"""Injector: does what a schedule says to the members of one group and to its servers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tests.chaos.environment import ClockSteps
from tests.chaos.kinds import OF_BROKERS
from tests.chaos.members import Member, OurMember
from tests.chaos.schedule import LEADER, Fault, Schedule
from tests.fixtures.zookeeper import take_over
from zkconsumer.errors import UsageError
from zkconsumer.testing.ledger import Faulted
from zkconsumer.testing.proxy import TcpProxy

if TYPE_CHECKING:
    from tests.chaos.feed import LedgerFeed
    from tests.chaos.group import Group

_DELAY_S: Final = 0.3
_BYTES_PER_S: Final = 2000.0
_EXPIRING_S: Final = 60.0
_LARGER: Final = 1.2
_STEP_S: Final = 3600.0

_NETWORK: Final[Mapping[str, Callable[[TcpProxy], None]]] = {
    "cut": TcpProxy.cut,
    "refuse": TcpProxy.refuse,
    "half-close": TcpProxy.half_close,
    "overtake": TcpProxy.overtake,
    "delay": lambda proxy: proxy.delay(_DELAY_S),
    "throttle": lambda proxy: proxy.throttle(_BYTES_PER_S),
}
"""What the modes of the kinds ``network`` and ``fetching`` do to the connections of one member."""

_CLOCKS: Final[Mapping[str, ClockSteps]] = {
    "forward": ClockSteps(real=_STEP_S),
    "back": ClockSteps(real=-_STEP_S),
    "suspend": ClockSteps(real=_STEP_S, boot=_STEP_S),
}
"""What the modes of the kind ``clock`` do; the clock of a suspended machine never steps back."""

KINDS: Final[Mapping[str, str]] = {
    "kill": "SIGKILL of a member; with a duration another one takes its place after that",
    "leave": "a member leaves in order; with a duration another one takes its place after that",
    "join": "a further member joins, whose kind is the mode; with a duration it leaves after that",
    "expire": "another client ends the session of a member; in a group of brokers it removes the member",
    "network": "a member's connection to ZooKeeper is hurt for a while, by mode: " + ", ".join(_NETWORK),
    "fetching": "a member's connections to brokers are hurt for a while, by the same modes",
    "clock": "the clocks of a member's process step by an hour, by mode: " + ", ".join(_CLOCKS),
    "pause": "SIGSTOP of a member for a while",
    "bounce": "a member is ended and another one takes its place: clean (SIGTERM) or hard (SIGKILL)",
    "listener": "for a while a member's rebalance listener hangs before partitions are released (hang) or fetched "
    "(late), commits (commit), or shuts down (shutdown), by mode; after that another member takes its place",
    "switch": "a member leaves and one of another kind, which is the mode, takes its place",
    "grow": "the topic gets two further partitions",
    "trim": "the broker removes all records that it has now, as retention does",
    "broker": "the broker is restarted: clean (SIGTERM) or hard (SIGKILL)",
    "zookeeper": "ZooKeeper is restarted: clean (SIGTERM) or hard (SIGKILL)",
    "ensemble": "of ZooKeeper's servers the leader is killed, and started again after a while (leader), or all are "
    "restarted (all); it is established when most of them serve",
    "servers": "ZooKeeper is paused for a while: no member can reach it",
    "mute": "all brokers are paused for a while: they accept connections, and answer nothing",
    "recreate": "the topic is deleted, and created again with two further partitions and more records than it had",
    "leader": "the broker that leads a partition is stopped (clean) or killed (hard), and started again after a while",
    "elect": "the preferred replicas lead their partitions again",
    "unclean": "a broker leads a partition that lacks records of the former leader, which is killed for a while",
}

_OF_SERVERS: Final = frozenset(
    {"grow", "trim", "broker", "zookeeper", "ensemble", "servers", "leader", "elect", "unclean", "mute", "recreate"}
)
_OF_SEVERAL_BROKERS: Final = frozenset({"leader", "elect", "unclean"})


class Injector:
    """Injects the faults of one trial, on the thread that calls.

    Args:
        group: the group under test.
        feed: of its topic.
    """

    def __init__(self, group: Group, feed: LedgerFeed) -> None:
        self._group = group
        self._feed = feed
        self._planned = len(group.members)

    def run(self, schedule: Schedule) -> None:
        """Inject all faults, each at its time or, where an earlier one took longer, as soon as possible."""
        self._planned = len(schedule.members)
        start = time.monotonic()
        actions: list[tuple[float, int, Callable[[], None]]] = []
        for number, fault in enumerate(schedule.faults):
            begin, end = self._actions(fault)
            actions.append((fault.at, number, begin))
            actions.append((fault.until, number, end))
        try:
            # The sort is stable: an event ends right after it began.
            for at, _, act in sorted(actions, key=lambda action: action[:2]):
                time.sleep(max(0.0, start + at - time.monotonic()))  # the schedule is the condition
                act()
        finally:
            # The next trial needs them, also if this one has failed here.
            self._group.servers.restore()

    def _actions(self, fault: Fault) -> tuple[Callable[[], None], Callable[[], None]]:
        """What begins and what ends a fault."""
        begun: list[tuple[int, Member, float, float]] = []

        def begin() -> None:
            group = self._group
            place = self._place(fault)
            present, began = group.members[place : place + 1], time.monotonic()
            self._begin(fault, place)
            (member,) = present or group.members[place:]
            begun.append((place, member, began, time.monotonic()))

        def end() -> None:
            place, member, began, established = begun[0]
            lifting = time.monotonic()
            self._end(fault, place, member)
            owner = "" if fault.kind in _OF_SERVERS else member.owner
            self._group.ledger.append(Faulted(fault.kind, owner, began, time.monotonic(), established, lifting))

        return begin, end

    def _place(self, fault: Fault) -> int:
        if fault.kind == "join":
            return len(self._group.members)
        # Members that have joined stand after those of the schedule.
        return self._group.place_of_leader() if fault.member == LEADER else fault.member % self._planned

    def _begin(self, fault: Fault, place: int) -> None:
        if fault.kind not in KINDS:
            raise UsageError(f"no such fault: {fault.kind}; known are {', '.join(KINDS)}")
        if fault.kind in _OF_SERVERS:
            self._begin_at_servers(fault)
        else:
            self._begin_at_member(fault, place)

    def _begin_at_servers(self, fault: Fault) -> None:
        group = self._group
        match fault.kind:
            case "grow":
                group.grow()
            case "trim":
                group.trim()
            case "zookeeper":
                group.servers.restart_zookeeper(hard=fault.mode == "hard")
            case "ensemble":
                group.servers.hurt_ensemble(everyone=fault.mode == "all")
            case "servers":
                group.servers.box.zookeeper.pause()
            case "recreate":
                group.recreate_topic()
                self._feed.burst(round(_LARGER * len(self._feed.acknowledged)))
            case _:
                self._begin_at_brokers(fault)

    def _begin_at_brokers(self, fault: Fault) -> None:
        group = self._group
        match fault.kind:
            case "broker":
                group.servers.restart_broker(hard=fault.mode == "hard")
            case "mute":
                for broker in group.servers.box.brokers:
                    group.servers.cluster.pause(broker)
            case "leader":
                group.servers.cluster.end_leader(group.name, fault.member, hard=fault.mode == "hard")
            case "elect":
                group.servers.cluster.elect_preferred(group.name)
            case "unclean":
                group.servers.cluster.elect_unclean(group.name, fault.member)

    def _begin_at_member(self, fault: Fault, place: int) -> None:
        group = self._group
        match fault.kind:
            case "expire":
                self._expire(place)
            case "network":
                group.members[place].zookeeper.hurt(_NETWORK[fault.mode])
            case "fetching":
                self._ours(place).brokers.hurt(_NETWORK[fault.mode])
            case "clock":
                self._ours(place).step_clocks(_CLOCKS[fault.mode])
            case "listener":
                self._ours(place).order(fault.mode, fault.seconds)
            case "pause":
                group.members[place].signal(signal.SIGSTOP)
            case _:
                self._begin_to_change_members(fault, place)

    def _begin_to_change_members(self, fault: Fault, place: int) -> None:
        group = self._group
        match fault.kind:
            case "kill":
                group.kill(place)
            case "leave":
                group.leave_joined(place)
            case "join":
                group.add(fault.mode)
            case "bounce":
                group.bounce(place, hard=fault.mode == "hard")
            case "switch":
                group.bounce(place, hard=False, kind=fault.mode)

    def _end(self, fault: Fault, place: int, member: Member) -> None:
        group = self._group
        if fault.kind in _OF_SERVERS:
            self._end_at_servers(fault)
        elif fault.kind == "network":
            member.zookeeper.heal()
        elif fault.kind == "fetching" and isinstance(member, OurMember):
            member.brokers.heal()
        elif fault.kind == "pause":
            member.signal(signal.SIGCONT)
        elif fault.kind == "listener" and fault.mode == "shutdown":
            group.leave(place)
            group.replace(place)
        elif fault.kind in ("kill", "leave") and fault.seconds:
            group.replace(place)
        elif fault.kind == "join" and fault.seconds:
            group.withdraw(member)

    def _end_at_servers(self, fault: Fault) -> None:
        servers = self._group.servers
        if fault.kind == "servers":
            servers.box.zookeeper.resume()
        elif fault.kind == "mute":
            servers.cluster.restore()
        elif fault.kind == "ensemble":
            servers.complete_ensemble()
        elif fault.kind in _OF_SEVERAL_BROKERS:
            servers.cluster.complete(self._group.name)

    def _ours(self, place: int) -> OurMember:
        member = self._group.members[place]
        if not isinstance(member, OurMember):
            raise UsageError(
                f"member {place} is a JVM, which does not reveal its session's password, has its own clock, and finds "
                "brokers by itself; give the index of another one"
            )
        return member

    def _expire(self, place: int) -> None:
        """Until it has happened: the member connects again as soon as it was disconnected, and may be first."""
        member, group = self._ours(place), self._group
        if member.kind in OF_BROKERS:
            group.remove(member)
            return
        former = group.registered_session(member.owner)
        deadline = time.monotonic() + _EXPIRING_S
        while former and group.registered_session(member.owner) == former:
            assert time.monotonic() < deadline, f"the session of {member.name} was not ended"
            identity = member.identity()
            if identity is not None and identity[0] & 0xFFFFFFFFFFFFFFFF == former:
                take_over(group.servers.box.zookeeper_connect, identity, 5.0)
