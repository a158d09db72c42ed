"""The benchmark of groups that brokers coordinate: members join and leave, beside the other clients.

Every contestant's members record when their rebalance listener was called, which records the application received, and
how its commits ended (``groupevents.py``). All figures follow from these rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Final, Literal, NamedTuple

from benchmarks.brokerrequests import BrokerRequests
from benchmarks.contest import OURS, Contest, rotated
from benchmarks.groupclient import Settings
from benchmarks.groupclients import KAFKA_PYTHON, PACKAGES
from benchmarks.groupevents import History, Kind, Row, Span, median_time, share_accepted
from benchmarks.grouphosts import GroupMembers, PythonMembers
from benchmarks.groupznodes import create_wide_topics
from benchmarks.javapoll import JAVA, JavaMembers
from benchmarks.peers import AIOKAFKA, CONFLUENT
from benchmarks.slownetwork import disk_properties
from benchmarks.steadyproducer import SteadyProducer
from zkconsumer.errors import SandboxError, ZkConsumerError
from zkconsumer.group.kafka.describedmembers import described_group
from zkconsumer.sandbox import DEFAULT_KAFKA_VERSION, Sandbox
from zkconsumer.sandbox.progress import Progress
from zkconsumer.wire.bootstrap import bootstrap_brokers
from zkconsumer.wire.brokerclient import BrokerClient
from zkconsumer.wire.findcoordinator import CoordinatorClient
from zkconsumer.wire.rules.describedgroup import DescribedGroup

CONTESTANTS: Final = (OURS, CONFLUENT, AIOKAFKA, KAFKA_PYTHON, JAVA)

_TOPIC: Final = "flowing"
_SESSION_MS: Final = 45_000
_COMMIT_S: Final = 0.1
_TIMEOUT_MS: Final = 30_000
_SOON_S: Final = 0.3
"""Between the request to join and the time at which all members begin, so that all processes have it by then."""
_MARGIN_S: Final = 2.0
"""A group has settled after this and a heartbeat interval without a change, in which all have noticed a rebalance."""
_POLL_S: Final = 0.25
_LIMIT_S: Final = 120.0
_STABLE: Final = "Stable"
_MOST_FAILURES: Final = 2
_GOLDEN: Final = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class BrokerGroupSizes:
    """The sizes of the contests.

    Attributes:
        rounds: measurements of each contestant.
        members: numbers of members.
        partitions: of the topic; more than members, so that every member owns some.
        contestants: names of those that take part.
        heartbeat_ms: the time between two heartbeats of a member.
        append_ms: the time between two appends to a partition.
        processes: number of processes of a Python client, at most.
        warm: rounds that go before, unmeasured.
        steady_s: how long the group is watched without a rebalance.
        kafka_version: of the broker.
        protocol: ``group.protocol`` of the members.
    """

    rounds: int = 5
    members: tuple[int, ...] = (10, 50)
    partitions: int = 100
    contestants: Sequence[str] = CONTESTANTS
    heartbeat_ms: int = 3000
    append_ms: int = 100
    processes: int = 10
    warm: int = 1
    steady_s: float = 5.0
    kafka_version: str = DEFAULT_KAFKA_VERSION
    protocol: Literal["kafka", "consumer"] = "kafka"


class Event(NamedTuple):
    """What disturbs a group in a round.

    Attributes:
        title: part of the titles of its contests.
        measured: what is measured then.
    """

    title: str
    measured: tuple[str, ...]


_OWN: Final = "until all own"
_READ: Final = "until all are read"
_STAY: Final = "partitions that stay, longest without a record"
_MOVE: Final = "partitions that move, longest without a record"
_ACCEPTED: Final = "commits meanwhile that are accepted"
_ASKED: Final = "commits meanwhile"
_COMMIT: Final = "commits meanwhile, median time of those that are accepted"
_REQUESTS: Final = "requests"
_UNITS: Final = {
    _OWN: "s",
    _READ: "s",
    _STAY: "s",
    _MOVE: "s",
    _ACCEPTED: "%",
    _ASKED: "commits",
    _COMMIT: "s",
    _REQUESTS: "requests",
}

_ALL_JOIN: Final = Event("all join", (_OWN, _READ, _REQUESTS))
_ONE_JOINS: Final = Event("one more joins", (_OWN, _STAY, _MOVE, _REQUESTS))
_ONE_LEAVES: Final = Event("one leaves", (_OWN, _STAY, _MOVE, _REQUESTS))
_ONE_JOINS_COMMITS: Final = Event("one more joins while all commit", (_OWN, _STAY, _ACCEPTED, _ASKED, _COMMIT))
_EVENTS: Final = (_ALL_JOIN, _ONE_JOINS, _ONE_LEAVES, _ONE_JOINS_COMMITS)
_STEADY: Final = "no rebalance: longest without a record"


class BrokerGroupField:
    """A broker with a topic, and groups on it."""

    def __init__(self, sandbox: Sandbox, requests: BrokerRequests | None, sizes: BrokerGroupSizes) -> None:
        self._sandbox, self._requests, self.sizes = sandbox, requests, sizes
        self._groups = count()
        (self._broker,) = bootstrap_brokers(sandbox.bootstrap_servers)
        create_wide_topics(sandbox, {_TOPIC: sizes.partitions})

    @property
    def partitions(self) -> range:
        """All partitions."""
        return range(self.sizes.partitions)

    def produce(self) -> SteadyProducer:
        """Append to all partitions from now on."""
        return SteadyProducer(self._broker, _TOPIC, self.sizes.partitions, self.sizes.append_ms / 1000)

    def new_group(self) -> Settings:
        """The settings of the members of a group that does not exist yet."""
        name = f"bench-{next(self._groups)}"
        servers = self._sandbox.bootstrap_servers
        return Settings(servers, name, _TOPIC, _SESSION_MS, self.sizes.heartbeat_ms, _COMMIT_S, self.sizes.protocol)

    def describe(self, group: str) -> DescribedGroup:
        """A group as its coordinator describes it."""
        client = BrokerClient(lambda: (self._broker,), client_id="zkconsumer-bench", timeout_ms=_TIMEOUT_MS)
        with closing(client):
            return described_group(CoordinatorClient(client, group), group)

    def requests_so_far(self) -> int | None:
        """Requests of rebalances that the broker has received; None if they cannot be counted."""
        return None if self._requests is None else self._requests.of_rebalances()


class _Group:
    """One group of one contestant, in one round.

    Attributes:
        figures: title of a contest, without its group, to the figure of this round.
    """

    def __init__(self, field: BrokerGroupField, kind: GroupMembers, producer: SteadyProducer) -> None:
        self._field, self._kind, self._producer = field, kind, producer
        self._settings = field.new_group()
        self._rows: list[Row] = []
        self._changes: list[Row] = []
        self._settled = 0.0
        self.figures: dict[str, float] = {}

    def run(self, size: int, number: int) -> None:
        """All events of a round; :attr:`figures` has those of the events that came to their end.

        Raises:
            SandboxError: a member failed, or the group did not settle.
        """
        *ids, second, third = (f"m{one:03}" for one in range(size + 2))
        leaver = ids[size // 2]
        stays = [one for one in ids if one != leaver]
        self._kind.make(self._settings, [*ids, second, third])
        self._disturb(_ALL_JOIN, ids, lambda at: self._kind.join(ids, at))
        self.figures[_STEADY] = self._steady()
        self._wait_for_phase(2 * number)
        self._disturb(_ONE_JOINS, [*ids, second], lambda at: self._kind.join([second], at))
        self._wait_for_phase(2 * number + 1)
        self._disturb(_ONE_LEAVES, [*stays, second], lambda _: self._kind.leave([leaver]))
        self._kind.commit()
        self._wait_for_phase(2 * number)
        self._disturb(_ONE_JOINS_COMMITS, [*stays, second, third], lambda at: self._kind.join([third], at))
        self._kind.leave([*stays, second, third])
        self._kind.await_left()

    def _disturb(self, event: Event, members: Sequence[str], act: Callable[[float], None]) -> None:
        """Let an event happen, wait until the group has settled, and note the figures."""
        before = self._field.requests_so_far()
        at = time.monotonic() + (0.0 if event is _ONE_LEAVES else _SOON_S)
        act(at)
        self._settled = self._await_settled(members, at)
        span = Span(at, self._settled)
        if _READ in event.measured:
            self._await_read(at)
        after = self._field.requests_so_far()
        found = _figures(History(self._rows), span, self._field.partitions)
        found[_REQUESTS] = None if before is None or after is None else after - before
        for what in event.measured:
            figure = found[what]
            if figure is not None:
                self.figures[f"{event.title}: {what}"] = figure

    def _wait_for_phase(self, number: int) -> None:
        """Wait until a part of a heartbeat interval has passed since the group settled, or of one of those after it.

        Members notice an event by their next heartbeat. After a rebalance all of a group send theirs at the same time,
        so the part decides how long that takes. It is another one in each round, and the same for all contestants.
        """
        interval_s = self._field.sizes.heartbeat_ms / 1000
        time.sleep((interval_s * phase(number) - (time.monotonic() - self._settled)) % interval_s)

    def _steady(self) -> float:
        """The longest time for which a partition is not read while nothing happens."""
        begin = time.monotonic()
        time.sleep(self._field.sizes.steady_s)
        span = Span(begin, time.monotonic())
        self._take()
        gap = History(self._rows).largest_gap(self._field.partitions, span)
        assert gap is not None
        return gap

    def _await_settled(self, members: Sequence[str], since: float) -> float:
        """Wait until all partitions have an owner, nothing changes, and the coordinator agrees; returns since when."""
        quiet_s = self._field.sizes.heartbeat_ms / 1000 + _MARGIN_S
        group = self._settings.group
        while True:
            time.sleep(_POLL_S)  # members in other processes must be polled
            self._take()
            history = History(self._changes)
            if failures := history.failures():
                raise SandboxError("; ".join(failures))
            settled = history.settled_at(self._field.partitions, members)
            if settled is not None and time.monotonic() - max(settled, history.last_change() or 0.0, since) > quiet_s:
                described = self._field.describe(group)
                if described.state == _STABLE and len(described.members) == len(members):
                    return max(settled, since)
            if time.monotonic() > since + _LIMIT_S:
                owners = history.owners()
                owned = sum(len(theirs) == 1 for theirs in owners.values())
                raise SandboxError(
                    f"group {group} has not settled within {_LIMIT_S:g} s: {owned} of {len(self._field.partitions)} "
                    f"partitions have one owner, and the coordinator describes it as {self._field.describe(group)}"
                )

    def _await_read(self, since: float) -> None:
        """Wait until every partition has been read by its owner."""
        while History(self._rows).read_by_owner_at(self._field.partitions, since) is None:
            if time.monotonic() > since + _LIMIT_S:
                raise SandboxError(f"group {self._settings.group} has not read all partitions within {_LIMIT_S:g} s")
            time.sleep(_POLL_S)  # members in other processes must be polled
            self._take()

    def _take(self) -> None:
        rows = self._kind.take()
        self._rows += rows
        self._changes += [row for row in rows if row.kind in (Kind.GAINED, Kind.LOST, Kind.LEAVING, Kind.FAILED)]
        self._producer.expect_running()


def phase(number: int) -> float:
    """The fraction, from 0 to 1, of an interval in round ``number``: few rounds already are spread evenly over it."""
    return (0.5 + number * _GOLDEN) % 1


def _figures(history: History, span: Span, partitions: range) -> dict[str, float | None]:
    """What the rows say about an event that began and ended with this span."""
    staying, commits = history.staying(span), history.commits(span)
    read = history.read_by_owner_at(partitions, span.begin)
    return {
        _OWN: span.end - span.begin,
        _READ: None if read is None else read - span.begin,
        _STAY: history.largest_gap(staying, span),
        _MOVE: history.largest_gap(set(partitions) - staying, span),
        _ACCEPTED: share_accepted(commits),
        _ASKED: len(commits),
        _COMMIT: median_time(commits),
    }


@dataclass
class _Contestants:
    """The members of each contestant, whose processes go through all rounds unless they fail."""

    sizes: BrokerGroupSizes
    directory: Path
    progress: Progress
    running: dict[str, GroupMembers] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Those that can be measured still."""
        return [
            name
            for name in self.sizes.contestants
            if self.failures.get(name, 0) < _MOST_FAILURES
            and (name not in PACKAGES or find_spec(PACKAGES[name]) is not None)
        ]

    def get(self, name: str, size: int) -> GroupMembers:
        """Its processes, which are started if there are none."""
        if name not in self.running:
            processes = min(size, self.sizes.processes)
            self.running[name] = (
                JavaMembers(self.directory, self.progress) if name == JAVA else PythonMembers(name, processes)
            )
        return self.running[name]

    def end(self, name: str) -> None:
        """End its processes."""
        if name in self.running:
            self.running.pop(name).close()

    def failed(self, name: str) -> None:
        """It has failed; its next round has new processes, unless that was the second time."""
        self.failures[name] = self.failures.get(name, 0) + 1
        self.end(name)

    def close(self) -> None:
        """End all processes."""
        for name in list(self.running):
            self.end(name)


