"""The journal of a migration: what a run was going to write, and what became of it; a line of JSON for each event."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from zkconsumer.core.migrationplan import MigrationPlan
from zkconsumer.errors import ZkConsumerError
from zkconsumer.model import TopicPartition

Event = Literal["begin", "snapshot", "intent", "outcome", "end", "rollback", "rollback-outcome"]
"""In their order: a run begins; the snapshot is on the disk; a request is about to be sent; it was answered, or not;
everything is written and read back. A later run of the same plan begins again. A rollback is about to write; it has
ended, with the number of its writes."""

_EVENTS: Final = frozenset(get_args(Event))


@dataclass(frozen=True, slots=True)
class JournalState:
    """What the lines of a journal show.

    Attributes:
        plan: SHA-256 of the plan that was run; None if the journal is empty.
        snapshot: path of the complete snapshot; None if there is none.
        may_have_written: True if a request was sent, or was about to be.
        units: number of requests in all runs.
        ended: True if the last run that wrote ended with everything written and read back.
        undone: True if a rollback has written, or may have, and no run has written since.
        is_undoing: True if a rollback was going to write, and its outcome is unknown.
        beyond: the target's offsets of partitions that the plan does not have, as the first run found them.
    """

    plan: str | None = None
    snapshot: str | None = None
    may_have_written: bool = False
    units: int = 0
    ended: bool = False
    undone: bool = False
    is_undoing: bool = False
    beyond: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def rolled_back(self) -> bool:
        """True unless the target is known to have what the last run wrote, as far as rollbacks are concerned."""
        return self.undone or self.is_undoing


def why_not_migrated(plan: MigrationPlan, journal: JournalState) -> str | None:
    """Why consumers cannot have continued at the target of a plan, so that nothing may be copied back from there.

    A run that has only begun may have written nothing: 1. the target has offsets of long ago; 2. a run is killed before
    its first request; 3. old consumers continue at the source. To copy from the target would take their offsets back.

    Returns:
        The reason in a sentence; None if a run of the plan has ended, or if it had nothing to write.
    """
    new_plan = f"if consumers have continued there, `zkconsumer migrate plan --from {plan.target} --to {plan.source}`"
    if journal.rolled_back:
        return (
            "the plan was rolled back, or a rollback was begun: complete it with `zkconsumer migrate rollback`, or "
            f"migrate again with `zkconsumer migrate run`; {new_plan}"
        )
    if journal.ended or all(row.before == row.new for row in plan.partitions):
        return None
    if not journal.may_have_written:
        return "the plan was not run, or its journal is missing; there is no way back"
    return (
        f"no run of the plan has ended, so {plan.target} may have offsets of before the migration: complete it with "
        f"`zkconsumer migrate run`, or undo it with `zkconsumer migrate rollback`; {new_plan}"
    )


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
    wrote, first = state.undone, not state.may_have_written
    if event in ("rollback", "rollback-outcome"):  # another rollback does not know what became of one that was killed
        wrote |= state.is_undoing if event == "rollback" else int(line["written"]) > 0
    return JournalState(
        plan=str(line["plan"]) if event == "begin" else state.plan,
        snapshot=str(line["path"]) if event == "snapshot" else state.snapshot,
        may_have_written=state.may_have_written or event == "intent",
        units=state.units + (event == "intent"),
        ended=event == "end" or (state.ended and event != "intent"),
        undone=wrote and event not in ("intent", "end"),
        beyond=_beyond(line) if event == "begin" and (first or state.rolled_back) else state.beyond,
        is_undoing=event == "rollback" or (state.is_undoing and event not in ("intent", "end", "rollback-outcome")),
    )


def _beyond(line: Any) -> dict[TopicPartition, int]:
    return {TopicPartition(str(topic), int(number)): int(offset) for topic, number, offset in line.get("beyond", ())}
