"""Schedules: which faults a trial injects, and when; a value that a seed gives, and that can be made smaller. Pure."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

from zkconsumer.errors import UsageError

T = TypeVar("T")

ERASING = frozenset({"unclean", "recreate"})
"""Kinds of faults after which no broker has some records that were acknowledged."""

LEADER = -1
"""In place of the index of a member: the one that leads the group when the fault begins."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: see ``tests/chaos/injector.py``.
        at: seconds since the group had settled.
        member: index of the member that it is done to, or ``LEADER``; of ``leader`` and ``unclean`` a partition; for
            other faults of servers without a meaning.
        seconds: how long it lasts, 0 for an event.
        mode: variant of the kind.
    """

    kind: str
    at: float
    member: int = 0
    seconds: float = 0.0
    mode: str = ""

    @property
    def until(self) -> float:
        """When it is over, in seconds since the group had settled."""
        return self.at + self.seconds


@dataclass(frozen=True, slots=True)
class Schedule:
    """The faults of one trial, by time, and the members that it is made with.

    Attributes:
        members: kind of each member at the start: ``zkconsumer``, ``coordinator`` or ``kafka`` (ours with this
            ``group.protocol``), or ``jvm``.
        faults: what is done to them.
        manual: True if the members commit explicitly, and not by timer.
        storage: where they commit, ``zookeeper`` or ``kafka``.
        done: True if commits cover what the members have declared done (``commit.on=done``).
    """

    members: tuple[str, ...]
    faults: tuple[Fault, ...]
    manual: bool = False
    storage: str = "zookeeper"
    done: bool = False

    @property
    def erases(self) -> bool:
        """True if brokers may lose records that they have acknowledged."""
        return any(fault.kind in ERASING for fault in self.faults)

    @property
    def listens(self) -> bool:
        """True if rebalance listeners follow orders."""
        return any(fault.kind == "listener" for fault in self.faults)

    def to_json(self) -> str:
        """A text from which :meth:`from_json` makes the same schedule."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """The schedule that a text describes.

        Raises:
            UsageError: it describes none.
        """
        try:
            values = json.loads(text)
            faults = tuple(Fault(**fault) for fault in values["faults"])
            return cls(**{**values, "members": tuple(values["members"]), "faults": faults})
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"not a schedule: {error!r}; give it as a failed trial prints it") from None

    def __str__(self) -> str:
        def describe(fault: Fault) -> str:
            lasting = f" for {fault.seconds:.2f} s" if fault.seconds else ""
            mode = f" ({fault.mode})" if fault.mode else ""
            return f"at {fault.at:.2f} s {fault.kind}{mode} member {fault.member}{lasting}"

        return f"members {', '.join(self.members)}: " + "; ".join(map(describe, self.faults))


def chance_of(row: str, seed: int) -> random.Random:
    """The source of everything random in a trial: the same for the same row and seed, on every machine."""
    return random.Random(f"{row} {seed}")


def shrink(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A part of ``items`` that still fails, and of which no single item can be omitted: ddmin (Zeller, 2002).

    Args:
        items: with which ``fails`` returned True.
        fails: True if some of the items, in their order, fail. It is asked at most once for each part.
    """
    asked: dict[tuple[int, ...], bool] = {}

    def still_fails(indexes: Sequence[int]) -> bool:
        key = tuple(indexes)
        if key not in asked:
            asked[key] = fails([items[index] for index in indexes])
        return asked[key]

    current, pieces = list(range(len(items))), 2
    while len(current) >= 2:
        found = _smaller(current, pieces, still_fails)
        if found is not None:
            current, pieces = found
        elif pieces >= len(current):
            break
        else:
            pieces = min(len(current), 2 * pieces)
    if len(current) == 1 and still_fails([]):
        current = []
    return [items[index] for index in current]


def _smaller(
    current: list[int], pieces: int, still_fails: Callable[[Sequence[int]], bool]
) -> tuple[list[int], int] | None:
    """The first of the pieces, or of what is left without one piece, that fails, and into how many to cut it next."""
    size = -(-len(current) // pieces)
    parts = [current[begin : begin + size] for begin in range(0, len(current), size)]
    for part in parts:
        if still_fails(part):
            return part, 2
    for part in parts if len(parts) > 2 else ():
        rest = [index for index in current if index not in part]
        if still_fails(rest):
            return rest, max(2, pieces - 1)
    return None
