"""Finding: one thing that keeps a group from consuming, with its evidence and the next command."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that is wrong.

    Attributes:
        kind: its name, for programs.
        subject: member, partition, topic or broker.
        evidence: what was read, in words.
        next_command: what to run or to look at next.
    """

    kind: str
    subject: str
    evidence: str
    next_command: str
