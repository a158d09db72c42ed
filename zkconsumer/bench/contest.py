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
        unit: of the measurements, such as ``s`` or ``records/s``.
        reference: the contestant that the others are compared with.
        target: what our ratio to the reference should be, in words; empty where there is no target.
        targets: the same for single contestants, where they differ.
        measured: contestant to its measurements, one a round.
        memory: contestant to its peak resident memory in MiB, where it was measured.
    """

    title: str
    unit: str
    reference: str
    target: str = ""
    targets: Mapping[str, str] = field(default_factory=dict)
    measured: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)

    def add(self, contestant: str, value: float) -> None:
        """Note one round's measurement."""
        self.measured.setdefault(contestant, []).append(value)

    def note_memory(self, contestant: str, mebibytes: float) -> None:
        """Note a peak; the largest counts."""
        self.memory[contestant] = max(mebibytes, self.memory.get(contestant, 0.0))

    def target_of(self, contestant: str) -> str:
        """What to reach, in words; empty for those who are not ours."""
        return self.targets.get(contestant, self.target if contestant.startswith(OURS) else "")

    def summaries(self) -> dict[str, Summary]:
        """Contestant to what its measurements come to, in the order in which they were added."""
        return {contestant: Summary.of(values) for contestant, values in self.measured.items()}

    def ratio(self, contestant: str) -> float | None:
        """The contestant's median divided by the reference's; None where there is nothing to divide by."""
        reference = self.measured.get(self.reference)
        if not reference or statistics.median(reference) == 0:
            return None
        return statistics.median(self.measured[contestant]) / statistics.median(reference)
