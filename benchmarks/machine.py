"""Machine: the environment on which the figures of a run depend."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.slownetwork import network


class Machine(NamedTuple):
    """The machine and date of a benchmark run."""

    processor: str
    cores: int
    memory_gib: int
    system: str
    python: str
    date: str
    load: float
    """Load average of the minute before the run: other work makes figures worse."""
    network: str = ""
    """What is known of the network; empty for loopback."""

    def __str__(self) -> str:
        return (
            f"{self.processor}, {self.cores} cores, {self.memory_gib} GiB, {self.system}, Python {self.python}, "
            f"{self.date}, load before the run {self.load:.1f}" + (f"; {self.network}" if self.network else "")
        )

    @classmethod
    def this(cls) -> Machine:
        """The machine that this process runs on."""
        # Readers of other environments import this module, and their zkconsumer may have no such module.
        from zkconsumer.process.cpus import available_cpus

        return cls(
            processor=_processor(),
            cores=available_cpus(),
            memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            date=datetime.now(UTC).date().isoformat(),
            load=os.getloadavg()[0],
            network=network(),
        )


def peak_memory_mib(pid: int) -> float:
    """Peak resident memory of a process so far, in MiB."""
    return _memory_mib(pid, "VmHWM:")


def memory_mib(pid: int) -> float:
    """Resident memory of a process, in MiB."""
    return _memory_mib(pid, "VmRSS:")


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, in seconds, to the nanosecond: /proc has it in steps of 10 ms."""
    clock = ctypes.c_int()
    if error := ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise ProcessLookupError(error, f"process {pid} has ended")
    return time.clock_gettime(clock.value)


def _memory_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has ended")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
