"""The journal of a migration: what a run was going to write, and what became of it; a line of JSON for each event."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from zkconsumer.errors import ZkConsumerError

Event = Literal["begin", "snapshot", "intent", "outcome", "end", "rollback"]
"""In their order: a run begins; the snapshot is on the disk; a request is about to be sent; it was answered, or not;
everything is written and read back. A later run of the same plan begins again. A rollback is about to write."""

_EVENTS: Final = frozenset(get_args(Event))

ROLLED_BACK: Final = (
    "the plan was rolled back, or a rollback was begun: complete it with `zkconsumer migrate rollback`, or migrate "
    "again with `zkconsumer migrate run`"
)
"""Why a plan has neither a way back nor offsets to mirror."""


@dataclass(frozen=True, slots=True)
class JournalState:
    """What the lines of a journal show.

    Attributes:
        plan: SHA-256 of the plan that was run; None if the journal is empty.
        snapshot: path of the complete snapshot; None if there is none.
        may_have_written: True if a request was sent, or was about to be.
        units: number of requests in all runs.
        ended: True if the last run ended with everything written and read back, and nothing was begun since.
        rolled_back: True if a rollback was going to write, and no run has written since.
    """

    plan: str | None = None
    snapshot: str | None = None
    may_have_written: bool = False
    units: int = 0
    ended: bool = False
    rolled_back: bool = False


def encode_event(event: Event, **fields: object) -> bytes:
    """The line of an event."""
    return json.dumps({"event": event, **fields}).encode() + b"\n"


def whole_lines(content: bytes) -> bytes:
    """The content without a last line that was not written as a whole: its process ended meanwhile."""
    return content[: content.rfind(b"\n") + 1]


def read_journal(name: str, content: bytes) -> JournalState:
    """What a journal shows.

    Args:
        name: of the file, for messages.
        content: of the file; a last line without its end is ignored.

    Raises:
        ZkConsumerError: it is not a journal.
    """
    state = JournalState()
    for number, line in enumerate(whole_lines(content).splitlines(), 1):
        try:
            state = _after(state, json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise ZkConsumerError(
                f"{name}, line {number}, is not a line of a migration's journal ({error!r}); move the file away if it "
                "belongs to something else"
            ) from None
    return state


def _after(state: JournalState, line: Any) -> JournalState:
    event = line["event"]
    if event not in _EVENTS:
        raise ValueError(f"event {event!r}")
    return JournalState(
        plan=str(line["plan"]) if event == "begin" else state.plan,
        snapshot=str(line["path"]) if event == "snapshot" else state.snapshot,
        may_have_written=state.may_have_written or event == "intent",
        units=state.units + (event == "intent"),
        ended=event == "end",
        rolled_back=event == "rollback" or (state.rolled_back and event not in ("intent", "end")),
    )
