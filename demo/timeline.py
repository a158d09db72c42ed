"""The observed states of the groups over time; pure values, without waits or clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zkconsumer.offsets.rules.lag import lag


@dataclass(frozen=True, slots=True)
class Sample:
    """One group at one time; each tuple has one entry per partition of the topic.

    Attributes:
        at: seconds since the demo began.
        members: consumer ids of the group's members; in a group that brokers coordinate their ``client.id``.
        owners: consumer id of the owner, None if the partition has none.
        committed: committed offset, None if there is none.
        ends: log end offset.
    """

    at: float
    members: frozenset[str]
    owners: tuple[str | None, ...]
    committed: tuple[int | None, ...]
    ends: tuple[int, ...]

    @property
    def lag(self) -> int:
        """Number of records that are not committed yet, counted from offset 0 if there is no committed offset."""
        return sum(lag(committed or 0, end) or 0 for end, committed in zip(self.ends, self.committed, strict=True))

    @property
    def deserted(self) -> bool:
        """True if the group has neither members nor owners."""
        return not self.members and not any(self.owners)

    def shared_by(self, members: Iterable[str]) -> bool:
        """True if these members, and no others, own all partitions and each of them owns at least one."""
        return None not in self.owners and set(self.owners) == set(members)

    def owned_by(self, member: str) -> list[int]:
        """The partitions that a member owns."""
        return [partition for partition, owner in enumerate(self.owners) if owner == member]

    def committed_of(self, partitions: Iterable[int]) -> int:
        """Sum of the committed offsets of some partitions."""
        return sum(self.committed[partition] or 0 for partition in partitions)


@dataclass(frozen=True, slots=True)
class Event:
    """An action of the demo, to be marked in the picture."""

    at: float
    text: str
    kill: str | None = None
    """Consumer id of the member that was killed."""


@dataclass(frozen=True, slots=True)
class Band:
    """A period in which one member owned one partition."""

    partition: int
    owner: str
    start: float
    end: float


@dataclass
class Timeline:
    """Samples by group, and events, each in order of time. Threads append to it; it is read after their end."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)


def without_idle_start(samples: Sequence[Sample], margin_s: float = 1.0) -> Sequence[Sample]:
    """The samples from shortly before the first change on; all of them if there is no change."""
    for sample in samples:
        if (sample.members, sample.owners, sample.lag) != (samples[0].members, samples[0].owners, samples[0].lag):
            return [kept for kept in samples if kept.at >= sample.at - margin_s]
    return samples


def ownership_bands(samples: Sequence[Sample]) -> list[Band]:
    """Merge consecutive samples with the same owner; a band lasts until the first sample with another owner."""
    bands: list[Band] = []
    for partition in range(len(samples[0].owners) if samples else 0):
        owner: str | None = None
        start = 0.0
        for sample in samples:
            seen = sample.owners[partition]
            if seen != owner:
                if owner is not None:
                    bands.append(Band(partition, owner, start, sample.at))
                owner, start = seen, sample.at
        if owner is not None:
            bands.append(Band(partition, owner, start, samples[-1].at))
    return bands


def number_ranges(numbers: Iterable[int]) -> str:
    """Numbers as text with runs shortened: ``0-3,5``; ``-`` for none."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "-"


def shares_text(names: Mapping[str, str], sample: Sample) -> str:
    """The owners of the partitions: ``consumer-1: 0-3, consumer-2: 4-7``; ``names`` maps consumer ids to names."""
    owners = sorted({owner for owner in sample.owners if owner is not None})
    shares = [f"{names.get(owner, owner)}: {number_ranges(sample.owned_by(owner))}" for owner in owners]
    orphans = [partition for partition, owner in enumerate(sample.owners) if owner is None]
    return ", ".join(shares + ([f"no owner: {number_ranges(orphans)}"] if orphans else []))
