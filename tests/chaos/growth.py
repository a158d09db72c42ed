"""What a process grows by while it runs: memory, threads, descriptors, watches and log volume."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

WARM_UP: Final = 0.25
"""Part of a run that is left out: caches fill, and Python's allocator takes memory that it gives back to nobody."""

_KIB: Final = 1024
_HOUR_S: Final = 3600.0


class Usage(NamedTuple):
    """What a process uses at one moment.

    Attributes:
        at: seconds since the run began.
        memory: resident, in bytes.
        threads: their number.
        descriptors: open files and sockets.
        watches: of all clients of ZooKeeper; 0 without it.
        log: bytes that were written to its log so far.
    """

    at: float
    memory: int
    threads: int
    descriptors: int
    watches: int
    log: int


def read_usage(pid: int, log: Path, watches: int, at: float) -> Usage | None:
    """The usage of a process; None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return None
    values = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    if "VmRSS" not in values:  # it is a zombie
        return None
    memory = _KIB * int(values["VmRSS"].split()[0])
    return Usage(at, memory, int(values["Threads"]), descriptors, watches, log.stat().st_size if log.exists() else 0)


def growth_per_hour(samples: Sequence[Usage]) -> Mapping[str, float]:
    """By what part of its mean each figure grows in an hour, of the samples after the warm-up.

    The volume of the log is the bytes that each sample adds: a log that grows evenly has growth 0.

    Args:
        samples: in order, from the beginning of the run.

    Returns:
        0.05 for 5 % an hour; 0.0 where there is nothing, or less than three samples.
    """
    later = [one for one in samples if one.at >= WARM_UP * samples[-1].at] if samples else []
    times = [one.at for one in later]
    figures = {
        name: [float(getattr(one, name)) for one in later] for name in ("memory", "threads", "descriptors", "watches")
    }
    growth = {name: _slope(times, values) for name, values in figures.items()}
    added = [after.log - before.log for before, after in itertools.pairwise(later)]
    growth["log"] = _slope(times[1:], [float(bytes_) for bytes_ in added])
    return growth


def _slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all samples (Theil, Sen), for an hour, in relation to the mean.

    A fault takes connections, threads and watches away for some seconds, and writes to the log: a line by least squares
    would follow these few samples.
    """
    mean = sum(values) / len(values) if values else 0.0
    if len(values) < 3 or not mean:
        return 0.0
    slopes = [
        (later - earlier) / (until - since)
        for (since, earlier), (until, later) in itertools.combinations(zip(times, values, strict=True), 2)
        if until > since
    ]
    return median(slopes) * _HOUR_S / mean
