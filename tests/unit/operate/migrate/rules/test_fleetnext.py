"""What is next with a fleet."""

from dataclasses import replace

import pytest

from zkconsumer.operate.migrate.rules.fleetfacts import FleetState, Judged, wrong
from zkconsumer.operate.migrate.rules.fleetfile import FleetGroup
from zkconsumer.operate.migrate.rules.fleetnext import FleetPosition, next_steps
from zkconsumer.operate.migrate.rules.migrationend import End

NEW, READY, REFUSED, WRITTEN, ALONE, CONSUMED, MIRRORED, DONE, UNKNOWN = map(
    Judged,
    (
        FleetState.NOT_STARTED,
        FleetState.PLANNED,
        FleetState.REFUSED,
        FleetState.WRITTEN,
        FleetState.NEEDS_NO_PLAN,
        FleetState.CONSUMED,
        FleetState.MIRRORED,
        FleetState.DONE,
        FleetState.UNKNOWN,
    ),
)
LIVE, MOVED, CLOSED = (READY._replace(waits_for=what) for what in ("stop", "plan", "window"))
KILLED, RETURNED = wrong("run it again", "run", "plan"), wrong("stop them")
WITHOUT_PLAN = CONSUMED._replace(only=frozenset())
GROUP = FleetGroup("g", 0, "", End("kafka", "g"))


def positions(*groups):
    """Of pairs of a wave and a state; the groups are g0, g1 and so on."""
    return [
        FleetPosition("c", replace(GROUP, group=f"g{number}", wave=wave), judged)
        for number, (wave, judged) in enumerate(groups)
    ]


def shown(steps):
    """Each step as what people do, in its first three words, and the command with what it is about."""
    for step in steps:
        to_do = " ".join(step.to_do.split()[:3])
        about = [] if step.wave is None else [str(step.wave)]
        yield " ".join([f"{to_do}:", *([step.verb] if step.verb else []), *about, *step.groups])


@pytest.mark.parametrize(
    ("groups", "steps"),
    [
        ([], []),
        ([(2, NEW), (10, NEW)], [": plan 2"]),
        ([(1, READY), (1, DONE), (2, NEW)], [": run 1"]),
        ([(1, READY), (1, NEW)], [": plan 1"]),
        ([(1, READY), (1, MOVED)], [": plan 1"]),
        ([(1, READY), (1, LIVE)], ["stop the consumers: plan 1"]),
        ([(1, READY), (1, CLOSED)], [": run 1"]),
        ([(1, CLOSED), (2, READY)], [": run 2"]),
        ([(1, CLOSED), (2, CLOSED)], []),
        ([(1, WRITTEN), (2, NEW)], ["start the new:", ": plan 2"]),
        ([(1, UNKNOWN), (1, RETURNED)], []),
        # a run was killed
        ([(1, KILLED), (1, READY)], [": run 1"]),
        ([(1, KILLED), (2, READY)], ["do first what: run g0", ": run 2"]),
        ([(1, KILLED), (1, WRITTEN), (0, KILLED)], ["do first what: run g0 g2", "start the new:"]),
        # what is in no wave is named when no wave waits
        ([(0, NEW), (0, ALONE), (1, NEW)], [": plan 1"]),
        ([(0, NEW), (0, ALONE), (1, REFUSED), (1, WRITTEN)],
         ["start the new:", "stop the old:", "decide what keeps: plan g0 g2"]),
        # a mirror, and the end
        ([(1, CONSUMED), (1, WRITTEN)], ["start the new:", "while the new: mirror 1"]),
        ([(1, CONSUMED), (2, CONSUMED), (0, CONSUMED), (0, WITHOUT_PLAN), (3, READY)],
         [": run 3", "while the new: mirror 1", "while the new: mirror 2", "while the new: mirror g2"]),
        ([(1, CONSUMED), (1, MIRRORED), (1, DONE)], ["when the way: delete g0 g1"]),
        ([(1, MIRRORED), (0, WITHOUT_PLAN), (1, DONE)], ["when the way: delete g0 g1"]),
        ([(1, DONE), (0, DONE)], []),
    ],
)  # fmt: skip
def test_what_is_next(groups, steps):
    assert list(shown(next_steps(positions(*groups)))) == steps


def test_groups_that_were_named_lead_to_no_wave():
    steps = next_steps(positions((1, NEW), (1, CONSUMED)), by_wave=False)
    assert list(shown(steps)) == ["while the new: mirror g1"]


def test_groups_of_one_name_in_two_clusters_are_told_apart():
    first, second = positions((1, KILLED), (1, KILLED))
    steps = next_steps([first, second._replace(cluster="d")])
    assert [(step.cluster, step.groups) for step in steps] == [("c", ("g0",)), ("d", ("g1",))]
