"""WriteState: how far a write of offsets has come, as the file of the write records it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class WriteState(StrEnum):
    """What is known of a write that has begun. Before it has begun there is no state: nothing was written."""

    WRITING = "writing"
    """Requests may have been sent; that everything is written is not known. The same write resumes it."""
    COMPLETE = "complete"
    """Everything was written and read back, and no rollback has begun since."""
    UNDOING = "undoing"
    """A rollback may have written; its outcome is unknown."""
    UNDONE = "undone"
    """A rollback has written, at least a part, or has found that nothing had to be undone."""

    @property
    def is_rolled_back(self) -> bool:
        """True if a rollback has written, or may have."""
        return self in (WriteState.UNDOING, WriteState.UNDONE)


FOLLOWING: Final[Mapping[WriteState | None, frozenset[WriteState]]] = MappingProxyType(
    {
        None: frozenset({WriteState.WRITING}),
        WriteState.WRITING: frozenset({WriteState.WRITING, WriteState.COMPLETE, WriteState.UNDOING}),
        WriteState.COMPLETE: frozenset({WriteState.WRITING, WriteState.UNDOING}),
        WriteState.UNDOING: frozenset({WriteState.UNDONE, WriteState.WRITING, WriteState.COMPLETE}),
        WriteState.UNDONE: frozenset({WriteState.WRITING, WriteState.UNDOING, WriteState.COMPLETE}),
    }
)
"""By state, those that may follow. A rollback that failed before it wrote leaves the state as it was. A run
may find everything written although a rollback, which was killed, may have written."""


def after_rollback(before: WriteState, *, is_undone: bool) -> WriteState:
    """The state after a rollback.

    Args:
        before: the state before it began. Another rollback does not know what became of one that was killed.
        is_undone: the rollback has written, or may have, or nothing had to be written.
    """
    return WriteState.UNDONE if is_undone or before.is_rolled_back else before
