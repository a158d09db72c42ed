"""The group under test of one trial."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Final

from kazoo.exceptions import KazooException, NoNodeError

from tests.chaos.assignments import OwnersAtCoordinator
from tests.chaos.history import GroupHistory, read_transactions
from tests.chaos.kafkahistory import read_history
from tests.chaos.kinds import ASSIGNED_BY_BROKERS, COORDINATED, JVM, OF_BROKERS, SESSION_S, ZOOKEEPER
from tests.chaos.member import Options
from tests.chaos.members import JvmMember, Member, OurMember, await_condition, end_anyhow
from tests.chaos.outoforder import MOST_UNFINISHED
from tests.chaos.servers import Servers
from tests.chaos.stalls import LOOK_S, StallWatch
from tests.chaos.ways import Ways
from tests.fixtures.fetch import brokers_of
from zkconsumer.model import TopicPartition
from zkconsumer.testing.checker import SLACK_S
from zkconsumer.testing.ledger import Delivered, Gone, Ledger, Produced, Removed
from zkconsumer.testing.ledgerfile import SUFFIX, LedgerFile, read_ledger
from zkconsumer.zookeeper.rules.coordinatorpaths import CoordinatorPaths
from zkconsumer.zookeeper.rules.grouppaths import GroupPaths

PARTITIONS: Final = 6
SETTLING_S: Final = 60.0
_REPLICAS: Final = 3
_UNCLEAN_REPLICAS: Final = 2

_SETTINGS: Final = {
    "zookeeper.session.timeout.ms": str(round(SESSION_S * 1000)),
    "zookeeper.connection.timeout.ms": "20000",
    "zookeeper.sync.time.ms": "300",
    "rebalance.backoff.ms": "300",
    # The attempts outlast a session, as they have to in production.
    "rebalance.max.retries": "40",
    "auto.offset.reset": "smallest",
    "auto.commit.interval.ms": "300",
}
# Of members with group.protocol kafka and consumer. The heartbeat is the same part of the session as of a session in
# ZooKeeper; with consumer it is that of the broker, like the session timeout.
_OF_BROKERS: Final = {
    "offsets.storage": "kafka",
    "session.timeout.ms": str(round(SESSION_S * 1000)),
    "heartbeat.interval.ms": str(round(SESSION_S * 1000 / 6)),
    "max.poll.interval.ms": "10000",
    # A member that joins waits for a broker that is restarted.
    "rebalance.max.retries": "200",
    "metadata.max.age.ms": "1000",
}


def clock_difference() -> float:
    """Monotonic time minus the time of day, in seconds.

    The process may be interrupted between the clocks, so this is from those of several readings that took least.
    """
    readings = []
    for _ in range(50):
        before, of_day, after = time.monotonic(), time.time(), time.monotonic()
        readings.append((after - before, after - of_day))
    return min(readings)[1]


class Group:
    """One group, its topic and its members; a context manager that leaves no process running.

    Args:
        servers: that it uses.
        name: of the group and of its topic, used by no other trial.
        manual: True if members commit explicitly.
        done: True if members have ``commit.on=done``, and threads that finish records out of order.
        storage: where they commit, ``zookeeper`` or ``kafka``.
        broken: what is switched off in members of ours, see ``tests/chaos/broken.py``.
        listens: True if rebalance listeners of members of ours follow orders.
        erases: True if the topic is one of which acknowledged records may be lost: on two of its brokers, of which one
            may lead that lacks records.

    Attributes:
        members: by place; one that was replaced is not here any more.
        ledger: of what is done here.
    """

    def __init__(
        self,
        servers: Servers,
        name: str,
        *,
        manual: bool = False,
        done: bool = False,
        storage: str = "zookeeper",
        broken: Sequence[str] = (),
        listens: bool = False,
        erases: bool = False,
    ) -> None:
        self.servers = servers
        self.name = name
        self.directory = servers.directory / name
        self.directory.mkdir(parents=True)
        self.members: list[Member] = []
        self.ledger = LedgerFile(self.directory / f"run{SUFFIX}")
        self._all: list[Member] = []
        self._alive: set[str] = set()
        self._manual = manual
        self._done = done
        self._storage = storage
        self._broken = tuple(broken)
        self._numbers = count()
        self._paths = GroupPaths(name)
        self._at_coordinator = OwnersAtCoordinator(brokers_of(servers.box.bootstrap_servers), name)
        self.partitions = PARTITIONS
        self._listens = listens
        self._erases = erases
        self.create_topic()
        servers.zookeeper.retry(servers.zookeeper.exists, "/")
        self._after = servers.zookeeper.last_zxid
        self._clock_difference = clock_difference()
        self._ended = threading.Event()
        self._watches = [threading.Thread(target=one) for one in (self._look_for_stalls, self._look_at_zookeeper)]

    def __enter__(self) -> Group:
        for watch in self._watches:
            watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for watch in self._watches:
            watch.join()
        for member in self._all:
            if member.owner in self._alive:
                end_anyhow(member)
                self._is_gone(member)
            member.close()
        self._at_coordinator.close()
        self.ledger.close()

    # -- members ------------------------------------------------------------------------------------------------------

    def _look_for_stalls(self) -> None:
        stalls = StallWatch("", self.ledger)
        while not self._ended.wait(LOOK_S):
            stalls.look()

    def _look_at_zookeeper(self) -> None:
        """Its process may not be run while those of the members are."""
        stalls = StallWatch(ZOOKEEPER, self.ledger)
        while not self._ended.wait(5 * LOOK_S):
            with suppress(KazooException):
                self.servers.zookeeper.exists("/")
            stalls.look()

    def join(self, kinds: Sequence[str], *, delivering: bool = True) -> None:
        """Start a member of each kind, together, and wait until they share the partitions and deliver.

        Args:
            kinds: of the members.
            delivering: False if nothing is produced meanwhile: one that joins late may find that the others have
                consumed all there was, so only wait until they share the partitions.
        """
        self.members = [self._new(kind) for kind in kinds]
        starters = [threading.Thread(target=member.start) for member in self.members]
        for starter in starters:
            starter.start()
        for starter in starters:
            starter.join()
        self.settle()
        if delivering:
            # Loading the decoder takes seconds; what is to be hurt is a group that delivers.
            await_condition(self._is_working, f"every member of group {self.name} delivers", SETTLING_S)

    def _is_working(self) -> bool:
        return all(member.delivered() for member in self.members)

    def _new(self, kind: str) -> Member:
        name = f"m{next(self._numbers)}"
        zookeeper = Ways(self.servers.box.zookeeper_connect)
        properties = {
            **_SETTINGS,
            "zookeeper.connect": zookeeper.address,
            "group.id": self.name,
            "consumer.id": name,
            "offsets.storage": self._storage,
            "dual.commit.enabled": "false",
        }
        member: Member
        if kind == JVM:
            jvm = self.servers.jvms.take()
            member = JvmMember(jvm, properties, self.name, self.directory, zookeeper)
        else:
            brokers = Ways(self.servers.box.bootstrap_servers)
            if kind == COORDINATED:
                properties["group.protocol"] = "coordinator"
            elif kind in OF_BROKERS:
                del properties["zookeeper.connect"]
                properties |= {**_OF_BROKERS, "bootstrap.servers": brokers.address, "client.id": name}
                properties["group.protocol"] = "consumer" if kind == ASSIGNED_BY_BROKERS else "kafka"
            if self._manual:
                properties["auto.commit.enable"] = "false"
            if self._done:
                properties |= {"commit.on": "done", "max.unfinished.records": str(MOST_UNFINISHED)}
            options = Options(
                name,
                str(self.directory),
                properties,
                self.name,
                brokers.addresses,
                manual=self._manual,
                listens=self._listens,
                out_of_order=self._done,
                broken=self._broken,
            )
            member = OurMember(options, self.name, zookeeper, brokers)
        self._all.append(member)
        self._alive.add(member.owner)
        return member

    def kill(self, place: int) -> None:
        """SIGKILL; the group notices when the session has expired."""
        self.members[place].kill()
        self._is_gone(self.members[place])

    def leave(self, place: int) -> None:
        """Leave in order."""
        self.members[place].leave()
        self._is_gone(self.members[place])

    def leave_joined(self, place: int) -> None:
        """The same, as soon as it has joined: before, a process does not know how to end in order."""
        member = self.members[place]
        await_condition(lambda: self.has_joined(member), f"{member.owner} has joined", SETTLING_S)
        self.leave(place)

    def has_joined(self, member: Member) -> bool:
        """True if it is in the group."""
        if member.kind in OF_BROKERS:
            return member.name in self._at_coordinator.read()
        return bool(self.registered_session(member.owner))

    def remove(self, member: Member) -> None:
        """Another client removes it from the group, which brokers coordinate; the member does not know."""
        self._at_coordinator.remove(member.name, assigned_by_brokers=member.kind == ASSIGNED_BY_BROKERS)

    def _is_gone(self, member: Member) -> None:
        self._alive.discard(member.owner)
        if isinstance(member, JvmMember):
            self.servers.jvms.give_back(member.jvm)

    def replace(self, place: int, kind: str = "") -> None:
        """Start another member, of the same kind or another one."""
        self.members[place] = self._new(kind or self.members[place].kind)
        self.members[place].start()

    def bounce(self, place: int, *, hard: bool, kind: str = "") -> None:
        """End a member, start another one of the same kind or another, and wait until the group has settled."""
        (self.kill if hard else self.leave)(place)
        self.replace(place, kind)
        self.settle()

    def add(self, kind: str) -> Member:
        """Another member joins, after those that a schedule names."""
        member = self._new(kind)
        self.members.append(member)
        member.start()
        return member

    def withdraw(self, member: Member) -> None:
        """A member that was added leaves: in order if it delivers, so that it has come as far as to expect a signal.

        Unless another fault has ended it, which then also replaces it.
        """
        if member.owner not in self._alive:
            return
        (self.leave if member.delivered() else self.kill)(self.members.index(member))
        self.members.remove(member)

    def leave_all(self) -> None:
        """Let every member leave, one after the other."""
        for place, member in enumerate(self.members):
            if member.owner in self._alive:
                self.leave(place)

    def create_topic(self) -> None:
        """Create the topic that the members read."""
        replicas = min(len(self.servers.box.brokers), _UNCLEAN_REPLICAS if self._erases else _REPLICAS)
        config = {"unclean.leader.election.enable": "true"} if self._erases else {}
        self.servers.topics.create(self.name, self.partitions, replicas, config)

    def recreate_topic(self) -> None:
        """Delete the topic, and create it again with two further partitions."""
        self.servers.topics.delete(self.name)
        self.partitions += 2
        self.create_topic()

    def note_gone(self) -> None:
        """Record which of the acknowledged records no broker has, when nothing is produced any more."""
        there = self.servers.cluster.numbers(self.name)
        produced = read_ledger(self.directory).of(Produced)
        self.ledger.append(*(Gone(one.number, time.monotonic()) for one in produced if one.number not in there))

    def grow(self) -> None:
        """Add two partitions."""
        self.partitions += 2
        self.servers.topics.grow(self.name, self.partitions)

    def trim(self) -> None:
        """Remove all records that the topic has now."""
        for number, offset in self.servers.topics.delete_records(self.name, range(self.partitions)).items():
            self.ledger.append(Removed(self.name, number, offset, time.monotonic()))

    # -- state --------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until exactly the live members are registered and each partition is owned by one of them."""
        of_brokers = any(member.kind in OF_BROKERS for member in self.members)
        settled = self._is_settled_in_brokers if of_brokers else self._is_settled
        await_condition(settled, f"group {self.name} has shared its partitions", SETTLING_S)

    def _is_settled_in_brokers(self) -> bool:
        owners = self._at_coordinator.read()
        if {f"{self.name}_{client_id}" for client_id in owners} != self._alive:
            return False
        return all(owners.values()) and set().union(*owners.values()) == set(range(self.partitions))

    def _is_settled(self) -> bool:
        registered = {owner: self.registered_session(owner) for owner in self._alive}
        if set(self._children(self._paths.ids)) != self._alive or not all(registered.values()):
            return False
        owners = [self._owner_session(number) for number in range(self.partitions)]
        return set(owners) <= set(registered.values()) and len(set(owners)) == min(len(self._alive), self.partitions)

    def _owner_session(self, number: int) -> int:
        return self._session_of(self._paths.owner(TopicPartition(self.name, number)))

    def registered_session(self, owner: str) -> int:
        """The session that a member is registered in, 0 if it is not."""
        return self._session_of(self._paths.consumer_id(owner))

    def place_of_leader(self) -> int:
        """Index of the member that leads the group, as soon as one does."""
        found: list[int] = []

        def look() -> bool:
            with suppress(NoNodeError):
                data, _ = self.servers.zookeeper.retry(self.servers.zookeeper.get, CoordinatorPaths(self.name).leader)
                leader = json.loads(data)["consumer"]
                found.extend(n for n, one in enumerate(self.members) if one.owner == leader and leader in self._alive)
            return bool(found)

        await_condition(look, f"group {self.name} has a coordinator", SETTLING_S)
        return found[0]

    def _session_of(self, path: str) -> int:
        stat = self.servers.zookeeper.retry(self.servers.zookeeper.exists, path)
        return 0 if stat is None else stat.ephemeralOwner & 0xFFFFFFFFFFFFFFFF

    def _children(self, path: str) -> list[str]:
        try:
            return list(self.servers.zookeeper.retry(self.servers.zookeeper.get_children, path))
        except NoNodeError:
            return []

    @property
    def everyone(self) -> tuple[Member, ...]:
        """All members that there ever were."""
        return tuple(self._all)

    def delivered(self) -> int:
        """A number that grows with each delivery."""
        return sum(member.delivered() for member in self._all)

    def recorded(self) -> Ledger:
        """What members, feed and injector have recorded so far."""
        return read_ledger(self.directory, self._jvm_deliveries())

    def _jvm_deliveries(self) -> list[Delivered]:
        return [one for member in self._all if isinstance(member, JvmMember) for one in member.deliveries()]

    def clock_step(self) -> float:
        """Seconds by which the time of day has stepped since the beginning, 0.0 if the ledger's times are right."""
        step = clock_difference() - self._clock_difference
        return step if abs(step) > SLACK_S / 2 else 0.0

    def remove_files(self) -> None:
        """Remove what members and feed have written."""
        shutil.rmtree(self.directory)

    def whole_ledger(self) -> Ledger:
        """All that was recorded, and what ZooKeeper's log has."""
        difference = self._clock_difference
        transactions = read_transactions([one.data for one in self.servers.box.ensemble.members], self._after)
        znodes = list(GroupHistory(self.name, difference).records(transactions))
        in_kafka = self._storage == "kafka"
        kafka = read_history(self.servers.box.bootstrap_servers, self.name, difference) if in_kafka else ()
        return read_ledger(self.directory, [*znodes, *kafka, *self._jvm_deliveries()])