def run_broker_group_contests(sizes: BrokerGroupSizes, directory: Path, progress: Progress) -> list[Contest]:
    """Run all contests and return them. A contestant that fails twice is excluded from the rest, and reported.

    Raises:
        SandboxError: a server did not start.
    """
    contests: list[Contest] = []
    with broker_group_field(sizes, directory, progress) as field:
        for size in sizes.members:
            contests += _contests_of(field, size, directory, progress)
    return contests


@contextmanager
def broker_group_field(sizes: BrokerGroupSizes, directory: Path, progress: Progress) -> Iterator[BrokerGroupField]:
    """Start the servers, and what counts requests, if that is possible with this Java."""
    with ExitStack() as stack:
        kafka, _ = disk_properties()
        properties = {**kafka, **_coordinator_properties(sizes)}
        sandbox = stack.enter_context(
            Sandbox(kafka_version=sizes.kafka_version, kafka_properties=properties, progress=progress)
        )
        requests: BrokerRequests | None = None
        try:
            requests = stack.enter_context(BrokerRequests(sandbox.brokers[0].pid, directory, progress))
        except SandboxError as error:
            progress.write_line(f"requests are not counted: {error}")
        yield BrokerGroupField(sandbox, requests, sizes)


def _coordinator_properties(sizes: BrokerGroupSizes) -> Mapping[str, str]:
    """With ``group.protocol=consumer`` the broker has the times that members configure otherwise."""
    if sizes.protocol == "kafka":
        return {}
    times = {"heartbeat.interval": sizes.heartbeat_ms, "session.timeout": _SESSION_MS}
    return {f"group.consumer.{least}{name}.ms": str(time) for name, time in times.items() for least in ("", "min.")}


