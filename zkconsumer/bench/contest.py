"""Contest: what several contestants needed for the same job, and how they compare. Values only; nothing is run here."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

OURS = "zkconsumer"
"""What the names of our own contestants begin with."""


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
        title: what was done.
        about: what the title stands for, in full; empty where it is clear.
        unit: of the measurements, such as ``s`` or ``records/s``.
        reference: the contestant that the others are compared with.
        peers: further contestants to compare with.
        target: what our ratio to the reference should be, in words; empty where there is no target.
        targets: the same for single contestants, where they differ.
        measured: contestant to its measurements, one a round.
        memory: contestant to its peak resident memory in MiB, where it was measured.
        windows: contestant to its shortest measurement in seconds, where that is known.
        enough_s: measurements that are shorter are reported as too short.
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

    def announce(self, contestant: str) -> None:
        """Give a contestant its place in the report, before it is measured."""
        self.measured.setdefault(contestant, [])

    def add(self, contestant: str, value: float) -> None:
        """Note one round's measurement."""
        self.measured.setdefault(contestant, []).append(value)

    def note_memory(self, contestant: str, mebibytes: float) -> None:
        """Note a peak; the largest counts."""
        self.memory[contestant] = max(mebibytes, self.memory.get(contestant, 0.0))

    def note_window(self, contestant: str, seconds: float) -> None:
        """Note how long a measurement took; the shortest counts."""
        self.windows[contestant] = min(seconds, self.windows.get(contestant, seconds))

    def too_short(self) -> dict[str, float]:
        """Contestants whose shortest measurement was not long enough, with its seconds."""
        return {name: seconds for name, seconds in self.windows.items() if seconds < self.enough_s}

    def target_of(self, contestant: str) -> str:
        """What to reach, in words; empty for those who are not ours."""
        return self.targets.get(contestant, self.target if contestant.startswith(OURS) else "")

    def summaries(self) -> dict[str, Summary]:
        """Contestant to a summary of its measurements, in the order in which they were announced or added."""
        return {contestant: Summary.of(values) for contestant, values in self.measured.items() if values}

    def ratio(self, contestant: str, to: str | None = None) -> float | None:
        """The contestant's median divided by that of another, by default of the reference; None if unknown."""
        other, own = (self.measured.get(name) for name in (self.reference if to is None else to, contestant))
        if not other or not own or statistics.median(other) == 0:
            return None
        return statistics.median(own) / statistics.median(other)


def rotated(names: Sequence[str], number: int) -> list[str]:
    """The names in the order of a round: each round begins with the next one."""
    first = number % len(names) if names else 0
    return [*names[first:], *names[:first]]
