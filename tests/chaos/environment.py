"""What a member's process finds around it: brokers behind a proxy, clocks that step, orders of its application.

Brokers advertise one address for all clients, and a process cannot have a clock of its own; so both are replaced inside
of the process, where Python asks for them.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zkconsumer.wire.transport import Transport


@dataclass(frozen=True, slots=True)
class ClockSteps:
    """How far the clocks of a process have stepped, in seconds.

    Attributes:
        real: of CLOCK_REALTIME, the time of day, which an operator or NTP may set forward or back.
        boot: of CLOCK_BOOTTIME, which only a suspended machine finds far ahead.
    """

    real: float = 0.0
    boot: float = 0.0

    def __add__(self, further: ClockSteps) -> ClockSteps:
        return ClockSteps(self.real + further.real, self.boot + further.boot)


def clock_file(directory: Path, name: str) -> Path:
    """Where a member reads its clock steps."""
    return directory / f"{name}.clock"


def write_clock_steps(path: Path, steps: ClockSteps) -> None:
    """Let the clocks of a member step; it looks for the file often."""
    _replace(path, steps)


@dataclass(frozen=True, slots=True)
class Order:
    """What a member's rebalance listener is to do when it is called.

    Attributes:
        mode: ``hang`` before partitions are released, or ``late`` before they are fetched; ``commit``; ``shutdown``.
        until: until when, on the monotonic clock.
    """

    mode: str
    until: float


def order_file(directory: Path, name: str) -> Path:
    """Where a member's listener reads its order."""
    return directory / f"{name}.listener"


def write_order(path: Path, order: Order) -> None:
    """Give a member's listener an order."""
    _replace(path, order)


def _replace(path: Path, content: ClockSteps | Order) -> None:
    """Write a file in one piece: a member looks for it at any time."""
    unfinished = path.with_suffix(f"{path.suffix}-new")
    unfinished.write_text(json.dumps(asdict(content)), encoding="utf-8")
    unfinished.replace(path)


def read_order(path: Path) -> Order | None:
    """The order that holds now, if there is one."""
    if not path.exists():
        return None
    order = Order(**json.loads(path.read_text(encoding="utf-8")))
    return order if time.monotonic() < order.until else None


class SteppedClocks:
    """Replaces Python's clocks in this process, but for the monotonic one, which never steps.

    Args:
        path: of the steps; while it does not exist, the clocks are right.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps = ClockSteps()
        real, of = time.time, time.clock_gettime

        def stepped(clock: int) -> float:
            return of(clock) + (self._steps.boot if clock == time.CLOCK_BOOTTIME else 0.0)

        time.time = lambda: real() + self._steps.real
        time.clock_gettime = stepped

    def look(self) -> None:
        """Step if the file has changed."""
        if self._path.exists():
            self._steps = ClockSteps(**json.loads(self._path.read_text(encoding="utf-8")))


def reach_brokers_at(addresses: Mapping[str, str]) -> None:
    """Make every connection of this process to a broker one to another address; both are ``host:port``."""
    open_socket = Transport._open

    def open_proxy(self: Transport, sock: socket.socket, address: Any) -> None:
        advertised = f"{address[0]}:{address[1]}"
        host, _, port = addresses.get(advertised, advertised).rpartition(":")
        open_socket(self, sock, (host, int(port)))

    Transport._open = open_proxy  # type: ignore[method-assign]
