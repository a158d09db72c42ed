"""The group benchmark: joining, settling and committing, compared with the JVM consumer.

See architecture.md#round-trips.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.contest import Contest
from benchmarks.members import JVM, CoordinatedMembers, JvmMembers, Members, OurMembers
from benchmarks.servers import bench_servers
from benchmarks.zktrace import Settling, ZooKeeperTrace, settling
from zkconsumer.errors import SandboxError
from zkconsumer.group.rules.assignors import range_assignor
from zkconsumer.group.zookeeper.groupreader import GroupReader
from zkconsumer.model import Broker, TopicPartition
from zkconsumer.sandbox import Sandbox
from zkconsumer.sandbox.admin import create_topics
from zkconsumer.sandbox.producer import Record, append_batches, encode_batches
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.zookeeper.session import ZkSession

_TIMEOUT_MS: Final = 60_000
_QUIET_S: Final = 3.0
"""A group has settled when nothing was written for this long: longer than the backoff of 2 s between attempts."""
_SETTLE_LIMIT_S: Final = 120.0
_CONSUME_LIMIT_S: Final = 120.0
_PROCESSES: Final = 10
"""Number of processes for zkconsumer's members. One process each, as in real use, would wait for processors."""
_WARM_UP: Final = 3
"""Rounds after which the JVM has compiled the code of a rebalance."""
_TOPIC_MEMBERS: Final = 5
"""Number of members on many topics: enough to show how much each must read."""
_WARM_UP_TOPICS: Final = 1
_QUIET_TOPICS_S: Final = 10.0
"""Longer than the JVM's members take to read thousands of topics one by one before they write."""
_GROWTH: Final = (1, 2, 5, 10, 20, 50)


@dataclass(frozen=True)
class GroupSizes:
    """The sizes of the contests.

    Attributes:
        rounds: measurements of each contestant in each contest.
        partitions: numbers of partitions of the topics to join; commits use the largest, settling the smallest.
        members: number of members that settle on a topic.
        topics: number of topics with one partition each, to join by a filter; 0 skips that contest.
    """

    rounds: int = 5
    partitions: tuple[int, ...] = (1000, 5000)
    members: int = 50
    topics: int = 2000


