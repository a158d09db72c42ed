"""R9: a hundred members on two thousand partitions join, commit, one leaves, and one is killed.

They are whole members, each with its session and its threads, many to a process. What they lack is a data plane: the
topic is nothing but its znode, and the positions of every fourth partition rise with the time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Final, NamedTuple
from uuid import uuid4

from benchmarks.followers import CountingFetch
from benchmarks.hostprocess import HostProcess
from tests.chaos.history import read_transactions
from tests.chaos.kinds import COORDINATED, OURS
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
_PROPERTIES: Final = {
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "60000",
    "rebalance.max.retries": "20",
    "auto.commit.interval.ms": str(round(INTERVAL_S * 1000)),
}


class _CommittingFetch(CountingFetch):
    """A data plane without records in which some partitions advance: the positions are those of the time."""

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        """Every fourth partition has another position in each interval."""
        at = round(time.monotonic() * 10)
        return {one: at for one in self._fetched if one.partition % _CHANGED_EVERY == 0}


class _Hosted:
    """Whole members in a child process."""

    def __init__(self, properties: dict[str, str], names: list[str]) -> None:
        configs = [ConsumerConfig.from_properties({**properties, "consumer.id": name}) for name in names]
        self._members = [assemble_member(one, new_consumer_id(one), _CommittingFetch()) for one in configs]
        for member in self._members:
            member.open()

    def join(self) -> float:
        """Let all join; returns when they began, by ``time.monotonic()``."""
        began = time.monotonic()
        with ThreadPoolExecutor(len(self._members)) as pool:
            list(pool.map(lambda member: member.join(Subscription.static({_TOPIC: 1})), self._members))
        return began

    def close(self) -> float:
        """Let all leave; returns when they began, by ``time.monotonic()``."""
        began = time.monotonic()
        with ThreadPoolExecutor(len(self._members)) as pool:
            list(pool.map(lambda member: member.leave(), self._members))
        return began


class Writes(NamedTuple):
    """What was written in some time: changes of znodes, and transactions that had them."""

    changes: int
    transactions: int


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
        "transactions per s": round(writes.transactions / seconds, 1),
        "changed partitions per s": CHANGED / INTERVAL_S,
    }
    verdict.require(writes.changes > 0, "nothing was committed")
    verdict.require(writes.changes <= allowed, f"{writes.changes} writes in {seconds:.1f} s, at most {allowed:.0f}")
    return verdict


class _Crowd:
    """The group under test of one trial."""

    def __init__(self, servers: Servers, name: str, protocol: str, stack: ExitStack) -> None:
        self._servers, self.root = servers, f"/{name}"
        cluster = Cluster(servers.box, servers.zookeeper, name)
        cluster.create_topics(_TOPIC, partitions=PARTITIONS)
        properties = {"zookeeper.connect": cluster.connect, "group.id": name, "group.protocol": protocol, **_PROPERTIES}
        self._owners = f"{self.root}/consumers/{name}/owners/{_TOPIC}"
        names = [f"m{number:03}" for number in range(MEMBERS)]
        together = names[_ALONE:]
        shares = [[one] for one in names[:_ALONE]] + [together[n::_PROCESSES] for n in range(_PROCESSES)]
        self.hosts = [stack.enter_context(closing(HostProcess("members", _Hosted, properties, one))) for one in shares]
        for host in self.hosts:
            host.answer()

    def join(self) -> float:
        """Let all join at once; returns when they began, by ``time.monotonic()``."""
        for host in self.hosts:
            host.ask("join")
        return min(float(host.answer()) for host in self.hosts)

    def settled(self, since: float, former: int) -> float | None:
        """Seconds until all partitions are owned, and nothing was claimed or released any more; None: they are not.

        Args:
            since: ``time.monotonic()`` of what disturbed the group.
            former: version of the owners before that.
        """
        last, version, owned = since, former, 0
        while time.monotonic() < since + _GIVE_UP_S:
            now, stat = time.monotonic(), self._servers.zookeeper.exists(self._owners)
            if stat is not None:
                owned = stat.numChildren
                if stat.cversion != version:
                    last, version = now, stat.cversion
            if owned == PARTITIONS and version != former and now - last > _QUIET_S:
                return last - since
            time.sleep(_LOOK_S)
        return None

    def version(self) -> int:
        """That of the owners: it rises with each claim and release."""
        stat = self._servers.zookeeper.exists(self._owners)
        return 0 if stat is None else stat.cversion

    def written(self) -> tuple[Writes, float]:
        """What is written while nothing happens, and in how many seconds."""
        began = time.monotonic()
        marker = self._servers.zookeeper.set(self.root, b"").mzxid
        time.sleep(INTERVAL_S * INTERVALS)
        until = self._servers.zookeeper.set(self.root, b"").mzxid
        seconds = time.monotonic() - began
        found = read_transactions([one.data for one in self._servers.box.ensemble.members], marker)
        return writes_below((one for one in found if one.zxid < until), self.root), seconds


def run_trial_of_many(servers: Servers, schedule: Schedule) -> Verdict:
    """Let a hundred members join, commit, lose one that leaves, and one that is killed; judge what they did."""
    name, protocol = f"R9-{uuid4().hex[:8]}", COORDINATED if COORDINATED in schedule.members else "zookeeper"
    events: dict[str, float | None] = {}
    with ExitStack() as stack:
        crowd = _Crowd(servers, name, protocol, stack)
        events["all join"] = crowd.settled(crowd.join(), former=0)
        writes, seconds = crowd.written()
        for fault in schedule.faults:
            time.sleep(fault.at)
            former, host = crowd.version(), crowd.hosts[fault.member]
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
    "writes to ZooKeeper per second at most the changed partitions per interval of commits; a rebalance within 15 s",
    plan,
    judge_no_ledger,
    run=run_trial_of_many,
    kinds=frozenset({OURS, COORDINATED}),
)
