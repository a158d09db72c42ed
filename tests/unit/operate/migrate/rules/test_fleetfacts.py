"""What to do next with a fleet, and where its groups are."""

import pytest

from zkconsumer.operate.migrate.rules.fleetfacts import FleetState, Judged, next_step, whereabouts

NEW, READY, REFUSED, WRITTEN = map(
    Judged, (FleetState.NOT_STARTED, FleetState.PLANNED, FleetState.REFUSED, FleetState.WRITTEN)
)
LIVE, MOVED, CLOSED = (READY._replace(waits_for=what) for what in ("stop", "plan", "window"))
STOP = "stop the consumers of the groups whose reason names members"


@pytest.mark.parametrize(
    ("groups", "step"),
    [
        ([], None),
        ([(0, NEW), (1, REFUSED), (1, WRITTEN)], None),
        ([(2, NEW), (1, WRITTEN), (10, NEW)], ("", "plan", 2)),
        ([(1, READY), (1, WRITTEN), (2, NEW)], ("", "run", 1)),
        ([(1, READY), (1, NEW)], ("", "plan", 1)),
        ([(1, READY), (1, MOVED)], ("", "plan", 1)),
        ([(1, READY), (1, LIVE)], (STOP, "plan", 1)),
        ([(1, READY), (1, CLOSED)], ("", "run", 1)),
        ([(1, CLOSED), (2, READY)], ("", "run", 2)),
        ([(1, CLOSED), (2, CLOSED)], None),
    ],
)
def test_the_first_wave_with_groups_that_wait_for_a_command_is_next(groups, step):
    assert next_step(groups) == step


def test_a_group_is_in_kafka_though_its_znodes_are_there():
    states = [FleetState.CONSUMED, FleetState.DONE, FleetState.WRITTEN, FleetState.CAME_BACK, FleetState.UNKNOWN]
    assert whereabouts(states) == {"in_kafka": 2, "waiting": 1, "in_zookeeper": 1, "unclear": 1}
