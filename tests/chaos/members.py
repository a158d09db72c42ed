"""Members of the group under test: processes of ours and JVMs, which can be killed, paused and cut off."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from jvmclients.zookeeperconsumer import ConsumerJvm, JvmConsumer, read_output
from tests.chaos.environment import ClockSteps, Order, clock_file, order_file, write_clock_steps, write_order
from tests.chaos.member import Options, identity_file, run_member
from tests.chaos.ways import Ways
from tests.fixtures.waiting import eventually
from zkconsumer.testing.ledger import Delivered
from zkconsumer.testing.ledgerfile import SUFFIX

_LEAVING_S: Final = 60.0

_STARTED: Final = multiprocessing.get_context("forkserver")
"""Members are forked from a process that has imported everything: half of their CPU time was for imports."""
_STARTED.set_forkserver_preload(["tests.chaos.member"])


class Member(ABC):
    """One member.

    Args:
        name: the last part of its consumer id, and of its files.
        group: that it joins.
        directory: of its files.
        zookeeper: its ways to ZooKeeper's servers.

    Attributes:
        owner: its consumer id.
    """

    kind: str

    def __init__(self, name: str, group: str, directory: Path, zookeeper: Ways) -> None:
        self.name = name
        self.owner = f"{group}_{name}"
        self.directory = directory
        self.zookeeper = zookeeper

    @abstractmethod
    def start(self) -> None:
        """Begin to join the group."""

    @abstractmethod
    def leave(self) -> None:
        """Leave in order, and wait until that is done."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""

    def close(self) -> None:
        """Close its ways to the servers, when its process has ended."""
        self.zookeeper.close()

    @abstractmethod
    def delivered(self) -> int:
        """Size in bytes of what it has written so far."""


class OurMember(Member):
    """A process of ours, see ``tests/chaos/member.py``.

    Attributes:
        brokers: its ways to the brokers.
    """

    def __init__(self, options: Options, group: str, zookeeper: Ways, brokers: Ways) -> None:
        super().__init__(options.name, group, Path(options.directory), zookeeper)
        protocol = options.properties.get("group.protocol", "zookeeper")
        self.kind = "zkconsumer" if protocol == "zookeeper" else protocol
        self.brokers = brokers
        self._clock_steps = ClockSteps()
        self._options = options
        self._process: ForkServerProcess | None = None

    @property
    def process(self) -> ForkServerProcess:
        """The process, after :meth:`start`."""
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        """Number of the process, after :meth:`start`."""
        assert self.process.pid is not None
        return self.process.pid

    def start(self) -> None:
        log = self.directory / f"{self.name}.log"
        self._process = _STARTED.Process(target=run_member, args=(self._options, log), daemon=True)
        self._process.start()

    def leave(self) -> None:
        self.signal(signal.SIGTERM)
        self.process.join(_LEAVING_S)
        code = self.process.exitcode
        ending = f"has not ended within {_LEAVING_S:g} s" if code is None else f"ended with exit code {code}"
        assert code == 0, f"{self.name} {ending}; see {self.directory / self.name}.log"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def signal(self, number: signal.Signals) -> None:
        if self.process.is_alive():
            os.kill(self.pid, number)

    def close(self) -> None:
        super().close()
        self.brokers.close()

    def step_clocks(self, steps: ClockSteps) -> None:
        """Let the clocks of the process step once more."""
        self._clock_steps += steps
        write_clock_steps(clock_file(self.directory, self.name), self._clock_steps)

    def order(self, mode: str, seconds: float) -> None:
        """Let its rebalance listener do something when it is called in the next seconds."""
        write_order(order_file(self.directory, self.name), Order(mode, time.monotonic() + seconds))

    def identity(self) -> tuple[int, bytes] | None:
        """Id and password of its newest session, as far as is known here; None before it has written any."""
        path = identity_file(self.directory, self.name)
        if not path.exists():  # it writes them after it has joined the group
            return None
        session, password = json.loads(path.read_text(encoding="utf-8"))
        return session, bytes.fromhex(password)

    def delivered(self) -> int:
        return _size(self.directory / f"{self.name}{SUFFIX}")


class JvmMember(Member):
    """A consumer of Kafka 1.1.1 in a JVM of its own."""

    kind = "jvm"

    def __init__(
        self, jvm: ConsumerJvm, properties: Mapping[str, str], topic: str, directory: Path, zookeeper: Ways
    ) -> None:
        super().__init__(properties["consumer.id"], properties["group.id"], directory, zookeeper)
        self.jvm = jvm
        self._properties = dict(properties)
        self._topic = topic
        self._consumer: JvmConsumer | None = None

    @property
    def output(self) -> Path:
        """Where the JVM writes what it is handed out."""
        return self.directory / f"{self.name}.jvm.txt"

    def start(self) -> None:
        self._consumer = self.jvm.consumer(self._properties)
        self._consumer.create_streams({self._topic: 1}, output=self.output)

    def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.shutdown()

    def kill(self) -> None:
        self.jvm.kill()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.jvm.pid, number)

    def delivered(self) -> int:
        return _size(self.output)

    def deliveries(self) -> Iterator[Delivered]:
        """Its part of the ledger. A JVM does not report sessions and generations."""
        asked = 0.0
        for record, at in read_output(self.output):
            asked = asked or at
            number = int(record.value or b"")
            yield Delivered(number, record.topic, record.partition, record.offset, self.owner, 0, 0, asked, at)
            asked = at


class JvmPool:
    """JVMs for members: those that survived a trial serve in the next one.

    Args:
        directory: of their logs.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._idle: list[ConsumerJvm] = []
        self._all: list[ConsumerJvm] = []

    def take(self) -> ConsumerJvm:
        """One that runs."""
        if self._idle:
            return self._idle.pop()
        directory = self._directory / f"jvm-{len(self._all)}"
        directory.mkdir(parents=True)
        jvm = ConsumerJvm(directory)
        self._all.append(jvm)
        jvm.start()
        return jvm

    def give_back(self, jvm: ConsumerJvm) -> None:
        """It has no consumer any more; it may have been killed."""
        if jvm.running:
            self._idle.append(jvm)

    def close(self) -> None:
        """End all."""
        for jvm in self._all:
            jvm.kill()


def end_anyhow(member: Member) -> None:
    """Leave nothing running, whatever happened before."""
    with contextlib.suppress(Exception):
        member.signal(signal.SIGCONT)
    if isinstance(member, JvmMember):
        try:
            member.leave()
        except Exception:  # noqa: BLE001 - it is gone, or hangs
            member.kill()
    else:
        member.kill()


def await_condition(condition: Callable[[], object], what: str, seconds: float) -> None:
    """As ``eventually``, with a message that names what did not come."""
    try:
        eventually(condition, seconds)
    except AssertionError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