def _contests_of(field: BrokerGroupField, size: int, directory: Path, progress: Progress) -> list[Contest]:
    """All contests of groups of one size."""
    sizes, title = field.sizes, f"{size} members, {field.sizes.partitions} partitions"
    contests = _new_contests(title)
    with ExitStack() as stack:
        contestants = stack.enter_context(closing(_Contestants(sizes, directory, progress)))
        producer = stack.enter_context(closing(field.produce()))
        advance = stack.enter_context(progress.step(title, sizes.rounds))
        for number in range(-sizes.warm, sizes.rounds):
            for name in rotated(contestants.names(), number + sizes.warm):
                advance(max(0, number), f"rounds, {name}")
                group: _Group | None = None
                try:
                    group = _Group(field, contestants.get(name, size), producer)
                    group.run(size, max(0, number))
                    memory = contestants.get(name, size).peak_memory_mib()
                except (SandboxError, ZkConsumerError) as error:
                    contestants.failed(name)
                    # A process of members reports a traceback; its last line is the error.
                    why = str(error).strip().splitlines()[-1]
                    _note(contests, f"{title}: {name} failed in round {number + 1}: {why}", progress)
                else:
                    for contest in contests.values():
                        contest.note_memory(name, memory)
                if number >= 0 and group is not None:
                    for what, figure in group.figures.items():
                        contests[what].add(name, figure)
    return [contest for contest in contests.values() if contest.measured or contest.notes]


def _new_contests(title: str) -> dict[str, Contest]:
    wanted = [(f"{event.title}: {what}", _UNITS[what]) for event in _EVENTS for what in event.measured]
    contests = {what: Contest(f"{title}: {what}", unit, CONFLUENT) for what, unit in [*wanted, (_STEADY, "s")]}
    for what, contest in contests.items():
        if what.endswith(_OWN):
            contest.target = "at most 1, of the best"
    return contests


def _note(contests: Mapping[str, Contest], text: str, progress: Progress) -> None:
    progress.write_line(text)
    next(iter(contests.values())).notes.append(text)
