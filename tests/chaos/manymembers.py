"""R9: a hundred members on two thousand partitions join, commit, one leaves, and one is killed.

They are whole members, each with its session and its threads, many to a process. What they lack is a data plane: the
positions of every fourth partition rise with the time. With ``zookeeper`` and ``coordinator`` the topic is nothing but
its znode, and ZooKeeper has the owners and the commits. Where brokers coordinate the group, its members say what they
own, and the log of ``__consumer_offsets`` has the commits.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any, Final, NamedTuple
from uuid import uuid4

from benchmarks.followers import CountingFetch
from benchmarks.hostprocess import HostProcess
from tests.chaos.history import read_transactions
from tests.chaos.kafkahistory import read_history
from tests.chaos.kinds import ASSIGNED_BY_BROKERS, COORDINATED, IN_BROKERS, OF_BROKERS, OURS
from tests.chaos.ownrow import OwnRow, judge_no_ledger
from tests.chaos.schedule import Fault, Schedule
from tests.chaos.servers import Servers
from tests.chaos.txnlog import Transaction
from tests.chaos.verdicts import Verdict
from tests.fixtures.members import Cluster
from zkconsumer.assembly.memberassembly import assemble_member
from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.group.consumerid import new_consumer_id
from zkconsumer.group.rules.subscription import Subscription
from zkconsumer.model import TopicPartition
from zkconsumer.testing.ledger import Committed

MEMBERS: Final = 100
PARTITIONS: Final = 2000
_CHANGED_EVERY: Final = 4
CHANGED: Final = PARTITIONS // _CHANGED_EVERY
"""Partitions whose positions change in each interval of commits."""
INTERVAL_S: Final = 2.0
INTERVALS: Final = 10
"""For which commits are counted."""
_PROCESSES: Final = 2
_ALONE: Final = 2
"""Members in processes of their own: one leaves, and one is killed."""
_TOPIC: Final = "t"
LIMIT_S: Final = 15.0
_GIVE_UP_S: Final = 240.0
_QUIET_S: Final = 3.0
_LOOK_S: Final = 0.05
_PROPERTIES: Final = {"rebalance.max.retries": "20", "auto.commit.interval.ms": str(round(INTERVAL_S * 1000))}
_OF_PROTOCOL: Final[Mapping[str, Mapping[str, str]]] = {
    "zookeeper": {"zookeeper.session.timeout.ms": "6000", "zookeeper.connection.timeout.ms": "60000"},
    COORDINATED: {"zookeeper.session.timeout.ms": "6000", "zookeeper.connection.timeout.ms": "60000"},
    IN_BROKERS: {"session.timeout.ms": "6000", "heartbeat.interval.ms": "2000"},
    ASSIGNED_BY_BROKERS: {},
}
"""Further properties by ``group.protocol``; with ``consumer`` the broker has the session timeout, of 2 s."""


class _CommittingFetch(CountingFetch):
    """A data plane without records in which some partitions advance: the positions are those of the time."""

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        """Every fourth partition has another position in each interval."""
        at = round(time.monotonic() * 10)
        return {one: at for one in self._fetched if one.partition % _CHANGED_EVERY == 0}

    def fetched(self) -> tuple[int, ...]:
        """The partitions that are fetched now."""
        return tuple(sorted(one.partition for one in self._fetched))


class _Hosted:
    """Whole members in a child process."""

    def __init__(self, properties: dict[str, str], topic: str, names: list[str]) -> None:
        configs = [ConsumerConfig.from_properties({**properties, "consumer.id": name}) for name in names]
        self._topic = topic
        self._planes = [_CommittingFetch() for _ in configs]
        self._members = [
            assemble_member(config, new_consumer_id(config), plane)
            for config, plane in zip(configs, self._planes, strict=True)
        ]
        for member in self._members:
            member.open()

    def join(self) -> float:
        """Let all join; returns when they began, by ``time.monotonic()``."""
        began = time.monotonic()
        with ThreadPoolExecutor(len(self._members)) as pool:
            list(pool.map(lambda member: member.join(Subscription.static({self._topic: 1})), self._members))
        return began

    def owned(self) -> list[tuple[int, ...]]:
        """The partitions that each member fetches."""
        return [plane.fetched() for plane in self._planes]

    def close(self) -> float:
        """Let all leave; returns when they began, by ``time.monotonic()``."""
        began = time.monotonic()
        with ThreadPoolExecutor(len(self._members)) as pool:
            list(pool.map(lambda member: member.leave(), self._members))
        return began


class Writes(NamedTuple):
    """What was written in some time: offsets, and transactions of ZooKeeper that had them; None: Kafka has none."""

    changes: int
    transactions: int | None


def writes_below(transactions: Iterable[Transaction], path: str) -> Writes:
    """The changes of znodes below a path."""
    counts = [sum(change.path.startswith(f"{path}/") for change in one.changes) for one in transactions]
    return Writes(sum(counts), sum(bool(count) for count in counts))


def judge(events: dict[str, float | None], writes: Writes, seconds: float) -> Verdict:
    """Judge a trial.

    Args:
        events: seconds until all partitions were owned for good, by what happened before; None: they were not.
        writes: in the steady state.
        seconds: for which they were counted.
    """
    verdict = Verdict()
    for name, took in events.items():
        verdict.figures[f"{name} (s)"] = None if took is None else round(took, 2)
        verdict.measure("reassigned", took)
        late = f"{name}: all partitions were owned after {took} s"
        verdict.require(took is not None and took <= LIMIT_S, late)
    allowed = CHANGED * (seconds / INTERVAL_S + 1)  # each member's timer has its own beginning
    verdict.figures |= {
        "writes per s": round(writes.changes / seconds, 1),
        "transactions per s": None if writes.transactions is None else round(writes.transactions / seconds, 1),
        "changed partitions per s": CHANGED / INTERVAL_S,
    }
    verdict.require(writes.changes > 0, "nothing was committed")
    verdict.require(writes.changes <= allowed, f"{writes.changes} writes in {seconds:.1f} s, at most {allowed:.0f}")
    return verdict


class _Crowd(ABC):
    """The group under test of one trial.

    Args:
        properties: of all members.
        topic: with the partitions.
        stack: ends the processes.
    """

    def __init__(self, properties: Mapping[str, str], topic: str, stack: ExitStack) -> None:
        names = [f"m{number:03}" for number in range(MEMBERS)]
        together = names[_ALONE:]
        shares = [[one] for one in names[:_ALONE]] + [together[n::_PROCESSES] for n in range(_PROCESSES)]
        self.hosts = [
            stack.enter_context(closing(HostProcess("members", _Hosted, dict(properties), topic, one)))
            for one in shares
        ]
        for host in self.hosts:
            host.answer()

    def join(self) -> float:
        """Let all join at once; returns when they began, by ``time.monotonic()``."""
        for host in self.hosts:
            host.ask("join")
        return min(float(host.answer()) for host in self.hosts)

    def settled(self, since: float, former: object) -> float | None:
        """Seconds until all partitions are owned, and nothing was claimed or released any more; None: they are not.

        Args:
            since: ``time.monotonic()`` of what disturbed the group.
            former: :meth:`ownership` before that.
        """
        last, known = since, former
        while time.monotonic() < since + _GIVE_UP_S:
            now, (ownership, complete) = time.monotonic(), self.ownership()
            if ownership != known:
                last, known = now, ownership
            if complete and known != former and now - last > _QUIET_S:
                return last - since
            time.sleep(_LOOK_S)
        return None

    @abstractmethod
    def ownership(self) -> tuple[object, bool]:
        """What changes with each claim and release, and True if each partition has one owner."""

    @abstractmethod
    def written(self) -> tuple[Writes, float]:
        """What is written while nothing happens, and in how many seconds."""


class _CrowdInZooKeeper(_Crowd):
    def __init__(self, servers: Servers, name: str, protocol: str, stack: ExitStack) -> None:
        self._servers, self._root = servers, f"/{name}"
        cluster = Cluster(servers.box, servers.zookeeper, name)
        cluster.create_topics(_TOPIC, partitions=PARTITIONS)
        self._owners = f"{self._root}/consumers/{name}/owners/{_TOPIC}"
        super().__init__({"zookeeper.connect": cluster.connect, **_properties(name, protocol)}, _TOPIC, stack)

    def ownership(self) -> tuple[object, bool]:
        """The version of the owners rises with each claim and release."""
        stat = self._servers.zookeeper.exists(self._owners)
        return (0, False) if stat is None else (stat.cversion, stat.numChildren == PARTITIONS)

    def written(self) -> tuple[Writes, float]:
        """See :class:`_Crowd`: the transaction log has it."""
        began = time.monotonic()
        marker = self._servers.zookeeper.set(self._root, b"").mzxid
        time.sleep(INTERVAL_S * INTERVALS)
        until = self._servers.zookeeper.set(self._root, b"").mzxid
        seconds = time.monotonic() - began
        found = read_transactions([one.data for one in self._servers.box.ensemble.members], marker)
        return writes_below((one for one in found if one.zxid < until), self._root), seconds


class _CrowdAtBrokers(_Crowd):
    def __init__(self, servers: Servers, name: str, protocol: str, stack: ExitStack) -> None:
        self._brokers, self._name = servers.box.bootstrap_servers, name
        servers.topics.create(name, PARTITIONS)
        stack.callback(servers.topics.delete, name)
        properties = {"bootstrap.servers": self._brokers, **_properties(name, protocol)}
        super().__init__(properties, name, stack)

    def ownership(self) -> tuple[object, bool]:
        """What the members fetch."""
        for host in (running := [host for host in self.hosts if host.runs]):
            host.ask("owned")
        owned: list[Any] = [host.answer() for host in running]
        partitions = sorted(one for members in owned for member in members for one in member)
        return owned, partitions == list(range(PARTITIONS))

    def written(self) -> tuple[Writes, float]:
        """See :class:`_Crowd`: the log of offsets has it."""
        began = time.monotonic()
        time.sleep(INTERVAL_S * INTERVALS)
        until = time.monotonic()
        records = read_history(self._brokers, self._name, time.monotonic() - time.time())
        commits = sum(isinstance(one, Committed) and began <= one.at < until for one in records)
        return Writes(commits, None), until - began


def _properties(group: str, protocol: str) -> Mapping[str, str]:
    return {"group.id": group, "group.protocol": protocol, **_PROPERTIES, **_OF_PROTOCOL[protocol]}


def run_trial_of_many(servers: Servers, schedule: Schedule) -> Verdict:
    """Let a hundred members join, commit, lose one that leaves, and one that is killed; judge what they did."""
    name = f"R9-{uuid4().hex[:8]}"
    (protocol,) = {"zookeeper" if one == OURS else one for one in schedule.members}
    events: dict[str, float | None] = {}
    with ExitStack() as stack:
        make = _CrowdAtBrokers if protocol in OF_BROKERS else _CrowdInZooKeeper
        crowd = make(servers, name, protocol, stack)
        nothing, _ = crowd.ownership()
        events["all join"] = crowd.settled(crowd.join(), former=nothing)
        writes, seconds = crowd.written()
        for fault in schedule.faults:
            time.sleep(fault.at)
            (former, _), host = crowd.ownership(), crowd.hosts[fault.member]
            began = time.monotonic()
            if fault.kind == "kill":
                host.kill()
            else:
                host.call("close")
            events[f"one {'is killed' if fault.kind == 'kill' else 'leaves'}"] = crowd.settled(began, former)
    return judge(events, writes, seconds)


def plan(chance: random.Random, members: tuple[str, ...], timeout: float) -> tuple[Fault, ...]:
    """One leaves and one is killed, in either order."""
    faults = [(kind, round(chance.uniform(0.0, 2.0), 2)) for kind in chance.sample(("leave", "kill"), 2)]
    return tuple(Fault(kind, at, member) for member, (kind, at) in enumerate(faults))


MANY: Final = OwnRow(
    "R9",
    f"{MEMBERS} members, {PARTITIONS:,} partitions: all join, one leaves, one is killed",
    "offsets written per second at most the changed partitions per interval of commits; a rebalance within 15 s",
    plan,
    judge_no_ledger,
    run=run_trial_of_many,
    kinds=frozenset({OURS, COORDINATED, *OF_BROKERS}),
)
