"""What to do next with a fleet."""

import pytest

from zkconsumer.operate.migrate.rules.fleetfacts import FleetState, next_step

NEW, PLANNED, REFUSED, WRITTEN = FleetState.NOT_STARTED, FleetState.PLANNED, FleetState.REFUSED, FleetState.WRITTEN


@pytest.mark.parametrize(
    ("groups", "step"),
    [
        ([], None),
        ([(0, NEW), (1, REFUSED), (1, WRITTEN)], None),
        ([(2, NEW), (1, WRITTEN), (10, NEW)], ("plan", 2)),
        ([(1, PLANNED), (1, WRITTEN), (2, NEW)], ("run", 1)),
        ([(1, PLANNED), (1, NEW)], ("plan", 1)),
    ],
)
def test_the_first_wave_with_groups_that_wait_for_a_command_is_next(groups, step):
    assert next_step(groups) == step
