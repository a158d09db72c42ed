"""What is next with a fleet: what people do, and commands that the guards of its groups may accept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from zkconsumer.errors import name_some
from zkconsumer.operate.migrate.rules.fleetfacts import FleetState, Judged, Verb, whereabouts
from zkconsumer.operate.migrate.rules.fleetfile import FleetGroup


class FleetPosition(NamedTuple):
    """A group of a fleet: the name of its cluster, what its file has of it, and how far it has come."""

    cluster: str
    group: FleetGroup
    judged: Judged


class NextStep(NamedTuple):
    """What is next with some groups.

    Attributes:
        to_do: what people do first, in words; empty if that is nothing.
        verb: the command of the fleet; ``delete`` for `groups delete`; empty for none.
        wave: whose groups it is about; None for those that are named.
        cluster: of the groups that are named.
        groups: their names.
    """

    to_do: str
    verb: Verb | Literal["delete", ""] = ""
    wave: int | None = None
    cluster: str = ""
    groups: tuple[str, ...] = ()


def next_steps(groups: Sequence[FleetPosition], *, by_wave: bool = True) -> list[NextStep]:
    """What is next with these groups, the most urgent first; what others wait for is their state, and its reason.

    Args:
        groups: that are looked at.
        by_wave: they are whole waves; otherwise no command for a wave is named.
    """
    begun = _next_of_waves(groups) if by_wave else None
    steps = [
        one._replace(to_do=f"do first what the reason of {name_some(one.groups)} names")
        for verb in ("run", "plan", "rollback", "reverse")
        for one in _named("", verb, (g for g in groups if g.judged.first == verb and not _is_of(begun, g)))
    ]
    states = {one.judged.state for one in groups}
    steps += [NextStep(_START)] if FleetState.WRITTEN in states else []
    if begun is not None:
        steps.append(begun)
    else:
        without_plan = [one.group.group for one in groups if one.judged.state is FleetState.NEEDS_NO_PLAN]
        steps += [NextStep(_CHANGE.format(name_some(without_plan)))] if without_plan else []
        steps += _named(_DECIDE, "plan", filter(_is_undecided, groups))
    steps += _mirrors(groups, by_wave=by_wave)
    if whereabouts([one.judged.state for one in groups])["in_kafka"] == len(groups):
        steps += _named(_DELETE, "delete", (one for one in groups if one.judged.state is not FleetState.DONE))
    return steps


def _next_of_waves(groups: Iterable[FleetPosition]) -> NextStep | None:
    """The command for the first wave that waits for one.

    Members that end commit once more, so their group is planned again. A wave of which each group waits for its window
    holds up no other one. Groups of wave 0 wait for a decision.
    """
    waves: dict[int, list[Judged]] = {}
    for _, group, judged in groups:
        if group.wave and judged.state in (FleetState.NOT_STARTED, FleetState.PLANNED):
            waves.setdefault(group.wave, []).append(judged)
    for wave, waiting in sorted(waves.items()):
        to_do = _STOP if any(one.waits_for == "stop" for one in waiting) else ""
        if any(one.state is FleetState.NOT_STARTED or one.waits_for in ("stop", "plan") for one in waiting):
            return NextStep(to_do, "plan", wave)
        if any(one.waits_for != "window" for one in waiting):
            return NextStep("", "run", wave)
    return None


def _is_of(step: NextStep | None, one: FleetPosition) -> bool:
    return step is not None and (step.wave, step.verb) == (one.group.wave, one.judged.first)


def _is_undecided(one: FleetPosition) -> bool:
    return one.judged.state is FleetState.REFUSED or (one.judged.state is FleetState.NOT_STARTED and not one.group.wave)


def _mirrors(groups: Sequence[FleetPosition], *, by_wave: bool) -> list[NextStep]:
    """For groups that were never mirrored, and that a run has written; one that was mirrored shows that one runs."""
    running = {one.group.wave for one in groups if one.judged.state is FleetState.MIRRORED and one.group.wave}
    without = [
        one
        for one in groups
        if one.judged.state is FleetState.CONSUMED and one.judged.only is None and one.group.wave not in running
    ]
    waves = sorted({one.group.wave for one in without if one.group.wave}) if by_wave else []
    named = _named(_MIRROR, "mirror", (one for one in without if one.group.wave not in waves))
    return [*(NextStep(_MIRROR, "mirror", wave) for wave in waves), *named]


def _named(to_do: str, verb: Verb | Literal["delete"], groups: Iterable[FleetPosition]) -> list[NextStep]:
    names: dict[str, list[str]] = {}
    for one in groups:
        names.setdefault(one.cluster, []).append(one.group.group)
    return [NextStep(to_do, verb, None, cluster, tuple(of)) for cluster, of in names.items()]


_STOP: Final = "stop the consumers of the groups whose reason names members"
_START: Final = "start the new consumers of the groups that are written, with the properties of `fleet config`"
_CHANGE: Final = "stop the old consumers of {}, and start the new ones, with the properties of `fleet config`"
_DECIDE: Final = "decide what keeps these groups back: the comments of the file, and the reasons, name it"
_MIRROR: Final = "while the new consumers run, the mirror keeps the way back short"
_DELETE: Final = (
    "when the way back is no longer needed, and no old consumer can start (the mark that keeps it out is deleted, "
    "too), end the mirror and delete the znodes"
)
