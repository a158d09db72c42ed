"""Samples why time passes while a test runs: servers start, JVMs start, a clock is waited for, or something works."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator, Mapping
from types import FrameType
from typing import Any, Final

import psutil
import pytest

CAUSES: Final = ("server starts", "JVM starts", "waits", "work")
"""``waits``: this process and its servers use almost no CPU, so that a timeout or a pause has to pass."""

REPORTED: Final = "causes"
"""Name of the property of a report that has the seconds by cause."""

_INTERVAL_S: Final = 0.1
_IDLE_CPUS: Final = 0.15
"""Of servers that have nothing to do: a broker and a ZooKeeper have timers."""

_STARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "JVM starts": (
        "/pyspark/java_gateway.py",
        "/jvmclients/",
    ),
    "server starts": (
        "/zkconsumer/sandbox/",
        "/tests/fixtures/kerberos.py",
        "/tests/fixtures/kraftmigration.py",
        "/testcontainers/",
    ),
}
_STARTING: Final = frozenset({"start", "start_as", "__enter__", "__init__", "launch_gateway", "start_controller"})


def cause(frame: FrameType | None, busy_cpus: float) -> str:
    """Why time passes in a thread whose innermost frame is ``frame``, when so many CPUs' worth of work is done."""
    while frame is not None:
        if frame.f_code.co_name in _STARTING:
            for name, files in _STARTS.items():
                if any(file in frame.f_code.co_filename for file in files):
                    return name
        frame = frame.f_back
    return "waits" if busy_cpus < _IDLE_CPUS else "work"


class _Sampler(threading.Thread):
    """Counts seconds by cause; the thread that reads the counts takes the counter away."""

    def __init__(self) -> None:
        super().__init__(name="causes", daemon=True)
        self._ended = threading.Event()
        self._counts: dict[str, float] = {}

    def run(self) -> None:
        main, last = threading.main_thread().ident, time.monotonic()
        used = _cpu_seconds()
        while not self._ended.wait(_INTERVAL_S):
            now, used_now = time.monotonic(), _cpu_seconds()
            passed = now - last
            # Of a process that has ended nothing is counted any more, so the sum may be less than before.
            busy = max(0.0, used_now - used) / passed
            name = cause(sys._current_frames().get(main or 0), busy)
            self._counts[name] = self._counts.get(name, 0.0) + passed
            last, used = now, used_now

    def take(self) -> dict[str, float]:
        """The counts since the last call."""
        taken, self._counts = self._counts, {}
        return taken

    def end(self) -> None:
        self._ended.set()


def _cpu_seconds() -> float:
    """CPU time of this process and of all processes that it has started."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


class Sampling:
    """A plugin of each process that runs tests: it adds the causes to the reports."""

    def __init__(self) -> None:
        self._sampler = _Sampler()
        self._sampler.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        report.user_properties.append((REPORTED, self._sampler.take()))
        return report

    def pytest_unconfigure(self) -> None:
        self._sampler.end()