class GroupField:
    """The servers of the contests: a sandbox with a topic for each number of partitions. Must be closed."""

    def __init__(self, sandbox: Sandbox, session: ZkSession, sizes: GroupSizes) -> None:
        self.sandbox = sandbox
        self.sizes = sizes
        self._group_reader = GroupReader(session)
        self._groups = count()
        for partitions in sizes.partitions:
            self.create_topics({self.topic(partitions): partitions})

    def create_topics(self, partitions: Mapping[str, int]) -> None:
        """Create topics with these numbers of partitions, and wait until the brokers serve them."""
        client = BrokerClient(self.live_brokers, client_id="zkconsumer-bench", timeout_ms=_TIMEOUT_MS)
        with closing(client):
            create_topics(client, partitions, timeout_s=2 * _TIMEOUT_MS / 1000)

    def topic(self, partitions: int) -> str:
        """The topic with this number of partitions."""
        return f"wide-{partitions}"

    def new_group(self) -> str:
        """Name of a group that does not exist yet."""
        return f"bench-{next(self._groups)}"

    def properties(self, group: str) -> dict[str, str]:
        """The JVM's defaults, except for the benchmark's needs: no automatic commits."""
        return {
            "zookeeper.connect": self.sandbox.zookeeper_connect,
            "group.id": group,
            "auto.offset.reset": "smallest",
            "auto.commit.enable": "false",
        }

    def live_brokers(self) -> tuple[Broker, ...]:
        """The brokers of the sandbox."""
        return self._group_reader.live_brokers()

    def produce_one_to_each(self, partitions: int) -> None:
        """Append one record to every partition of a topic."""
        topic = self.topic(partitions)
        batches = list(encode_batches([Record(b"x" * 100, None, time.time_ns() // 1_000_000)]))
        append_batches(self.live_brokers, {TopicPartition(topic, number): batches for number in range(partitions)})

    def expect_settled(self, group: str, members: int, partitions: int, *, by_range: bool = True) -> None:
        """Raise SandboxError unless each partition has an owner: the one that the range assignor names, or any."""
        topic = self.topic(partitions)
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        self._expect_owners(group, members, wanted, by_range=by_range)

    def expect_settled_by_filter(self, group: str, members: int) -> None:
        """Raise SandboxError as above, for all topics that the group's members subscribe to."""
        self._expect_owners(group, members, None)

    def _expect_owners(
        self, group: str, members: int, partitions: list[TopicPartition] | None, *, by_range: bool = True
    ) -> None:
        view = self._group_reader.view(group)
        wanted = range_assignor(view.threads_by_topic(exclude_internal=True), view.partitions)
        owners = self._group_reader.owner_threads(group, list(wanted) if partitions is None else partitions)
        wrong = [tp for tp, owner in owners.items() if owner is None or (by_range and owner != str(wanted.get(tp)))]
        if wrong or not owners or len(view.members) != members:
            raise SandboxError(
                f"group {group} has {len(view.members)} of {members} members, and {len(wrong)} of {len(owners)} "
                "partitions have the wrong owner"
            )


@contextmanager
def group_field(sizes: GroupSizes, progress: Progress) -> Iterator[GroupField]:
    """Start the servers and create the topics."""
    with bench_servers(progress) as (sandbox, session):
        with progress.step(f"creating topics of {', '.join(map(str, sizes.partitions))} partitions"):
            field = GroupField(sandbox, session, sizes)
        yield field


def run_group_contests(sizes: GroupSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Run all contests of the group benchmark and return them.

    Args:
        sizes: sizes of the contests.
        directory: directory for the JVM's log.
        progress: reports the steps.

    Raises:
        SandboxError: a server did not start, or a group did not settle.
    """
    makers = (lambda: JvmMembers(directory, progress), lambda: OurMembers(_PROCESSES))

    def coordinated() -> Members:
        return CoordinatedMembers(_PROCESSES)

    with group_field(sizes, progress) as field, ExitStack() as stack:
        fresh = GroupSettling(field, "in new processes")
        with progress.step(fresh.title, sizes.rounds) as advance:
            for number in range(sizes.rounds):
                advance(number, "rounds")
                for make in (*makers, coordinated):
                    with closing(make()) as kind:
                        fresh.measure(kind)
        kinds = [stack.enter_context(closing(make())) for make in makers]
        single = [*_join(field, kinds, progress), _commit(field, kinds, progress)]
        with closing(coordinated()) as third:
            settled = [*fresh.contests, *_settle_again(field, [*kinds, third], progress)]
        grown = [*_grow(field, kinds, progress), *many_topics(field, kinds, progress)]
        for contest in (*single, *grown):
            for kind in kinds:
                contest.note_memory(kind.name, kind.peak_memory_mib())
        return [*single, *settled, *grown]


def many_topics(field: GroupField, kinds: Sequence[Members], progress: Progress) -> list[Contest]:
    """Members join by a filter that matches many topics, a topic is added, and the member that owns all leaves.

    The range assignor gives each partition of a topic with one partition to the first member, so all topics have one
    owner, and another one after it has left.
    """
    if not field.sizes.topics:
        return []
    title = f"{_TOPIC_MEMBERS} members on {field.sizes.topics:,} topics of one partition"
    contests = [
        Contest(f"{title}: {event}", unit, JVM)
        for event in ("all join", "a topic is added", "the owner of all leaves")
        for unit in ("s", "ZooKeeper packets")
    ]
    with progress.step(title, field.sizes.rounds) as advance:
        field.create_topics({f"one-{number:05}": 1 for number in range(field.sizes.topics)})
        added = count()
        for number in range(_WARM_UP_TOPICS + field.sizes.rounds):
            advance(max(0, number - _WARM_UP_TOPICS), "rounds")
            for kind in kinds:
                figures = _many_topics_once(field, kind, f"one-added-{next(added)}")
                if number >= _WARM_UP_TOPICS:
                    for contest, figure in zip(contests, figures, strict=True):
                        contest.add(kind.name, figure)
    return contests


def _many_topics_once(field: GroupField, kind: Members, new_topic: str) -> tuple[float, ...]:
    """Seconds and packets of joining, of a new topic, and of losing the member that owns all partitions."""
    group, ids = field.new_group(), _ids(_TOPIC_MEMBERS)
    figures: list[float] = []
    for members, event in (
        (len(ids), lambda: kind.join_by_filter(field.properties(group), ids, "one-.*").at),
        (len(ids), lambda: _timed_creation(field, new_topic)),
        (len(ids) - 1, lambda: kind.leave(ids[:1])),
    ):
        figures += _disturb(field, event, _QUIET_TOPICS_S)
        field.expect_settled_by_filter(group, members)
    kind.leave(ids[1:])
    return tuple(figures)


def _timed_creation(field: GroupField, topic: str) -> float:
    at = time.monotonic()
    field.create_topics({topic: 1})
    return at


def _join(field: GroupField, kinds: Sequence[Members], progress: Progress) -> Iterator[Contest]:
    """One member joins a new group; the first round is a warm-up."""
    for partitions in field.sizes.partitions:
        contest = Contest(f"One member joins a group on {partitions:,} partitions", "s", JVM, "at most 0.1")
        with progress.step(contest.title, field.sizes.rounds) as advance:
            for number in range(field.sizes.rounds + 1):
                advance(number, "rounds")
                for kind in kinds:
                    joined = kind.join(field.properties(field.new_group()), ["one"], field.topic(partitions))
                    kind.leave(["one"])
                    if number:
                        contest.add(kind.name, joined.seconds[0])
        yield contest


def _commit(field: GroupField, kinds: Sequence[Members], progress: Progress) -> Contest:
    """A member that read one record of every partition commits; the first commit, which creates znodes, warms up."""
    partitions = max(field.sizes.partitions)
    contest = Contest(f"A commit of {partitions:,} changed offsets", "s", JVM)
    with progress.step(contest.title, field.sizes.rounds * len(kinds)) as advance:
        field.produce_one_to_each(partitions)
        produced = 1
        for kind in kinds:
            kind.join(field.properties(field.new_group()), ["one"], field.topic(partitions), read=True)
            for number in range(field.sizes.rounds + 1):
                if number:
                    field.produce_one_to_each(partitions)
                    produced += 1
                _await_records(kind, "one", produced * partitions)
                seconds = kind.commit("one")
                if number:
                    contest.add(kind.name, seconds)
                advance(len(contest.measured.get(kind.name, ())), kind.name)
            kind.leave(["one"])
    return contest


def _await_records(kind: Members, consumer: str, wanted: int) -> None:
    deadline = time.monotonic() + _CONSUME_LIMIT_S
    while kind.received(consumer) < wanted:
        if time.monotonic() > deadline:
            raise SandboxError(f"{kind.name} received {kind.received(consumer)} of {wanted} records")
        time.sleep(0.05)  # a member must be polled


def _settle_again(field: GroupField, kinds: Sequence[Members], progress: Progress) -> list[Contest]:
    """Settle in processes that have done it before, in which all code is compiled."""
    warm = GroupSettling(field, "in processes that did it before")
    with progress.step(warm.title, field.sizes.rounds) as advance:
        for number in range(_WARM_UP + field.sizes.rounds):
            advance(max(0, number - _WARM_UP), "rounds")
            for kind in kinds:
                if number < _WARM_UP:
                    _settle_once(field, kind)
                else:
                    warm.measure(kind)
    return warm.contests


def _settle_once(field: GroupField, kind: Members) -> tuple[float, ...]:
    """Seconds and packets after starting, and after one leaves."""
    partitions, members = min(field.sizes.partitions), field.sizes.members
    group, topic, ids = field.new_group(), field.topic(partitions), _ids(members)
    leaver = ids[members // 2]
    started = _disturb(field, lambda: kind.join(field.properties(group), ids, topic).at)
    by_range = not isinstance(kind, CoordinatedMembers)
    field.expect_settled(group, members, partitions, by_range=by_range)
    left = _disturb(field, lambda: kind.leave([leaver]))
    field.expect_settled(group, members - 1, partitions, by_range=by_range)
    kind.leave([one for one in ids if one != leaver])
    return (*started, *left)


class GroupSettling:
    """Many members join at the same time; once the group has settled one of them leaves.

    Args:
        field: the servers.
        how: description of the members' processes, for the title.
        settle: runs it once; returns seconds and packets of joining, and of leaving.
    """

    def __init__(
        self,
        field: GroupField,
        how: str,
        settle: Callable[[GroupField, Members], Sequence[float]] = _settle_once,
    ) -> None:
        self._settle = settle
        self.title = f"{field.sizes.members} members {how}, {min(field.sizes.partitions):,} partitions"
        self._field = field
        self.contests = [
            Contest(f"{self.title}: {event}", unit, JVM, "at most 0.2")
            for event in ("all join", "one leaves")
            for unit in ("s", "ZooKeeper packets")
        ]

    def measure(self, kind: Members) -> None:
        """Let members join and one leave, and record time and packets of both, and the memory of the processes."""
        for contest, figure in zip(self.contests, self._settle(self._field, kind), strict=True):
            contest.add(kind.name, figure)
            contest.note_memory(kind.name, kind.peak_memory_mib())


def _grow(field: GroupField, kinds: Sequence[Members], progress: Progress) -> list[Contest]:
    """Another member joins a group of some size: packets per member that must react."""
    sizes = [size for size in _GROWTH if size <= field.sizes.members]
    contests = [Contest(f"ZooKeeper requests per member while number {size} joins", "packets", JVM) for size in sizes]
    with progress.step("a member joins groups of different sizes", len(sizes)) as advance:
        for number, (size, contest) in enumerate(zip(sizes, contests, strict=True)):
            advance(number, "sizes")
            for kind in kinds:
                contest.add(kind.name, _grow_once(field, kind, size))
    return contests


def _grow_once(field: GroupField, kind: Members, size: int) -> float:
    """Packets per member while the last of ``size`` members joins."""
    partitions = min(field.sizes.partitions)
    group, topic, ids = field.new_group(), field.topic(partitions), _ids(size)
    if size > 1:
        _disturb(field, lambda: kind.join(field.properties(group), ids[:-1], topic).at)
    joined = _disturb(field, lambda: kind.join(field.properties(group), ids[-1:], topic).at)
    field.expect_settled(group, size, partitions)
    kind.leave(ids)
    return joined.packets / size


def _ids(members: int) -> list[str]:
    return [f"member-{number:03}" for number in range(members)]


def _disturb(field: GroupField, event: Callable[[], float], quiet_s: float = _QUIET_S) -> Settling:
    """Trigger an event in a group and wait until it settles; ``event`` returns the time of the event."""
    with ZooKeeperTrace(field.sandbox.zookeeper.ask) as trace:
        since = event()
        return settling(trace.wait_until_quiet(quiet_s, _SETTLE_LIMIT_S), since)
