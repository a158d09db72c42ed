"""WriteState: how far a write of offsets has come, as the file of the write records it."""

from __future__ import annotations

from enum import StrEnum


class WriteState(StrEnum):
    """What is known of a write that has begun. Before it has begun there is no state: nothing was written."""

    WRITING = "writing"
    """Requests may have been sent; that everything is written is not known. The same write resumes it."""
    COMPLETE = "complete"
    """Everything was written and read back, and no rollback may have written since."""
    UNDOING = "undoing"
    """A rollback may have written, and is not complete. Another one resumes it."""
    UNDONE = "undone"
    """A rollback has written everything, or has found that nothing had to be undone."""

    @property
    def is_rolled_back(self) -> bool:
        """True if a rollback has written, or may have."""
        return self in (WriteState.UNDOING, WriteState.UNDONE)
