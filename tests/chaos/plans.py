"""Plans: which faults a trial of a row has, made from a source of chance. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.chaos.kinds import COORDINATED, JVM, OF_BROKERS
from tests.chaos.schedule import LEADER, Fault

LED: Final = 6
"""Partitions of which a leader is chosen."""

_UNCLEAN: Final = 1 / 3
"""Part of the trials with leaders that lack records."""

_MOVED_BACK: Final = 2 / 3
"""Part of the ends of a leader after which an operator lets the preferred replicas lead again."""


def _one_of_ours(chance: random.Random, members: tuple[str, ...]) -> int:
    return chance.choice([place for place, kind in enumerate(members) if kind != JVM])


def plan_kill(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    return (Fault("kill", chance.uniform(0.3, 2.5), chance.randrange(len(members))),)


def plan_expiry(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    return (Fault("expire", chance.uniform(0.3, 2.5), _one_of_ours(chance, members)),)


def plan_outage(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    seconds = chance.uniform(0.2, 5.0) * timeout
    mode = chance.choice(["cut", "refuse"])
    way = "fetching" if members[0] in OF_BROKERS else "network"
    return (Fault(way, chance.uniform(0.3, 2.0), _one_of_ours(chance, members), seconds, mode),)


def plan_pause(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    seconds = chance.uniform(1.5, 3.0) * timeout
    return (Fault("pause", chance.uniform(0.3, 2.0), _one_of_ours(chance, members), seconds),)


def plan_rolling(mode: str) -> Callable[[random.Random, tuple[str, ...], float], tuple[Fault, ...]]:
    def plan(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
        order = chance.sample(range(len(members)), len(members))
        at, faults = chance.uniform(0.3, 1.5), []
        for place in order:
            faults.append(Fault("bounce", at, place, mode=mode))
            at += chance.uniform(0.2, 1.0)
        return tuple(faults)

    return plan


def plan_churn(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """Members join, leave, are killed and are stopped, without a break; where there is a leader, often it."""
    leads = COORDINATED in members
    faults, at = [], 0.3
    for _ in range(chance.randint(6, 9)):
        anyone, ours = chance.randrange(len(members)), _one_of_ours(chance, members)
        if leads and chance.random() < 1 / 3:
            anyone = ours = LEADER
        fault = chance.choice(
            [
                Fault("kill", at, anyone, chance.uniform(0.5, 2.0) * timeout),
                Fault("leave", at, anyone, chance.uniform(0.1, 1.5) * timeout),
                Fault("join", at, seconds=chance.uniform(0.2, 2.0) * timeout, mode=members[0]),
                Fault("pause", at, ours, chance.uniform(0.2, 2.5) * timeout),
            ]
        )
        faults.append(fault)
        at = fault.until + chance.uniform(0.0, 1.5)
    return tuple(faults)


def plan_leaders(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """Leaders of partitions end and come back, and records are removed; sometimes a leader lacks what another one had.

    Of members that notice it: a JVM consumer of 1.1.1 does not, nor does one of ours that takes the partition over from
    another member (docs/delivery.md), as in groups of brokers, where members are missed while the coordinator changes.
    """
    kinds = chance.sample(["hard", "hard", "clean", "trim"], 3)
    notices = JVM not in members and members[0] not in OF_BROKERS
    if notices and chance.random() < _UNCLEAN:
        kinds[chance.randrange(len(kinds))] = "unclean"
    faults, at = [], 0.3
    for kind in kinds:
        at += chance.uniform(0.0, 2.0)
        place, seconds = chance.randrange(LED), chance.uniform(0.5, 8.0)
        if kind == "trim":
            faults.append(Fault("trim", at))
        elif kind == "unclean":
            faults.append(Fault("unclean", at, place, seconds))
        else:
            faults.append(Fault("leader", at, place, seconds, kind))
            if chance.random() < _MOVED_BACK:
                faults.append(Fault("elect", faults[-1].until + chance.uniform(0.1, 1.0)))
        at = faults[-1].until
    return tuple(faults)


def plan_restarts(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """The server that coordinates the group is killed or stopped, and started again, once or twice."""
    kind = "broker" if members[0] in OF_BROKERS else "zookeeper"
    faults, at = [], chance.uniform(0.3, 1.5)
    for _ in range(chance.randint(1, 2)):
        faults.append(Fault(kind, at, mode=chance.choice(["clean", "hard"])))
        at += chance.uniform(4.0, 7.0)
    return tuple(faults)


def plan_quorum(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """The leader of three ZooKeeper servers is killed, in two of three trials; in others all are restarted."""
    mode = chance.choice(["leader", "leader", "all"])
    faults, at = [], chance.uniform(0.3, 1.5)
    for _ in range(chance.randint(1, 2)):
        faults.append(Fault("ensemble", at, seconds=chance.uniform(0.2, 3.0) * timeout, mode=mode))
        at = faults[-1].until + 2 * timeout + chance.uniform(1.0, 6.0)
    return tuple(faults)


_SLOWED: Final = ("half-close", "delay", "throttle", "overtake")


def plan_mixed(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """Several faults of all kinds, that may overlap."""
    faults, at = [], 0.3
    for _ in range(chance.randint(4, 7)):
        at += chance.uniform(0.2, 2.0)
        ours = _one_of_ours(chance, members)
        faults.append(
            chance.choice(
                [
                    Fault("kill", at, chance.randrange(len(members)), chance.uniform(0.5, 4)),
                    Fault("expire", at, ours),
                    Fault("network", at, ours, chance.uniform(0.2, 3) * timeout, chance.choice(["cut", "refuse"])),
                    Fault("network", at, ours, chance.uniform(0.5, 3), chance.choice(_SLOWED)),
                    Fault("fetching", at, ours, chance.uniform(0.5, 4), chance.choice(["cut", "refuse", *_SLOWED])),
                    Fault("clock", at, ours, mode=chance.choice(["forward", "back", "suspend"])),
                    Fault("pause", at, ours, chance.uniform(0.2, 2.5) * timeout),
                    Fault("grow", at),
                    Fault("trim", at),
                    Fault("broker", at, mode=chance.choice(["clean", "hard"])),
                    Fault("servers", at, seconds=chance.uniform(0.2, 2) * timeout),
                ]
            )
        )
    return _without_conflicts(faults)


def plan_in_brokers(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """What happens to members of a group that brokers coordinate, in random order."""
    faults: list[Fault] = []
    at = 0.3
    for _ in range(chance.randint(5, 9)):
        at += chance.uniform(0.2, 2.5)
        place = chance.randrange(len(members))
        faults.append(
            chance.choice(
                [
                    Fault("join", at, -2 - len(faults), chance.uniform(1.0, 6.0), members[0]),
                    Fault("kill", at, place, chance.uniform(0.5, 4)),
                    Fault("pause", at, place, chance.uniform(0.2, 2.5) * timeout),
                    Fault("fetching", at, place, chance.uniform(0.2, 3) * timeout, chance.choice(["cut", "refuse"])),
                    Fault("fetching", at, place, chance.uniform(0.5, 3), chance.choice(_SLOWED)),
                    Fault("broker", at, mode=chance.choice(["clean", "hard"])),
                    Fault("grow", at),
                ]
            )
        )
    return _without_conflicts(faults)


def plan_done(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """A member is killed while it has unfinished records; before and after that what moves partitions, and outages."""
    faults: list[Fault] = []
    at, in_brokers = 0.3, members[0] in OF_BROKERS
    count = chance.randint(4, 7)
    killing = chance.randrange(count)
    for number in range(count):
        at += chance.uniform(0.3, 2.5)
        place, hurt = chance.randrange(len(members)), chance.choice(["cut", "refuse", *_SLOWED])
        kinds = [
            Fault("join", at, -2 - number, chance.uniform(1.0, 5.0), members[0]),
            Fault("leave", at, place, chance.uniform(0.1, 1.5) * timeout),
            Fault("pause", at, place, chance.uniform(0.2, 2.5) * timeout),
            Fault("expire", at, place),
            Fault("fetching", at, place, chance.uniform(0.2, 3) * timeout, hurt),
            Fault("broker" if in_brokers else "zookeeper", at, mode=chance.choice(["clean", "hard"])),
            Fault("grow", at),
        ]
        if not in_brokers:
            kinds.append(Fault("network", at, place, chance.uniform(0.2, 3) * timeout, hurt))
        killed = Fault("kill", at, place, chance.uniform(0.5, 2.0) * timeout)
        faults.append(killed if number == killing else chance.choice(kinds))
    kill = faults[killing]
    return _without_conflicts([one for one in faults if one is kill or not _in_the_way(one, kill)])


def _in_the_way(fault: Fault, kill: Fault) -> bool:
    """True if a fault of the member that is to be killed would displace that."""
    return fault.member == kill.member and fault.at < kill.at < fault.until + 2.0


def plan_sequences(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """Three of the sequences below, one after the other."""
    known = (_listening, _recreated, _muted, _leaderless, _listening, _leaderless)
    faults: list[Fault] = []
    at = 0.3
    for sequence in chance.sample(known, 3):
        faults += sequence(chance, members, timeout, at)
        at = max(fault.until for fault in faults) + chance.uniform(0.0, 3.0)
    return tuple(faults)


def _listening(chance: random.Random, members: tuple[str, ...], timeout: float, at: float) -> list[Fault]:
    """A listener hangs, commits or shuts down while another member ends, and while its successor joins."""
    listening = _one_of_ours(chance, members)
    other = (listening + chance.randint(1, len(members) - 1)) % len(members)
    mode, seconds = chance.choice(["hang", "late", "commit", "shutdown"]), chance.uniform(0.5, 4.0) * timeout
    ends = Fault(chance.choice(["leave", "kill"]), at + chance.uniform(0.0, 0.3), other, chance.uniform(0.1, 1.0))
    return [Fault("listener", at, listening, seconds, mode), ends]


def _recreated(chance: random.Random, members: tuple[str, ...], timeout: float, at: float) -> list[Fault]:
    """The topic is deleted and created again, in half of the cases while a member is gone or cannot be reached."""
    faults = [Fault("recreate", at + chance.uniform(0.5, 2.0))]
    if chance.random() < 1 / 2:
        place, seconds = chance.randrange(len(members)), chance.uniform(0.5, 2.0) * timeout
        faults.insert(0, chance.choice([Fault("kill", at, place, seconds), Fault("pause", at, place, seconds)]))
    return faults


def _muted(chance: random.Random, members: tuple[str, ...], timeout: float, at: float) -> list[Fault]:
    """The broker accepts connections and answers nothing; a member may join meanwhile."""
    muted = Fault("mute", at, seconds=chance.uniform(0.5, 5.0) * timeout)
    joins = Fault("join", at + chance.uniform(0.0, 1.0), seconds=muted.seconds + timeout, mode=members[0])
    return [muted, joins] if chance.random() < 1 / 2 else [muted]


def _leaderless(chance: random.Random, members: tuple[str, ...], timeout: float, at: float) -> list[Fault]:
    """The leader ends or is stopped while a member joins, and a little later the next leader; others lose anyone."""
    first, second = (LEADER, LEADER) if COORDINATED in members else chance.sample(range(len(members)), 2)
    joins = Fault("join", at, seconds=chance.uniform(2.0, 4.0) * timeout, mode=members[0])
    lost = [Fault("kill", 0.0, first, chance.uniform(0.3, 1.5) * timeout)]
    lost.append(chance.choice([lost[0], Fault("pause", 0.0, second, chance.uniform(0.5, 2.5) * timeout)]))
    begin = at + chance.uniform(0.0, 2.0)
    times = (begin, begin + chance.uniform(0.7, 2.0) * timeout + lost[0].seconds)
    return [joins, *(replace(one, at=when) for one, when in zip(lost, times, strict=True))]


_NEED_ZOOKEEPER: Final = frozenset({"broker", "expire", "grow", "trim", "servers"})


def _without_conflicts(faults: list[Fault]) -> tuple[Fault, ...]:
    """No second fault while the process of a member is stopped or gone, and no broker twice.

    Nor is anything that waits for ZooKeeper begun while it is paused: the injector would wait for it, and nobody else
    would let it continue.
    """
    kept: list[Fault] = []
    for fault in faults:
        paused = any(one.kind == "servers" and fault.at < one.until for one in kept)
        if paused and fault.kind in _NEED_ZOOKEEPER:
            continue
        busy = [one for one in kept if one.member == fault.member and fault.at < one.until + 2.0]
        if fault.kind in ("grow", "trim", "servers") or not busy:
            kept.append(fault)
    return tuple(kept)
