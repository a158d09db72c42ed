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
        WriteState.WRITING: frozenset({WriteState.WRITING, WriteState.COMPLETE, WriteState.UNDOING, WriteState.UNDONE}),
        WriteState.COMPLETE: frozenset({WriteState.WRITING, WriteState.UNDOING, WriteState.UNDONE}),
        WriteState.UNDOING: frozenset({WriteState.UNDONE, WriteState.WRITING, WriteState.COMPLETE}),
        WriteState.UNDONE: frozenset({WriteState.WRITING, WriteState.UNDOING, WriteState.COMPLETE}),
    }
)
"""By state, those that may follow. A rollback that failed before it wrote leaves the state as it was. A run
may find everything written although a rollback, which was killed, may have written."""
