"""Contest: the measurements of several contestants for the same job, and their ratios. Pure values."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

OURS = "zkconsumer"
"""Prefix of the names of zkconsumer's contestants."""


class Summary(NamedTuple):
    """The smallest, middle and largest of some measurements."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summarise at least one value."""
        return cls(min(values), statistics.median(values), max(values))


@dataclass
class Contest:
    """One job, measured round by round for each contestant.

    Attributes:
        title: short description of the job.
        about: full description of the job; empty if the title is clear.
        notes: remarks about this run, such as a contestant that failed.
        unit: unit of the measurements, such as ``s`` or ``records/s``.
        reference: contestant with which the others are compared.
        peers: further contestants to compare with.
        target: text of the target for zkconsumer's ratio to the reference; empty if there is none.
        targets: targets of single contestants, if they differ.
        measured: contestant to its measurements, one per round.
        memory: contestant to its peak resident memory in MiB, if measured.
        windows: contestant to its shortest measurement in seconds, if known.
        enough_s: minimum duration of a measurement in seconds; shorter ones are reported.
    """

    title: str
    unit: str
    reference: str
    target: str = ""
    targets: Mapping[str, str] = field(default_factory=dict)
    measured: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    peers: Sequence[str] = ()
    windows: dict[str, float] = field(default_factory=dict)
    enough_s: float = 0.0
    about: str = ""
    notes: list[str] = field(default_factory=list)

    def announce(self, contestant: str) -> None:
        """Add a contestant to the report before it is measured, which determines its position."""
        self.measured.setdefault(contestant, [])

    def add(self, contestant: str, value: float) -> None:
        """Record the measurement of one round."""
        self.measured.setdefault(contestant, []).append(value)

    def note_memory(self, contestant: str, mebibytes: float) -> None:
        """Record a peak; the largest one is kept."""
        self.memory[contestant] = max(mebibytes, self.memory.get(contestant, 0.0))

    def note_window(self, contestant: str, seconds: float) -> None:
        """Record the duration of a measurement; the shortest one is kept."""
        self.windows[contestant] = min(seconds, self.windows.get(contestant, seconds))

    def too_short(self) -> dict[str, float]:
        """Contestants whose shortest measurement was too short, with its seconds."""
        return {name: seconds for name, seconds in self.windows.items() if seconds < self.enough_s}

    def target_of(self, contestant: str) -> str:
        """Text of a contestant's target; empty for contestants of other packages."""
        return self.targets.get(contestant, self.target if contestant.startswith(OURS) else "")

    def summaries(self) -> dict[str, Summary]:
        """Contestant to a summary of its measurements, in the order of :meth:`announce` and :meth:`add`."""
        return {contestant: Summary.of(values) for contestant, values in self.measured.items() if values}

    def ratio(self, contestant: str, to: str | None = None) -> float | None:
        """The contestant's median divided by that of another, by default of the reference; None if unknown."""
        other, own = (self.measured.get(name) for name in (self.reference if to is None else to, contestant))
        if not other or not own or statistics.median(other) == 0:
            return None
        return statistics.median(own) / statistics.median(other)


def rotated(names: Sequence[str], number: int) -> list[str]:
    """The names in the order of round ``number``: each round begins with the next name."""
    first = number % len(names) if names else 0
    return [*names[first:], *names[:first]]
